//! Layouts whose rank only the running program knows.

use super::fixed::{check_axis, too_large};
use super::{arith, overlap};
use crate::{TensorError, TensorResult};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// A [`Layout`](crate::Layout) with its rank known at run time only. Extents, strides and offset are in elements.
///
/// ```
/// use tensor_cuda::{DynLayout, Layout};
/// let layout = DynLayout::row_major(&[2, 3, 4])?.permuted(&[2, 0, 1])?;
/// assert_eq!((layout.extents(), layout.strides()), (&[4, 2, 3][..], &[1, 12, 4][..]));
/// assert_eq!(Layout::<3>::try_from(&layout)?.extents(), [4, 2, 3]);
/// assert!(Layout::<2>::try_from(&layout).is_err());
/// # Ok::<(), tensor_cuda::TensorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DynLayout {
    extents: SmallVec<[usize; 6]>,
    strides: SmallVec<[isize; 6]>,
    offset: usize,
}

impl DynLayout {
    pub(super) fn of(extents: &[usize], strides: &[isize], offset: usize) -> Self {
        Self {
            extents: extents.into(),
            strides: strides.into(),
            offset,
        }
    }

    /// The last index varies fastest.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`].
    pub fn row_major(extents: &[usize]) -> TensorResult<Self> {
        let mut strides: SmallVec<[isize; 6]> = smallvec![0; extents.len()];
        arith::dense(extents, &mut strides, (0..extents.len()).rev())
            .ok_or_else(|| too_large(extents))?;
        Ok(Self::of(extents, &strides, 0))
    }

    /// The first index varies fastest.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`].
    pub fn column_major(extents: &[usize]) -> TensorResult<Self> {
        let mut strides: SmallVec<[isize; 6]> = smallvec![0; extents.len()];
        arith::dense(extents, &mut strides, 0..extents.len()).ok_or_else(|| too_large(extents))?;
        Ok(Self::of(extents, &strides, 0))
    }

    /// Any strides, with the position of the first element.
    ///
    /// # Errors
    /// As for [`Layout::strided`](crate::Layout::strided); [`TensorError::RankMismatch`] unless there are as many strides as extents.
    pub fn strided(extents: &[usize], strides: &[isize], offset: usize) -> TensorResult<Self> {
        if strides.len() != extents.len() {
            return Err(TensorError::RankMismatch {
                given: strides.len(),
                expected: extents.len(),
            });
        }
        arith::count(extents).ok_or_else(|| too_large(extents))?;
        arith::span(extents, strides, offset).ok_or_else(|| TensorError::BadStrides {
            extents: extents.to_vec(),
            strides: strides.to_vec(),
            offset,
        })?;
        Ok(Self::of(extents, strides, offset))
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.extents.len()
    }

    /// Number of elements in each dimension.
    #[must_use]
    pub fn extents(&self) -> &[usize] {
        &self.extents
    }

    /// Distance between neighbours in each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        &self.strides
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

    /// Positions from the lowest to the highest one that an element has; empty for no elements.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        arith::span(&self.extents, &self.strides, self.offset)
            .expect("checked when the layout was made")
    }

    /// As [`Layout::check_memory`](crate::Layout::check_memory).
    pub(crate) fn check_memory(&self, operand: &'static str, len: usize) -> TensorResult<()> {
        let Range { start, end } = self.span();
        match self.is_empty() || end <= len {
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

    /// Whether the elements follow each other without gaps, the last index varying fastest.
    #[must_use]
    pub fn is_row_major(&self) -> bool {
        arith::is_dense(&self.extents, &self.strides, (0..self.rank()).rev())
    }

    /// As [`Layout::repeats`](crate::Layout::repeats).
    #[must_use]
    pub fn repeats(&self) -> bool {
        overlap::repeats(&self.extents, &self.strides)
    }

    /// As [`Layout::permuted`](crate::Layout::permuted).
    ///
    /// # Errors
    /// [`TensorError::BadOrder`].
    pub fn permuted(&self, order: &[usize]) -> TensorResult<Self> {
        let mut named: SmallVec<[bool; 6]> = smallvec![false; self.rank()];
        let once = |&axis: &usize| {
            named
                .get_mut(axis)
                .is_some_and(|n| !std::mem::replace(n, true))
        };
        if order.len() != self.rank() || !order.iter().all(once) {
            return Err(TensorError::BadOrder {
                order: order.to_vec(),
                rank: self.rank(),
            });
        }
        Ok(Self {
            extents: order.iter().map(|&axis| self.extents[axis]).collect(),
            strides: order.iter().map(|&axis| self.strides[axis]).collect(),
            offset: self.offset,
        })
    }

    /// As [`Layout::slice_step`](crate::Layout::slice_step).
    ///
    /// # Errors
    /// As there.
    pub fn slice_step(&self, axis: usize, range: Range<usize>, step: isize) -> TensorResult<Self> {
        check_axis(axis, self.rank())?;
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
        let mut result = self.clone();
        result.extents[axis] = count;
        result.strides[axis] = stride;
        if !result.is_empty() {
            let offset = self.offset as isize + first as isize * self.strides[axis];
            result.offset = offset as usize;
        }
        Ok(result)
    }

    /// As [`Layout::reshaped`](crate::Layout::reshaped).
    ///
    /// # Errors
    /// As there.
    pub fn reshaped(&self, extents: &[usize]) -> TensorResult<Self> {
        let len = arith::count(extents).ok_or_else(|| too_large(extents))?;
        let mut strides: SmallVec<[isize; 6]> = smallvec![0; extents.len()];
        let fits = len == self.len()
            && arith::reshape(&self.extents, &self.strides, extents, &mut strides).is_some();
        match fits {
            true => Ok(Self::of(extents, &strides, self.offset)),
            false => Err(TensorError::CannotReshape {
                from: self.extents.to_vec(),
                strides: self.strides.to_vec(),
                to: extents.to_vec(),
            }),
        }
    }

    /// As [`Layout::broadcast`](crate::Layout::broadcast).
    ///
    /// # Errors
    /// As there.
    pub fn broadcast(&self, extents: &[usize]) -> TensorResult<Self> {
        arith::count(extents).ok_or_else(|| too_large(extents))?;
        let mut strides: SmallVec<[isize; 6]> = smallvec![0; extents.len()];
        arith::broadcast(&self.extents, &self.strides, extents, &mut strides).ok_or_else(|| {
            TensorError::CannotBroadcast {
                from: self.extents.to_vec(),
                to: extents.to_vec(),
            }
        })?;
        Ok(Self::of(extents, &strides, self.offset))
    }
}
