//! Sums and folds.

use ndarray::{ArrayView, Axis, Dimension, LinalgScalar, RemoveAxis};
use space_core::Element;

use super::{elementwise::check_shape, lanes};
use crate::{ArrayError, Kind, SpaceArray, UninitArray, error::value};

/// That `axis` is one of the array's.
pub(super) fn check_axis<D: Dimension>(dim: &D, axis: Axis) -> Result<(), ArrayError> {
    if axis.index() < dim.ndim() {
        Ok(())
    } else {
        Err(ArrayError::NoSuchAxis {
            axis: axis.index(),
            ndim: dim.ndim(),
        })
    }
}

/// Adds the sums along `axis` to `out`, which has the other axes in row-major order.
fn add_sums<T: Element + LinalgScalar, D: RemoveAxis>(
    out: &mut [T],
    view: &ArrayView<'_, T, D>,
    axis: Axis,
) {
    if axis.index() + 1 == view.ndim() {
        for (sum, lane) in out.iter_mut().zip(view.lanes(axis)) {
            *sum = *sum + lane.sum();
        }
    } else {
        for part in view.axis_iter(axis) {
            lanes::zip_in_place(out, &part, |sum, element| sum + element);
        }
    }
}

impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
    /// The sum of all elements.
    ///
    /// # Panics
    ///
    /// If the memory is invalid: [`try_sum`](SpaceArray::try_sum) returns an error.
    #[track_caller]
    pub fn sum(&self) -> T
    where
        T: LinalgScalar,
    {
        value(self.try_sum())
    }

    /// The sum of all elements.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Invalid`].
    pub fn try_sum(&self) -> Result<T, ArrayError>
    where
        T: LinalgScalar,
    {
        Ok(self.try_view()?.view().sum())
    }

    /// Folds the elements in row-major order.
    ///
    /// # Panics
    ///
    /// If the memory is invalid: [`try_fold`](SpaceArray::try_fold) returns an error.
    #[track_caller]
    pub fn fold<B>(&self, start: B, f: impl FnMut(B, T) -> B) -> B {
        value(self.try_fold(start, f))
    }

    /// Folds the elements in row-major order.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Invalid`].
    pub fn try_fold<B>(&self, start: B, mut f: impl FnMut(B, T) -> B) -> Result<B, ArrayError> {
        let view = self.try_view()?;
        Ok(view
            .view()
            .iter()
            .fold(start, |folded, &element| f(folded, element)))
    }

    /// The sums along an axis.
    ///
    /// ```
    /// # use space_array::AllocArray;
    /// # use ndarray::Axis;
    /// let x = AllocArray::from(ndarray::array![[1_u32, 2], [3, 4]]);
    /// assert_eq!(x.sum_axis(Axis(0)), ndarray::array![4, 6]);
    /// assert_eq!(x.sum_axis(Axis(1)), ndarray::array![3, 7]);
    /// ```
    ///
    /// # Panics
    ///
    /// [`try_sum_axis`](SpaceArray::try_sum_axis) returns an error instead.
    #[track_caller]
    pub fn sum_axis(&self, axis: Axis) -> SpaceArray<T, D::Smaller, K>
    where
        T: LinalgScalar,
        D: RemoveAxis,
    {
        value(self.try_sum_axis(axis))
    }

    /// The sums along an axis.
    ///
    /// # Errors
    ///
    /// [`ArrayError::NoSuchAxis`], and those of [`try_map`](SpaceArray::try_map).
    pub fn try_sum_axis(&self, axis: Axis) -> Result<SpaceArray<T, D::Smaller, K>, ArrayError>
    where
        T: LinalgScalar,
        D: RemoveAxis,
    {
        check_axis(&self.raw_dim(), axis)?;
        let view = self.try_view()?;
        let out = UninitArray::new(self.raw_dim().remove_axis(axis))?;
        let mut out = out.filled(T::zero());
        out.on_slice(|out| {
            add_sums(out, &view.view(), axis);
            Ok(())
        })?;
        Ok(out)
    }

    /// Puts the sums along an axis in the place of `out`'s elements.
    ///
    /// # Panics
    ///
    /// [`try_sum_axis_into`](SpaceArray::try_sum_axis_into) returns an error instead.
    #[track_caller]
    pub fn sum_axis_into(&self, axis: Axis, out: &mut SpaceArray<T, D::Smaller, K>)
    where
        T: LinalgScalar,
        D: RemoveAxis,
    {
        value(self.try_sum_axis_into(axis, out));
    }

    /// Puts the sums along an axis in the place of `out`'s elements.
    ///
    /// # Errors
    ///
    /// [`ArrayError::NoSuchAxis`], [`ArrayError::ShapeMismatch`] and [`ArrayError::Invalid`].
    pub fn try_sum_axis_into(
        &self,
        axis: Axis,
        out: &mut SpaceArray<T, D::Smaller, K>,
    ) -> Result<(), ArrayError>
    where
        T: LinalgScalar,
        D: RemoveAxis,
    {
        check_axis(&self.raw_dim(), axis)?;
        check_shape("the array of sums", &self.raw_dim().remove_axis(axis), out)?;
        let view = self.try_view()?;
        out.on_slice(|out| {
            out.fill(T::zero());
            add_sums(out, &view.view(), axis);
            Ok(())
        })
    }
}
