use space_arena::{Arena, HostSlab};
use space_core::{Space, Undef};

fn arena() -> Arena<HostSlab> {
    Arena::with_capacity(1 << 16).unwrap()
}

fn floats(n: usize) -> Undef<f32, [usize; 1]> {
    Undef::new([n])
}

fn main() {
    let mut arena = arena();
    let mut frame = arena.frame();
    frame.scratch(|inner| {
        let carve = inner.alloc(floats(3)).unwrap();
        arena.reset().unwrap();
        carve.filled(1.0);
    });
}
