//! The work that all benchmarks do: 1,000 carves of 1 to 64 `f32`, lengths from a shuffled table.

pub(crate) mod peers;
mod spec;

use std::{alloc::Layout, hint::black_box};

use space_arena::{Arena, HostSlab};
use space_core::{ArrayOf, CarvedArray, Frame, Host, Space, Undef};

/// Carves per round.
pub(crate) const LENS: usize = 1000;

/// Something to count or to time.
pub(crate) struct Case {
    /// What it does.
    pub(crate) name: &'static str,
    /// Does it for a number of rounds; the result is a checksum.
    pub(crate) run: fn(u32) -> usize,
}

type Lens = [usize; LENS];

/// The lengths, in elements: the same in every run.
pub(crate) fn lens() -> Lens {
    let mut state = 12_345_u32;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as usize % 64 + 1
    })
}

fn arena(alignment: usize) -> Arena<HostSlab> {
    Arena::builder()
        .alignment(alignment)
        .capacity(1 << 20)
        .expect("a megabyte")
}

fn address(array: &CarvedArray<'_, f32, [usize; 1]>) -> usize {
    array.as_ptr().addr()
}

/// Runs `round` against a fresh arena and resets it after each.
fn rounds(alignment: usize, rounds: u32, round: fn(&mut Arena<HostSlab>, &Lens) -> usize) -> usize {
    let lens = lens();
    let mut arena = arena(alignment);
    let mut sink = 0;
    for _ in 0..rounds {
        sink ^= round(black_box(&mut arena), &lens);
        arena.reset().unwrap();
    }
    sink
}

#[inline(never)]
fn carve(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let frame = arena.frame();
    let frame = black_box(&frame);
    let mut sink = 0;
    for &n in lens {
        sink ^= address(&frame.alloc(Undef::new([n])).unwrap());
    }
    sink
}

#[inline(never)]
fn carve_rank_3(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let frame = arena.frame();
    let frame = black_box(&frame);
    let mut sink = 0;
    for &n in lens {
        let dims = [n, 1 + (n >> 63), 1 + (n >> 62)];
        sink ^= frame
            .alloc(Undef::<f32, _>::new(dims))
            .unwrap()
            .as_ptr()
            .addr();
    }
    sink
}

#[inline(never)]
fn generic<S: Space<Family = Host>>(
    space: &S,
    lens: &Lens,
    address: impl Fn(&ArrayOf<S, f32, [usize; 1]>) -> usize,
) -> usize {
    let mut sink = 0;
    for &n in lens {
        sink ^= address(&space.alloc(Undef::new([n])).unwrap());
    }
    sink
}

#[inline(never)]
fn carve_generic(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let frame = arena.frame();
    generic(black_box(&frame), lens, address)
}

#[inline(never)]
fn leaf(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let frame = arena.frame();
    let frame = black_box(&frame);
    let mut sink = 0;
    for &n in lens {
        let block = frame.block(Layout::array::<f32>(n).unwrap()).unwrap();
        sink ^= space_core::Block::address(&block).addr().get();
    }
    sink
}

#[inline(never)]
fn six(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let frame = arena.frame();
    let frame = black_box(&frame);
    let mut sink = 0;
    for n in lens.as_chunks::<6>().0 {
        let a = frame.alloc(Undef::<f32, _>::new([n[0]])).unwrap();
        let b = frame.alloc(Undef::<f32, _>::new([n[1]])).unwrap();
        let c = frame.alloc(Undef::<f32, _>::new([n[2]])).unwrap();
        let d = frame.alloc(Undef::<f32, _>::new([n[3]])).unwrap();
        let e = frame.alloc(Undef::<f32, _>::new([n[4]])).unwrap();
        let f = frame.alloc(Undef::<f32, _>::new([n[5]])).unwrap();
        sink ^= address(&a) ^ address(&b) ^ address(&c) ^ address(&d) ^ address(&e) ^ address(&f);
    }
    sink
}

#[inline(never)]
fn tuple_of_six(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let frame = arena.frame();
    let frame = black_box(&frame);
    let mut sink = 0;
    for n in lens.as_chunks::<6>().0 {
        let one = |i: usize| Undef::<f32, _>::new([n[i]]);
        let spec = (one(0), one(1), one(2), one(3), one(4), one(5));
        let (a, b, c, d, e, f) = frame.alloc(spec).unwrap();
        sink ^= address(&a) ^ address(&b) ^ address(&c) ^ address(&d) ^ address(&e) ^ address(&f);
    }
    sink
}

#[inline(always)]
fn eight(frame: &Frame<'_, Host>, n: &[usize]) -> usize {
    let mut sink = 0;
    for &n in n {
        sink ^= address(&frame.alloc(Undef::new([n])).unwrap());
    }
    sink
}

#[inline(never)]
fn frame_of_eight(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let mut frame = arena.frame();
    let frame = black_box(&mut frame);
    let mut sink = 0;
    for n in lens.chunks_exact(8) {
        sink ^= frame.scratch(|inner| eight(inner, n));
    }
    sink
}

#[inline(never)]
fn mark_and_retract(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let mut sink = 0;
    for n in lens.chunks_exact(8) {
        let mark = arena.mark();
        sink ^= eight(&arena.frame(), n);
        arena.retract(mark).unwrap();
    }
    sink
}

/// What this crate does.
pub(crate) const OURS: &[Case] = &[
    Case {
        name: "carve, 256",
        run: |n| rounds(256, n, carve),
    },
    Case {
        name: "carve, 16",
        run: |n| rounds(16, n, carve),
    },
    Case {
        name: "carve of rank 3, 256",
        run: |n| rounds(256, n, carve_rank_3),
    },
    Case {
        name: "carve through any space, 256",
        run: |n| rounds(256, n, carve_generic),
    },
    Case {
        name: "carve through any space, 16",
        run: |n| rounds(16, n, carve_generic),
    },
    Case {
        name: "leaf, 256",
        run: |n| rounds(256, n, leaf),
    },
    Case {
        name: "six carves, 256",
        run: |n| rounds(256, n, six),
    },
    Case {
        name: "one tuple of six, 256",
        run: |n| rounds(256, n, tuple_of_six),
    },
    Case {
        name: "one struct of six, 256",
        run: |n| rounds(256, n, spec::structs_of_six),
    },
    Case {
        name: "frame of 8, 256",
        run: |n| rounds(256, n, frame_of_eight),
    },
    Case {
        name: "frame of 8, 16",
        run: |n| rounds(16, n, frame_of_eight),
    },
    Case {
        name: "mark, 8, retract, 256",
        run: |n| rounds(256, n, mark_and_retract),
    },
    Case {
        name: "mark, 8, retract, 16",
        run: |n| rounds(16, n, mark_and_retract),
    },
];
