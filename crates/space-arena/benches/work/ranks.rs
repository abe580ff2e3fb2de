//! Shapes of several ranks. The extents but for the first are 1, which the compiler can't see.

use std::hint::black_box;

use space_arena::{Arena, HostSlab};
use space_core::{Dims, Space, Undef};

use super::Lens;

fn shape<const RANK: usize>(first: usize, others: usize) -> [usize; RANK] {
    let mut dims = [others; RANK];
    dims[0] = first;
    dims
}

#[inline(never)]
pub(crate) fn carve<const RANK: usize>(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let frame = arena.frame();
    let frame = black_box(&frame);
    let one = black_box(1);
    let mut sink = 0;
    for &n in lens {
        let dims = shape::<RANK>(n, one);
        let array = frame.alloc(Undef::<f32, _>::new(dims)).unwrap();
        sink ^= array.as_ptr().addr();
    }
    sink
}

/// The rank is one that only the running program knows.
#[inline(never)]
pub(crate) fn carve_of_rank<const RANK: usize>(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let frame = arena.frame();
    let frame = black_box(&frame);
    let mut dims = shape::<RANK>(0, 1);
    let dims: &mut [usize] = black_box(&mut dims);
    let mut sink = 0;
    for &n in lens {
        dims[0] = n;
        let array = frame.alloc(Undef::<f32, _>::new(&*dims)).unwrap();
        sink ^= array.as_ptr().addr();
    }
    sink
}

/// The checked product, and no carve.
#[inline(never)]
pub(crate) fn product<const RANK: usize>(_: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let one = black_box(1);
    let mut sink = 0;
    for &n in lens {
        sink ^= shape::<RANK>(n, one).checked_len().unwrap();
    }
    sink
}
