//! Page-locked memory of the host, and what is kept of it for the next who asks.

use crate::capture;
use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::device::Device;
use crate::late_frees::{Grabbed, Grave, HostAddress};
use crate::memory::is_out_of_memory;
use crate::primitive::Mutex;
use crate::unwound::OnUnwind;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CallSite, CudaResult, Driver};
use smallvec::SmallVec;
use std::ptr::NonNull;

/// Page-locked memory that nobody uses, in blocks whose size is a power of two. Locking pages is slow.
#[derive(Debug)]
pub(crate) struct HostPool {
    most_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    blocks: Vec<(usize, HostAddress)>,
}

impl HostPool {
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            kept: Mutex::default(),
        }
    }

    /// The size of the block for a request; requests that would not fit the pool have one of their own.
    fn block_bytes(&self, bytes: usize) -> usize {
        let rounded = bytes.checked_next_power_of_two().unwrap_or(usize::MAX);
        if rounded <= self.most_bytes {
            rounded
        } else {
            bytes
        }
    }

    fn take(&self, block_bytes: usize) -> Option<NonNull<u8>> {
        let mut kept = self.kept.lock();
        let mut sizes = kept.blocks.iter();
        let at = sizes.position(|&(bytes, _)| bytes == block_bytes)?;
        kept.bytes -= block_bytes;
        Some(kept.blocks.swap_remove(at).1.0)
    }

    /// Keeps a block that nobody uses, if there is room for it.
    fn keep(&self, address: NonNull<u8>, block_bytes: usize) -> bool {
        let mut kept = self.kept.lock();
        let room = self.most_bytes - kept.bytes >= block_bytes;
        if room {
            kept.bytes += block_bytes;
            kept.blocks.push((block_bytes, HostAddress(address)));
        }
        room
    }

    /// Gives everything back to the system.
    pub(crate) fn empty(&self, core: &DeviceCore) {
        let kept = std::mem::take(&mut *self.kept.lock());
        for (bytes, HostAddress(address)) in kept.blocks {
            // SAFETY: the block was made by `host_alloc` of this device, and nobody uses it.
            let free = |driver: &dyn Driver| unsafe { driver.host_free(core.id, address) };
            let freed = core.call_in_cleanup(|_| core.relaxed(free));
            if let Err(error) = freed {
                core.count_leak(bytes);
                core.park(error);
            }
        }
    }
}

impl DeviceCore {
    /// Takes back page-locked memory whose uses are over. Only where it is not kept it needs a call that captures forbid.
    ///
    /// # Safety
    /// The memory was made by [`Device::allocate_pinned`] of this device with this size, and nobody uses it.
    pub(crate) unsafe fn free_host(&self, address: NonNull<u8>, bytes: usize) -> RuntimeResult<()> {
        if self
            .host_pool
            .keep(address, self.host_pool.block_bytes(bytes))
        {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let free = |driver: &dyn Driver| unsafe { driver.host_free(self.id, address) };
        self.call_in_cleanup(|_| self.relaxed(free))
    }
}

impl Device {
    /// Allocates `bytes` bytes of page-locked host memory, at least 1: what the device has kept of that size, or else new
    /// memory (see [`RuntimeBuilder::host_pool_bytes`](crate::RuntimeBuilder::host_pool_bytes)).
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] while this thread captures, [`RuntimeError::HostOutOfMemory`] when there is none left
    /// after pending frees were waited for and what is kept was given back; the driver's own.
    #[track_caller]
    pub fn allocate_pinned(&self, bytes: usize) -> RuntimeResult<NonNull<u8>> {
        let _site = CallSite::enter();
        capture::refuse("allocating page-locked memory")?;
        let core = self.core();
        core.check()?;
        let block_bytes = core.host_pool.block_bytes(bytes);
        if let Some(kept) = core.host_pool.take(block_bytes) {
            return Ok(kept);
        }
        self.lock_pages(block_bytes, |driver| {
            driver.host_alloc(core.id, block_bytes)
        })
    }

    /// Makes page-locked memory of `bytes` bytes by a call that is made once more, after what is not in use has gone back, when
    /// it runs out of memory.
    pub(crate) fn lock_pages<T>(
        &self,
        bytes: usize,
        call: impl Fn(&dyn Driver) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        let core = self.core();
        let once = || core.call_strict(&call);
        match once() {
            Err(error) if is_out_of_memory(&error) => {
                self.memory().late_frees.wait_until_empty();
                core.host_pool.empty(core);
                once().map_err(|error| match is_out_of_memory(&error) {
                    true => RuntimeError::HostOutOfMemory {
                        device: core.id,
                        bytes,
                    },
                    false => error,
                })
            }
            result => result,
        }
    }

    /// Frees page-locked memory after all of `outstanding`. The calling thread does not wait.
    ///
    /// # Safety
    /// The memory was made by [`allocate_pinned`](Self::allocate_pinned) of this device with this size, every use of
    /// it is in `outstanding`, and none follows.
    #[track_caller]
    pub unsafe fn free_pinned(
        &self,
        address: NonNull<u8>,
        bytes: usize,
        outstanding: impl IntoIterator<Item = Completion>,
    ) {
        let _site = CallSite::enter();
        let core = self.core();
        if core.is_elsewhere() {
            return;
        }
        let outstanding: SmallVec<[Completion; 4]> = outstanding.into_iter().collect();
        let idle = outstanding.iter().all(Completion::is_known_complete);
        if idle && core.open_captures() == 0 && capture::refuse("").is_ok() {
            let lost = OnUnwind::new(|| core.count_leak(bytes));
            // SAFETY: the caller's promise, and all uses are over.
            let freed = unsafe { core.free_host(address, bytes) };
            lost.disarm();
            if let Err(error) = freed {
                core.count_leak(bytes);
                core.park(error);
            }
            return;
        }
        self.free_later(Grave {
            memory: Grabbed::Host(HostAddress(address)),
            bytes,
            outstanding,
        });
    }
}
