//! Views that keep the memory they look at valid.

use ndarray::{
    ArrayView, ArrayViewMut, Axis, Dimension, IntoDimension, NdIndex, RemoveAxis, SliceArg,
};
use std::ops::{Index, IndexMut};

use crate::{
    ArrayError, Kind,
    error::{Shape, value},
};

/// A read-only view that keeps its memory valid.
///
/// [`view`](View::view) shows the elements as an ordinary view, for as long as this one lives;
/// slices, reshapes and transposes keep the memory valid too. The view stays on its thread, but can
/// be lent to others.
#[must_use]
pub struct View<'a, T, D, K: Kind> {
    view: ArrayView<'a, T, D>,
    pin: K::Pin<'a>,
}

/// A view to write through that keeps its memory valid. See [`View`].
#[must_use]
pub struct ViewMut<'a, T, D, K: Kind> {
    view: ArrayViewMut<'a, T, D>,
    pin: K::Pin<'a>,
}

impl<'a, T, D: Dimension, K: Kind> View<'a, T, D, K> {
    #[inline]
    pub(crate) fn new(view: ArrayView<'a, T, D>, pin: K::Pin<'a>) -> Self {
        Self { view, pin }
    }

    /// The same memory, for as long as this view is borrowed.
    #[inline]
    pub(crate) fn again(&self) -> View<'_, T, D, K> {
        View::new(self.view.view(), K::unpinned())
    }

    /// The elements as an ordinary view.
    #[inline]
    pub fn view(&self) -> ArrayView<'_, T, D> {
        self.view.view()
    }
}

impl<'a, T, D: Dimension, K: Kind> ViewMut<'a, T, D, K> {
    #[inline]
    pub(crate) fn new(view: ArrayViewMut<'a, T, D>, pin: K::Pin<'a>) -> Self {
        Self { view, pin }
    }

    /// The elements as an ordinary view.
    #[inline]
    pub fn view(&self) -> ArrayView<'_, T, D> {
        self.view.view()
    }

    /// The elements as an ordinary view to write through.
    #[inline]
    pub fn view_mut(&mut self) -> ArrayViewMut<'_, T, D> {
        self.view.view_mut()
    }
}

macro_rules! views {
    ($($View:ident),+) => { $(
        impl<'a, T, D: Dimension, K: Kind> $View<'a, T, D, K> {
            /// The extents, in elements.
            pub fn shape(&self) -> &[usize] {
                self.view.shape()
            }

            /// Number of elements.
            pub fn len(&self) -> usize {
                self.view.len()
            }

            /// Whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.view.is_empty()
            }

            /// The part that `info` names, as `ndarray::s!` writes it.
            ///
            /// # Panics
            ///
            /// If an index is out of bounds, as `ndarray` does.
            #[track_caller]
            pub fn slice<I: SliceArg<D>>(self, info: I) -> $View<'a, T, I::OutDim, K> {
                $View::new(self.view.slice_move(info), self.pin)
            }

            /// The part at `index` of `axis`.
            ///
            /// # Panics
            ///
            /// If there is none, as `ndarray` does.
            #[track_caller]
            pub fn index_axis(self, axis: Axis, index: usize) -> $View<'a, T, D::Smaller, K>
            where
                D: RemoveAxis,
            {
                $View::new(self.view.index_axis_move(axis, index), self.pin)
            }

            /// With its axes in reversed order.
            pub fn reversed_axes(self) -> $View<'a, T, D, K> {
                $View::new(self.view.reversed_axes(), self.pin)
            }

            /// With its axes in another order: axis `i` is what was axis `axes[i]`.
            ///
            /// # Panics
            ///
            /// If an axis is missing or named twice, as `ndarray` does.
            #[track_caller]
            pub fn permuted_axes<S: IntoDimension<Dim = D>>(
                self,
                axes: S,
            ) -> $View<'a, T, D, K> {
                $View::new(self.view.permuted_axes(axes), self.pin)
            }

            /// With another shape of as many elements, in row-major order.
            ///
            /// # Panics
            ///
            /// [`try_reshape`](Self::try_reshape) returns an error instead.
            #[track_caller]
            pub fn reshape<S: IntoDimension>(self, dims: S) -> $View<'a, T, S::Dim, K> {
                value(self.try_reshape(dims))
            }

            /// With another shape of as many elements, in row-major order.
            ///
            /// # Errors
            ///
            /// [`ArrayError::Reshape`] if the number of elements differs, or if the elements don't
            /// lie in that order without gaps; the view is dropped then.
            pub fn try_reshape<S: IntoDimension>(
                self,
                dims: S,
            ) -> Result<$View<'a, T, S::Dim, K>, ArrayError> {
                let dim = dims.into_dimension();
                let error = ArrayError::Reshape {
                    len: self.view.len(),
                    from: Shape::of(self.view.shape()),
                    to: Shape::of(dim.slice()),
                };
                if !self.view.is_standard_layout() {
                    return Err(error);
                }
                let view = self.view.into_shape_with_order(dim).map_err(|_| error)?;
                Ok($View::new(view, self.pin))
            }
        }

        impl<T, D: Dimension, K: Kind, I: NdIndex<D>> Index<I> for $View<'_, T, D, K> {
            type Output = T;

            #[track_caller]
            #[inline]
            fn index(&self, index: I) -> &T {
                &self.view[index]
            }
        }

        impl<T: std::fmt::Debug, D: Dimension, K: Kind> std::fmt::Debug for $View<'_, T, D, K> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.view, f)
            }
        }

        impl<T: std::fmt::Display, D: Dimension, K: Kind> std::fmt::Display
            for $View<'_, T, D, K>
        {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.view, f)
            }
        }
    )+ };
}

views!(View, ViewMut);

impl<T, D: Dimension, K: Kind, I: NdIndex<D>> IndexMut<I> for ViewMut<'_, T, D, K> {
    #[track_caller]
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.view[index]
    }
}
