//! Page-locked memory of the host.

use crate::RuntimeResult;
use crate::capture;
use crate::completion::Completion;
use crate::device::Device;
use crate::late_frees::{Grabbed, Grave, HostAddress};
use cuda_driver::CallSite;
use smallvec::SmallVec;
use std::ptr::NonNull;

impl Device {
    /// Allocates `bytes` bytes of page-locked host memory, at least 1.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] while this thread captures; the driver's own.
    #[track_caller]
    pub fn allocate_pinned(&self, bytes: usize) -> RuntimeResult<NonNull<u8>> {
        let _site = CallSite::enter();
        capture::refuse("allocating page-locked memory")?;
        let core = self.core();
        core.call(|driver| driver.host_alloc(core.id, bytes))
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
        let outstanding: SmallVec<[Completion; 4]> = outstanding.into_iter().collect();
        let idle = outstanding.iter().all(Completion::is_known_complete);
        if idle && !core.has_captures() && capture::refuse("").is_ok() {
            // SAFETY: the caller's promise, and all uses are over.
            let freed =
                core.call_in_cleanup(|driver| unsafe { driver.host_free(core.id, address) });
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
