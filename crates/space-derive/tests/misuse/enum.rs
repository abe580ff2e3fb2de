use space_core::{Describe, Mode};

#[derive(Describe)]
enum Either<M: Mode> {
    One(M::Of<f32, [usize; 1]>),
    Other,
}

fn main() {}
