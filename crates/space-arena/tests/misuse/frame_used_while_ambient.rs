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
    space_core::with_space(&mut frame, || drop(frame.alloc(floats(3))));
}
