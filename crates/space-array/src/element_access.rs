//! One element at a time, and one after the other.

use std::ops::{Index, IndexMut};

use ndarray::{Dimension, IndexLonger, NdIndex, iter};
use space_core::Element;

use crate::{AllocArray, InvalidMemory, Kind, SpaceArray, View, ViewMut};

impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
    /// The element at an index, if there is one.
    ///
    /// # Errors
    ///
    /// [`InvalidMemory`].
    pub fn try_get<I: NdIndex<D>>(&self, index: I) -> Result<Option<T>, InvalidMemory> {
        Ok(self.try_view()?.view().get(index).copied())
    }

    /// Writes an element, and says whether there is such an index.
    ///
    /// # Errors
    ///
    /// [`InvalidMemory`].
    pub fn try_set<I: NdIndex<D>>(&mut self, index: I, element: T) -> Result<bool, InvalidMemory> {
        let mut view = self.try_view_mut()?;
        let mut view = view.view_mut();
        Ok(view.get_mut(index).map(|slot| *slot = element).is_some())
    }
}

impl<T: Element, D: Dimension> AllocArray<T, D> {
    /// The elements in row-major order.
    pub fn iter(&self) -> iter::Iter<'_, T, D> {
        self.view().into_iter()
    }

    /// The elements in row-major order, to write to.
    pub fn iter_mut(&mut self) -> iter::IterMut<'_, T, D> {
        self.view_mut().into_iter()
    }
}

impl<T: Element, D: Dimension, I: NdIndex<D>> Index<I> for AllocArray<T, D> {
    type Output = T;

    #[track_caller]
    #[inline]
    fn index(&self, index: I) -> &T {
        IndexLonger::index(&self.view(), index)
    }
}

impl<T: Element, D: Dimension, I: NdIndex<D>> IndexMut<I> for AllocArray<T, D> {
    #[track_caller]
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        IndexLonger::index(self.view_mut(), index)
    }
}

impl<'a, T: Element, D: Dimension> IntoIterator for &'a AllocArray<T, D> {
    type Item = &'a T;
    type IntoIter = iter::Iter<'a, T, D>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T: Element, D: Dimension> IntoIterator for &'a mut AllocArray<T, D> {
    type Item = &'a mut T;
    type IntoIter = iter::IterMut<'a, T, D>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T, D: Dimension, K: Kind> View<'_, T, D, K> {
    /// The elements in row-major order.
    pub fn iter(&self) -> iter::Iter<'_, T, D> {
        self.view().into_iter()
    }
}

impl<T, D: Dimension, K: Kind> ViewMut<'_, T, D, K> {
    /// The elements in row-major order.
    pub fn iter(&self) -> iter::Iter<'_, T, D> {
        self.view().into_iter()
    }

    /// The elements in row-major order, to write to.
    pub fn iter_mut(&mut self) -> iter::IterMut<'_, T, D> {
        self.view_mut().into_iter()
    }
}

impl<'a, T, D: Dimension, K: Kind> IntoIterator for &'a View<'_, T, D, K> {
    type Item = &'a T;
    type IntoIter = iter::Iter<'a, T, D>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T, D: Dimension, K: Kind> IntoIterator for &'a ViewMut<'_, T, D, K> {
    type Item = &'a T;
    type IntoIter = iter::Iter<'a, T, D>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T, D: Dimension, K: Kind> IntoIterator for &'a mut ViewMut<'_, T, D, K> {
    type Item = &'a mut T;
    type IntoIter = iter::IterMut<'a, T, D>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
