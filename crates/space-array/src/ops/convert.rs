//! From and to owned arrays of `ndarray`, and to other element types.

use ndarray::{Array, Dimension, Ix1};
use space_core::Element;

use crate::{
    AllocArray, ArrayError, Kind, SpaceArray,
    array::Elements,
    error::value,
    store::{Buffer, Store},
};

impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
    /// An array of the elements as another type.
    ///
    /// Conversions that may lose something are a [`map`](SpaceArray::map) with `as`.
    ///
    /// # Panics
    ///
    /// As [`map`](SpaceArray::map); [`try_convert`](SpaceArray::try_convert) returns an error.
    #[track_caller]
    pub fn convert<U: Element + From<T>>(&self) -> SpaceArray<U, D, K> {
        value(self.try_convert())
    }

    /// An array of the elements as another type.
    ///
    /// # Errors
    ///
    /// Those of [`try_map`](SpaceArray::try_map).
    pub fn try_convert<U: Element + From<T>>(&self) -> Result<SpaceArray<U, D, K>, ArrayError> {
        self.try_map(U::from)
    }

    /// Puts the elements, as another type, in the place of `out`'s elements.
    ///
    /// # Panics
    ///
    /// As [`map_into`](SpaceArray::map_into); [`try_convert_into`](SpaceArray::try_convert_into)
    /// returns an error.
    #[track_caller]
    pub fn convert_into<U: Element + From<T>>(&self, out: &mut SpaceArray<U, D, K>) {
        value(self.try_convert_into(out));
    }

    /// Puts the elements, as another type, in the place of `out`'s elements.
    ///
    /// # Errors
    ///
    /// Those of [`try_map_into`](SpaceArray::try_map_into).
    pub fn try_convert_into<U: Element + From<T>>(
        &self,
        out: &mut SpaceArray<U, D, K>,
    ) -> Result<(), ArrayError> {
        self.try_map_into(out, U::from)
    }

    /// An owned array of `ndarray`. The memory is taken over if the array was made of a vector,
    /// and copied otherwise.
    ///
    /// # Panics
    ///
    /// If the memory is invalid: [`try_into_array`](SpaceArray::try_into_array) returns an error.
    #[track_caller]
    pub fn into_array(self) -> Array<T, D> {
        value(self.try_into_array())
    }

    /// An owned array of `ndarray`. The memory is taken over if the array was made of a vector,
    /// and copied otherwise.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Invalid`].
    pub fn try_into_array(self) -> Result<Array<T, D>, ArrayError> {
        let len = self.len();
        match self.into_parts() {
            (_, dim, Store::Vector(buffer)) => {
                // SAFETY: The buffer was made of a vector of `T` by `from`, and the array's
                // elements are initialised.
                let elements = unsafe { buffer.into_vec(len) };
                match Array::from_shape_vec(dim, elements) {
                    Ok(array) => Ok(array),
                    Err(_) => unreachable!("the shape has as many elements"),
                }
            }
            (elements, dim, store) => {
                // SAFETY: The array's own parts.
                let this = unsafe { Self::from_parts(elements, dim, store) };
                this.try_to_array()
            }
        }
    }

    /// An owned array of `ndarray` with a copy of the elements, on the heap.
    ///
    /// # Panics
    ///
    /// If the memory is invalid: [`try_to_array`](SpaceArray::try_to_array) returns an error.
    #[track_caller]
    pub fn to_array(&self) -> Array<T, D> {
        value(self.try_to_array())
    }

    /// An owned array of `ndarray` with a copy of the elements, on the heap.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Invalid`].
    pub fn try_to_array(&self) -> Result<Array<T, D>, ArrayError> {
        Ok(self.try_view()?.view().to_owned())
    }
}

/// Takes the memory over if the elements lie in row-major order without gaps, and copies
/// otherwise.
impl<T: Element, D: Dimension, K: Kind> From<Array<T, D>> for SpaceArray<T, D, K> {
    fn from(array: Array<T, D>) -> Self {
        let array = if array.is_standard_layout() {
            array
        } else {
            array.as_standard_layout().into_owned()
        };
        let (dim, len) = (array.raw_dim(), array.len());
        let (vector, offset) = array.into_raw_vec_and_offset();
        // Elements before the offset and after the end stay in the buffer, unused.
        let vector = match offset {
            None | Some(0) => vector,
            Some(offset) => vector[offset..offset + len].to_vec(),
        };
        debug_assert!(vector.len() >= len);
        let (first, buffer) = Buffer::of(vector);
        // SAFETY: The vector's first `len` elements are initialised and the array's alone. The
        // shape is that of an array of `ndarray`, which checks as much as `layout_of`.
        unsafe { Self::from_parts(Elements(first), dim, Store::Vector(buffer)) }
    }
}

impl<T: Element, K: Kind> From<Vec<T>> for SpaceArray<T, Ix1, K> {
    fn from(elements: Vec<T>) -> Self {
        Array::from_vec(elements).into()
    }
}

impl<T: Element, K: Kind, const N: usize> From<[T; N]> for SpaceArray<T, Ix1, K> {
    fn from(elements: [T; N]) -> Self {
        Array::from_vec(elements.to_vec()).into()
    }
}

impl<T: Element, D: Dimension> From<AllocArray<T, D>> for Array<T, D> {
    fn from(array: AllocArray<T, D>) -> Self {
        match array.try_into_array() {
            Ok(array) => array,
            Err(_) => unreachable!("the memory of a counted array is valid"),
        }
    }
}
