//! Layouts whose rank is part of their type.

use super::{DynLayout, arith, overlap};
use crate::{TensorError, TensorResult};
use std::ops::Range;

/// The layout of `N` dimensions over a run of elements. Extents, strides and offset are in elements.
///
/// Every operation names elements of the same run, so that a layout which lies within a buffer stays there. Strides may be
/// negative, and zero where elements repeat.
///
/// ```
/// use tensor_cuda::Layout;
/// let matrix = Layout::row_major([2, 3])?;
/// assert_eq!((matrix.strides(), matrix.len()), ([3, 1], 6));
/// assert_eq!(matrix.transposed().strides(), [1, 3]);
/// assert_eq!(matrix.slice(0, 1..2)?.span(), 3..6);
/// assert_eq!(matrix.slice_step(1, 0..3, -2)?.strides(), [3, -2]);   // columns 2 and 0
/// assert_eq!(matrix.reshaped([6])?.strides(), [1]);
/// assert!(matrix.transposed().reshaped([6]).is_err());              // only a copy could
/// assert_eq!(matrix.diagonal(0, 1)?.strides(), [4]);
/// assert!(matrix.broadcast([4, 2, 3])?.repeats());
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

    fn dense(
        extents: [usize; N],
        fastest_first: impl Iterator<Item = usize>,
    ) -> TensorResult<Self> {
        let mut strides = [0; N];
        arith::dense(&extents, &mut strides, fastest_first).ok_or_else(|| too_large(&extents))?;
        Ok(Self {
            extents,
            strides,
            offset: 0,
        })
    }

    /// Any strides, with the position of the first element.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] when the elements can't be counted; [`TensorError::BadStrides`] when one would lie below
    /// position 0 or at none that is a number.
    pub fn strided(extents: [usize; N], strides: [isize; N], offset: usize) -> TensorResult<Self> {
        arith::count(&extents).ok_or_else(|| too_large(&extents))?;
        arith::span(&extents, &strides, offset).ok_or_else(|| TensorError::BadStrides {
            extents: extents.to_vec(),
            strides: strides.to_vec(),
            offset,
        })?;
        Ok(Self {
            extents,
            strides,
            offset,
        })
    }

    /// Number of elements in each dimension.
    #[inline]
    #[must_use]
    pub fn extents(&self) -> [usize; N] {
        self.extents
    }

    /// Distance between neighbours in each dimension, in elements.
    #[inline]
    #[must_use]
    pub fn strides(&self) -> [isize; N] {
        self.strides
    }

    /// Position of the first element.
    #[inline]
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of elements.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.extents.iter().product()
    }

    /// Whether there are no elements.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.extents.contains(&0)
    }

    /// Positions from the lowest to the highest one that an element has; empty for no elements.
    #[inline]
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        arith::known_span(&self.extents, &self.strides, self.offset)
    }

    /// Whether all elements are among the first `len`; `operand` is what the layout is to be of.
    pub(crate) fn check_memory(&self, operand: &'static str, len: usize) -> TensorResult<()> {
        let Range { start, end } = self.memory();
        match end <= len {
            true => Ok(()),
            false => Err(TensorError::PastMemory {
                operand,
                extents: self.extents.to_vec(),
                strides: self.strides.to_vec(),
                start,
                end,
                len,
            }),
        }
    }

    /// As [`span`](Self::span), or none for no elements, wherever the first one would be.
    #[inline]
    pub(crate) fn memory(&self) -> Range<usize> {
        match self.is_empty() {
            true => 0..0,
            false => self.span(),
        }
    }

    /// Whether the elements follow each other without gaps, the last index varying fastest.
    #[must_use]
    pub fn is_row_major(&self) -> bool {
        arith::is_dense(&self.extents, &self.strides, (0..N).rev())
    }

    /// Whether the elements follow each other without gaps, the first index varying fastest.
    #[must_use]
    pub fn is_column_major(&self) -> bool {
        arith::is_dense(&self.extents, &self.strides, 0..N)
    }

    /// Whether two indices name the same element, so that writing through the layout would write it twice.
    ///
    /// Exact for all layouts made from dense ones by the methods here; for strides of your own, a search that takes too
    /// long says yes.
    #[inline]
    #[must_use]
    pub fn repeats(&self) -> bool {
        overlap::repeats(&self.extents, &self.strides)
    }

    /// The dimensions in reverse order, over the same elements.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        self.extents.reverse();
        self.strides.reverse();
        self
    }

    /// The dimensions in another order: dimension `i` of the result is `order[i]`.
    ///
    /// # Errors
    /// [`TensorError::BadOrder`] unless each dimension is named once.
    pub fn permuted(self, order: [usize; N]) -> TensorResult<Self> {
        let mut named = [false; N];
        for &axis in &order {
            if axis >= N || std::mem::replace(&mut named[axis], true) {
                return Err(TensorError::BadOrder {
                    order: order.to_vec(),
                    rank: N,
                });
            }
        }
        Ok(Self {
            extents: order.map(|axis| self.extents[axis]),
            strides: order.map(|axis| self.strides[axis]),
            offset: self.offset,
        })
    }

    /// The part with indices `range` in dimension `axis`.
    ///
    /// # Errors
    /// [`TensorError::NoSuchAxis`], [`TensorError::OutOfBounds`].
    pub fn slice(self, axis: usize, range: Range<usize>) -> TensorResult<Self> {
        self.slice_step(axis, range, 1)
    }

    /// Every `step`th index of `range` in dimension `axis`: from its first one for a positive step, down from its last one
    /// for a negative step.
    ///
    /// # Errors
    /// [`TensorError::NoSuchAxis`], [`TensorError::OutOfBounds`]; [`TensorError::BadStep`] for a step of 0.
    pub fn slice_step(
        mut self,
        axis: usize,
        range: Range<usize>,
        step: isize,
    ) -> TensorResult<Self> {
        check_axis(axis, N)?;
        let extent = self.extents[axis];
        let Range { start, end } = range;
        if start > end || end > extent {
            return Err(TensorError::OutOfBounds {
                axis,
                start,
                end,
                extent,
            });
        }
        let (first, count, stride) =
            arith::step(&range, step, self.strides[axis]).ok_or(TensorError::BadStep { step })?;
        let old = self.strides[axis];
        self.extents[axis] = count;
        self.strides[axis] = stride;
        // A layout of no elements has no first one that could move.
        if !self.is_empty() {
            self.offset = (self.offset as isize + first as isize * old) as usize;
        }
        Ok(self)
    }

    /// Dimension `axis` backwards.
    ///
    /// # Errors
    /// [`TensorError::NoSuchAxis`].
    pub fn reversed(self, axis: usize) -> TensorResult<Self> {
        check_axis(axis, N)?;
        self.slice_step(axis, 0..self.extents[axis], -1)
    }

    /// The elements at `index` of dimension `axis`, which the result lacks: `M` is `N` - 1.
    ///
    /// # Errors
    /// [`TensorError::NoSuchAxis`], [`TensorError::OutOfBounds`].
    pub fn at<const M: usize>(self, axis: usize, index: usize) -> TensorResult<Layout<M>> {
        const { assert!(M + 1 == N, "a layout at an index has one dimension less") };
        let cut = self.slice(axis, index..index.saturating_add(1))?;
        let kept = |i: usize| if i < axis { i } else { i + 1 };
        Ok(Layout {
            extents: std::array::from_fn(|i| cut.extents[kept(i)]),
            strides: std::array::from_fn(|i| cut.strides[kept(i)]),
            offset: cut.offset,
        })
    }

    /// The elements whose indices in dimensions `a` and `b` are the same; that index becomes the last dimension of the
    /// result, which has `M` = `N` - 1.
    ///
    /// # Errors
    /// [`TensorError::NoSuchAxis`]; [`TensorError::BadOrder`] when both are the same dimension; [`TensorError::BadStrides`] when
    /// the stride would be no number.
    pub fn diagonal<const M: usize>(self, a: usize, b: usize) -> TensorResult<Layout<M>> {
        const { assert!(M + 1 == N, "a diagonal has one dimension less") };
        check_axis(a, N)?;
        check_axis(b, N)?;
        if a == b {
            return Err(TensorError::BadOrder {
                order: vec![a, b],
                rank: N,
            });
        }
        let extent = self.extents[a].min(self.extents[b]);
        let stride = match extent {
            0 | 1 => Some(0),
            _ => self.strides[a].checked_add(self.strides[b]),
        };
        let stride = stride.ok_or_else(|| TensorError::BadStrides {
            extents: self.extents.to_vec(),
            strides: self.strides.to_vec(),
            offset: self.offset,
        })?;
        let mut kept = (0..N).filter(|&axis| axis != a && axis != b);
        let mut result = Layout {
            extents: [extent; M],
            strides: [stride; M],
            offset: self.offset,
        };
        for axis in 0..M.saturating_sub(1) {
            let from = kept.next().expect("two of N dimensions are left out");
            result.extents[axis] = self.extents[from];
            result.strides[axis] = self.strides[from];
        }
        Ok(result)
    }

    /// The same elements in the same order (the last index varying fastest) with other extents.
    ///
    /// # Errors
    /// [`TensorError::CannotReshape`] when the extents have another number of elements, or when only a copy could;
    /// [`TensorError::TooLarge`].
    pub fn reshaped<const M: usize>(self, extents: [usize; M]) -> TensorResult<Layout<M>> {
        let len = arith::count(&extents).ok_or_else(|| too_large(&extents))?;
        let mut strides = [0; M];
        let fits = len == self.len()
            && arith::reshape(&self.extents, &self.strides, &extents, &mut strides).is_some();
        if !fits {
            return Err(TensorError::CannotReshape {
                from: self.extents.to_vec(),
                strides: self.strides.to_vec(),
                to: extents.to_vec(),
            });
        }
        Ok(Layout {
            extents,
            strides,
            offset: self.offset,
        })
    }

    /// Elements repeated along dimensions that have one element, or that the layout lacks: those come first, as in
    /// `ndarray`.
    ///
    /// # Errors
    /// [`TensorError::CannotBroadcast`]; [`TensorError::TooLarge`].
    pub fn broadcast<const M: usize>(self, extents: [usize; M]) -> TensorResult<Layout<M>> {
        arith::count(&extents).ok_or_else(|| too_large(&extents))?;
        let mut strides = [0; M];
        arith::broadcast(&self.extents, &self.strides, &extents, &mut strides).ok_or_else(
            || TensorError::CannotBroadcast {
                from: self.extents.to_vec(),
                to: extents.to_vec(),
            },
        )?;
        Ok(Layout {
            extents,
            strides,
            offset: self.offset,
        })
    }
}

impl Layout<2> {
    /// A row-major matrix whose rows start `leading` elements apart, as BLAS calls it.
    ///
    /// # Errors
    /// [`TensorError::LeadingDimension`] when `leading` is smaller than a row, or 0; [`TensorError::TooLarge`].
    pub fn row_major_padded(extents: [usize; 2], leading: usize) -> TensorResult<Self> {
        let stride = leading_stride(extents, extents[1], leading)?;
        Self::strided(extents, [stride, 1], 0)
    }

    /// A column-major matrix whose columns start `leading` elements apart, as BLAS calls it.
    ///
    /// # Errors
    /// [`TensorError::LeadingDimension`] when `leading` is smaller than a column, or 0; [`TensorError::TooLarge`].
    pub fn column_major_padded(extents: [usize; 2], leading: usize) -> TensorResult<Self> {
        let stride = leading_stride(extents, extents[0], leading)?;
        Self::strided(extents, [1, stride], 0)
    }
}

impl<const N: usize> From<Layout<N>> for DynLayout {
    fn from(layout: Layout<N>) -> Self {
        Self::of(&layout.extents, &layout.strides, layout.offset)
    }
}

impl<const N: usize> TryFrom<&DynLayout> for Layout<N> {
    type Error = TensorError;

    /// The same layout with its rank in the type.
    ///
    /// # Errors
    /// [`TensorError::RankMismatch`].
    fn try_from(layout: &DynLayout) -> TensorResult<Self> {
        let mismatch = |_| TensorError::RankMismatch {
            given: layout.rank(),
            expected: N,
        };
        Ok(Self {
            extents: layout.extents().try_into().map_err(mismatch)?,
            strides: layout.strides().try_into().map_err(mismatch)?,
            offset: layout.offset(),
        })
    }
}

/// A leading dimension over runs of `run` elements as a stride.
fn leading_stride(extents: [usize; 2], run: usize, leading: usize) -> TensorResult<isize> {
    let min = run.max(1);
    if leading < min {
        return Err(TensorError::LeadingDimension {
            extents,
            leading,
            min,
        });
    }
    isize::try_from(leading).map_err(|_| too_large(&extents))
}

pub(super) fn too_large(extents: &[usize]) -> TensorError {
    TensorError::TooLarge {
        extents: extents.to_vec(),
    }
}

pub(super) fn check_axis(axis: usize, rank: usize) -> TensorResult<()> {
    match axis < rank {
        true => Ok(()),
        false => Err(TensorError::NoSuchAxis { axis, rank }),
    }
}
