//! Element by element.

use ndarray::{ArrayView, DimMax, Dimension};
use space_core::Element;

use super::lanes;
use crate::{
    ArrayError, Kind, Operand, SpaceArray, UninitArray, View,
    error::value,
    shape::{Broadcast, Combined, broadcast},
};

/// `f` of each pair of elements of two views that broadcast together.
#[inline]
pub(super) fn zip_views<A, B, U, D, E, K>(
    a: ArrayView<'_, A, D>,
    b: ArrayView<'_, B, E>,
    f: impl FnMut(A, B) -> U,
) -> Result<SpaceArray<U, Broadcast<D, E>, K>, ArrayError>
where
    A: Element,
    B: Element,
    U: Element,
    D: Dimension + DimMax<E>,
    E: Dimension,
    K: Kind,
{
    let shape = broadcast(&a.raw_dim(), &b.raw_dim())?;
    let mut out = UninitArray::new(shape.clone())?;
    let a = spread(&a, &shape)?;
    let b = spread(&b, &shape)?;
    lanes::zip(out.as_uninit_slice_mut(), &a, &b, f);
    // SAFETY: `lanes::zip` writes a slot for each pair, and the views have as many elements as
    // there are slots.
    Ok(unsafe { out.assume_init() })
}

/// The view, broadcast to a shape.
#[inline]
pub(super) fn spread<'v, T, D: Dimension, E: Dimension>(
    view: &'v ArrayView<'_, T, D>,
    shape: &E,
) -> Result<ArrayView<'v, T, E>, ArrayError> {
    view.broadcast(shape.clone())
        .ok_or_else(|| ArrayError::broadcast(view.shape(), shape.slice()))
}

/// That `out` has the shape of what is put there.
pub(super) fn check_shape<T, D: Dimension, K: Kind>(
    what: &'static str,
    wanted: &D,
    out: &SpaceArray<T, D, K>,
) -> Result<(), ArrayError> {
    if wanted.slice() == out.shape() {
        Ok(())
    } else {
        Err(ArrayError::mismatch(what, wanted.slice(), out.shape()))
    }
}

/// `f` of each element of a view.
#[inline]
pub(super) fn map_view<A: Element, U: Element, D: Dimension, K: Kind>(
    a: ArrayView<'_, A, D>,
    f: impl FnMut(A) -> U,
) -> Result<SpaceArray<U, D, K>, ArrayError> {
    let mut out = UninitArray::new(a.raw_dim())?;
    lanes::map(out.as_uninit_slice_mut(), &a, f);
    // SAFETY: `lanes::map` writes a slot for each element, and the view has as many as there are
    // slots.
    Ok(unsafe { out.assume_init() })
}

impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
    /// An array of `f` of each element.
    ///
    /// # Panics
    ///
    /// If there is no memory or it is invalid: [`try_map`](SpaceArray::try_map) returns an error.
    #[track_caller]
    pub fn map<U: Element>(&self, f: impl FnMut(T) -> U) -> SpaceArray<U, D, K> {
        value(self.try_map(f))
    }

    /// An array of `f` of each element.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Invalid`], [`ArrayError::Alloc`] and [`ArrayError::Exhausted`].
    pub fn try_map<U: Element>(
        &self,
        f: impl FnMut(T) -> U,
    ) -> Result<SpaceArray<U, D, K>, ArrayError> {
        map_view(self.try_view()?.view(), f)
    }

    /// An array of `f` of each pair of elements, after broadcasting.
    ///
    /// ```
    /// # use space_array::AllocArray;
    /// let rows = AllocArray::from(ndarray::array![[1.0, 2.0], [3.0, 4.0]]);
    /// let least = AllocArray::from([2.0, 3.0]);
    /// let y = rows.zip_map(&least, f64::max);
    /// assert_eq!(y, ndarray::array![[2.0, 3.0], [3.0, 4.0]]);
    /// ```
    ///
    /// # Panics
    ///
    /// If the shapes don't broadcast, and as [`map`](SpaceArray::map):
    /// [`try_zip_map`](SpaceArray::try_zip_map) returns an error.
    #[track_caller]
    pub fn zip_map<O: Operand<K>, U: Element>(
        &self,
        other: O,
        f: impl FnMut(T, O::Element) -> U,
    ) -> Combined<U, D, O, K>
    where
        D: DimMax<O::Dim>,
    {
        value(self.try_zip_map(other, f))
    }

    /// An array of `f` of each pair of elements, after broadcasting.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Broadcast`], and those of [`try_map`](SpaceArray::try_map).
    pub fn try_zip_map<O: Operand<K>, U: Element>(
        &self,
        other: O,
        f: impl FnMut(T, O::Element) -> U,
    ) -> Result<Combined<U, D, O, K>, ArrayError>
    where
        D: DimMax<O::Dim>,
    {
        zip_views(self.try_view()?.view(), other.operand()?.view(), f)
    }

    /// Puts `f` of each element in the place of `out`'s elements.
    ///
    /// # Panics
    ///
    /// If the shapes differ or memory is invalid: [`try_map_into`](SpaceArray::try_map_into)
    /// returns an error.
    #[track_caller]
    pub fn map_into<U: Element>(&self, out: &mut SpaceArray<U, D, K>, f: impl FnMut(T) -> U) {
        value(self.try_map_into(out, f));
    }

    /// Puts `f` of each element in the place of `out`'s elements.
    ///
    /// # Errors
    ///
    /// [`ArrayError::ShapeMismatch`] and [`ArrayError::Invalid`].
    pub fn try_map_into<U: Element>(
        &self,
        out: &mut SpaceArray<U, D, K>,
        f: impl FnMut(T) -> U,
    ) -> Result<(), ArrayError> {
        check_shape("what is mapped", &self.raw_dim(), out)?;
        let view = self.try_view()?;
        out.on_slice(|out| {
            lanes::map(out, &view.view(), f);
            Ok(())
        })
    }

    /// Puts `f` of each pair of elements in the place of `out`'s elements, after broadcasting.
    ///
    /// # Panics
    ///
    /// If the shapes don't fit or memory is invalid:
    /// [`try_zip_map_into`](SpaceArray::try_zip_map_into) returns an error.
    #[track_caller]
    pub fn zip_map_into<O: Operand<K>, U: Element>(
        &self,
        other: O,
        out: &mut Combined<U, D, O, K>,
        f: impl FnMut(T, O::Element) -> U,
    ) where
        D: DimMax<O::Dim>,
    {
        value(self.try_zip_map_into(other, out, f));
    }

    /// Puts `f` of each pair of elements in the place of `out`'s elements, after broadcasting.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Broadcast`], [`ArrayError::ShapeMismatch`] and [`ArrayError::Invalid`].
    pub fn try_zip_map_into<O: Operand<K>, U: Element>(
        &self,
        other: O,
        out: &mut Combined<U, D, O, K>,
        f: impl FnMut(T, O::Element) -> U,
    ) -> Result<(), ArrayError>
    where
        D: DimMax<O::Dim>,
    {
        let (a, b) = (self.try_view()?, other.operand()?);
        let (a, b) = (a.view(), b.view());
        let shape = broadcast(&a.raw_dim(), &b.raw_dim())?;
        check_shape("what is zipped", &shape, out)?;
        let (a, b) = (spread(&a, &shape)?, spread(&b, &shape)?);
        out.on_slice(|out| {
            lanes::zip(out, &a, &b, f);
            Ok(())
        })
    }

    /// Puts `f` of each element in its place.
    ///
    /// # Panics
    ///
    /// If the memory is invalid: [`try_map_in_place`](SpaceArray::try_map_in_place) returns an
    /// error.
    #[track_caller]
    pub fn map_in_place(&mut self, f: impl FnMut(T) -> T) {
        value(self.try_map_in_place(f));
    }

    /// Puts `f` of each element in its place.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Invalid`].
    pub fn try_map_in_place(&mut self, mut f: impl FnMut(T) -> T) -> Result<(), ArrayError> {
        self.on_slice(|elements| {
            for element in elements {
                *element = f(*element);
            }
            Ok(())
        })
    }

    /// Puts `f` of each pair of elements in the place of this array's, after broadcasting the
    /// other operand to this array's shape.
    ///
    /// # Panics
    ///
    /// If it doesn't broadcast, or if memory is invalid:
    /// [`try_zip_map_in_place`](SpaceArray::try_zip_map_in_place) returns an error.
    #[track_caller]
    pub fn zip_map_in_place<O: Operand<K>>(&mut self, other: O, f: impl FnMut(T, O::Element) -> T) {
        value(self.try_zip_map_in_place(other, f));
    }

    /// Puts `f` of each pair of elements in the place of this array's, after broadcasting the
    /// other operand to this array's shape.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Broadcast`] and [`ArrayError::Invalid`].
    pub fn try_zip_map_in_place<O: Operand<K>>(
        &mut self,
        other: O,
        f: impl FnMut(T, O::Element) -> T,
    ) -> Result<(), ArrayError> {
        let other = other.operand()?;
        let other = other.view();
        let other = spread(&other, &self.raw_dim())
            .map_err(|_| ArrayError::broadcast(self.shape(), other.shape()))?;
        self.on_slice(|elements| {
            lanes::zip_in_place(elements, &other, f);
            Ok(())
        })
    }

    /// Writes `element` everywhere.
    ///
    /// # Panics
    ///
    /// If the memory is invalid: [`try_fill`](SpaceArray::try_fill) returns an error.
    #[track_caller]
    pub fn fill(&mut self, element: T) {
        value(self.try_fill(element));
    }

    /// Writes `element` everywhere.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Invalid`].
    pub fn try_fill(&mut self, element: T) -> Result<(), ArrayError> {
        self.on_slice(|elements| {
            elements.fill(element);
            Ok(())
        })
    }

    /// Copies the elements of another operand, broadcast to this array's shape.
    ///
    /// # Panics
    ///
    /// As [`zip_map_in_place`](SpaceArray::zip_map_in_place):
    /// [`try_assign`](SpaceArray::try_assign) returns an error.
    #[track_caller]
    pub fn assign<O: Operand<K, Element = T>>(&mut self, other: O) {
        value(self.try_assign(other));
    }

    /// Copies the elements of another operand, broadcast to this array's shape.
    ///
    /// # Errors
    ///
    /// Those of [`try_zip_map_in_place`](SpaceArray::try_zip_map_in_place).
    pub fn try_assign<O: Operand<K, Element = T>>(&mut self, other: O) -> Result<(), ArrayError> {
        self.try_zip_map_in_place(other, |_, element| element)
    }

    /// Runs `body` on the elements in row-major order, with the memory pinned.
    #[inline]
    pub(crate) fn on_slice<R>(
        &mut self,
        body: impl FnOnce(&mut [T]) -> Result<R, ArrayError>,
    ) -> Result<R, ArrayError> {
        let mut view = self.try_view_mut()?;
        let mut view = view.view_mut();
        match view.as_slice_mut() {
            Some(elements) => body(elements),
            None => unreachable!("arrays lie in row-major order"),
        }
    }
}

impl<T: Element, D: Dimension, K: Kind> View<'_, T, D, K> {
    /// An array of `f` of each element.
    ///
    /// # Panics
    ///
    /// If there is no memory: [`try_map`](View::try_map) returns an error.
    #[track_caller]
    pub fn map<U: Element>(&self, f: impl FnMut(T) -> U) -> SpaceArray<U, D, K> {
        value(self.try_map(f))
    }

    /// An array of `f` of each element.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Alloc`] and [`ArrayError::Exhausted`].
    pub fn try_map<U: Element>(
        &self,
        f: impl FnMut(T) -> U,
    ) -> Result<SpaceArray<U, D, K>, ArrayError> {
        map_view(self.view(), f)
    }

    /// An array of `f` of each pair of elements, after broadcasting.
    ///
    /// # Panics
    ///
    /// As [`SpaceArray::zip_map`]: [`try_zip_map`](View::try_zip_map) returns an error.
    #[track_caller]
    pub fn zip_map<O: Operand<K>, U: Element>(
        &self,
        other: O,
        f: impl FnMut(T, O::Element) -> U,
    ) -> Combined<U, D, O, K>
    where
        D: DimMax<O::Dim>,
    {
        value(self.try_zip_map(other, f))
    }

    /// An array of `f` of each pair of elements, after broadcasting.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Broadcast`], and those of [`try_map`](View::try_map).
    pub fn try_zip_map<O: Operand<K>, U: Element>(
        &self,
        other: O,
        f: impl FnMut(T, O::Element) -> U,
    ) -> Result<Combined<U, D, O, K>, ArrayError>
    where
        D: DimMax<O::Dim>,
    {
        zip_views(self.view(), other.operand()?.view(), f)
    }

    /// A copy that owns its memory.
    ///
    /// # Panics
    ///
    /// If there is no memory: [`SpaceArray::try_copy_of`] returns an error.
    #[track_caller]
    pub fn to_owned_array(&self) -> SpaceArray<T, D, K> {
        SpaceArray::copy_of(self.view())
    }
}
