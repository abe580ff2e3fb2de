//! Arrays as text, and their equality.

use std::fmt;

use ndarray::{ArrayBase, Data, Dimension};
use space_core::Element;

use crate::{Kind, SpaceArray};

/// As `ndarray` shows it, or why the memory can't be looked at.
impl<T: Element + fmt::Debug, D: Dimension, K: Kind> fmt::Debug for SpaceArray<T, D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_view() {
            Ok(view) => fmt::Debug::fmt(&view, f),
            Err(invalid) => write!(f, "<{invalid}>, shape={:?}", self.shape()),
        }
    }
}

/// As `ndarray` shows it, or why the memory can't be looked at.
impl<T: Element + fmt::Display, D: Dimension, K: Kind> fmt::Display for SpaceArray<T, D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_view() {
            Ok(view) => fmt::Display::fmt(&view, f),
            Err(invalid) => write!(f, "<{invalid}>"),
        }
    }
}

/// Same shape and equal elements. An array whose memory was given back equals nothing.
impl<T, U, D, K, L> PartialEq<SpaceArray<U, D, L>> for SpaceArray<T, D, K>
where
    T: Element + PartialEq<U>,
    U: Element,
    D: Dimension,
    K: Kind,
    L: Kind,
{
    fn eq(&self, other: &SpaceArray<U, D, L>) -> bool {
        match (self.try_view(), other.try_view()) {
            (Ok(left), Ok(right)) => left.view() == right.view(),
            _ => false,
        }
    }
}

/// Same shape and equal elements. An array whose memory was given back equals nothing.
impl<T, U, D, K, S> PartialEq<ArrayBase<S, D>> for SpaceArray<T, D, K>
where
    T: Element + PartialEq<U>,
    D: Dimension,
    K: Kind,
    S: Data<Elem = U>,
{
    fn eq(&self, other: &ArrayBase<S, D>) -> bool {
        self.try_view().is_ok_and(|view| view.view() == *other)
    }
}
