//! What operations on arrays take.

use ndarray::{ArrayBase, ArrayRef, Data, Dimension, RawData};
use space_core::Element;

use crate::{InvalidMemory, Kind, Scalar, SpaceArray, View, ViewMut};

/// What an operation that makes arrays of the kind `K` takes beside its array: an array of that
/// kind, a view of one, an array or a view of `ndarray`, a [`Scalar`], or a reference to any of these.
pub trait Operand<K: Kind>: sealed::Sealed {
    /// Type of the elements.
    type Element: Element;
    /// The dimension.
    type Dim: Dimension;

    /// The operand as a view that keeps its memory valid.
    ///
    /// # Errors
    ///
    /// [`InvalidMemory`].
    fn operand(&self) -> Result<View<'_, Self::Element, Self::Dim, K>, InvalidMemory>;
}

mod sealed {
    use super::{ArrayBase, ArrayRef, Kind, RawData, Scalar, SpaceArray, View, ViewMut};

    pub trait Sealed {}
    impl<T, D, K: Kind> Sealed for SpaceArray<T, D, K> {}
    impl<T, D, K: Kind> Sealed for View<'_, T, D, K> {}
    impl<T, D, K: Kind> Sealed for ViewMut<'_, T, D, K> {}
    impl<S: RawData, D> Sealed for ArrayBase<S, D> {}
    impl<T, D> Sealed for ArrayRef<T, D> {}
    impl<T> Sealed for Scalar<T> {}
    impl<O: Sealed + ?Sized> Sealed for &O {}
}

impl<T: Element, D: Dimension, K: Kind> Operand<K> for SpaceArray<T, D, K> {
    type Element = T;
    type Dim = D;

    #[inline]
    fn operand(&self) -> Result<View<'_, T, D, K>, InvalidMemory> {
        self.try_view()
    }
}

impl<T: Element, D: Dimension, K: Kind> Operand<K> for View<'_, T, D, K> {
    type Element = T;
    type Dim = D;

    #[inline]
    fn operand(&self) -> Result<View<'_, T, D, K>, InvalidMemory> {
        Ok(self.again())
    }
}

impl<T: Element, D: Dimension, K: Kind> Operand<K> for ViewMut<'_, T, D, K> {
    type Element = T;
    type Dim = D;

    #[inline]
    fn operand(&self) -> Result<View<'_, T, D, K>, InvalidMemory> {
        Ok(View::new(self.view(), K::unpinned()))
    }
}

impl<T: Element, S: Data<Elem = T>, D: Dimension, K: Kind> Operand<K> for ArrayBase<S, D> {
    type Element = T;
    type Dim = D;

    #[inline]
    fn operand(&self) -> Result<View<'_, T, D, K>, InvalidMemory> {
        Ok(View::new(self.view(), K::unpinned()))
    }
}

impl<T: Element, D: Dimension, K: Kind> Operand<K> for ArrayRef<T, D> {
    type Element = T;
    type Dim = D;

    #[inline]
    fn operand(&self) -> Result<View<'_, T, D, K>, InvalidMemory> {
        Ok(View::new(self.view(), K::unpinned()))
    }
}

impl<O: Operand<K> + ?Sized, K: Kind> Operand<K> for &O {
    type Element = O::Element;
    type Dim = O::Dim;

    #[inline]
    fn operand(&self) -> Result<View<'_, Self::Element, Self::Dim, K>, InvalidMemory> {
        (**self).operand()
    }
}
