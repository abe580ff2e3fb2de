//! Device addresses that live no longer than the access they come from.

use crate::{BufferError, BufferResult};
use cuda_driver::DevicePtr;
use cuda_runtime::StreamId;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

macro_rules! slices {
    ($(#[$doc:meta])* $name:ident, $borrow:ty) => {
        $(#[$doc])*
        ///
        /// The lifetime is that of the access: nothing safe can queue work on the memory after the access has ended.
        pub struct $name<'g, T> {
            address: DevicePtr,
            len: usize,
            timeline: StreamId,
            borrow: PhantomData<$borrow>,
        }

        impl<'g, T> $name<'g, T> {
            pub(crate) fn new(base: DevicePtr, offset_bytes: u64, len: usize, timeline: StreamId) -> Self {
                let address = match len {
                    0 => base,
                    // Within an allocation, so it does not wrap.
                    _ => DevicePtr(base.0 + offset_bytes),
                };
                Self { address, len, timeline, borrow: PhantomData }
            }

            /// Number of elements.
            #[must_use]
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether there are no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Number of bytes.
            #[must_use]
            pub fn bytes(&self) -> usize {
                self.len * size_of::<T>()
            }

            /// The timeline that the access is ordered on: that of its stream, or of a capture of it.
            #[must_use]
            pub fn timeline(&self) -> StreamId {
                self.timeline
            }

            /// The address, for driver calls of one's own on the access's stream, while the access lives. It is null
            /// for no elements.
            #[must_use]
            pub fn address(&self) -> DevicePtr {
                self.address
            }

            /// The elements of `range` among these.
            ///
            /// # Errors
            /// [`BufferError::OutOfBounds`], [`BufferError::BadRange`].
            pub fn slice(self, range: impl RangeBounds<usize>) -> BufferResult<Self> {
                let range = BufferError::within(range, self.len)?;
                let offset_bytes = (range.start * size_of::<T>()) as u64;
                Ok(Self::new(self.address, offset_bytes, range.len(), self.timeline))
            }
        }

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("address", &self.address)
                    .field("len", &self.len)
                    .field("timeline", &self.timeline.number())
                    .finish_non_exhaustive()
            }
        }
    };
}

slices! {
    /// Elements of a buffer that work on one stream may read.
    DeviceSlice, &'g T
}

slices! {
    /// Elements of a buffer that work on one stream may read and write.
    DeviceSliceMut, &'g mut T
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<'g, T> DeviceSliceMut<'g, T> {
    /// The same elements, only to be read.
    #[must_use]
    pub fn as_read(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.address, 0, self.len, self.timeline)
    }

    /// The elements before and from `at` on, as two.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`].
    pub fn split_at(self, at: usize) -> BufferResult<(Self, Self)> {
        if at > self.len {
            return Err(BufferError::OutOfBounds {
                start: at,
                end: self.len,
                len: self.len,
            });
        }
        let offset_bytes = (at * size_of::<T>()) as u64;
        let rest = Self::new(self.address, offset_bytes, self.len - at, self.timeline);
        Ok((Self::new(self.address, 0, at, self.timeline), rest))
    }
}
