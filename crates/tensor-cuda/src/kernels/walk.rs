//! How kernels read the dimensions of a plan: what they touch, and their walk through it.
//!
//! A pointer is to the lowest element of its operand. Where a stride is negative the walk begins at the other end.

use crate::plan::{Dim, NUMBERS};
use cuda_driver::{Access, Footprint, ModelError, Param, Region};
use smallvec::SmallVec;

/// Parameters that the dimensions take: extent and strides of each, two numbers per parameter.
pub(super) const PLAN: [Param; NUMBERS / 2] = [Param::scalar::<[i64; 2]>(); NUMBERS / 2];

/// The dimensions of `K` operands, outermost first.
pub(super) struct Walk<const K: usize>(SmallVec<[Dim<K>; 8]>);

impl<const K: usize> Walk<K> {
    /// Reads `rank` dimensions from the parameters from `first` on.
    pub(super) fn read(
        pair: impl Fn(usize) -> Option<[i64; 2]>,
        first: usize,
        rank: u32,
    ) -> Option<Self> {
        let rank = rank as usize;
        let number = |at: usize| Some(pair(first + at / 2)?[at % 2]);
        if rank * (K + 1) > NUMBERS {
            return None;
        }
        let dim = |i: usize| {
            let at = i * (K + 1);
            let mut strides = [0; K];
            for (k, stride) in strides.iter_mut().enumerate() {
                *stride = isize::try_from(number(at + 1 + k)?).ok()?;
            }
            let extent = usize::try_from(number(at)?).ok()?;
            Some(Dim { extent, strides })
        };
        (0..rank).map(dim).collect::<Option<_>>().map(Self)
    }

    /// The dimensions before `at`, and those from it on.
    pub(super) fn split(self, at: u32) -> Option<(Self, Self)> {
        let at = at as usize;
        (at <= self.0.len()).then(|| (Self(self.0[..at].into()), Self(self.0[at..].into())))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().any(|dim| dim.extent == 0)
    }

    pub(super) fn dims(&self) -> &[Dim<K>] {
        &self.0
    }

    /// Adds what the walk touches of operand `k`, behind parameter `param`.
    pub(super) fn touch(
        &self,
        touched: &mut Footprint,
        param: usize,
        k: usize,
        access: Access,
        element_bytes: usize,
    ) -> Option<()> {
        if self.is_empty() {
            return Some(());
        }
        let dims = self
            .0
            .iter()
            .map(|dim| (dim.extent as u64, dim.strides[k].unsigned_abs() as u64));
        touch(touched, param, access, element_bytes as u64, dims)
    }

    /// Positions of the first index, from the lowest element of each operand.
    pub(super) fn start(&self) -> [usize; K] {
        let mut start = [0; K];
        for dim in &self.0 {
            for (at, stride) in start.iter_mut().zip(dim.strides) {
                if stride < 0 {
                    *at += dim.extent.saturating_sub(1) * stride.unsigned_abs();
                }
            }
        }
        start
    }

    /// Calls `f` with the positions of every index, from the outermost dimension to the innermost, beginning at `start`.
    pub(super) fn each<E>(
        &self,
        start: [usize; K],
        f: &mut impl FnMut([usize; K]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.is_empty() {
            return Ok(());
        }
        walk(&self.0, start, f)
    }
}

fn walk<const K: usize, E>(
    dims: &[Dim<K>],
    mut at: [usize; K],
    f: &mut impl FnMut([usize; K]) -> Result<(), E>,
) -> Result<(), E> {
    let Some((dim, inner)) = dims.split_first() else {
        return f(at);
    };
    for _ in 0..dim.extent {
        walk(inner, at, f)?;
        for (at, stride) in at.iter_mut().zip(dim.strides) {
            *at = at.wrapping_add_signed(stride);
        }
    }
    Ok(())
}

/// Adds the elements of a strided operand, as few rectangles: dimensions are given as (extent, stride).
pub(super) fn touch(
    touched: &mut Footprint,
    param: usize,
    access: Access,
    element_bytes: u64,
    dims: impl Iterator<Item = (u64, u64)>,
) -> Option<()> {
    let mut dims: SmallVec<[(u64, u64); 8]> = dims
        .filter(|&(extent, stride)| extent > 1 && stride > 0)
        .collect();
    dims.sort_unstable_by_key(|&(_, stride)| std::cmp::Reverse(stride));
    let mut merged: SmallVec<[(u64, u64); 8]> = SmallVec::new();
    for (extent, stride) in dims {
        match merged.last_mut() {
            Some((outer, step)) if *step == stride.checked_mul(extent)? => {
                (*outer, *step) = (outer.checked_mul(extent)?, stride);
            }
            _ => merged.push((extent, stride)),
        }
    }
    let width = match merged.last() {
        Some(&(extent, 1)) => {
            merged.pop();
            extent
        }
        _ => 1,
    };
    let (rows, pitch) = merged.pop().unwrap_or((1, width));
    let region = Region {
        param,
        access,
        offset_bytes: 0,
        width_bytes: width.checked_mul(element_bytes)?,
        pitch_bytes: pitch.checked_mul(element_bytes)?,
        rows,
    };
    rectangles(touched, &merged, region, element_bytes)
}

fn rectangles(
    touched: &mut Footprint,
    outer: &[(u64, u64)],
    region: Region,
    element_bytes: u64,
) -> Option<()> {
    let Some((&(extent, stride), inner)) = outer.split_first() else {
        touched.region(region);
        return Some(());
    };
    let step = i64::try_from(stride.checked_mul(element_bytes)?).ok()?;
    for i in 0..i64::try_from(extent).ok()? {
        let offset_bytes = region.offset_bytes.checked_add(step.checked_mul(i)?)?;
        rectangles(
            touched,
            inner,
            Region {
                offset_bytes,
                ..region
            },
            element_bytes,
        )?;
    }
    Some(())
}

/// A scalar that has not the size it should have.
pub(super) fn bad(param: usize) -> ModelError {
    ModelError::Scalar { param }
}
