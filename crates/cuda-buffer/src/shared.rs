//! Shared handles: several owners, with accesses checked when they are acquired.

use crate::acquire::{ReadRequest, WriteRequest};
use crate::buffer::CudaBuffer;
use crate::domain::DomainId;
use crate::{BufferError, Refused, data::DeviceData};
use std::fmt;
use std::sync::Arc;

/// A handle of a buffer that others hold too. What the compiler checks for a [`CudaBuffer`], the ledger checks here when
/// an access is acquired: an access that excludes another one is an error that says who holds it since where.
///
/// ```
/// use cuda_buffer::{BufferError, CudaBuffer, SharedCudaBuffer};
/// use cuda_runtime::Runtime;
///
/// # fn main() -> cuda_buffer::BufferResult<()> {
/// let runtime = Runtime::builder().build()?;
/// let stream = runtime.default_device().streams().acquire()?;
/// let here = SharedCudaBuffer::from(CudaBuffer::<u8>::new(runtime.default_device(), 16)?);
/// let there = here.clone();
///
/// let writing = here.write().synchronized_with(&stream)?;
/// let refused = there.read().synchronized_with(&stream);
/// assert!(matches!(refused, Err(BufferError::Access(_))));
/// drop(writing);
/// let _reading = there.read().synchronized_with(&stream)?;
/// # Ok(())
/// # }
/// ```
pub struct SharedCudaBuffer<T>(Arc<CudaBuffer<T>>);

impl<T: Copy + 'static> SharedCudaBuffer<T> {
    /// A read access, to be acquired.
    pub fn read(&self) -> ReadRequest<'_, T> {
        self.0.read()
    }

    /// A write access, to be acquired.
    pub fn write(&self) -> WriteRequest<'_, T> {
        WriteRequest::new(self.0.domain(), 0, self.0.len())
    }

    /// The buffer, when this is the only handle.
    ///
    /// # Errors
    /// The handle, when there are others.
    pub fn into_buffer(self) -> Result<CudaBuffer<T>, Refused<Self>> {
        Arc::try_unwrap(self.0).map_err(|shared| {
            let holders = Arc::strong_count(&shared).saturating_sub(1).max(1);
            Refused {
                value: Self(shared),
                error: BufferError::Held { holders },
            }
        })
    }
}

impl<T> SharedCudaBuffer<T> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The identity of the value, the same for all handles.
    #[must_use]
    pub fn domain_id(&self) -> DomainId {
        self.0.domain_id()
    }
}

impl<T> Clone for SharedCudaBuffer<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> From<CudaBuffer<T>> for SharedCudaBuffer<T> {
    fn from(buffer: CudaBuffer<T>) -> Self {
        Self(Arc::new(buffer))
    }
}

impl<T> fmt::Debug for SharedCudaBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedCudaBuffer").field(&*self.0).finish()
    }
}
