//! Typed device buffers that order themselves.

use crate::acquire::{ReadRequest, WriteRequest};
use crate::data::DeviceData;
use crate::domain::{Domain, DomainId, Memory, byte_count, refuse_in_child};
use crate::ledger::{AccessKind, Predecessors};
use crate::{BufferError, BufferResult};
use cuda_driver::CallSite;
use cuda_runtime::{Allocation, Completion, Device, Stream};
use std::fmt;
use std::marker::PhantomData;

/// A typed buffer of device memory. It is moved, not copied.
///
/// Treat it like an ordinary value whose device work may finish later: every access is ordered on its stream after
/// what must come first, and nothing waits on the host. New buffers are uninitialised: write before you read.
///
/// ```
/// use cuda_buffer::{CudaBuffer, DeviceData};
/// use cuda_runtime::Runtime;
///
/// # fn main() -> cuda_buffer::BufferResult<()> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let (first, second) = (device.streams().acquire()?, device.streams().acquire()?);
///
/// let mut x = CudaBuffer::<u32>::new(device, 1000)?;
/// x.fill_bytes(&first, 0xff)?;                 // on one stream
/// let mut y = CudaBuffer::<u32>::new(device, 1000)?;
/// y.copy_from(&x, &second)?;                   // on another: ordered after the fill by x's ledger
/// assert!(y.to_vec()?.iter().all(|&word| word == u32::MAX));
/// # Ok(())
/// # }
/// ```
///
/// Elements without size, and elements aligned to more than the 256 bytes that drivers align memory to, are refused when
/// the program is compiled, here and in page-locked memory; arenas hold both.
///
/// ```compile_fail
/// # let runtime = cuda_runtime::Runtime::builder().build().unwrap();
/// let units = cuda_buffer::CudaBuffer::<()>::new(runtime.default_device(), 1000);
/// ```
pub struct CudaBuffer<T> {
    domain: Domain,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Copy + 'static> CudaBuffer<T> {
    /// An uninitialised buffer of `len` elements, allocated on the device's allocation stream. A buffer of no elements
    /// makes no driver call.
    ///
    /// # Errors
    /// [`BufferError::SizeOverflow`]; what [`Device::allocate`] returns.
    #[track_caller]
    #[inline]
    pub fn new(device: &Device, len: usize) -> BufferResult<Self> {
        let _site = CallSite::enter();
        Self::allocate(device, len, |bytes| Domain::allocate(device, bytes))
    }

    /// An uninitialised buffer of `len` elements, allocated on the stream that will use it first.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    #[track_caller]
    #[inline]
    pub fn new_on(stream: &Stream, len: usize) -> BufferResult<Self> {
        let _site = CallSite::enter();
        let allocate = |bytes| Domain::allocate_on(stream, bytes);
        Self::allocate(stream.device(), len, allocate)
    }

    #[inline(always)]
    fn allocate(
        device: &Device,
        len: usize,
        allocate: impl FnOnce(usize) -> Result<Domain, Box<BufferError>>,
    ) -> BufferResult<Self> {
        let domain = match byte_count::<T>(len)? {
            0 => Domain::owned(device, Memory::Empty, None),
            bytes => match allocate(bytes) {
                Ok(domain) => domain,
                Err(error) => return Err(*error),
            },
        };
        Ok(Self {
            domain,
            len,
            elements: PhantomData,
        })
    }

    /// A buffer with a copy of `values`. Waits on the host until the copy is done.
    ///
    /// # Errors
    /// As for [`new`](Self::new) and [`DeviceData::copy_from_slice`].
    #[track_caller]
    pub fn from_slice(device: &Device, values: &[T]) -> BufferResult<Self>
    where
        T: bytemuck::NoUninit,
    {
        let _site = CallSite::enter();
        let mut buffer = Self::new(device, values.len())?;
        buffer.copy_from_slice(values)?;
        Ok(buffer)
    }

    /// Is ready once everything published before the first poll is done.
    ///
    /// # Errors
    /// As for [`synchronize`](Self::synchronize).
    pub async fn synchronize_async(&self) -> BufferResult<()> {
        for completion in self.published()? {
            completion.await?;
        }
        Ok(())
    }

    /// The latest write that was published, unless it is known to be done: what another stream would wait for. `None` also for
    /// memory that several streams used before it became this buffer, and in a child process.
    ///
    /// Whoever keeps it makes its stream record an event once it gets more to do.
    #[must_use]
    pub fn last_write(&self) -> Option<Completion> {
        match self.device().is_forked() {
            true => None,
            false => self.domain.with_ledger(|ledger| ledger.last_write()),
        }
    }

    fn published(&self) -> BufferResult<Predecessors> {
        refuse_in_child(self.device())?;
        let published = self.domain.with_ledger(|ledger| {
            ledger
                .check(AccessKind::Write)
                .map(|()| ledger.outstanding())
        })?;
        Ok(published)
    }

    /// Waits on the host for everything published so far.
    ///
    /// # Errors
    /// [`BufferError::Access`] when somebody holds an access; errors of the work waited for.
    #[track_caller]
    pub fn synchronize(&self) -> BufferResult<()> {
        let _site = CallSite::enter();
        Completion::wait_all(&self.published()?)?;
        Ok(())
    }
}

impl<T: Copy + 'static> DeviceData for CudaBuffer<T> {
    type Element = T;

    fn read(&self) -> ReadRequest<'_, T> {
        ReadRequest::new(&self.domain, 0, self.len)
    }

    fn write(&mut self) -> WriteRequest<'_, T> {
        WriteRequest::new(&self.domain, 0, self.len)
    }
}

impl<T> CudaBuffer<T> {
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

    /// The device of the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.domain.device()
    }

    /// The identity of the value, never reused.
    #[must_use]
    pub fn domain_id(&self) -> DomainId {
        self.domain.id()
    }

    pub(crate) fn from_domain(domain: Domain, len: usize) -> Self {
        Self {
            domain,
            len,
            elements: PhantomData,
        }
    }

    pub(crate) fn into_domain(self) -> Domain {
        self.domain
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Fails when a graph holds the buffer, or a forgotten guard.
    pub(crate) fn check_sole(&self) -> BufferResult<()> {
        self.domain.check_sole()
    }

    /// The memory and what may still use it.
    ///
    /// # Errors
    /// [`BufferError::Held`] and [`BufferError::Access`], with the buffer.
    pub(crate) fn into_allocation(
        self,
    ) -> Result<(Option<Allocation>, Vec<Completion>), (Self, BufferError)> {
        let Self { domain, len, .. } = self;
        match domain.into_allocation() {
            Ok((allocation, outstanding)) => Ok((allocation, outstanding.into_vec())),
            Err((domain, error)) => Err((
                Self {
                    domain,
                    len,
                    elements: PhantomData,
                },
                error,
            )),
        }
    }
}

impl<T> fmt::Debug for CudaBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBuffer")
            .field("domain", &self.domain_id())
            .field("device", self.device())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
