//! Other shapes for the same memory.

use ndarray::{Dimension, IntoDimension, IxDyn};
use space_core::Element;

use crate::{
    ArrayError, Kind, SpaceArray,
    error::{Shape, value},
    shape::layout_of,
};

impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
    /// The array with another shape of as many elements, in row-major order. The memory stays.
    ///
    /// ```
    /// # use space_array::AllocArray;
    /// let x = AllocArray::from([1, 2, 3, 4]).reshape([2, 2]);
    /// assert_eq!(x, ndarray::array![[1, 2], [3, 4]]);
    /// ```
    ///
    /// # Panics
    ///
    /// If the number of elements differs: [`try_reshape`](SpaceArray::try_reshape) returns an
    /// error.
    #[track_caller]
    pub fn reshape<S: IntoDimension>(self, dims: S) -> SpaceArray<T, S::Dim, K> {
        value(self.try_reshape(dims))
    }

    /// The array with another shape of as many elements, in row-major order. The memory stays.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Reshape`] if the number of elements differs; the array is dropped then.
    pub fn try_reshape<S: IntoDimension>(
        self,
        dims: S,
    ) -> Result<SpaceArray<T, S::Dim, K>, ArrayError> {
        let dim = dims.into_dimension();
        layout_of::<T, _>(&dim)?;
        if dim.size() != self.len() {
            return Err(ArrayError::Reshape {
                len: self.len(),
                from: Shape::of(self.shape()),
                to: Shape::of(dim.slice()),
            });
        }
        let (elements, _, store) = self.into_parts();
        // SAFETY: The array's own parts, with as many elements in a shape that was checked.
        Ok(unsafe { SpaceArray::from_parts(elements, dim, store) })
    }

    /// The array with its number of axes known at run time. The memory stays.
    pub fn into_dyn(self) -> SpaceArray<T, IxDyn, K> {
        let (elements, dim, store) = self.into_parts();
        // SAFETY: The array's own parts, with the same extents.
        unsafe { SpaceArray::from_parts(elements, dim.into_dyn(), store) }
    }

    /// The array with its number of axes known at compile time. The memory stays.
    ///
    /// # Panics
    ///
    /// If `E` has another number of axes:
    /// [`try_into_dimensionality`](SpaceArray::try_into_dimensionality) returns an error.
    #[track_caller]
    pub fn into_dimensionality<E: Dimension>(self) -> SpaceArray<T, E, K> {
        value(self.try_into_dimensionality())
    }

    /// The array with its number of axes known at compile time. The memory stays.
    ///
    /// # Errors
    ///
    /// [`ArrayError::NoSuchAxis`] if `E` has another number of axes; the array is dropped then.
    pub fn try_into_dimensionality<E: Dimension>(self) -> Result<SpaceArray<T, E, K>, ArrayError> {
        let Some(dim) = E::from_dimension(&self.raw_dim()) else {
            return Err(ArrayError::NoSuchAxis {
                axis: E::NDIM.unwrap_or(0),
                ndim: self.ndim(),
            });
        };
        let (elements, _, store) = self.into_parts();
        // SAFETY: The array's own parts, with the same extents.
        Ok(unsafe { SpaceArray::from_parts(elements, dim, store) })
    }
}
