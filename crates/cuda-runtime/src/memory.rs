//! Device memory: allocation from the device's own pool or plainly, and reclamation after the last use.

use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::device::Device;
use crate::late_frees::{Grabbed, Grave, LateFrees};
use crate::primitive::Ordering;
use crate::reclaim::Reclamation;
use crate::slot::Slot;
use crate::stream::Stream;
use crate::{RuntimeError, RuntimeResult, capture};
use cuda_driver::{CallSite, DevicePtr, ErrorCode, PoolUsage, RawPool};
use smallvec::SmallVec;
use std::sync::Arc;

/// The memory side of a device's resources.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    core: Arc<DeviceCore>,
    source: Source,
    pub(crate) late_frees: Arc<LateFrees>,
}

#[derive(Debug)]
enum Source {
    /// A pool of our own. The allocation stream waits for nothing.
    Pool {
        pool: RawPool,
        allocation: Arc<Slot>,
        reclamation: Reclamation,
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
            let pool = core.call_strict(|driver| driver.pool_create(core.id, threshold_bytes))?;
            let streams = Slot::new(core, 0).and_then(|allocation| match Reclamation::new(core) {
                Ok(reclamation) => Ok((allocation, reclamation)),
                Err(error) => {
                    allocation.destroy();
                    Err(error)
                }
            });
            match streams {
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

    #[inline]
    fn allocate(
        &self,
        bytes: usize,
        stream: Option<&Arc<Slot>>,
    ) -> RuntimeResult<(DevicePtr, Option<Completion>)> {
        match self.try_allocate(bytes, stream) {
            Ok(allocated) => Ok(allocated),
            Err(RuntimeError::Driver(error)) if error.code == ErrorCode::OUT_OF_MEMORY => {
                self.allocate_after_frees(bytes, stream)
            }
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn allocate_after_frees(
        &self,
        bytes: usize,
        stream: Option<&Arc<Slot>>,
    ) -> RuntimeResult<(DevicePtr, Option<Completion>)> {
        // Pending frees may be all that is missing: wait for them, give the pool's spare memory back, try once more.
        self.drain()?;
        if let Source::Pool { pool, .. } = &self.source {
            self.core
                .call_strict(|driver| driver.pool_trim(self.core.id, *pool, 0))?;
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

    #[inline]
    fn try_allocate(
        &self,
        bytes: usize,
        stream: Option<&Arc<Slot>>,
    ) -> RuntimeResult<(DevicePtr, Option<Completion>)> {
        let core = &self.core;
        match &self.source {
            Source::Plain => {
                let address = core.call_strict(|driver| driver.mem_alloc(core.id, bytes))?;
                core.live.memory.add(1, bytes as isize);
                Ok((address, None))
            }
            Source::Pool {
                pool,
                allocation,
                reclamation,
            } => {
                let slot = stream.unwrap_or(allocation);
                let (address, completion) = slot.allocate(bytes, |driver, raw| {
                    driver.mem_alloc_async(core.id, *pool, bytes, raw)
                })?;
                match completion {
                    Ok(completion) => Ok((address, Some(completion))),
                    Err(error) => {
                        // Nobody has seen the address, and the host knows that the memory is there.
                        reclamation.free(allocation, address, bytes, &[]);
                        Err(error)
                    }
                }
            }
        }
    }

    /// Waits for pending frees, wherever they are queued.
    pub(crate) fn drain(&self) -> RuntimeResult<()> {
        capture::refuse("waiting for frees")?;
        self.core.origin.check()?;
        self.late_frees.wait_until_empty();
        let slots = self.core.slots();
        slots
            .iter()
            .filter(|slot| slot.has_frees())
            .try_for_each(|slot| slot.drain())
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
            reclamation.destroy();
            allocation.synchronize_or_poison();
            allocation.destroy();
            destroy_pool(&self.core, *pool);
        }
    }
}

fn destroy_pool(core: &DeviceCore, pool: RawPool) {
    // SAFETY: the pool is known to its owner alone, which forgets it.
    let destroy = |driver: &dyn cuda_driver::Driver| unsafe { driver.pool_destroy(core.id, pool) };
    let result = core.call_in_cleanup(|_| core.relaxed(destroy));
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
        stream: Option<&Arc<Slot>>,
    ) -> RuntimeResult<(Allocation, Option<Completion>)> {
        let _site = CallSite::enter();
        capture::refuse("allocating device memory")?;
        let (address, completion) = self.memory().allocate(bytes, stream)?;
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
    pub fn reclaim(self, outstanding: impl IntoIterator<Item = Completion>) {
        let outstanding: SmallVec<[Completion; 4]> = outstanding.into_iter().collect();
        self.reclaim_after(&outstanding);
    }

    /// As [`reclaim`](Self::reclaim), of completions that lie together.
    #[track_caller]
    pub fn reclaim_after(mut self, outstanding: &[Completion]) {
        let _site = CallSite::enter();
        if self.device.is_forked() {
            return;
        }
        // An allocation of 0 bytes left has nothing to leak when it drops.
        let bytes = std::mem::take(&mut self.bytes);
        match &self.device.memory().source {
            Source::Pool {
                allocation,
                reclamation,
                ..
            } => reclamation.free(allocation, self.address, bytes, outstanding),
            Source::Plain => {
                self.device.core().live.memory.add(-1, -(bytes as isize));
                self.device.free_later(Grave {
                    memory: Grabbed::Device(self.address),
                    bytes,
                    outstanding: outstanding.iter().cloned().collect(),
                });
            }
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let live = &self.device.core().live;
            live.memory.add(-1, -(self.bytes as isize));
            live.leaked_bytes.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}
