//! Device memory: allocation from the device's own pool or plainly, and reclamation after the last use.

use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::device::Device;
use crate::late_frees::{Grabbed, Grave, LateFrees};
use crate::primitive::Ordering;
use crate::reclaim::{self, Reclamation};
use crate::slot::Slot;
use crate::stream::Stream;
use crate::{RuntimeError, RuntimeResult, capture};
use cuda_driver::{CallSite, DevicePtr, Driver, ErrorCode, PoolUsage, RawPool};
use smallvec::SmallVec;
use std::mem::ManuallyDrop;
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

/// A range of device memory, or none. What may still use it is its owner's to know: it goes back by
/// [`reclaim`](Self::reclaim); merely dropping it leaks the memory, and counts it.
#[derive(Debug)]
pub struct Allocation {
    device: ManuallyDrop<Device>,
    address: DevicePtr,
    /// 0 for none.
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
                .enqueue(|driver, raw| driver.mem_alloc_async(core.id, *pool, bytes, raw))
                .map_err(|error| self.explain(error, bytes))?;
            allocation.enqueue(|driver, raw| {
                // SAFETY: nobody has seen the address.
                unsafe { driver.mem_free_async(core.id, address, raw) }
            })?;
        }
        Ok(())
    }

    /// Memory of `device`, which this is of.
    #[inline(always)]
    fn allocate(
        &self,
        device: &Device,
        bytes: usize,
        stream: Option<&Arc<Slot>>,
    ) -> RuntimeResult<(Allocation, Option<Completion>)> {
        match self.try_allocate(device, bytes, stream) {
            Ok(allocated) => Ok(allocated),
            Err(error) if is_out_of_memory(&error) => {
                self.allocate_after_frees(device, bytes, stream)
            }
            Err(error) => Err(*error),
        }
    }

    #[cold]
    #[inline(never)]
    fn allocate_after_frees(
        &self,
        device: &Device,
        bytes: usize,
        stream: Option<&Arc<Slot>>,
    ) -> RuntimeResult<(Allocation, Option<Completion>)> {
        // Pending frees may be all that is missing: wait for them, give the pool's spare memory back, try once more.
        self.drain()?;
        if let Source::Pool { pool, .. } = &self.source {
            self.core
                .call_strict(|driver| driver.pool_trim(self.core.id, *pool, 0))?;
        }
        self.try_allocate(device, bytes, stream)
            .map_err(|error| self.explain(*error, bytes))
    }

    /// The error of a request for so much, with the device's numbers if that is why it failed.
    #[cold]
    fn explain(&self, error: RuntimeError, wanted_bytes: usize) -> RuntimeError {
        if !is_out_of_memory(&error) {
            return error;
        }
        match self.core.call(|driver| driver.memory_info(self.core.id)) {
            Ok((free_bytes, total_bytes)) => RuntimeError::OutOfMemory {
                device: self.core.id,
                wanted_bytes,
                free_bytes,
                total_bytes,
            },
            Err(error) => error,
        }
    }

    #[inline(always)]
    fn try_allocate(
        &self,
        device: &Device,
        bytes: usize,
        stream: Option<&Arc<Slot>>,
    ) -> Result<(Allocation, Option<Completion>), Box<RuntimeError>> {
        let core = &self.core;
        match &self.source {
            Source::Plain => {
                let address = core.call_strict(|driver| driver.mem_alloc(core.id, bytes))?;
                core.live.memory.add(1, bytes as isize);
                Ok((Allocation::of(device.clone(), address, bytes), None))
            }
            Source::Pool {
                pool,
                allocation,
                reclamation,
            } => {
                let slot = stream.unwrap_or(allocation);
                let allocate =
                    |driver: &dyn Driver, raw| driver.mem_alloc_async(core.id, *pool, bytes, raw);
                // Nobody has seen the address, and the host knows that the memory is there.
                let free = |address| reclamation.free(allocation, address, bytes, &[]);
                let leased = stream.is_some();
                match slot.allocate(bytes, device, leased, allocate, free) {
                    Ok((address, owner, completion)) => {
                        let allocation = Allocation::of(owner, address, bytes);
                        Ok((allocation, Some(completion)))
                    }
                    Err(error) => Err(error),
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

pub(crate) fn is_out_of_memory(error: &RuntimeError) -> bool {
    matches!(error, RuntimeError::Driver(error) if error.code == ErrorCode::OUT_OF_MEMORY)
}

fn destroy_pool(core: &DeviceCore, pool: RawPool) {
    // SAFETY: the pool is known to its owner alone, which forgets it.
    let destroy = |driver: &dyn Driver| unsafe { driver.pool_destroy(core.id, pool) };
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
    #[inline]
    pub fn allocate(&self, bytes: usize) -> RuntimeResult<(Allocation, Option<Completion>)> {
        self.allocate_with(bytes, None)
    }

    /// As [`allocate`](Self::allocate), on the stream that will use the memory first.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate), and [`RuntimeError::WrongDevice`].
    #[track_caller]
    #[inline]
    pub fn allocate_on(
        &self,
        bytes: usize,
        stream: &Stream,
    ) -> RuntimeResult<(Allocation, Option<Completion>)> {
        stream.check_device(self)?;
        self.allocate_with(bytes, Some(stream.slot()))
    }

    #[track_caller]
    #[inline(always)]
    fn allocate_with(
        &self,
        bytes: usize,
        stream: Option<&Arc<Slot>>,
    ) -> RuntimeResult<(Allocation, Option<Completion>)> {
        let _site = CallSite::enter();
        capture::refuse("allocating device memory")?;
        self.memory().allocate(self, bytes, stream)
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
    /// No memory.
    #[must_use]
    pub fn none(device: &Device) -> Self {
        Self::of(device.clone(), DevicePtr::NULL, 0)
    }

    #[inline]
    fn of(device: Device, address: DevicePtr, bytes: usize) -> Self {
        Self {
            device: ManuallyDrop::new(device),
            address,
            bytes,
        }
    }

    /// Hands the memory on, and has none then.
    #[must_use = "memory that is dropped is leaked"]
    pub fn take(&mut self) -> Self {
        let none = Self::none(&self.device);
        std::mem::replace(self, none)
    }

    /// The device of the memory.
    #[inline]
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its base address; null for none.
    #[inline]
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
    pub fn reclaim_after(self, outstanding: &[Completion]) {
        let _site = CallSite::enter();
        if self.bytes == 0 || self.device.is_forked() {
            return;
        }
        let (address, bytes) = (self.address, self.bytes);
        let mut device = Some(self.into_device());
        // Mostly one stream has used it last.
        if let [last] = outstanding
            && reclaim::free_behind(last, &mut device, address, bytes)
        {
            return;
        }
        let device = device.expect("it is kept where nothing was freed");
        match &device.memory().source {
            Source::Pool {
                allocation,
                reclamation,
                ..
            } => reclamation.free(allocation, address, bytes, outstanding),
            Source::Plain => {
                device.core().live.memory.add(-1, -(bytes as isize));
                device.free_later(Grave {
                    memory: Grabbed::Device(address),
                    bytes,
                    outstanding: outstanding.iter().cloned().collect(),
                });
            }
        }
    }

    /// Gives the memory up, uncounted.
    fn into_device(self) -> Device {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: neither the allocation nor this field of it is used or dropped again.
        unsafe { ManuallyDrop::take(&mut this.device) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let live = &self.device.core().live;
            live.memory.add(-1, -(self.bytes as isize));
            live.leaked_bytes.fetch_add(self.bytes, Ordering::Relaxed);
        }
        // SAFETY: the allocation ends here, and nobody has taken the device out of one that drops.
        unsafe { ManuallyDrop::drop(&mut self.device) };
    }
}
