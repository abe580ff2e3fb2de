//! Scratch blocks, marks, and the ambient space.

use std::hint::black_box;

use space_arena::{Arena, HostSlab};
use space_core::{Frame, Host, Space, Undef, ambient_alloc, with_scratch};

use super::{Lens, address};

#[inline(always)]
fn eight(frame: &Frame<'_, Host>, n: &[usize]) -> usize {
    let mut sink = 0;
    for &n in n {
        sink ^= address(&frame.alloc(Undef::new([n])).unwrap());
    }
    sink
}

#[inline(never)]
pub(crate) fn of_eight(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let mut frame = arena.frame();
    let frame = black_box(&mut frame);
    let mut sink = 0;
    for n in lens.chunks_exact(8) {
        sink ^= frame.scratch(|inner| eight(inner, n));
    }
    sink
}

#[inline(never)]
pub(crate) fn mark_and_retract(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let mut sink = 0;
    for n in lens.chunks_exact(8) {
        let mark = arena.mark();
        sink ^= eight(&arena.frame(), n);
        arena.retract(mark).unwrap();
    }
    sink
}

/// Blocks of 8 carves around a block of 8.
#[inline(never)]
pub(crate) fn nested(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let mut frame = arena.frame();
    let frame = black_box(&mut frame);
    let mut sink = 0;
    for n in lens.as_chunks::<16>().0 {
        sink ^= frame.scratch(|outer| {
            let first = eight(outer, &n[..8]);
            first ^ outer.scratch(|inner| eight(inner, &n[8..]))
        });
    }
    sink
}

/// As many blocks as there are lengths, and nothing in them.
#[inline(never)]
pub(crate) fn empty(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let mut frame = arena.frame();
    let frame = black_box(&mut frame);
    let mut sink = 0;
    for &n in lens {
        sink ^= frame.scratch(|_| n);
    }
    sink
}

/// The same, each block being the ambient space.
#[inline(never)]
pub(crate) fn empty_that_binds(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let mut frame = arena.frame();
    let frame = black_box(&mut frame);
    let mut sink = 0;
    for &n in lens {
        sink ^= with_scratch(frame, || n);
    }
    sink
}

/// Arrays of the ambient space, dropped at once.
#[inline(never)]
pub(crate) fn ambient(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    with_scratch(&mut arena.frame(), || {
        let mut sink = 0;
        for &n in lens {
            let array = ambient_alloc(Undef::<f32, _>::new([n])).unwrap();
            sink ^= array.as_ptr().addr();
        }
        sink
    })
}
