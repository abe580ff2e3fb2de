//! One plan for every elementwise operation, strided copy and reduction: which addresses are visited together.
//!
//! All operands have the same extents; each has strides of its own. A plan drops dimensions of one element, walks in the
//! order of the output's memory, from low to high, and merges neighbouring dimensions that all operands can step through
//! as one. Operand 0 is the output.

use smallvec::SmallVec;

/// Numbers that the dimensions of one launch are packed into.
pub(crate) const NUMBERS: usize = 16;

/// One dimension: how many steps, and how far each operand goes per step, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dim<const K: usize> {
    pub(crate) extent: usize,
    pub(crate) strides: [isize; K],
}

/// The dimensions of an operation over `K` operands, outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan<const K: usize> {
    pub(crate) dims: SmallVec<[Dim<K>; 6]>,
    /// No elements at all.
    pub(crate) empty: bool,
}

impl<const K: usize> Plan<K> {
    /// Dimensions that one launch takes.
    pub(crate) const MAX: usize = NUMBERS / (K + 1);

    /// The plan of operands that all have `extents`.
    pub(crate) fn new(extents: &[usize], strides: [&[isize]; K]) -> Self {
        let dims = extents.iter().enumerate().map(|(axis, &extent)| Dim {
            extent,
            strides: strides.map(|strides| strides[axis]),
        });
        Self::of(dims)
    }

    /// The plan of these dimensions, in any order.
    pub(crate) fn of(dims: impl Iterator<Item = Dim<K>>) -> Self {
        let mut empty = false;
        let mut dims: SmallVec<[Dim<K>; 6]> = dims
            .inspect(|dim| empty |= dim.extent == 0)
            .filter(|dim| dim.extent != 1)
            .map(Dim::upwards)
            .collect();
        if empty {
            dims.clear();
            return Self { dims, empty };
        }
        dims.sort_by_key(|dim| std::cmp::Reverse(dim.strides.map(isize::unsigned_abs)));
        let mut merged: SmallVec<[Dim<K>; 6]> = SmallVec::new();
        for dim in dims {
            match merged.last_mut().and_then(|outer| outer.merged(&dim)) {
                Some(both) => *merged.last_mut().expect("it was merged with") = both,
                None => merged.push(dim),
            }
        }
        Self {
            dims: merged,
            empty,
        }
    }

    /// Number of elements visited.
    pub(crate) fn len(&self) -> usize {
        match self.empty {
            true => 0,
            false => self.dims.iter().map(|dim| dim.extent).product(),
        }
    }

    /// Whether positions and counts need 64 bits.
    pub(crate) fn is_wide(&self) -> bool {
        let limit = i32::MAX as usize;
        let reach = |k: usize| {
            let reaches = self.dims.iter();
            reaches.fold(0_usize, |sum, dim| {
                sum.saturating_add(
                    dim.extent
                        .saturating_sub(1)
                        .saturating_mul(dim.strides[k].unsigned_abs()),
                )
            })
        };
        self.len() > limit || (0..K).any(|k| reach(k) > limit)
    }

    /// The plan in launches of at most [`MAX`](Self::MAX) dimensions: for each the offsets of the operands from the lowest
    /// element of each, in elements, and the dimensions.
    pub(crate) fn launches(&self) -> impl Iterator<Item = ([usize; K], &[Dim<K>])> {
        let outer = self.dims.len().saturating_sub(Self::MAX);
        let (outer, inner) = self.dims.split_at(outer);
        let count: usize = match self.empty {
            true => 0,
            false => outer.iter().map(|dim| dim.extent).product(),
        };
        (0..count).map(move |mut at| {
            let mut offsets = [0; K];
            for dim in outer.iter().rev() {
                let index = at % dim.extent;
                at /= dim.extent;
                for (offset, stride) in offsets.iter_mut().zip(dim.strides) {
                    let steps = if stride < 0 {
                        dim.extent - 1 - index
                    } else {
                        index
                    };
                    *offset += steps * stride.unsigned_abs();
                }
            }
            (offsets, inner)
        })
    }
}

impl<const K: usize> Dim<K> {
    /// The dimension with the first operand that moves going up.
    fn upwards(mut self) -> Self {
        let first = self.strides.iter().find(|&&stride| stride != 0);
        if first.is_some_and(|&stride| stride < 0) {
            self.strides = self.strides.map(isize::wrapping_neg);
        }
        self
    }

    /// This dimension and an inner one as one, when every operand goes on where the inner one ends.
    fn merged(&self, inner: &Self) -> Option<Self> {
        let extent = isize::try_from(inner.extent).ok()?;
        let continues =
            |(outer, inner): (&isize, &isize)| inner.checked_mul(extent) == Some(*outer);
        self.strides
            .iter()
            .zip(&inner.strides)
            .all(continues)
            .then(|| Self {
                extent: self.extent * inner.extent,
                strides: inner.strides,
            })
    }
}

/// The dimensions as the numbers that a kernel takes: extent and strides of each, from the outermost on.
pub(crate) fn pack<const K: usize>(dims: &[Dim<K>]) -> [[i64; 2]; NUMBERS / 2] {
    let mut numbers = [0_i64; NUMBERS];
    let flat = dims
        .iter()
        .flat_map(|dim| std::iter::once(dim.extent as i64).chain(dim.strides.map(|s| s as i64)));
    numbers
        .iter_mut()
        .zip(flat)
        .for_each(|(to, from)| *to = from);
    std::array::from_fn(|i| [numbers[2 * i], numbers[2 * i + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Positions of all operands at every index, relative to the lowest of each.
    fn visits<const K: usize>(dims: &[Dim<K>]) -> Vec<[isize; K]> {
        let lowest: [isize; K] = std::array::from_fn(|k| {
            let low = |dim: &Dim<K>| (dim.extent as isize - 1) * dim.strides[k].min(0);
            dims.iter().map(low).sum()
        });
        let mut all = vec![lowest.map(|low| -low)];
        for dim in dims {
            all = all
                .iter()
                .flat_map(|at| {
                    (0..dim.extent as isize)
                        .map(move |i| std::array::from_fn(|k| at[k] + i * dim.strides[k]))
                })
                .collect();
        }
        all
    }

    proptest! {
        /// A plan visits the same positions together as its operands do, in the order of the output's memory where that
        /// has one.
        #[test]
        fn plans_visit_what_the_operands_name(
            dims in prop::collection::vec((0_usize..4, -20_isize..20, -9_isize..9, 0_isize..2), 0..8),
        ) {
            let dims: Vec<_> = dims
                .into_iter()
                .map(|(extent, a, b, c)| Dim { extent, strides: [a, b, c] })
                .collect();
            let plan = Plan::of(dims.iter().copied());
            let mut expected = match dims.iter().any(|dim| dim.extent == 0) {
                true => Vec::new(),
                false => visits(&dims),
            };
            let mut visited: Vec<[isize; 3]> = plan
                .launches()
                .flat_map(|(offsets, dims)| {
                    let at = move |visit: [isize; 3]| std::array::from_fn(|k| visit[k] + offsets[k] as isize);
                    visits(dims).into_iter().map(at)
                })
                .collect();
            prop_assert_eq!(visited.len(), plan.len());
            visited.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(visited, expected);
        }
    }

    #[test]
    fn what_is_one_run_becomes_one_dimension() {
        let row_major = [12_isize, 4, 1];
        let plan = Plan::new(&[2, 3, 4], [&row_major, &row_major]);
        assert_eq!(
            plan.dims.as_slice(),
            [Dim {
                extent: 24,
                strides: [1, 1]
            }]
        );
        // Transposed and backwards, both sides alike: the same run.
        let plan = Plan::new(&[4, 3, 2], [&[-1, -4, -12], &[-1, -4, -12]]);
        assert_eq!(
            plan.dims.as_slice(),
            [Dim {
                extent: 24,
                strides: [1, 1]
            }]
        );
        // A column-major input stays two loops.
        let plan = Plan::new(&[3, 4], [&[4, 1], &[1, 3]]);
        assert_eq!(plan.dims.len(), 2);
        assert!(!plan.is_wide());
        assert!(Plan::new(&[1 << 31], [&[1]]).is_wide());
        assert!(Plan::new(&[2], [&[1 << 31]]).is_wide());
    }
}
