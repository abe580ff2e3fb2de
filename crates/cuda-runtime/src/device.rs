//! A device and the resources that the runtime holds for it.

use crate::adopted::Forgotten;
use crate::core::DeviceCore;
use crate::counted::{Counted, Last, Shares, Sole};
use crate::counters::OrderCounts;
use crate::late_frees;
use crate::memory::DeviceMemory;
use crate::module::Modules;
use crate::policy::Behaviour;
use crate::pool::Pool;
use crate::provider::Providers;
use crate::slot::Slot;
use crate::stream::Stream;
use crate::stream_pool::StreamPool;
use crate::transfers::Transfers;
use crate::{RuntimeError, RuntimeResult, capture};
use cuda_driver::{CallCounts, CallSite, DeviceId, DeviceProperties, Driver, RawStream};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// What the runtime holds for one device. Everything made from it keeps it alive.
pub(crate) struct DeviceResources {
    core: Arc<DeviceCore>,
    /// What others keep here. Given up by the runtime; whatever is left goes first.
    providers: Providers,
    /// The one of usual priority first.
    pools: Vec<Arc<Pool>>,
    memory: DeviceMemory,
    transfers: Transfers,
    forgotten: Forgotten,
    modules: Modules,
    reclaimer: Mutex<Option<JoinHandle<()>>>,
}

/// How a device's resources are set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) streams: usize,
    /// Further pools: priority and streams.
    pub(crate) priorities: Vec<(i32, usize)>,
    pub(crate) threshold_bytes: u64,
    pub(crate) prime_bytes: usize,
    pub(crate) host_pool_bytes: usize,
    pub(crate) behaviour: Behaviour,
}

/// A pool for each priority.
fn open_pools(core: &Arc<DeviceCore>, setup: &Setup) -> RuntimeResult<Vec<Arc<Pool>>> {
    let (least, most) = core.properties.priorities;
    let mut pools: Vec<Arc<Pool>> = Vec::with_capacity(1 + setup.priorities.len());
    for &(priority, streams) in [(0, setup.streams)].iter().chain(&setup.priorities) {
        let pool = if (most..=least).contains(&priority) {
            Pool::new(core, pools.len(), priority, streams)
        } else {
            Err(RuntimeError::BadPriority {
                device: core.id,
                priority,
                least,
                most,
            })
        };
        match pool {
            Ok(pool) => pools.push(pool),
            Err(error) => {
                pools.iter().for_each(|pool| pool.destroy());
                return Err(error);
            }
        }
    }
    Ok(pools)
}

/// A device of a runtime. Cheap to clone; what is made from it keeps its resources alive.
#[derive(Clone)]
pub struct Device(Counted<DeviceResources>);

impl Last for DeviceResources {
    fn last(resources: Sole<Self>) {
        drop(resources);
    }
}

impl Device {
    pub(crate) fn open(
        driver: &Arc<dyn Driver>,
        id: DeviceId,
        setup: &Setup,
    ) -> RuntimeResult<Self> {
        let properties = driver.device_properties(id)?;
        let core = DeviceCore::new(
            driver.clone(),
            id,
            properties,
            setup.behaviour,
            setup.host_pool_bytes,
        );
        let pools = open_pools(&core, setup)?;
        let built = DeviceMemory::new(&core, setup.threshold_bytes).and_then(|memory| {
            let primed = memory.prime(setup.prime_bytes);
            match primed.and_then(|()| Transfers::new(&core)) {
                Ok(transfers) => Ok((memory, transfers)),
                Err(error) => {
                    memory.destroy();
                    Err(error)
                }
            }
        });
        let (memory, transfers) = match built {
            Ok(built) => built,
            Err(error) => {
                pools.iter().for_each(|pool| pool.destroy());
                return Err(error);
            }
        };
        Ok(Self(Counted::first(Sole::new(DeviceResources {
            providers: Providers::default(),
            core,
            pools,
            memory,
            transfers,
            forgotten: Forgotten::default(),
            modules: Modules::default(),
            reclaimer: Mutex::new(None),
        }))))
    }

    #[inline]
    pub(crate) fn of(resources: Counted<DeviceResources>) -> Self {
        Self(resources)
    }

    #[inline]
    pub(crate) fn into_counted(self) -> Counted<DeviceResources> {
        self.0
    }

    /// So many handles more.
    pub(crate) fn share(&self, handles: usize) -> Shares<DeviceResources> {
        Counted::share_of(&self.0, handles)
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.0.core
    }

    pub(crate) fn pool(&self, number: usize) -> &Pool {
        &self.0.pools[number]
    }

    pub(crate) fn providers(&self) -> &Providers {
        &self.0.providers
    }

    /// Whether the device is that of `core` and frees memory in the order of its streams.
    #[inline]
    pub(crate) fn takes_frees_of(&self, core: &Arc<DeviceCore>) -> bool {
        Arc::ptr_eq(&self.0.core, core) && core.properties.memory_pools
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.0.memory
    }

    pub(crate) fn transfers(&self) -> &Transfers {
        &self.0.transfers
    }

    pub(crate) fn forgotten(&self) -> &Forgotten {
        &self.0.forgotten
    }

    pub(crate) fn modules(&self) -> &Modules {
        &self.0.modules
    }

    /// Starts the thread of frees that may block, once.
    pub(crate) fn start_reclaimer(&self) -> RuntimeResult<()> {
        let mut thread = self.0.reclaimer.lock();
        if thread.is_some() {
            return Ok(());
        }
        *thread = Some(late_frees::start(&self.0.core, &self.0.memory.late_frees)?);
        Ok(())
    }

    /// Waits for everything that is queued, and for pending frees.
    pub(crate) fn drain(&self) -> RuntimeResult<()> {
        let slots = self.0.core.slots();
        slots.iter().try_for_each(|slot| slot.drain())?;
        self.0.memory.drain()
    }

    /// The device's ordinal.
    #[inline]
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.0.core.id
    }

    /// What the device is and can do.
    #[inline]
    #[must_use]
    pub fn properties(&self) -> &DeviceProperties {
        &self.0.core.properties
    }

    /// The driver behind the device.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.0.core.driver
    }

    /// The device's streams, of usual priority.
    #[must_use]
    pub fn streams(&self) -> StreamPool<'_> {
        StreamPool::of(self, 0)
    }

    /// The device's streams of another priority; smaller is more urgent. The runtime's builder says which there are.
    ///
    /// # Errors
    /// [`RuntimeError::NoSuchPriority`].
    pub fn streams_at(&self, priority: i32) -> RuntimeResult<StreamPool<'_>> {
        let mut pools = self.0.pools.iter();
        match pools.position(|pool| pool.priority == priority) {
            Some(number) => Ok(StreamPool::of(self, number)),
            None => Err(RuntimeError::NoSuchPriority {
                device: self.id(),
                priority,
            }),
        }
    }

    /// A stream that the user made, to be used like any other until the last clone drops. It is never pooled, and not
    /// destroyed. What may be queued there is unknown, so nothing is assumed: each completion has an event of its own at once, and
    /// no lease is ever handed out after one. The device ends after what Carve has queued there.
    ///
    /// # Errors
    /// [`RuntimeError::Poisoned`], or the error that a destructor left.
    ///
    /// # Safety
    /// The stream is one of this device, made through the same driver with the non-blocking flag, and exists until Carve has
    /// forgotten it: as long as there are clones, or guards or captures of it. What else is queued on it is ordered with every
    /// other use of the memory that it touches, and it is captured by Carve alone in that time.
    #[track_caller]
    pub unsafe fn adopt_stream(&self, stream: RawStream) -> RuntimeResult<Stream> {
        let _site = CallSite::enter();
        self.check()?;
        Ok(Stream::adopted(self, &Slot::adopted(self.core(), stream)))
    }

    /// Whether this handle and `other` are of the same resources.
    #[inline]
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Counted::same(&self.0, &other.0)
    }

    /// Fails unless `other` is a device of the same driver.
    ///
    /// # Errors
    /// [`RuntimeError::WrongDriver`].
    pub fn check_driver(&self, other: &Self) -> RuntimeResult<()> {
        match Arc::ptr_eq(self.driver(), other.driver()) {
            true => Ok(()),
            false => Err(RuntimeError::WrongDriver {
                device: self.id(),
                given: other.id(),
            }),
        }
    }

    /// Fails when the device is poisoned, or with the error that a destructor left behind.
    ///
    /// # Errors
    /// [`RuntimeError::Poisoned`], or the destructor's error, once.
    pub fn check(&self) -> RuntimeResult<()> {
        self.0.core.check()
    }

    /// Fails when the device is poisoned; errors that a destructor left stay where they are.
    ///
    /// # Errors
    /// [`RuntimeError::Poisoned`].
    #[inline]
    pub fn check_poison(&self) -> RuntimeResult<()> {
        self.0.core.check_poison()
    }

    /// Poisons the device: memory that may still be in use is leaked from now on, and every call fails with `error`.
    #[track_caller]
    pub fn poison(&self, error: cuda_driver::CudaError) {
        self.0.core.poison(error);
    }

    /// Whether this process is a child, by `fork`, of the one that opened the device. Then every call fails with
    /// [`RuntimeError::Forked`], nothing reaches the driver, and what was inherited does nothing when it drops.
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.0.core.is_elsewhere()
    }

    /// Whether the device is poisoned.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.0.core.is_poisoned()
    }

    /// Whether this thread is capturing work of the device. Asks the driver when a capture is open on this thread.
    ///
    /// # Errors
    /// The driver's own.
    pub fn capturing(&self) -> RuntimeResult<bool> {
        capture::capturing(self)
    }

    /// What ordering cost so far.
    #[must_use]
    pub fn order_counts(&self) -> OrderCounts {
        self.0.core.order_counts()
    }

    /// The driver calls made so far, by every user of the same driver.
    #[must_use]
    pub fn call_counts(&self) -> CallCounts {
        self.0.core.driver.counters().snapshot()
    }

    /// Events made so far; constant in a steady state, since events are recycled.
    #[must_use]
    pub fn events_created(&self) -> u64 {
        self.0.core.events_created.load(Ordering::Relaxed)
    }

    /// What is alive on the device.
    #[must_use]
    pub fn alive(&self) -> Alive {
        let live = &self.0.core.live;
        if self.is_forked() {
            return Alive::default();
        }
        let (allocations, allocated_bytes) = self.0.core.allocated();
        Alive {
            allocations,
            allocated_bytes,
            graphs: live.graphs.load(Ordering::Relaxed),
            leased_streams: self.0.pools.iter().map(|pool| pool.counts().leased).sum(),
            captures: self.0.core.open_captures(),
            leaked_bytes: live.leaked_bytes.load(Ordering::Relaxed),
        }
    }

    /// Keeps an error that a destructor could not return; the next checked call on the device returns it.
    pub fn park(&self, error: RuntimeError) {
        self.0.core.park(error);
    }

    /// Adds to the bytes that were leaked because they may still be in use.
    pub fn count_leak(&self, bytes: usize) {
        self.0.core.count_leak(bytes);
    }

    /// Runs `calls` in a way that does not invalidate a capture of this thread: for calls that concern none of its
    /// streams but that a strict capture forbids, such as the allocation of page-locked memory.
    ///
    /// # Errors
    /// What `calls` returns, and [`RuntimeError::Poisoned`].
    #[track_caller]
    pub fn call_outside_captures<T>(
        &self,
        calls: impl FnOnce(&dyn Driver) -> cuda_driver::CudaResult<T>,
    ) -> RuntimeResult<T> {
        let _site = CallSite::enter();
        let core = &self.0.core;
        core.call(|_| core.relaxed_for_long(calls))
    }
}

/// What is alive on a device, or lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alive {
    /// Allocations in use.
    pub allocations: usize,
    /// Their bytes.
    pub allocated_bytes: usize,
    /// Executable graphs.
    pub graphs: usize,
    /// Leased streams.
    pub leased_streams: usize,
    /// Captures that are open.
    pub captures: usize,
    /// Bytes that were leaked because something may still use them.
    pub leaked_bytes: usize,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}: {})", self.id().0, self.properties().name)
    }
}

impl Drop for DeviceResources {
    /// Nothing made from the device is left. Waits for queued work, then gives everything back.
    fn drop(&mut self) {
        if self.core.is_elsewhere() {
            // Its threads and its driver are the parent's.
            std::mem::forget(self.reclaimer.get_mut().take());
            return;
        }
        self.providers.close();
        self.memory.late_frees.close();
        self.memory.late_frees.wait_for_uses();
        match self.reclaimer.get_mut().take() {
            // What it gave up held the last handle of the device: the rest goes before that, and it ends by itself.
            Some(thread) if thread.thread().id() == std::thread::current().id() => {
                self.memory.late_frees.free_until_closed(&self.core);
            }
            // A panic of the thread was reported where it happened; a destructor adds nothing.
            Some(thread) => drop(thread.join()),
            None => {}
        }
        let give_back = || {
            // Modules are unloaded below: their launches must be over.
            self.pools.iter().for_each(|pool| pool.settle());
            self.transfers.settle();
            self.forgotten.settle();
            self.memory.destroy();
            self.core.host_pool.empty(&self.core);
            self.pools.iter().for_each(|pool| pool.destroy());
            self.transfers.destroy();
            self.modules.unload(&self.core);
            self.core.close_events();
        };
        // The last handle may go while this thread captures on another device.
        let relaxed = self.core.relaxed_for_long(|_| {
            give_back();
            Ok(())
        });
        if relaxed.is_err() {
            give_back();
        }
        // All work is over: who still waits for a completion finds it complete.
        self.core.notifier.close();
    }
}
