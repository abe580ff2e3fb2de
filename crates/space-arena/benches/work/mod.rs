//! The work that all benchmarks do: 1,000 carves of 1 to 64 `f32`, lengths from a shuffled table.

mod frames;
pub(crate) mod peers;
mod ranks;
mod spec;

use std::{alloc::Layout, hint::black_box};

use space_arena::{Arena, HostSlab};
use space_core::{ArrayOf, CarvedArray, Host, Space, Undef, with_space};

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

macro_rules! at_both {
    ($($name:literal: $round:path,)+) => { [$(
        Case { name: concat!($name, ", 256"), run: |n| rounds(256, n, $round) },
        Case { name: concat!($name, ", natural"), run: |n| rounds(1, n, $round) },
    )+] };
}

/// What this crate does, each at an alignment of 256 and at the element type's own.
pub(crate) const OURS: &[Case] = &at_both! {
    "carve": carve,
    "carve through any space": carve_generic,
    "leaf": leaf,
    "rank 1": ranks::carve::<1>,
    "rank 2": ranks::carve::<2>,
    "rank 3": ranks::carve::<3>,
    "rank 4": ranks::carve::<4>,
    "run-time rank, of 1": ranks::carve_of_rank::<1>,
    "run-time rank, of 3": ranks::carve_of_rank::<3>,
    "six carves": six,
    "one tuple of six": tuple_of_six,
    "one struct of six": spec::structs_of_six,
    "frame of 8": frames::of_eight,
    "frame of 8 in a frame of 8": frames::nested,
    "mark, 8, retract": frames::mark_and_retract,
};

/// What parts of that cost by themselves.
pub(crate) const PARTS: &[Case] = &[
    Case {
        name: "product of rank 2 alone",
        run: |n| rounds(256, n, ranks::product::<2>),
    },
    Case {
        name: "product of rank 3 alone",
        run: |n| rounds(256, n, ranks::product::<3>),
    },
    Case {
        name: "product of rank 4 alone",
        run: |n| rounds(256, n, ranks::product::<4>),
    },
    Case {
        name: "empty scratch block",
        run: |n| rounds(256, n, frames::empty),
    },
    Case {
        name: "empty scratch block, all bound",
        run: |n| with_space(&mut arena(256).frame(), || rounds(256, n, frames::empty)),
    },
    Case {
        name: "empty scratch block that binds",
        run: |n| rounds(256, n, frames::empty_that_binds),
    },
    Case {
        name: "ambient array",
        run: |n| rounds(256, n, frames::ambient),
    },
];
