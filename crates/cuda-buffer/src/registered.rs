//! Page-locked buffers over vectors, whose memory is locked where it is.

use crate::domain::{Domain, Memory, byte_count};
use crate::page_locked::PinnedMemory;
use crate::pinned::PinnedBuffer;
use crate::user_memory::UserMemory;
use crate::{BufferResult, Refused};
use bytemuck::Pod;
use cuda_driver::CallSite;
use cuda_runtime::Device;

impl<T: Pod> PinnedBuffer<T> {
    /// Page-locks the memory of a vector where it is (`cuMemHostRegister`), with its elements; nothing is copied. The buffer is
    /// one like any other, and [`into_vec`](Self::into_vec) gives the vector back. If it drops instead, the memory is
    /// unregistered and freed after its last use. No elements make no driver call.
    ///
    /// Locking pages is slow: register what is used often, or for long.
    ///
    /// # Errors
    /// The vector as it was, with [`RuntimeError::CaptureActive`](cuda_runtime::RuntimeError::CaptureActive) while this thread
    /// captures, or the driver's own error.
    ///
    /// ```
    /// use cuda_buffer::{CudaBuffer, DeviceData, PinnedBuffer};
    /// use cuda_runtime::Runtime;
    ///
    /// # fn main() -> cuda_buffer::BufferResult<()> {
    /// let runtime = Runtime::builder().build()?;
    /// let device = runtime.default_device();
    /// let stream = device.streams().acquire()?;
    /// let values = PinnedBuffer::register(device, vec![1.0_f32, 2.0, 3.0])?;
    /// let mut x = CudaBuffer::<f32>::new(device, 3)?;
    /// x.copy_from_pinned(&values, &stream)?;
    /// let values = values.into_vec()?; // waits for the copy
    /// assert_eq!(values, [1.0, 2.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn register(device: &Device, values: Vec<T>) -> Result<Self, Refused<Vec<T>>> {
        let _site = CallSite::enter();
        let len = values.len();
        let bytes = match byte_count::<T>(len) {
            Ok(bytes) => bytes,
            Err(error) => return Err((values, error).into()),
        };
        let memory = match UserMemory::new(values) {
            None => Memory::Empty,
            Some(memory) => match PinnedMemory::register(device, memory, bytes) {
                Ok(memory) => Memory::Pinned(Some(memory)),
                Err((memory, error)) => {
                    // SAFETY: it was made of `values`, just before.
                    let values = unsafe { memory.into_vec(len) };
                    return Err((values, error.into()).into());
                }
            },
        };
        Ok(Self::from_domain(Domain::owned(device, memory, None), len))
    }

    /// The elements on the host. A vector that was [registered](Self::register) comes back itself, without a copy, and is
    /// not page-locked any more; of other page-locked memory the elements are copied. Waits until no copy uses the memory.
    ///
    /// # Errors
    /// With the buffer: [`BufferError::Access`](crate::BufferError::Access) when somebody holds an access,
    /// [`BufferError::Held`](crate::BufferError::Held) when a graph or another owner has the memory,
    /// [`RuntimeError::CaptureActive`](cuda_runtime::RuntimeError::CaptureActive) while this thread captures, errors of the work waited
    /// for, or the driver's own. The memory stays locked then.
    #[track_caller]
    pub fn into_vec(mut self) -> Result<Vec<T>, Refused<Self>> {
        let _site = CallSite::enter();
        match self.take_back() {
            Ok(values) => Ok(values),
            Err(error) => Err((self, error).into()),
        }
    }

    fn take_back(&mut self) -> BufferResult<Vec<T>> {
        let len = self.len();
        self.domain_mut().check_sole()?;
        // Once the host may write, no work uses the memory; nor does any begin while this is borrowed.
        drop(self.host_write()?);
        let device = self.domain_mut().device().clone();
        if let Some(place) = self.domain_mut().pinned_mut() {
            // SAFETY: no work uses the memory, as said.
            if let Some(memory) = unsafe { PinnedMemory::unregister(place, &device) }? {
                // SAFETY: a vector of this type and length was registered as this buffer, whose type and length don't
                // change.
                return Ok(unsafe { memory.into_vec(len) });
            }
        }
        Ok(self.host_read()?.to_vec())
    }
}
