//! Host memory that its owner lets the driver page-lock.

use crate::RuntimeResult;
use crate::capture;
use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::device::Device;
use crate::late_frees::{Grabbed, Grave, HostAddress, Owner};
use cuda_driver::{CallSite, Driver};
use smallvec::SmallVec;
use std::ptr::NonNull;

impl DeviceCore {
    /// Ends a registration, in a destructor.
    ///
    /// # Safety
    /// The memory is registered and alive, and nobody uses it.
    pub(crate) unsafe fn unregister_host(&self, address: NonNull<u8>) -> RuntimeResult<()> {
        // SAFETY: the caller's promise.
        let end = |driver: &dyn Driver| unsafe { driver.host_unregister(self.id, address) };
        self.call_in_cleanup(|_| self.relaxed(end))
    }
}

impl Device {
    /// Page-locks `bytes` bytes of host memory, at least 1, that stay their owner's.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`](crate::RuntimeError::CaptureActive) while this thread captures,
    /// [`RuntimeError::HostOutOfMemory`](crate::RuntimeError::HostOutOfMemory) when so much can't be locked; the driver's own.
    ///
    /// # Safety
    /// The memory is readable and writable, and is not freed before its registration has ended.
    #[track_caller]
    pub unsafe fn register_host(&self, address: NonNull<u8>, bytes: usize) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        capture::refuse("registering host memory")?;
        let core = self.core();
        core.check()?;
        self.lock_pages(bytes, |driver| {
            // SAFETY: the caller's promise; a call that failed has registered nothing.
            unsafe { driver.host_register(core.id, address, bytes) }
        })
    }

    /// Ends a registration, for the memory's owner to have it back. On an error it goes on.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`](crate::RuntimeError::CaptureActive) while this thread captures; the driver's own.
    ///
    /// # Safety
    /// The memory is registered by [`register_host`](Self::register_host) of this device, and no work uses it.
    #[track_caller]
    pub unsafe fn unregister_host(&self, address: NonNull<u8>) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        capture::refuse("ending a registration of host memory")?;
        let core = self.core();
        // SAFETY: the caller's promise.
        core.call_strict(|driver| unsafe { driver.host_unregister(core.id, address) })
    }

    /// Ends a registration after all of `outstanding`, and then drops the memory's owner. The calling thread does not wait.
    /// Where that fails the owner is leaked and its bytes are counted, for the driver may still have the memory.
    ///
    /// # Safety
    /// The memory is registered by [`register_host`](Self::register_host) of this device with this size and lives as long as
    /// `owner`; every use of it is in `outstanding`, and none follows.
    #[track_caller]
    pub unsafe fn release_registered(
        &self,
        address: NonNull<u8>,
        bytes: usize,
        owner: Owner,
        outstanding: impl IntoIterator<Item = Completion>,
    ) {
        let _site = CallSite::enter();
        let core = self.core();
        if core.is_elsewhere() {
            std::mem::forget(owner); // The parent process has it.
            return;
        }
        let outstanding: SmallVec<[Completion; 4]> = outstanding.into_iter().collect();
        let idle = outstanding.iter().all(Completion::is_known_complete);
        if idle && core.open_captures() == 0 && capture::refuse("").is_ok() {
            // SAFETY: the caller's promise, and all uses are over.
            if let Err(error) = unsafe { core.unregister_host(address) } {
                core.count_leak(bytes);
                core.park(error);
                std::mem::forget(owner);
            }
            return;
        }
        self.free_later(Grave {
            memory: Grabbed::Registered(HostAddress(address), owner),
            bytes,
            outstanding,
        });
    }
}
