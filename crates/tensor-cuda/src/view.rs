//! Views: identity, offset and mapping of a tensor's elements, and no access to them.
//!
//! A view becomes addresses only when an operation acquires an access for it.

use crate::{Layout, TensorResult};
use cuda_buffer::{DeviceArray, DeviceData, ReadRequest, WriteRequest};
use space_core::Element;
use std::fmt;
use std::ops::Range;

macro_rules! views {
    ($(#[$doc:meta])* $name:ident, $request:ident) => {
        $(#[$doc])*
        pub struct $name<'a, T, const N: usize> {
            request: $request<'a, T>,
            layout: Layout<N>,
        }

        impl<'a, T, const N: usize> $name<'a, T, N> {
            /// The elements that `layout` maps of the value behind `request`, which has them all.
            pub(crate) fn new(request: $request<'a, T>, layout: Layout<N>) -> Self {
                debug_assert!(layout.span().end <= request.len());
                Self { request, layout }
            }

            /// The layout.
            #[must_use]
            pub fn layout(&self) -> &Layout<N> {
                &self.layout
            }

            /// Number of elements in each dimension.
            #[must_use]
            pub fn extents(&self) -> [usize; N] {
                self.layout.extents()
            }

            /// The dimensions in reverse order.
            pub fn transposed(self) -> Self {
                Self { request: self.request, layout: self.layout.transposed() }
            }

            /// The part with indices `range` in dimension `axis`.
            ///
            /// # Errors
            /// [`TensorError::OutOfBounds`](crate::TensorError::OutOfBounds).
            ///
            /// # Panics
            /// When there is no dimension `axis`.
            pub fn slice(self, axis: usize, range: Range<usize>) -> TensorResult<Self> {
                let layout = self.layout.slice(axis, range)?;
                Ok(Self { request: self.request, layout })
            }

            /// The access of the span of the elements, to be acquired.
            ///
            /// # Errors
            /// Never, since a view lies within its value.
            pub(crate) fn into_request(self) -> TensorResult<$request<'a, T>> {
                Ok(self.request.slice(self.layout.span())?)
            }
        }

        impl<T, const N: usize> fmt::Debug for $name<'_, T, N> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("layout", &self.layout)
                    .field("of", &self.request)
                    .finish()
            }
        }
    };
}

views! {
    /// Elements of a tensor, to be read.
    #[must_use = "a view does nothing until an operation takes it"]
    TensorView, ReadRequest
}

views! {
    /// Elements of a tensor, to be written.
    #[must_use = "a view does nothing until an operation takes it"]
    TensorViewMut, WriteRequest
}

impl<T, const N: usize> Clone for TensorView<'_, T, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const N: usize> Copy for TensorView<'_, T, N> {}

/// What can be read as a tensor: tensors, arrays from a space, views.
pub trait IntoView<'a, T, const N: usize> {
    /// The elements, to be read.
    fn into_view(self) -> TensorView<'a, T, N>;
}

/// What can be written as a tensor: tensors, arrays from a space, views.
pub trait IntoViewMut<'a, T, const N: usize> {
    /// The elements, to be written.
    fn into_view_mut(self) -> TensorViewMut<'a, T, N>;
}

impl<'a, T, const N: usize> IntoView<'a, T, N> for TensorView<'a, T, N> {
    fn into_view(self) -> Self {
        self
    }
}

impl<'a, T, const N: usize> IntoViewMut<'a, T, N> for TensorViewMut<'a, T, N> {
    fn into_view_mut(self) -> Self {
        self
    }
}

impl<'a, T: Element, const N: usize> IntoView<'a, T, N> for &'a DeviceArray<'_, T, [usize; N]> {
    fn into_view(self) -> TensorView<'a, T, N> {
        TensorView::new(self.read(), layout_of(self.dims()))
    }
}

impl<'a, T: Element, const N: usize> IntoViewMut<'a, T, N>
    for &'a mut DeviceArray<'_, T, [usize; N]>
{
    fn into_view_mut(self) -> TensorViewMut<'a, T, N> {
        let layout = layout_of(self.dims());
        TensorViewMut::new(self.write(), layout)
    }
}

/// The layout of an array that a space has made, whose elements were counted then.
fn layout_of<const N: usize>(dims: &[usize; N]) -> Layout<N> {
    Layout::row_major(*dims).unwrap_or_else(|_| {
        // An empty array may have extents whose product, leaving out the zero, can't be counted.
        Layout::row_major([0; N]).expect("no elements can be counted")
    })
}
