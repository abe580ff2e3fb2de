//! The arrays.

use std::{marker::PhantomData, ptr::NonNull};

use bytemuck::Zeroable;
use ndarray::{ArrayView, ArrayViewMut, Dimension, IntoDimension};
use space_core::Element;

use crate::{
    ArrayError, Checked, Counted, InvalidMemory, Kind, UninitArray, View, ViewMut, error::value,
    store::Store,
};

/// An array in host memory with the dimensions of `ndarray`, of one of two [`Kind`]s:
/// [`AllocArray`] and [`CheckedAllocArray`], which are the names to use.
///
/// Its elements are initialised and lie in row-major order, without gaps. Whatever makes a new
/// array, [`similar`](SpaceArray::similar) or an operator, takes the memory from the allocator in
/// scope ([`with_allocator`](crate::with_allocator)), or from the heap where there is none.
///
/// Each method that may fail panics at its caller's location, and has a twin that begins with
/// `try_` and returns the error.
pub struct SpaceArray<T, D, K: Kind> {
    elements: Elements<T>,
    dim: D,
    /// What the elements are part of.
    store: Store,
    kind: PhantomData<K>,
}

/// An array that counts with its allocator: the allocator isn't reset while it lives, so that
/// reading and writing it costs nothing beyond `ndarray`.
///
/// ```
/// use space_array::AllocArray;
/// let x = AllocArray::from(ndarray::array![[1.0, 2.0], [3.0, 4.0]]);
/// let y = &x * 2.0 + &x;
/// assert_eq!(y.view().row(1).sum(), 21.0); // any view of `ndarray`
/// ```
pub type AllocArray<T, D> = SpaceArray<T, D, Counted>;

/// An array that lets its allocator be reset, and checks at each access that it wasn't.
///
/// A check costs one compare-and-swap for each view, none for each element: a view pins the memory
/// for as long as it lives.
///
/// ```
/// use space_array::{AllocBuffer, BumperAllocator, CheckedAllocArray, with_allocator};
/// let bumper = BumperAllocator::new(AllocBuffer::new(4096)?);
/// let x = with_allocator(&bumper, || CheckedAllocArray::filled([3], 1.5_f32));
/// {
///     let view = x.try_view()?;
///     assert_eq!(view.view().sum(), 4.5);
///     assert!(bumper.reset().is_err()); // a view is held
/// }
/// bumper.reset()?;
/// assert!(x.try_view().is_err()); // the memory was given back
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type CheckedAllocArray<T, D> = SpaceArray<T, D, Checked>;

/// The first element, with the right to access all of them.
pub(crate) struct Elements<T>(pub(crate) NonNull<T>);

// SAFETY: The pointer stands for elements that its array owns, as a `Vec<T>` does.
unsafe impl<T: Send> Send for Elements<T> {}

// SAFETY: As above.
unsafe impl<T: Sync> Sync for Elements<T> {}

impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
    /// An array over memory.
    ///
    /// # Safety
    ///
    /// `elements` has as many initialised elements as `dim` says, which are the array's alone;
    /// `dim` passed `layout_of`. They stay there while `store` is kept, and for the checked kind
    /// while it is pinned.
    #[inline]
    pub(crate) unsafe fn from_parts(elements: Elements<T>, dim: D, store: Store) -> Self {
        Self {
            elements,
            dim,
            store,
            kind: PhantomData,
        }
    }

    /// The parts again.
    pub(crate) fn into_parts(self) -> (Elements<T>, D, Store) {
        (self.elements, self.dim, self.store)
    }

    /// An uninitialised array with the extents `dims`.
    ///
    /// # Panics
    ///
    /// If there is no memory: [`try_uninit`](SpaceArray::try_uninit) returns an error.
    #[track_caller]
    pub fn uninit<S: IntoDimension<Dim = D>>(dims: S) -> UninitArray<T, D, K> {
        value(Self::try_uninit(dims))
    }

    /// An uninitialised array with the extents `dims`.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Alloc`] and [`ArrayError::Exhausted`].
    pub fn try_uninit<S: IntoDimension<Dim = D>>(
        dims: S,
    ) -> Result<UninitArray<T, D, K>, ArrayError> {
        UninitArray::new(dims.into_dimension())
    }

    /// An array with the extents `dims` and `element` everywhere.
    ///
    /// # Panics
    ///
    /// If there is no memory: [`try_filled`](SpaceArray::try_filled) returns an error.
    #[track_caller]
    pub fn filled<S: IntoDimension<Dim = D>>(dims: S, element: T) -> Self {
        value(Self::try_filled(dims, element))
    }

    /// An array with the extents `dims` and `element` everywhere.
    ///
    /// # Errors
    ///
    /// Those of [`try_uninit`](SpaceArray::try_uninit).
    pub fn try_filled<S: IntoDimension<Dim = D>>(dims: S, element: T) -> Result<Self, ArrayError> {
        Ok(Self::try_uninit(dims)?.filled(element))
    }

    /// An array with the extents `dims` whose elements are all zero bytes.
    ///
    /// # Panics
    ///
    /// If there is no memory: [`try_zeros`](SpaceArray::try_zeros) returns an error.
    #[track_caller]
    pub fn zeros<S: IntoDimension<Dim = D>>(dims: S) -> Self
    where
        T: Zeroable,
    {
        value(Self::try_zeros(dims))
    }

    /// An array with the extents `dims` whose elements are all zero bytes.
    ///
    /// # Errors
    ///
    /// Those of [`try_uninit`](SpaceArray::try_uninit).
    pub fn try_zeros<S: IntoDimension<Dim = D>>(dims: S) -> Result<Self, ArrayError>
    where
        T: Zeroable,
    {
        Self::try_filled(dims, T::zeroed())
    }

    /// A copy of what a view shows.
    ///
    /// # Panics
    ///
    /// If there is no memory: [`try_copy_of`](SpaceArray::try_copy_of) returns an error.
    #[track_caller]
    pub fn copy_of(view: ArrayView<'_, T, D>) -> Self {
        value(Self::try_copy_of(view))
    }

    /// A copy of what a view shows.
    ///
    /// # Errors
    ///
    /// Those of [`try_uninit`](SpaceArray::try_uninit).
    pub fn try_copy_of(view: ArrayView<'_, T, D>) -> Result<Self, ArrayError> {
        UninitArray::new(view.raw_dim())?.try_copied_from(view)
    }

    /// An uninitialised array of the same element type, shape and kind.
    ///
    /// # Panics
    ///
    /// If there is no memory: [`try_similar`](SpaceArray::try_similar) returns an error.
    #[track_caller]
    pub fn similar(&self) -> UninitArray<T, D, K> {
        value(self.try_similar())
    }

    /// An uninitialised array of the same element type, shape and kind.
    ///
    /// # Errors
    ///
    /// Those of [`try_uninit`](SpaceArray::try_uninit).
    pub fn try_similar(&self) -> Result<UninitArray<T, D, K>, ArrayError> {
        UninitArray::new(self.dim.clone())
    }

    /// An uninitialised array of the same kind with elements of type `U` and the extents `dims`.
    ///
    /// ```
    /// # use space_array::AllocArray;
    /// let x = AllocArray::from([1.0, 2.0]);
    /// let mask = x.similar_with::<bool, _>([2, 2]).filled(false);
    /// assert_eq!(mask.shape(), [2, 2]);
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no memory: [`try_similar_with`](SpaceArray::try_similar_with) returns an error.
    #[track_caller]
    pub fn similar_with<U: Element, S: IntoDimension>(&self, dims: S) -> UninitArray<U, S::Dim, K> {
        value(self.try_similar_with(dims))
    }

    /// An uninitialised array of the same kind with elements of type `U` and the extents `dims`.
    ///
    /// # Errors
    ///
    /// Those of [`try_uninit`](SpaceArray::try_uninit).
    pub fn try_similar_with<U: Element, S: IntoDimension>(
        &self,
        dims: S,
    ) -> Result<UninitArray<U, S::Dim, K>, ArrayError> {
        UninitArray::new(dims.into_dimension())
    }

    /// The array as a read-only view, which keeps the memory valid.
    ///
    /// # Errors
    ///
    /// [`InvalidMemory`], which an [`AllocArray`] never returns.
    #[inline]
    pub fn try_view(&self) -> Result<View<'_, T, D, K>, InvalidMemory> {
        let pin = K::pin(&self.store)?;
        // SAFETY: The pin keeps the memory of a checked array, and the borrow that of any other;
        // the elements are initialised, and borrowed shared with the array.
        let view = unsafe { ArrayView::from_shape_ptr(self.dim.clone(), self.elements.0.as_ptr()) };
        Ok(View::new(view, pin))
    }

    /// The array as a view to write through, which keeps the memory valid.
    ///
    /// # Errors
    ///
    /// [`InvalidMemory`], which an [`AllocArray`] never returns.
    #[inline]
    pub fn try_view_mut(&mut self) -> Result<ViewMut<'_, T, D, K>, InvalidMemory> {
        let pin = K::pin(&self.store)?;
        // SAFETY: As in `try_view`; the array is borrowed exclusively.
        let view =
            unsafe { ArrayViewMut::from_shape_ptr(self.dim.clone(), self.elements.0.as_ptr()) };
        Ok(ViewMut::new(view, pin))
    }
}

impl<T, D: Dimension, K: Kind> SpaceArray<T, D, K> {
    /// The extents, in elements.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.dim.slice()
    }

    /// The extents as a dimension of `ndarray`.
    #[inline]
    pub fn raw_dim(&self) -> D {
        self.dim.clone()
    }

    /// Number of axes.
    pub fn ndim(&self) -> usize {
        self.dim.ndim()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.dim.size()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Element, D: Dimension> AllocArray<T, D> {
    /// The array as an ordinary view.
    #[inline]
    pub fn view(&self) -> ArrayView<'_, T, D> {
        // SAFETY: The array owns its initialised elements; its allocator isn't reset while it
        // lives.
        unsafe { ArrayView::from_shape_ptr(self.dim.clone(), self.elements.0.as_ptr()) }
    }

    /// The array as an ordinary view to write through.
    #[inline]
    pub fn view_mut(&mut self) -> ArrayViewMut<'_, T, D> {
        // SAFETY: As above, and borrowed exclusively.
        unsafe { ArrayViewMut::from_shape_ptr(self.dim.clone(), self.elements.0.as_ptr()) }
    }
}

impl<T: Element, D: Dimension> CheckedAllocArray<T, D> {
    /// Whether the memory is there at this moment. It stays there only while a view is held.
    pub fn is_valid(&self) -> bool {
        self.try_view().is_ok()
    }

    /// The array as a read-only view, which keeps the memory valid.
    ///
    /// # Panics
    ///
    /// If the memory was given back: [`try_view`](SpaceArray::try_view) returns an error.
    #[track_caller]
    pub fn view(&self) -> View<'_, T, D, Checked> {
        value(self.try_view().map_err(ArrayError::from))
    }

    /// The array as a view to write through, which keeps the memory valid.
    ///
    /// # Panics
    ///
    /// If the memory was given back: [`try_view_mut`](SpaceArray::try_view_mut) returns an error.
    #[track_caller]
    pub fn view_mut(&mut self) -> ViewMut<'_, T, D, Checked> {
        value(self.try_view_mut().map_err(ArrayError::from))
    }
}
