//! The same work done by other allocators, each in the spelling that costs it least.

use std::{alloc::Layout, hint::black_box};

use blink_alloc::BlinkAlloc;
use bump_scope::{alloc::Global, settings::BumpSettings, traits::BumpAllocatorTyped};
use bumpalo::Bump as Bumpalo;

use super::{Case, Lens, lens};

const MEGABYTE: usize = 1 << 20;

type BumpScope = bump_scope::Bump;

/// Downwards, without what its other settings add to an allocation.
type BumpScopeBest = bump_scope::Bump<Global, BumpSettings<1, false, true, false, false, false>>;

/// The layout of `len` elements of `f32`, with the check of overflow that ours has too.
#[inline(always)]
fn layout<const ALIGN: usize>(len: usize) -> Layout {
    let layout = Layout::array::<f32>(len).unwrap();
    if ALIGN == align_of::<f32>() {
        return layout;
    }
    // SAFETY: A power of two, and a size that is far from overflowing when rounded up to it.
    unsafe { Layout::from_size_align_unchecked(layout.size(), ALIGN) }
}

macro_rules! rounds {
    ($rounds:expr, $make:expr, $work:expr) => {{
        let (lens, mut bump, mut sink) = (lens(), $make, 0);
        for _ in 0..$rounds {
            sink ^= $work(black_box(&mut bump), &lens);
            bump.reset();
        }
        sink
    }};
}

#[inline(never)]
fn bumpalo<const ALIGN: usize>(bump: &mut Bumpalo, lens: &Lens) -> usize {
    let mut sink = 0;
    for &n in lens {
        sink ^= bump.alloc_layout(layout::<ALIGN>(n)).addr().get();
    }
    sink
}

#[inline(never)]
fn bump_scope<const ALIGN: usize, B: BumpAllocatorTyped>(bump: &mut B, lens: &Lens) -> usize {
    let mut sink = 0;
    for &n in lens {
        sink ^= bump.allocate_layout(layout::<ALIGN>(n)).addr().get();
    }
    sink
}

macro_rules! scopes_of_eight {
    ($name:ident, $bump:ty) => {
        #[inline(never)]
        fn $name<const ALIGN: usize>(bump: &mut $bump, lens: &Lens) -> usize {
            let mut sink = 0;
            for n in lens.chunks_exact(8) {
                sink ^= bump.scoped(|bump| {
                    let mut sink = 0;
                    for &n in n {
                        sink ^= bump.allocate_layout(layout::<ALIGN>(n)).addr().get();
                    }
                    sink
                });
            }
            sink
        }
    };
}

scopes_of_eight!(scopes, BumpScope);
scopes_of_eight!(scopes_best, BumpScopeBest);

#[inline(never)]
fn blink<const ALIGN: usize>(bump: &mut BlinkAlloc, lens: &Lens) -> usize {
    let mut sink = 0;
    for &n in lens {
        let block = bump.allocate(layout::<ALIGN>(n)).unwrap();
        sink ^= block.addr().get();
    }
    sink
}

#[inline(never)]
fn heap(lens: &Lens) -> usize {
    let mut sink = 0;
    for &n in lens {
        let slots = black_box(Box::<[f32]>::new_uninit_slice(n));
        sink ^= slots.as_ptr().addr();
    }
    sink
}

/// What others do.
pub(crate) const PEERS: &[Case] = &[
    Case {
        name: "bumpalo, 256",
        run: |n| rounds!(n, Bumpalo::with_capacity(MEGABYTE), bumpalo::<256>),
    },
    Case {
        name: "bumpalo, natural",
        run: |n| rounds!(n, Bumpalo::with_capacity(MEGABYTE), bumpalo::<4>),
    },
    Case {
        name: "bump-scope, 256",
        run: |n| rounds!(n, BumpScope::with_size(MEGABYTE), bump_scope::<256, _>),
    },
    Case {
        name: "bump-scope, natural",
        run: |n| rounds!(n, BumpScope::with_size(MEGABYTE), bump_scope::<4, _>),
    },
    Case {
        name: "bump-scope at its best, 256",
        run: |n| rounds!(n, BumpScopeBest::with_size(MEGABYTE), bump_scope::<256, _>),
    },
    Case {
        name: "bump-scope at its best, natural",
        run: |n| rounds!(n, BumpScopeBest::with_size(MEGABYTE), bump_scope::<4, _>),
    },
    Case {
        name: "bump-scope, scope of 8, 256",
        run: |n| rounds!(n, BumpScope::with_size(MEGABYTE), scopes::<256>),
    },
    Case {
        name: "bump-scope, scope of 8, natural",
        run: |n| rounds!(n, BumpScope::with_size(MEGABYTE), scopes::<4>),
    },
    Case {
        name: "bump-scope best, scope of 8, 256",
        run: |n| rounds!(n, BumpScopeBest::with_size(MEGABYTE), scopes_best::<256>),
    },
    Case {
        name: "bump-scope best, scope of 8, nat.",
        run: |n| rounds!(n, BumpScopeBest::with_size(MEGABYTE), scopes_best::<4>),
    },
    Case {
        name: "blink-alloc, 256",
        run: |n| rounds!(n, BlinkAlloc::with_chunk_size(MEGABYTE), blink::<256>),
    },
    Case {
        name: "blink-alloc, natural",
        run: |n| rounds!(n, BlinkAlloc::with_chunk_size(MEGABYTE), blink::<4>),
    },
    Case {
        name: "heap, natural",
        run: |n| {
            let lens = lens();
            (0..n).fold(0, |sink, _| sink ^ heap(black_box(&lens)))
        },
    },
];
