//! Views: identity, offset and mapping of a tensor's elements, and no access to them.
//!
//! A view becomes addresses only when an operation acquires an access for it.

use crate::{ComplexNumber, Layout, TensorResult};
use cuda_buffer::{DeviceArray, DeviceData, DomainId, HeldArray, ReadRequest, WriteRequest};
use cuda_runtime::Device;
use space_core::Element;
use std::fmt;
use std::ops::Range;

macro_rules! views {
    ($(#[$doc:meta])* $name:ident, $request:ident) => {
        $(#[$doc])*
        ///
        /// It shares the completion domain of what it is a view of: work on any of its views is ordered with work on all.
        #[must_use = "a view does nothing until an operation takes it"]
        pub struct $name<'a, T, const N: usize> {
            request: $request<'a, T>,
            layout: Layout<N>,
            conjugated: bool,
        }

        impl<'a, T, const N: usize> $name<'a, T, N> {
            /// The elements that `layout` maps of those behind `request`.
            ///
            /// # Errors
            /// [`PastMemory`](crate::TensorError::PastMemory) when the layout reaches past them.
            pub fn over(request: $request<'a, T>, layout: Layout<N>) -> TensorResult<Self> {
                layout.check_memory("a view", request.len())?;
                Ok(Self::new(request, layout))
            }

            /// As [`over`](Self::over), with a layout that was checked before.
            pub(crate) fn new(request: $request<'a, T>, layout: Layout<N>) -> Self {
                debug_assert!(layout.is_empty() || layout.span().end <= request.len());
                Self { request, layout, conjugated: false }
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

            /// Number of elements.
            #[must_use]
            pub fn len(&self) -> usize {
                self.layout.len()
            }

            /// Whether there are no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.layout.is_empty()
            }

            /// The device of the elements.
            #[must_use]
            pub fn device(&self) -> &'a Device {
                self.request.device()
            }

            /// The identity of the value whose ledger orders the elements.
            #[must_use]
            pub fn domain_id(&self) -> DomainId {
                self.request.domain_id()
            }

            /// The dimensions in reverse order.
            pub fn transposed(self) -> Self {
                Self { layout: self.layout.transposed(), ..self }
            }

            /// The dimensions in another order.
            ///
            /// # Errors
            /// As for [`Layout::permuted`].
            pub fn permuted(self, order: [usize; N]) -> TensorResult<Self> {
                Ok(Self { layout: self.layout.permuted(order)?, ..self })
            }

            /// The part with indices `range` in dimension `axis`.
            ///
            /// # Errors
            /// As for [`Layout::slice`].
            pub fn slice(self, axis: usize, range: Range<usize>) -> TensorResult<Self> {
                Ok(Self { layout: self.layout.slice(axis, range)?, ..self })
            }

            /// Every `step`th index of `range` in dimension `axis`, backwards for a negative step.
            ///
            /// # Errors
            /// As for [`Layout::slice_step`].
            pub fn slice_step(self, axis: usize, range: Range<usize>, step: isize) -> TensorResult<Self> {
                Ok(Self { layout: self.layout.slice_step(axis, range, step)?, ..self })
            }

            /// Dimension `axis` backwards.
            ///
            /// # Errors
            /// As for [`Layout::reversed`].
            pub fn reversed(self, axis: usize) -> TensorResult<Self> {
                Ok(Self { layout: self.layout.reversed(axis)?, ..self })
            }

            /// The elements at `index` of dimension `axis`, which the result lacks.
            ///
            /// # Errors
            /// As for [`Layout::at`].
            pub fn at<const M: usize>(self, axis: usize, index: usize) -> TensorResult<$name<'a, T, M>> {
                let layout = self.layout.at(axis, index)?;
                Ok(self.with(layout))
            }

            /// The diagonal of dimensions `a` and `b`, as the last dimension of the result.
            ///
            /// # Errors
            /// As for [`Layout::diagonal`].
            pub fn diagonal<const M: usize>(self, a: usize, b: usize) -> TensorResult<$name<'a, T, M>> {
                let layout = self.layout.diagonal(a, b)?;
                Ok(self.with(layout))
            }

            /// The same elements in the same order with other extents.
            ///
            /// # Errors
            /// As for [`Layout::reshaped`].
            pub fn reshaped<const M: usize>(self, extents: [usize; M]) -> TensorResult<$name<'a, T, M>> {
                let layout = self.layout.reshaped(extents)?;
                Ok(self.with(layout))
            }

            /// The elements repeated along dimensions of one element, or new ones.
            ///
            /// # Errors
            /// As for [`Layout::broadcast`].
            pub fn broadcast<const M: usize>(self, extents: [usize; M]) -> TensorResult<$name<'a, T, M>> {
                let layout = self.layout.broadcast(extents)?;
                Ok(self.with(layout))
            }

            pub(crate) fn with<const M: usize>(self, layout: Layout<M>) -> $name<'a, T, M> {
                $name { request: self.request, layout, conjugated: self.conjugated }
            }

            /// The access of the span of the elements, to be acquired.
            ///
            /// # Errors
            /// Never, since a view lies within its value.
            #[inline]
            pub(crate) fn into_request(self) -> TensorResult<$request<'a, T>> {
                Ok(self.request.slice(self.layout.memory())?)
            }
        }

        impl<T, const N: usize> fmt::Debug for $name<'_, T, N> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("layout", &self.layout)
                    .field("of", &self.request)
                    .field("conjugated", &self.conjugated)
                    .finish()
            }
        }
    };
}

views! {
    /// Elements of a tensor, to be read.
    TensorView, ReadRequest
}

views! {
    /// Elements of a tensor, to be written.
    TensorViewMut, WriteRequest
}

impl<T, const N: usize> Clone for TensorView<'_, T, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const N: usize> Copy for TensorView<'_, T, N> {}

impl<'a, T, const N: usize> TensorView<'a, T, N> {
    /// As [`into_request`](Self::into_request).
    #[inline]
    pub(crate) fn request(&self) -> TensorResult<ReadRequest<'a, T>> {
        Ok(self.request.slice(self.layout.memory())?)
    }

    /// Whether the elements are read as their complex conjugates.
    #[must_use]
    pub fn is_conjugated(&self) -> bool {
        self.conjugated
    }
}

impl<T: ComplexNumber, const N: usize> TensorView<'_, T, N> {
    /// The elements as their complex conjugates.
    pub fn conjugated(self) -> Self {
        Self {
            conjugated: !self.conjugated,
            ..self
        }
    }
}

impl<T, const N: usize> TensorViewMut<'_, T, N> {
    /// As [`into_request`](Self::into_request), for as long as this view is borrowed.
    #[inline]
    pub(crate) fn request(&mut self) -> TensorResult<WriteRequest<'_, T>> {
        Ok(self.request.reborrow().slice(self.layout.memory())?)
    }

    /// The same elements for as long as this view is borrowed.
    pub fn reborrow(&mut self) -> TensorViewMut<'_, T, N> {
        TensorViewMut {
            request: self.request.reborrow(),
            layout: self.layout,
            conjugated: false,
        }
    }

    /// The same elements, to be read.
    pub fn as_view(&self) -> TensorView<'_, T, N> {
        TensorView {
            request: self.request.as_read(),
            layout: self.layout,
            conjugated: false,
        }
    }
}

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

impl<'a, T, const N: usize> IntoView<'a, T, N> for &'a TensorViewMut<'_, T, N> {
    fn into_view(self) -> TensorView<'a, T, N> {
        self.as_view()
    }
}

impl<'a, T, const N: usize> IntoViewMut<'a, T, N> for TensorViewMut<'a, T, N> {
    fn into_view_mut(self) -> Self {
        self
    }
}

impl<'a, T, const N: usize> IntoViewMut<'a, T, N> for &'a mut TensorViewMut<'_, T, N> {
    fn into_view_mut(self) -> TensorViewMut<'a, T, N> {
        self.reborrow()
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

impl<'a, B, T: Element, const N: usize> IntoView<'a, T, N> for &'a HeldArray<B, T, [usize; N]> {
    fn into_view(self) -> TensorView<'a, T, N> {
        TensorView::new(self.read(), layout_of(self.dims()))
    }
}

impl<'a, B, T: Element, const N: usize> IntoViewMut<'a, T, N>
    for &'a mut HeldArray<B, T, [usize; N]>
{
    fn into_view_mut(self) -> TensorViewMut<'a, T, N> {
        let layout = layout_of(self.dims());
        TensorViewMut::new(self.write(), layout)
    }
}

/// The layout of an array that a space has made, whose elements were counted then.
pub(crate) fn layout_of<const N: usize>(dims: &[usize; N]) -> Layout<N> {
    Layout::row_major(*dims).unwrap_or_else(|_| {
        // An empty array may have extents whose product, leaving out the zero, can't be counted.
        Layout::row_major([0; N]).expect("no elements can be counted")
    })
}
