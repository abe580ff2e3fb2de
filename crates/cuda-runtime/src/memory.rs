//! Device memory: allocation from the device's own pool or plainly, and reclamation after the last use.

use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::device::Device;
use crate::slot::Slot;
use crate::stream::Stream;
use crate::{RuntimeError, RuntimeResult, capture};
use cuda_driver::{CallSite, DevicePtr, ErrorCode, PoolUsage, RawPool, RawStream};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The memory side of a device's resources.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    core: Arc<DeviceCore>,
    source: Source,
    pub(crate) late_frees: Arc<LateFrees>,
}

#[derive(Debug)]
enum Source {
    /// A pool of our own. The allocation stream waits for nothing; the reclamation stream for what it must.
    Pool {
        pool: RawPool,
        allocation: Arc<Slot>,
        reclamation: Arc<Slot>,
    },
    /// The device has no pools.
    Plain,
}

/// A range of device memory. What may still use it is its owner's to know: it goes back by
/// [`reclaim`](Self::reclaim); merely dropping it leaks the memory, and counts it.
#[derive(Debug)]
pub struct Allocation {
    device: Device,
    address: DevicePtr,
    bytes: usize,
}

impl DeviceMemory {
    pub(crate) fn new(core: &Arc<DeviceCore>, threshold_bytes: u64) -> RuntimeResult<Self> {
        let source = if core.properties.memory_pools {
            let pool = core.call(|driver| driver.pool_create(core.id, threshold_bytes))?;
            let slots = Slot::new(core, 0).and_then(|allocation| match Slot::new(core, 0) {
                Ok(reclamation) => Ok((allocation, reclamation)),
                Err(error) => {
                    allocation.destroy();
                    Err(error)
                }
            });
            match slots {
                Ok((allocation, reclamation)) => Source::Pool {
                    pool,
                    allocation,
                    reclamation,
                },
                Err(error) => {
                    destroy_pool(core, pool);
                    return Err(error);
                }
            }
        } else {
            Source::Plain
        };
        Ok(Self {
            core: core.clone(),
            source,
            late_frees: Arc::default(),
        })
    }

    /// Takes `bytes` from the system once, so that the pool holds them from then on.
    pub(crate) fn prime(&self, bytes: usize) -> RuntimeResult<()> {
        if let Source::Pool {
            pool, allocation, ..
        } = &self.source
            && bytes > 0
        {
            let core = &self.core;
            let address = allocation
                .enqueue(|driver, raw| driver.mem_alloc_async(core.id, *pool, bytes, raw))?;
            allocation.enqueue(|driver, raw| {
                // SAFETY: nobody has seen the address.
                unsafe { driver.mem_free_async(core.id, address, raw) }
            })?;
        }
        Ok(())
    }

    fn allocate(
        &self,
        bytes: usize,
        stream: Option<&Slot>,
    ) -> RuntimeResult<(DevicePtr, Option<Completion>)> {
        match self.try_allocate(bytes, stream) {
            Err(RuntimeError::Driver(error)) if error.code == ErrorCode::OUT_OF_MEMORY => {}
            result => return result,
        }
        // Pending frees may be all that is missing: wait for them, give the pool's spare memory back, try once more.
        self.drain()?;
        if let Source::Pool { pool, .. } = &self.source {
            self.core
                .call(|driver| driver.pool_trim(self.core.id, *pool, 0))?;
        }
        match self.try_allocate(bytes, stream) {
            Err(RuntimeError::Driver(error)) if error.code == ErrorCode::OUT_OF_MEMORY => {
                let (free_bytes, total_bytes) =
                    self.core.call(|driver| driver.memory_info(self.core.id))?;
                Err(RuntimeError::OutOfMemory {
                    device: self.core.id,
                    wanted_bytes: bytes,
                    free_bytes,
                    total_bytes,
                })
            }
            result => result,
        }
    }

    fn try_allocate(
        &self,
        bytes: usize,
        stream: Option<&Slot>,
    ) -> RuntimeResult<(DevicePtr, Option<Completion>)> {
        let core = &self.core;
        match &self.source {
            Source::Plain => {
                let address = core.call(|driver| driver.mem_alloc(core.id, bytes))?;
                Ok((address, None))
            }
            Source::Pool {
                pool, allocation, ..
            } => {
                let slot = stream.unwrap_or(allocation);
                let address = slot.enqueue(|driver, raw: RawStream| {
                    driver.mem_alloc_async(core.id, *pool, bytes, raw)
                })?;
                // Also when another thread has begun to capture the stream since.
                match slot.record_eager() {
                    Ok(completion) => Ok((address, completion)),
                    Err(error) => {
                        // The failed record has synchronised the stream, so the memory is allocated and unused.
                        // SAFETY: nobody has seen the address.
                        let freed = allocation.enqueue_in_cleanup(|driver, raw| unsafe {
                            driver.mem_free_async(core.id, address, raw)
                        });
                        if freed.is_err() {
                            core.live.leaked_bytes.fetch_add(bytes, Ordering::Relaxed);
                        }
                        Err(error)
                    }
                }
            }
        }
    }

    /// Frees memory after `outstanding`, without waiting here.
    fn reclaim_to_pool(
        &self,
        reclamation: &Slot,
        address: DevicePtr,
        bytes: usize,
        outstanding: &[Completion],
    ) {
        let core = &self.core;
        let mut needed = reclamation.needed(outstanding).into_iter();
        let ordered = needed.try_for_each(|completion| {
            reclamation
                .wait_for(completion)
                .or_else(|_| completion.wait_in_cleanup())
        });
        let freed = ordered.and_then(|()| {
            reclamation.enqueue_in_cleanup(|driver, raw| {
                // SAFETY: the stream is ordered after every outstanding use, and the owner gave the memory up.
                unsafe { driver.mem_free_async(core.id, address, raw) }
            })
        });
        if let Err(error) = freed {
            core.live.leaked_bytes.fetch_add(bytes, Ordering::Relaxed);
            core.park(error);
        }
    }

    /// Waits for pending frees.
    pub(crate) fn drain(&self) -> RuntimeResult<()> {
        capture::refuse("waiting for frees")?;
        self.late_frees.wait_until_empty();
        match &self.source {
            Source::Pool { reclamation, .. } => reclamation.synchronize().map(drop),
            Source::Plain => Ok(()),
        }
    }

    fn pool_usage(&self) -> RuntimeResult<Option<PoolUsage>> {
        match &self.source {
            Source::Plain => Ok(None),
            Source::Pool { pool, .. } => self
                .core
                .call(|driver| driver.pool_usage(self.core.id, *pool))
                .map(Some),
        }
    }

    /// Destroys streams and pool. For the device's owner, when nothing else refers to the device.
    pub(crate) fn destroy(&self) {
        if let Source::Pool {
            pool,
            allocation,
            reclamation,
        } = &self.source
        {
            reclamation.synchronize_or_poison();
            allocation.destroy();
            reclamation.destroy();
            destroy_pool(&self.core, *pool);
        }
    }
}

fn destroy_pool(core: &DeviceCore, pool: RawPool) {
    // SAFETY: the pool is known to its owner alone, which forgets it.
    let result = core.call_in_cleanup(|driver| unsafe { driver.pool_destroy(core.id, pool) });
    if let Err(error) = result {
        core.park(error);
    }
}

impl Device {
    /// Allocates `bytes` bytes, at least 1, on the device's allocation stream. The completion, if any, is the
    /// memory's first use: everything else comes after it.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] while this thread captures, [`RuntimeError::OutOfMemory`] with the numbers,
    /// the driver's own.
    #[track_caller]
    pub fn allocate(&self, bytes: usize) -> RuntimeResult<(Allocation, Option<Completion>)> {
        self.allocate_with(bytes, None)
    }

    /// As [`allocate`](Self::allocate), on the stream that will use the memory first.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate), and [`RuntimeError::WrongDevice`].
    #[track_caller]
    pub fn allocate_on(
        &self,
        bytes: usize,
        stream: &Stream,
    ) -> RuntimeResult<(Allocation, Option<Completion>)> {
        stream.check_device(self)?;
        self.allocate_with(bytes, Some(stream.slot()))
    }

    #[track_caller]
    fn allocate_with(
        &self,
        bytes: usize,
        stream: Option<&Slot>,
    ) -> RuntimeResult<(Allocation, Option<Completion>)> {
        let _site = CallSite::enter();
        capture::refuse("allocating device memory")?;
        let (address, completion) = self.memory().allocate(bytes, stream)?;
        let live = &self.core().live;
        live.allocations.fetch_add(1, Ordering::Relaxed);
        live.allocated_bytes.fetch_add(bytes, Ordering::Relaxed);
        let allocation = Allocation {
            device: self.clone(),
            address,
            bytes,
        };
        Ok((allocation, completion))
    }

    /// What the device's own pool holds and gave out; `None` for a device without pools.
    ///
    /// # Errors
    /// The driver's own.
    pub fn pool_usage(&self) -> RuntimeResult<Option<PoolUsage>> {
        self.memory().pool_usage()
    }

    /// Waits until pending frees are done.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] while this thread captures; the driver's own.
    #[track_caller]
    pub fn drain_frees(&self) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        self.memory().drain()
    }
}

impl Allocation {
    /// The device of the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its base address.
    #[must_use]
    pub fn address(&self) -> DevicePtr {
        self.address
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frees the memory after all of `outstanding`. The calling thread does not wait.
    #[track_caller]
    pub fn reclaim(mut self, outstanding: impl IntoIterator<Item = Completion>) {
        let _site = CallSite::enter();
        // An allocation of 0 bytes left has nothing to leak when it drops.
        let bytes = std::mem::take(&mut self.bytes);
        let live = &self.device.core().live;
        live.allocations.fetch_sub(1, Ordering::Relaxed);
        live.allocated_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let outstanding: Vec<_> = outstanding.into_iter().collect();
        let memory = self.device.memory();
        match &memory.source {
            Source::Pool { reclamation, .. } => {
                memory.reclaim_to_pool(reclamation, self.address, bytes, &outstanding);
            }
            Source::Plain => self.device.free_later(Grave {
                memory: Grabbed::Device(self.address),
                bytes,
                outstanding,
            }),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let live = &self.device.core().live;
            live.allocations.fetch_sub(1, Ordering::Relaxed);
            live.allocated_bytes
                .fetch_sub(self.bytes, Ordering::Relaxed);
            live.leaked_bytes.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Page-locked memory of the host.
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
        let outstanding: Vec<_> = outstanding.into_iter().collect();
        let idle = outstanding.iter().all(Completion::is_known_complete);
        if idle && !core.has_captures() && capture::refuse("").is_ok() {
            // SAFETY: the caller's promise, and all uses are over.
            let freed =
                core.call_in_cleanup(|driver| unsafe { driver.host_free(core.id, address) });
            if let Err(error) = freed {
                core.live.leaked_bytes.fetch_add(bytes, Ordering::Relaxed);
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

    fn free_later(&self, grave: Grave) {
        match self.start_reclaimer() {
            Ok(()) => self.memory().late_frees.push(grave),
            Err(error) => {
                let live = &self.core().live;
                live.leaked_bytes.fetch_add(grave.bytes, Ordering::Relaxed);
                self.core().park(error);
            }
        }
    }
}

/// Frees that may block wait for their completions, and for captures, on a thread of their own.
#[derive(Debug, Default)]
pub(crate) struct LateFrees {
    queue: Mutex<VecDeque<Grave>>,
    changed: Condvar,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Grave {
    memory: Grabbed,
    bytes: usize,
    outstanding: Vec<Completion>,
}

#[derive(Clone, Copy, Debug)]
enum Grabbed {
    Device(DevicePtr),
    Host(HostAddress),
}

#[derive(Clone, Copy, Debug)]
struct HostAddress(NonNull<u8>);

// SAFETY: the address is only handed to the driver, which frees it from any thread.
unsafe impl Send for HostAddress {}

impl LateFrees {
    fn push(&self, grave: Grave) {
        self.queue.lock().push_back(grave);
        self.changed.notify_all();
    }

    fn wait_until_empty(&self) {
        let mut queue = self.queue.lock();
        while !queue.is_empty() {
            self.changed.wait(&mut queue);
        }
    }

    pub(crate) fn close(&self) {
        let _queue = self.queue.lock();
        self.closed.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// The reclaim thread's work. Ends once closed and empty.
    pub(crate) fn free_until_closed(&self, core: &DeviceCore) {
        let mut queue = self.queue.lock();
        loop {
            // The grave stays in the queue until it is done: an empty queue means that nothing is pending.
            let Some(grave) = queue.front() else {
                if self.closed.load(Ordering::Acquire) {
                    return;
                }
                self.changed.wait(&mut queue);
                continue;
            };
            let (memory, bytes) = (grave.memory, grave.bytes);
            let outstanding = grave.outstanding.clone();
            drop(queue);
            core.wait_for_captures();
            let waited = outstanding.iter().try_for_each(Completion::wait_in_cleanup);
            let freed = waited.and_then(|()| {
                core.call_in_cleanup(|driver| match memory {
                    // SAFETY: every outstanding use is done, and the owner gave the memory up.
                    Grabbed::Device(address) => unsafe { driver.mem_free(core.id, address) },
                    // SAFETY: as above.
                    Grabbed::Host(HostAddress(address)) => unsafe {
                        driver.host_free(core.id, address)
                    },
                })
            });
            if let Err(error) = freed {
                core.live.leaked_bytes.fetch_add(bytes, Ordering::Relaxed);
                core.park(error);
            }
            drop(outstanding);
            queue = self.queue.lock();
            queue.pop_front();
            self.changed.notify_all();
        }
    }
}
