use space_core::{Describe, Undef};

#[derive(Describe)]
struct Plain {
    y: Undef<f32, [usize; 1]>,
}

fn main() {}
