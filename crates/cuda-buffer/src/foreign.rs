//! Device memory of another library, adopted: ordered like any other, and given back after its last use.

use crate::buffer::CudaBuffer;
use crate::domain::{Domain, Memory, byte_count};
use crate::ledger::Predecessors;
use crate::{BufferError, BufferResult};
use cuda_driver::{CallSite, DevicePtr, RawEvent};
use cuda_runtime::{Completion, Device, OnUnwind, RuntimeError, Stream};
use parking_lot::Mutex;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Release = Box<dyn FnOnce(DevicePtr) + Send>;

/// Memory that somebody else allocated.
pub(crate) struct Foreign {
    address: DevicePtr,
    bytes: usize,
    /// Called once, after the last use.
    release: Mutex<Option<Release>>,
}

impl<T: Copy + 'static> CudaBuffer<T> {
    /// Adopts device memory that another library allocated: `len` elements at `address`, on the device of `stream`.
    ///
    /// The first access comes after `ready`, an event of that library that was recorded after its last use of the memory; `None` when
    /// nothing uses the memory any more. `stream` waits for it, and so does whoever accesses the buffer on another stream.
    ///
    /// `release` is called once, when the buffer is gone and everything that Carve has queued on the memory is done: on the thread
    /// that drops the buffer when that is known by then, or else, and while the thread captures, on a thread of its own. When the work
    /// may never end (a forgotten guard, a lost device), or that thread can't be started, it is neither called nor dropped, so that what
    /// it owns stays; then the bytes are counted as leaked.
    ///
    /// The buffer is like any other, but can't be cut into parts or become an arena.
    ///
    /// # Errors
    /// [`BufferError::SizeOverflow`]; [`BufferError::BadAddress`] for null, or an address that is not aligned to the elements;
    /// [`RuntimeError::CaptureActive`] while this thread captures; the driver's own. Then nothing was adopted, and `release` is
    /// dropped uncalled.
    ///
    /// # Safety
    /// The memory is `len` elements of device memory that kernels on the device may read and write. It stays allocated until
    /// `release` is called. From now on nobody else uses it, and `ready` comes after all earlier use; it is an event that exists.
    #[track_caller]
    pub unsafe fn adopt(
        stream: &Stream,
        address: DevicePtr,
        len: usize,
        ready: Option<RawEvent>,
        release: impl FnOnce(DevicePtr) + Send + 'static,
    ) -> BufferResult<Self> {
        let _site = CallSite::enter();
        let bytes = byte_count::<T>(len)?;
        let align_bytes = align_of::<T>();
        if address == DevicePtr::NULL || !address.0.is_multiple_of(align_bytes as u64) {
            return Err(BufferError::BadAddress {
                address: address.0,
                align_bytes,
            });
        }
        cuda_runtime::refuse_in_capture("adopting memory")?;
        let device = stream.device();
        let before = match ready {
            None => None,
            Some(event) => {
                let wait = |driver: &dyn cuda_driver::Driver, raw| {
                    driver.stream_wait_event(device.id(), raw, event)
                };
                // SAFETY: a wait touches no memory.
                unsafe { stream.enqueue(wait)? };
                stream.record_eager()?
            }
        };
        let foreign = Foreign {
            address,
            bytes,
            release: Mutex::new(Some(Box::new(release))),
        };
        let domain = Domain::owned(device, Memory::Foreign(foreign), before);
        Ok(Self::from_domain(domain, len))
    }
}

impl Foreign {
    pub(crate) fn address(&self) -> DevicePtr {
        self.address
    }

    /// Gives the memory back after `outstanding`; unless `forgotten`, when its use may never end.
    pub(crate) fn give_back(
        &mut self,
        device: &Device,
        outstanding: Predecessors,
        forgotten: bool,
    ) {
        let Some(release) = self.release.get_mut().take() else {
            return;
        };
        // Called or kept for ever: it may own the memory, which is not to be freed under work that goes on.
        let release = ManuallyDrop::new(release);
        if device.is_forked() {
            return; // The parent does that.
        }
        let (address, bytes) = (self.address, self.bytes);
        if forgotten {
            device.count_leak(bytes);
            return;
        }
        // A panic of the function has told so where it happened, and ends nobody's destructor.
        let release = move || {
            let release = ManuallyDrop::into_inner(release);
            drop(catch_unwind(AssertUnwindSafe(|| release(address))));
        };
        // What it calls, a capture of this thread could forbid.
        let may_call = cuda_runtime::refuse_in_capture("releasing memory").is_ok();
        if may_call && outstanding.iter().all(Completion::is_known_complete) {
            release();
        } else {
            let keep = device.clone();
            let wait = move || {
                let lost = OnUnwind::new(|| keep.count_leak(bytes));
                // A driver that could not tell may tell when it is asked again; the first error is reported all the same.
                let waited = Completion::wait_all(&outstanding).or_else(|error| {
                    keep.park(error);
                    Completion::wait_all(&outstanding)
                });
                drop(outstanding);
                lost.disarm();
                match waited {
                    Ok(()) => {
                        // Whoever hears of the release finds nothing of the device held here.
                        drop(keep);
                        release();
                    }
                    Err(error) => {
                        keep.count_leak(bytes);
                        keep.park(error);
                    }
                }
            };
            let thread = std::thread::Builder::new().name("carve-release".to_owned());
            if let Err(error) = thread.spawn(wait) {
                device.count_leak(bytes);
                device.park(RuntimeError::NoThread {
                    purpose: "releases adopted memory after its last use",
                    reason: error.to_string(),
                });
            }
        }
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign")
            .field("address", &self.address)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
