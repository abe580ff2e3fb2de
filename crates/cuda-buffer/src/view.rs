//! Views: elements of a value, named without touching them.

use crate::acquire::{ReadRequest, WriteRequest};
use crate::data::DeviceData;
use crate::domain::DomainId;
use crate::{BufferError, BufferResult};
use std::fmt;
use std::ops::RangeBounds;

macro_rules! views {
    ($($(#[$doc:meta])* $name:ident, $request:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// It names them: the value whose ledger orders their use, the offset of the first one there, and how many they
        /// are. It owns nothing, holds no access, and has no address: work reaches the elements through an access that
        /// is acquired from it. The ledger takes that access for the whole value.
        #[must_use = "a view does nothing by itself"]
        pub struct $name<'a, T> {
            request: $request<'a, T>,
            offset: usize,
        }

        impl<'a, T> $name<'a, T> {
            /// The identity of the value whose elements these are.
            #[must_use]
            pub fn domain_id(&self) -> DomainId {
                self.request.domain.id()
            }

            /// The offset of the first element in the value, in elements.
            #[must_use]
            pub fn offset(&self) -> usize {
                self.offset
            }

            /// Number of elements.
            #[must_use]
            pub fn len(&self) -> usize {
                self.request.len
            }

            /// Whether there are no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.request.len == 0
            }

            /// The elements of `range` among these.
            ///
            /// # Errors
            /// [`BufferError::OutOfBounds`], [`BufferError::BadRange`].
            pub fn slice(self, range: impl RangeBounds<usize>) -> BufferResult<Self> {
                let offset = self.offset;
                let range = BufferError::within(range, self.len())?;
                let start = range.start;
                let request = self.request.slice(range)?;
                Ok(Self { request, offset: offset + start })
            }
        }

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("domain", &self.domain_id())
                    .field("offset", &self.offset)
                    .field("len", &self.len())
                    .finish()
            }
        }
    )+ };
}

views! {
    /// Elements of a value, to be read.
    CudaBufferView, ReadRequest;

    /// Elements of a value, to be read and written.
    CudaBufferViewMut, WriteRequest;
}

impl<T> Clone for CudaBufferView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for CudaBufferView<'_, T> {}

impl<'a, T> CudaBufferView<'a, T> {
    pub(crate) fn new(request: ReadRequest<'a, T>) -> Self {
        Self { request, offset: 0 }
    }

    /// A read access, to be acquired alone or with others.
    pub fn read(&self) -> ReadRequest<'a, T> {
        self.request
    }

    /// Reads, ordered on `stream` after the latest write of the value.
    ///
    /// # Errors
    /// As for [`DeviceData::read_synchronized_with`].
    #[track_caller]
    pub fn read_synchronized_with(
        &self,
        stream: &cuda_runtime::Stream,
    ) -> BufferResult<crate::ReadAccess<'a, T>> {
        self.request.synchronized_with(stream)
    }
}

impl<'a, T> CudaBufferViewMut<'a, T> {
    pub(crate) fn new(request: WriteRequest<'a, T>) -> Self {
        Self { request, offset: 0 }
    }

    /// The same elements, only to be read.
    pub fn as_view(&self) -> CudaBufferView<'_, T> {
        let WriteRequest {
            domain,
            offset_bytes,
            len,
            ..
        } = self.request;
        CudaBufferView {
            request: ReadRequest::new(domain, offset_bytes, len),
            offset: self.offset,
        }
    }

    /// The elements before and from `at` on, as two views of one value. Only one of them can be accessed at a time.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`].
    pub fn split_at(self, at: usize) -> BufferResult<(Self, Self)> {
        let (len, offset) = (self.len(), self.offset);
        if at > len {
            return Err(BufferError::OutOfBounds {
                start: 0,
                end: at,
                len,
            });
        }
        let WriteRequest {
            domain,
            offset_bytes,
            ..
        } = self.request;
        let second_bytes = offset_bytes + (at * size_of::<T>()) as u64;
        let first = WriteRequest::new(domain, offset_bytes, at);
        let second = WriteRequest::new(domain, second_bytes, len - at);
        Ok((
            Self {
                request: first,
                offset,
            },
            Self {
                request: second,
                offset: offset + at,
            },
        ))
    }
}

impl<T: Copy + 'static> DeviceData for CudaBufferViewMut<'_, T> {
    type Element = T;

    fn read(&self) -> ReadRequest<'_, T> {
        self.as_view().request
    }

    fn write(&mut self) -> WriteRequest<'_, T> {
        let WriteRequest {
            domain,
            offset_bytes,
            len,
            ..
        } = self.request;
        WriteRequest::new(domain, offset_bytes, len)
    }
}
