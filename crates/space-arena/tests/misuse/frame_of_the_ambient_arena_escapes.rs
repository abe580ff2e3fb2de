use space_arena::{Arena, HostSlab};
use space_core::{Space, Undef};

fn arena() -> Arena<HostSlab> {
    Arena::with_capacity(1 << 16).unwrap()
}

fn floats(n: usize) -> Undef<f32, [usize; 1]> {
    Undef::new([n])
}

use space_core::Ambient;

fn main() {
    let mut arena = arena();
    let mut frame = arena.frame();
    let mut stash = None;
    space_core::with_space(&mut frame, || {
        Ambient.scratch(|inner| stash = inner.alloc(floats(3)).ok());
    });
    drop(stash);
}
