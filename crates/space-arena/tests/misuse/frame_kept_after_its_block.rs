use space_arena::{Arena, HostSlab};
use space_core::{Space, Undef};

fn arena() -> Arena<HostSlab> {
    Arena::with_capacity(1 << 16).unwrap()
}

fn floats(n: usize) -> Undef<f32, [usize; 1]> {
    Undef::new([n])
}

use space_core::{Frame, Host};

fn main() {
    let mut arena = arena();
    let mut frame = arena.frame();
    drop(frame.alloc(floats(3)));
    let mut kept: Option<&mut Frame<'_, Host>> = None;
    frame.scratch(|inner| kept = Some(inner));
}
