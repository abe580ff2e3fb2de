//! A driver between the runtime and the simulation: it hands every call on, but for waits that it is told to swallow.

use cuda_driver::{
    Argument, CallCounters, CallSite, Capture, CaptureMode, CaptureStatus, Copies, CopyRows,
    CudaResult, DeviceId, DeviceProperties, DevicePtr, Devices, Driver, EventFlags, Events,
    GraphFlags, GraphUpdate, Graphs, Kernels, LaunchConfig, Memory, ModuleImage, Pattern,
    PoolUsage, RawEvent, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawModule, RawPool,
    RawStream, Streams,
};
use cuda_sim::SimDriver;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How somebody waits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Waits {
    /// A stream for an event.
    OfDevice,
    /// The host for an event or a stream.
    OfHost,
    /// The host asks, again and again or once, whether an event or a stream is over.
    ByAsking,
}

/// The driver in between.
pub(crate) struct Tap {
    sim: SimDriver,
    /// Device-side waits so far.
    waits: AtomicU64,
    /// The number of the wait that never reaches the device; 0 for none.
    swallowed: AtomicU64,
    /// Whether device-side waits, the host's waits, and its questions reach the device; where not, all is over at once.
    removed: [AtomicBool; 3],
    /// Where the swallowed wait was asked for.
    site: Mutex<Option<&'static Location<'static>>>,
    /// Events that a host thread may wait for asleep.
    asleep: Mutex<HashSet<u64>>,
    /// Events that were made to take times, and the host's waits for events that made it spin.
    costly: AtomicU64,
    /// Done once the host has begun to wait for a stream, before the driver hears of it or after it has answered.
    around: Mutex<(Option<Hook>, Option<Hook>)>,
}

type Hook = Box<dyn FnOnce() + Send>;

impl Tap {
    pub(crate) fn new(sim: SimDriver) -> Self {
        Self {
            sim,
            waits: AtomicU64::new(0),
            swallowed: AtomicU64::new(0),
            removed: Default::default(),
            site: Mutex::new(None),
            asleep: Mutex::default(),
            costly: AtomicU64::new(0),
            around: Mutex::default(),
        }
    }

    /// How many events were made to take times, which makes them costly, and how often the host waited for one that makes
    /// it spin.
    pub(crate) fn costly_events(&self) -> u64 {
        self.costly.load(Ordering::Relaxed)
    }

    /// Does `hook` when the host waits for a stream next, before the driver hears of it.
    pub(crate) fn before_synchronize(&self, hook: impl FnOnce() + Send + 'static) {
        self.around.lock().0 = Some(Box::new(hook));
    }

    /// Does `hook` when the host waits for a stream next, after the driver has answered.
    pub(crate) fn after_synchronize(&self, hook: impl FnOnce() + Send + 'static) {
        self.around.lock().1 = Some(Box::new(hook));
    }

    /// The `n`th wait from now on succeeds and does nothing.
    pub(crate) fn swallow(&self, n: u64) {
        self.swallowed.store(self.waits() + n, Ordering::Relaxed);
    }

    /// From now on waits of this kind reach the device, or do not, which nobody is told.
    pub(crate) fn remove(&self, waits: Waits, removed: bool) {
        self.removed[waits as usize].store(removed, Ordering::Relaxed);
    }

    fn is_removed(&self, waits: Waits) -> bool {
        self.removed[waits as usize].load(Ordering::Relaxed)
    }

    /// Where the swallowed wait was asked for.
    pub(crate) fn site(&self) -> Option<&'static Location<'static>> {
        *self.site.lock()
    }

    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tap({} waits)", self.waits())
    }
}

macro_rules! delegate {
    () => {};
    (fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty; $($rest:tt)*) => {
        fn $name(&self $(, $arg: $ty)*) -> $ret {
            self.sim.$name($($arg),*)
        }
        delegate! { $($rest)* }
    };
    (unsafe fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty; $($rest:tt)*) => {
        unsafe fn $name(&self $(, $arg: $ty)*) -> $ret {
            // SAFETY: the caller's promise, handed on.
            unsafe { self.sim.$name($($arg),*) }
        }
        delegate! { $($rest)* }
    };
}

impl Devices for Tap {
    delegate! {
        fn device_count() -> CudaResult<u32>;
        fn device_properties(device: DeviceId) -> CudaResult<DeviceProperties>;
        fn memory_info(device: DeviceId) -> CudaResult<(u64, u64)>;
        fn can_access_peer(device: DeviceId, peer: DeviceId) -> CudaResult<bool>;
        fn device_synchronize(device: DeviceId) -> CudaResult<()>;
    }
}

impl Streams for Tap {
    delegate! {
        fn stream_create(device: DeviceId, priority: i32) -> CudaResult<RawStream>;
        fn stream_priority(device: DeviceId, stream: RawStream) -> CudaResult<i32>;
        unsafe fn stream_destroy(device: DeviceId, stream: RawStream) -> CudaResult<()>;
    }

    fn stream_query(&self, device: DeviceId, stream: RawStream) -> CudaResult<bool> {
        match self.is_removed(Waits::ByAsking) {
            true => Ok(true),
            false => self.sim.stream_query(device, stream),
        }
    }

    fn stream_synchronize(&self, device: DeviceId, stream: RawStream) -> CudaResult<()> {
        let (before, after) = std::mem::take(&mut *self.around.lock());
        before.into_iter().for_each(|hook| hook());
        let answer = match self.is_removed(Waits::OfHost) {
            true => Ok(()),
            false => self.sim.stream_synchronize(device, stream),
        };
        after.into_iter().for_each(|hook| hook());
        answer
    }

    fn stream_wait_event(
        &self,
        device: DeviceId,
        stream: RawStream,
        event: RawEvent,
    ) -> CudaResult<()> {
        let number = self.waits.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_removed(Waits::OfDevice) || number == self.swallowed.load(Ordering::Relaxed) {
            *self.site.lock() = CallSite::current();
            return Ok(());
        }
        self.sim.stream_wait_event(device, stream, event)
    }
}

impl Events for Tap {
    delegate! {
        unsafe fn event_destroy(device: DeviceId, event: RawEvent) -> CudaResult<()>;
        fn event_record(device: DeviceId, event: RawEvent, stream: RawStream) -> CudaResult<()>;
        fn event_elapsed(device: DeviceId, start: RawEvent, end: RawEvent) -> CudaResult<f32>;
    }

    fn event_create(&self, device: DeviceId, flags: EventFlags) -> CudaResult<RawEvent> {
        let event = self.sim.event_create(device, flags)?;
        let mut asleep = self.asleep.lock();
        match flags.blocking_sync {
            true => asleep.insert(event.raw()),
            false => asleep.remove(&event.raw()),
        };
        self.costly
            .fetch_add(u64::from(flags.timing), Ordering::Relaxed);
        Ok(event)
    }

    fn event_query(&self, device: DeviceId, event: RawEvent) -> CudaResult<bool> {
        match self.is_removed(Waits::ByAsking) {
            true => Ok(true),
            false => self.sim.event_query(device, event),
        }
    }

    fn event_synchronize(&self, device: DeviceId, event: RawEvent) -> CudaResult<()> {
        if self.is_removed(Waits::OfHost) {
            return Ok(());
        }
        let spins = !self.asleep.lock().contains(&event.raw());
        self.costly.fetch_add(u64::from(spins), Ordering::Relaxed);
        self.sim.event_synchronize(device, event)
    }
}

impl Memory for Tap {
    delegate! {
        fn mem_alloc(device: DeviceId, bytes: usize) -> CudaResult<DevicePtr>;
        unsafe fn mem_free(device: DeviceId, address: DevicePtr) -> CudaResult<()>;
        fn pool_create(device: DeviceId, release_threshold_bytes: u64) -> CudaResult<RawPool>;
        unsafe fn pool_destroy(device: DeviceId, pool: RawPool) -> CudaResult<()>;
        fn pool_trim(device: DeviceId, pool: RawPool, keep_bytes: u64) -> CudaResult<()>;
        fn pool_usage(device: DeviceId, pool: RawPool) -> CudaResult<PoolUsage>;
        fn pool_set_access(device: DeviceId, pool: RawPool, peer: DeviceId) -> CudaResult<()>;
        fn mem_alloc_async(device: DeviceId, pool: RawPool, bytes: usize, stream: RawStream) -> CudaResult<DevicePtr>;
        unsafe fn mem_free_async(device: DeviceId, address: DevicePtr, stream: RawStream) -> CudaResult<()>;
        fn host_alloc(device: DeviceId, bytes: usize) -> CudaResult<NonNull<u8>>;
        unsafe fn host_free(device: DeviceId, address: NonNull<u8>) -> CudaResult<()>;
        unsafe fn host_register(device: DeviceId, address: NonNull<u8>, bytes: usize) -> CudaResult<()>;
        unsafe fn host_unregister(device: DeviceId, address: NonNull<u8>) -> CudaResult<()>;
    }
}

impl Copies for Tap {
    delegate! {
        unsafe fn copy_to_device(device: DeviceId, dst: DevicePtr, src: *const u8, bytes: usize) -> CudaResult<()>;
        unsafe fn copy_to_host(device: DeviceId, dst: *mut u8, src: DevicePtr, bytes: usize) -> CudaResult<()>;
        unsafe fn copy_to_device_async(device: DeviceId, dst: DevicePtr, src: *const u8, bytes: usize, stream: RawStream) -> CudaResult<()>;
        unsafe fn copy_to_host_async(device: DeviceId, dst: *mut u8, src: DevicePtr, bytes: usize, stream: RawStream) -> CudaResult<()>;
        unsafe fn copy_device_async(device: DeviceId, dst: DevicePtr, src: DevicePtr, bytes: usize, stream: RawStream) -> CudaResult<()>;
        unsafe fn copy_peer_async(device: DeviceId, dst_device: DeviceId, dst: DevicePtr, src_device: DeviceId, src: DevicePtr, bytes: usize, stream: RawStream) -> CudaResult<()>;
        unsafe fn fill_async(device: DeviceId, dst: DevicePtr, pattern: Pattern, count: usize, stream: RawStream) -> CudaResult<()>;
        unsafe fn copy_rows_to_device_async(device: DeviceId, dst: DevicePtr, src: *const u8, shape: CopyRows, stream: RawStream) -> CudaResult<()>;
        unsafe fn copy_rows_to_host_async(device: DeviceId, dst: *mut u8, src: DevicePtr, shape: CopyRows, stream: RawStream) -> CudaResult<()>;
        unsafe fn copy_rows_device_async(device: DeviceId, dst: DevicePtr, src: DevicePtr, shape: CopyRows, stream: RawStream) -> CudaResult<()>;
        unsafe fn copy_rows_peer_async(device: DeviceId, dst_device: DeviceId, dst: DevicePtr, src_device: DeviceId, src: DevicePtr, shape: CopyRows, stream: RawStream) -> CudaResult<()>;
        unsafe fn fill_rows_async(device: DeviceId, dst: DevicePtr, pitch_bytes: usize, pattern: Pattern, width: usize, rows: usize, stream: RawStream) -> CudaResult<()>;
    }
}

impl Kernels for Tap {
    delegate! {
        fn module_load(device: DeviceId, image: &'static ModuleImage) -> CudaResult<RawModule>;
        unsafe fn module_unload(device: DeviceId, module: RawModule) -> CudaResult<()>;
        fn module_function(device: DeviceId, module: RawModule, name: &'static str) -> CudaResult<RawFunction>;
        fn function_allow_shared(device: DeviceId, function: RawFunction, bytes: u32) -> CudaResult<()>;
        fn function_load(device: DeviceId, function: RawFunction) -> CudaResult<()>;
        unsafe fn launch(device: DeviceId, function: RawFunction, config: &LaunchConfig, stream: RawStream, args: &[Argument]) -> CudaResult<()>;
        fn launch_host_function(device: DeviceId, stream: RawStream, function: std::sync::Arc<dyn Fn() + Send + Sync>) -> CudaResult<()>;
    }
}

impl Capture for Tap {
    delegate! {
        fn capture_begin(device: DeviceId, stream: RawStream, mode: CaptureMode) -> CudaResult<()>;
        fn capture_end(device: DeviceId, stream: RawStream) -> CudaResult<RawGraph>;
        fn capture_status(device: DeviceId, stream: RawStream) -> CudaResult<CaptureStatus>;
        fn capture_frontier(device: DeviceId, stream: RawStream) -> CudaResult<Vec<RawGraphNode>>;
        fn capture_child(device: DeviceId, stream: RawStream, graph: RawGraph) -> CudaResult<()>;
        fn exchange_capture_mode(mode: CaptureMode) -> CudaResult<CaptureMode>;
    }
}

impl Graphs for Tap {
    delegate! {
        fn graph_node_count(device: DeviceId, graph: RawGraph) -> CudaResult<usize>;
        fn graph_instantiate(device: DeviceId, graph: RawGraph) -> CudaResult<RawGraphExec>;
        fn graph_instantiate_with(device: DeviceId, graph: RawGraph, flags: GraphFlags) -> CudaResult<RawGraphExec>;
        unsafe fn graph_exec_update(device: DeviceId, exec: RawGraphExec, graph: RawGraph) -> CudaResult<GraphUpdate>;
        unsafe fn graph_exec_set_kernel(device: DeviceId, exec: RawGraphExec, node: RawGraphNode, function: RawFunction, config: &LaunchConfig, args: &[Argument]) -> CudaResult<()>;
        unsafe fn graph_launch(device: DeviceId, exec: RawGraphExec, stream: RawStream) -> CudaResult<()>;
        unsafe fn graph_destroy(device: DeviceId, graph: RawGraph) -> CudaResult<()>;
        unsafe fn graph_exec_destroy(device: DeviceId, exec: RawGraphExec) -> CudaResult<()>;
    }
}
// SAFETY: everything is the simulated device's own answer; a wait that is swallowed is what the tests are about.
unsafe impl Driver for Tap {
    fn name(&self) -> String {
        self.sim.name()
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn counters(&self) -> &CallCounters {
        self.sim.counters()
    }
}
