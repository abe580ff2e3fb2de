use space_arena::{Arena, HostSlab};
use space_core::{Space, Undef};

fn arena() -> Arena<HostSlab> {
    Arena::with_capacity(1 << 16).unwrap()
}

fn floats(n: usize) -> Undef<f32, [usize; 1]> {
    Undef::new([n])
}

use std::cell::RefCell;
use space_core::CarvedArray;

thread_local! {
    static KEPT: RefCell<Option<CarvedArray<'static, f32, [usize; 1]>>> = const { RefCell::new(None) };
}

fn main() {
    let mut arena = arena();
    let mut frame = arena.frame();
    frame.scratch(|inner| KEPT.with(|kept| *kept.borrow_mut() = inner.alloc(floats(3)).ok()));
}
