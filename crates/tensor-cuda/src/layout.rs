//! Extents and strides: which element lies where. Pure arithmetic.

use crate::{TensorError, TensorResult};
use std::ops::Range;

/// The layout of `N` dimensions over a run of elements. Extents, strides and offset are in elements.
///
/// ```
/// use tensor_cuda::Layout;
/// let matrix = Layout::row_major([2, 3])?;
/// assert_eq!((matrix.strides(), matrix.len()), ([3, 1], 6));
/// assert_eq!(matrix.transposed().strides(), [1, 3]);
/// assert_eq!(matrix.slice(0, 1..2)?.span(), 3..6);
/// # Ok::<(), tensor_cuda::TensorError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout<const N: usize> {
    extents: [usize; N],
    strides: [isize; N],
    offset: usize,
}

impl<const N: usize> Layout<N> {
    /// The last index varies fastest.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] when the elements can't be counted.
    pub fn row_major(extents: [usize; N]) -> TensorResult<Self> {
        Self::dense(extents, (0..N).rev())
    }

    /// The first index varies fastest.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] when the elements can't be counted.
    pub fn column_major(extents: [usize; N]) -> TensorResult<Self> {
        Self::dense(extents, 0..N)
    }

    /// Dense strides, with the dimensions from the fastest to the slowest.
    fn dense(
        extents: [usize; N],
        fastest_first: impl Iterator<Item = usize>,
    ) -> TensorResult<Self> {
        let too_large = || TensorError::TooLarge {
            extents: extents.to_vec(),
        };
        let mut strides = [0; N];
        let mut stride = 1_usize;
        for axis in fastest_first {
            strides[axis] = isize::try_from(stride).map_err(|_| too_large())?;
            // An empty dimension makes the tensor empty, but its strides still have to be numbers.
            stride = stride
                .checked_mul(extents[axis].max(1))
                .ok_or_else(too_large)?;
        }
        isize::try_from(stride).map_err(|_| too_large())?;
        Ok(Self {
            extents,
            strides,
            offset: 0,
        })
    }

    /// Number of elements in each dimension.
    #[must_use]
    pub fn extents(&self) -> [usize; N] {
        self.extents
    }

    /// Distance between neighbours in each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> [isize; N] {
        self.strides
    }

    /// Position of the first element.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.extents.iter().product()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.extents.contains(&0)
    }

    /// Positions from the first to the last one that an element has; empty for no elements.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        if self.is_empty() {
            return self.offset..self.offset;
        }
        let ends = self.extents.iter().zip(self.strides);
        let (mut low, mut high) = (self.offset as isize, self.offset as isize);
        for (&extent, stride) in ends {
            let reach = stride * (extent - 1) as isize;
            low += reach.min(0);
            high += reach.max(0);
        }
        // A layout lies within its buffer, so neither is negative.
        low as usize..high as usize + 1
    }

    /// Whether the elements follow each other without gaps, the last index varying fastest.
    #[must_use]
    pub fn is_row_major(&self) -> bool {
        let mut stride = 1;
        for axis in (0..N).rev() {
            if self.extents[axis] != 1 && self.strides[axis] != stride {
                return self.is_empty();
            }
            stride *= self.extents[axis] as isize;
        }
        true
    }

    /// The dimensions in reverse order, over the same elements.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        self.extents.reverse();
        self.strides.reverse();
        self
    }

    /// The part with indices `range` in dimension `axis`.
    ///
    /// # Errors
    /// [`TensorError::OutOfBounds`].
    ///
    /// # Panics
    /// When there is no dimension `axis`.
    pub fn slice(mut self, axis: usize, range: Range<usize>) -> TensorResult<Self> {
        assert!(axis < N, "dimension {axis} of a layout that has {N}");
        let extent = self.extents[axis];
        if range.start > range.end || range.end > extent {
            return Err(TensorError::OutOfBounds {
                start: range.start,
                end: range.end,
                extent,
            });
        }
        self.extents[axis] = range.len();
        // A layout of no elements has no first one that could move.
        if !self.is_empty() {
            let first = self.offset as isize + range.start as isize * self.strides[axis];
            self.offset = first as usize;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn positions(layout: &Layout<3>) -> Vec<usize> {
        let [a, b, c] = layout.extents();
        let [x, y, z] = layout.strides();
        let at = |i: usize, j: usize, k: usize| {
            layout.offset() as isize + i as isize * x + j as isize * y + k as isize * z
        };
        (0..a)
            .flat_map(|i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
            .map(|(i, j, k)| at(i, j, k) as usize)
            .collect()
    }

    proptest! {
        /// Dense layouts visit every position once; slices and transposes stay within, and `span` is tight.
        #[test]
        fn layouts_stay_within_their_elements(
            extents in prop::array::uniform3(0_usize..5),
            column in any::<bool>(),
            transpose in any::<bool>(),
            axis in 0_usize..3,
            cut in (0_usize..5, 0_usize..5),
        ) {
            let dense = match column {
                true => Layout::column_major(extents),
                false => Layout::row_major(extents),
            }.unwrap();
            let mut all = positions(&dense);
            prop_assert_eq!(all.len(), dense.len());
            prop_assert!(column || dense.is_row_major());
            prop_assert!(column || all.is_sorted());
            all.sort_unstable();
            prop_assert_eq!(&all, &(0..dense.len()).collect::<Vec<_>>());

            let turned = if transpose { dense.transposed() } else { dense };
            let range = cut.0..cut.1;
            let fits = cut.0 <= cut.1 && cut.1 <= turned.extents()[axis];
            let sliced = turned.slice(axis, range);
            prop_assert_eq!(sliced.is_ok(), fits);
            if let Ok(sliced) = sliced {
                let visited = positions(&sliced);
                prop_assert!(visited.iter().all(|at| *at < dense.len()));
                let span = sliced.span();
                prop_assert!(span.end <= dense.len());
                match (visited.iter().min(), visited.iter().max()) {
                    (Some(&low), Some(&high)) => prop_assert_eq!(span, low..high + 1),
                    _ => prop_assert!(span.is_empty()),
                }
            }
        }
    }

    #[test]
    fn too_many_elements_are_refused() {
        let extents = [1 << 40, 1 << 40];
        let error = Layout::row_major(extents).unwrap_err();
        assert!(matches!(error, TensorError::TooLarge { extents: given } if given == extents));
        assert!(Layout::row_major([0, usize::MAX]).is_err());
        assert!(Layout::row_major([0, 7]).unwrap().is_empty());
    }
}
