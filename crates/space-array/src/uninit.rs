//! Arrays that nobody has written yet.

use std::{fmt, marker::PhantomData, mem::MaybeUninit, ptr::NonNull, slice};

use ndarray::{ArrayView, ArrayViewMut, Dimension};
use space_core::Element;

use crate::{
    ArrayError, Kind, SpaceArray, array::Elements, error::value, shape::layout_of, source,
};

/// An array whose elements are uninitialised: what `similar` returns.
///
/// It shows its elements as `MaybeUninit`, and becomes an array once all are written.
///
/// ```
/// use space_array::AllocArray;
/// let x = AllocArray::from(ndarray::array![[1, 2], [3, 4]]);
/// let y = x.similar().init_with(|i| 10 * i);
/// assert_eq!(y.view(), ndarray::array![[0, 10], [20, 30]]);
/// ```
///
/// One of the checked kind stays on its thread, since it pins its memory.
#[must_use = "memory that is not written is of no use"]
pub struct UninitArray<T, D, K: Kind> {
    elements: Elements<T>,
    /// Number of elements.
    len: usize,
    dim: D,
    fresh: K::Fresh,
    kind: PhantomData<K>,
}

impl<T: Element, D: Dimension, K: Kind> UninitArray<T, D, K> {
    /// Memory of the allocator in scope for the extents `dim`.
    #[inline]
    pub(crate) fn new(dim: D) -> Result<Self, ArrayError> {
        let layout = layout_of::<T, D>(&dim)?;
        let piece = source::ask(K::WANT, layout)?;
        Ok(Self {
            elements: Elements(piece.address.cast()),
            len: dim.size(),
            dim,
            fresh: K::fresh(piece.grip),
            kind: PhantomData,
        })
    }

    /// The extents, in elements.
    pub fn shape(&self) -> &[usize] {
        self.dim.slice()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in row-major order.
    #[inline]
    pub fn as_uninit_slice_mut(&mut self) -> &mut [MaybeUninit<T>] {
        let first: NonNull<MaybeUninit<T>> = self.elements.0.cast();
        // SAFETY: The memory has the layout of `len` elements and is this array's alone; it is
        // kept by `fresh`.
        unsafe { slice::from_raw_parts_mut(first.as_ptr(), self.len) }
    }

    /// The elements as an ordinary view.
    #[inline]
    pub fn as_uninit_view_mut(&mut self) -> ArrayViewMut<'_, MaybeUninit<T>, D> {
        let first: NonNull<MaybeUninit<T>> = self.elements.0.cast();
        // SAFETY: As above; `layout_of` checked the shape.
        unsafe { ArrayViewMut::from_shape_ptr(self.dim.clone(), first.as_ptr()) }
    }

    /// Writes `element` everywhere.
    pub fn filled(mut self, element: T) -> SpaceArray<T, D, K> {
        self.as_uninit_slice_mut().fill(MaybeUninit::new(element));
        // SAFETY: Just written.
        unsafe { self.assume_init() }
    }

    /// Writes `element(i)` to the element at the row-major index `i`, in order.
    pub fn init_with(mut self, mut element: impl FnMut(usize) -> T) -> SpaceArray<T, D, K> {
        for (i, slot) in self.as_uninit_slice_mut().iter_mut().enumerate() {
            slot.write(element(i));
        }
        // SAFETY: Just written.
        unsafe { self.assume_init() }
    }

    /// Copies the elements of a view of the same shape.
    ///
    /// # Panics
    ///
    /// If the shapes differ; [`try_copied_from`](UninitArray::try_copied_from) returns an error.
    #[track_caller]
    pub fn copied_from(self, view: ArrayView<'_, T, D>) -> SpaceArray<T, D, K> {
        value(self.try_copied_from(view))
    }

    /// Copies the elements of a view of the same shape.
    ///
    /// # Errors
    ///
    /// [`ArrayError::ShapeMismatch`].
    pub fn try_copied_from(
        mut self,
        view: ArrayView<'_, T, D>,
    ) -> Result<SpaceArray<T, D, K>, ArrayError> {
        if view.shape() != self.shape() {
            return Err(ArrayError::mismatch("a copy", self.shape(), view.shape()));
        }
        match view.as_slice() {
            Some(elements) => {
                self.as_uninit_slice_mut().write_copy_of_slice(elements);
            }
            None => {
                let slots = self.as_uninit_slice_mut().iter_mut();
                for (slot, &element) in slots.zip(view.iter()) {
                    slot.write(element);
                }
            }
        }
        // SAFETY: Just written: a view has as many elements as its shape says.
        Ok(unsafe { self.assume_init() })
    }

    /// The array.
    ///
    /// # Safety
    ///
    /// Every element was written.
    #[inline]
    pub unsafe fn assume_init(self) -> SpaceArray<T, D, K> {
        // SAFETY: The caller says so; memory and shape agree, as `new` made them.
        unsafe { SpaceArray::from_parts(self.elements, self.dim, K::settle(self.fresh)) }
    }
}

impl<T, D: Dimension, K: Kind> fmt::Debug for UninitArray<T, D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UninitArray")
            .field("shape", &self.dim.slice())
            .finish_non_exhaustive()
    }
}
