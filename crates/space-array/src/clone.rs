//! Copies of arrays.

use ndarray::Dimension;
use space_core::Element;

use crate::{AllocArray, SpaceArray};

/// A copy, with memory of the allocator in scope. A checked array is copied by
/// [`try_copy_of`](SpaceArray::try_copy_of) its view, since its memory may be gone.
///
/// # Panics
///
/// If there is no memory.
impl<T: Element, D: Dimension> Clone for AllocArray<T, D> {
    #[track_caller]
    fn clone(&self) -> Self {
        SpaceArray::copy_of(self.view())
    }
}
