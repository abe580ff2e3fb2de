use space_core::{Describe, Mode};

#[derive(Describe)]
struct Pair<M: Mode>(M::Of<f32, [usize; 1]>, M::Of<f32, [usize; 1]>);

fn main() {}
