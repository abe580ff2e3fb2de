use space_core::{Heap, Scratch, Space, Undef};

fn main() {
    drop(Heap.alloc(Scratch(Undef::<f32, _>::new([3]))));
}
