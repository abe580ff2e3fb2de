use space_arena::{Arena, HostSlab};
use space_core::{Space, Undef};

fn arena() -> Arena<HostSlab> {
    Arena::with_capacity(1 << 16).unwrap()
}

fn floats(n: usize) -> Undef<f32, [usize; 1]> {
    Undef::new([n])
}

fn main() {
    let (mut one, mut two) = (arena(), arena());
    let mut frame = one.frame();
    let mut other = two.frame();
    frame.scratch(|inner| std::mem::swap(inner, &mut other));
}
