//! A driver whose calls can be made to fail, over any other: simulated, emulated or hardware.

use cuda_driver::{
    Argument, Call, CallCounters, Capture, CaptureMode, CaptureStatus, Copies, CopyRows, CudaError,
    CudaResult, DeviceId, DeviceProperties, DevicePtr, Devices, Driver, ErrorCode, EventFlags,
    Events, GraphFlags, GraphUpdate, Graphs, Kernels, LaunchConfig, Memory, ModuleImage, Pattern,
    PoolUsage, RawEvent, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawModule, RawPool,
    RawStream, Streams,
};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Hands every call on, but for the one that it was told to fail, which then does nothing.
///
/// ```
/// use cuda_contract::Failing;
/// use cuda_driver::{Call, DeviceId, ErrorCode, Streams};
///
/// let driver = Failing::new(cuda_sim::SimDriver::builder().build().as_driver());
/// driver.fail(Call::StreamCreate, 2, ErrorCode::OUT_OF_MEMORY);
/// let made: Vec<bool> = (0..3).map(|_| driver.stream_create(DeviceId(0), 0).is_ok()).collect();
/// assert_eq!(made, [true, false, true]);
/// assert!(driver.finish().failed);
/// ```
#[derive(Debug)]
pub struct Failing {
    inner: Arc<dyn Driver>,
    all_threads: bool,
    watch: Mutex<Option<Watch>>,
}

#[derive(Debug)]
struct Watch {
    /// Whose calls count; those of other threads go through. `None` for those of all threads.
    thread: Option<ThreadId>,
    plan: Option<(Call, u64, Fails)>,
    seen: Seen,
}

/// How a call fails.
#[derive(Clone, Copy, Debug)]
enum Fails {
    Returns(ErrorCode),
    Unwinds,
}

/// What a call that was told to unwind unwinds with.
#[derive(Clone, Copy, Debug)]
pub struct Unwound(pub Call);

/// What a [`Failing`] driver saw while it watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How often each call was made.
    pub calls: BTreeMap<Call, u64>,
    /// Whether the planned failure came.
    pub failed: bool,
}

impl Failing {
    /// A driver over `inner` that fails nothing yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Driver>) -> Self {
        Self {
            inner,
            all_threads: false,
            watch: Mutex::new(None),
        }
    }

    /// The same, which watches all threads, and not only the one that asks.
    #[must_use]
    pub fn on_all_threads(self) -> Self {
        Self {
            all_threads: true,
            ..self
        }
    }

    /// From now on counts the calls of this thread.
    pub fn watch(&self) {
        self.begin(None);
    }

    /// From now on counts the calls of this thread, and fails its `n`th of this name, from 1, with `code`.
    pub fn fail(&self, call: Call, n: u64, code: ErrorCode) {
        self.begin(Some((call, n, Fails::Returns(code))));
    }

    /// As [`fail`](Self::fail), but the call unwinds with [`Unwound`], as a driver of somebody's own may that has a bug. No message is
    /// printed.
    pub fn unwind(&self, call: Call, n: u64) {
        self.begin(Some((call, n, Fails::Unwinds)));
    }

    /// Watches no more, and fails nothing; what it saw.
    pub fn finish(&self) -> Seen {
        let watch = self.state().take();
        watch.map(|watch| watch.seen).unwrap_or_default()
    }

    fn begin(&self, plan: Option<(Call, u64, Fails)>) {
        *self.state() = Some(Watch {
            thread: (!self.all_threads).then(|| thread::current().id()),
            plan,
            seen: Seen::default(),
        });
    }

    fn state(&self) -> MutexGuard<'_, Option<Watch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before each call.
    fn pass(&self, call: Call, device: Option<DeviceId>) -> CudaResult<()> {
        let mut state = self.state();
        let here = |thread| thread == thread::current().id();
        let Some(watch) = state.as_mut().filter(|watch| watch.thread.is_none_or(here)) else {
            return Ok(());
        };
        let count = watch.seen.calls.entry(call).or_insert(0);
        *count += 1;
        let planned = watch
            .plan
            .filter(|&(planned, n, _)| planned == call && *count == n);
        let Some((.., fails)) = planned else {
            return Ok(());
        };
        watch.seen.failed = true;
        drop(state);
        self.inner.counters().record(call);
        match fails {
            Fails::Returns(code) => Err(CudaError::new(code, call, device)),
            Fails::Unwinds => resume_unwind(Box::new(Unwound(call))),
        }
    }
}

macro_rules! hand_on {
    () => {};
    ($call:ident: fn $name:ident($device:ident: DeviceId $(, $arg:ident: $ty:ty)*) -> $ret:ty; $($rest:tt)*) => {
        fn $name(&self, $device: DeviceId $(, $arg: $ty)*) -> CudaResult<$ret> {
            self.pass(Call::$call, Some($device))?;
            self.inner.$name($device $(, $arg)*)
        }
        hand_on! { $($rest)* }
    };
    ($call:ident: unsafe fn $name:ident($device:ident: DeviceId $(, $arg:ident: $ty:ty)*) -> $ret:ty; $($rest:tt)*) => {
        unsafe fn $name(&self, $device: DeviceId $(, $arg: $ty)*) -> CudaResult<$ret> {
            self.pass(Call::$call, Some($device))?;
            // SAFETY: the caller's promise, handed on.
            unsafe { self.inner.$name($device $(, $arg)*) }
        }
        hand_on! { $($rest)* }
    };
}

impl Devices for Failing {
    fn device_count(&self) -> CudaResult<u32> {
        self.pass(Call::DeviceGetCount, None)?;
        self.inner.device_count()
    }

    hand_on! {
        DeviceGetAttribute: fn device_properties(device: DeviceId) -> DeviceProperties;
        MemGetInfo: fn memory_info(device: DeviceId) -> (u64, u64);
        DeviceCanAccessPeer: fn can_access_peer(device: DeviceId, peer: DeviceId) -> bool;
        CtxSynchronize: fn device_synchronize(device: DeviceId) -> ();
        CtxSetCurrent: fn make_current(device: DeviceId) -> ();
    }
}

impl Streams for Failing {
    hand_on! {
        StreamCreate: fn stream_create(device: DeviceId, priority: i32) -> RawStream;
        StreamGetPriority: fn stream_priority(device: DeviceId, stream: RawStream) -> i32;
        StreamDestroy: unsafe fn stream_destroy(device: DeviceId, stream: RawStream) -> ();
        StreamWaitEvent: fn stream_wait_event(device: DeviceId, stream: RawStream, event: RawEvent) -> ();
        StreamQuery: fn stream_query(device: DeviceId, stream: RawStream) -> bool;
        StreamSynchronize: fn stream_synchronize(device: DeviceId, stream: RawStream) -> ();
    }
}

impl Events for Failing {
    hand_on! {
        EventCreate: fn event_create(device: DeviceId, flags: EventFlags) -> RawEvent;
        EventDestroy: unsafe fn event_destroy(device: DeviceId, event: RawEvent) -> ();
        EventRecord: fn event_record(device: DeviceId, event: RawEvent, stream: RawStream) -> ();
        EventQuery: fn event_query(device: DeviceId, event: RawEvent) -> bool;
        EventSynchronize: fn event_synchronize(device: DeviceId, event: RawEvent) -> ();
        EventElapsedTime: fn event_elapsed(device: DeviceId, start: RawEvent, end: RawEvent) -> f32;
    }
}

impl Memory for Failing {
    hand_on! {
        MemAlloc: fn mem_alloc(device: DeviceId, bytes: usize) -> DevicePtr;
        MemFree: unsafe fn mem_free(device: DeviceId, address: DevicePtr) -> ();
        MemPoolCreate: fn pool_create(device: DeviceId, release_threshold_bytes: u64) -> RawPool;
        MemPoolDestroy: unsafe fn pool_destroy(device: DeviceId, pool: RawPool) -> ();
        MemPoolTrimTo: fn pool_trim(device: DeviceId, pool: RawPool, keep_bytes: u64) -> ();
        MemPoolGetAttribute: fn pool_usage(device: DeviceId, pool: RawPool) -> PoolUsage;
        MemPoolSetAccess: fn pool_set_access(device: DeviceId, pool: RawPool, peer: DeviceId) -> ();
        MemAllocFromPoolAsync: fn mem_alloc_async(device: DeviceId, pool: RawPool, bytes: usize, stream: RawStream) -> DevicePtr;
        MemFreeAsync: unsafe fn mem_free_async(device: DeviceId, address: DevicePtr, stream: RawStream) -> ();
        MemHostAlloc: fn host_alloc(device: DeviceId, bytes: usize) -> NonNull<u8>;
        MemFreeHost: unsafe fn host_free(device: DeviceId, address: NonNull<u8>) -> ();
        MemHostRegister: unsafe fn host_register(device: DeviceId, address: NonNull<u8>, bytes: usize) -> ();
        MemHostUnregister: unsafe fn host_unregister(device: DeviceId, address: NonNull<u8>) -> ();
    }
}

/// The call that fills with this pattern; `rows` for that of rows.
fn fill_call(pattern: Pattern, rows: bool) -> Call {
    match (pattern, rows) {
        (Pattern::U8(_), false) => Call::MemsetD8Async,
        (Pattern::U16(_), false) => Call::MemsetD16Async,
        (Pattern::U32(_), false) => Call::MemsetD32Async,
        (Pattern::U8(_), true) => Call::MemsetD2D8Async,
        (Pattern::U16(_), true) => Call::MemsetD2D16Async,
        (Pattern::U32(_), true) => Call::MemsetD2D32Async,
    }
}

impl Copies for Failing {
    hand_on! {
        MemcpyHtoD: unsafe fn copy_to_device(device: DeviceId, dst: DevicePtr, src: *const u8, bytes: usize) -> ();
        MemcpyDtoH: unsafe fn copy_to_host(device: DeviceId, dst: *mut u8, src: DevicePtr, bytes: usize) -> ();
        MemcpyHtoDAsync: unsafe fn copy_to_device_async(device: DeviceId, dst: DevicePtr, src: *const u8, bytes: usize, stream: RawStream) -> ();
        MemcpyDtoHAsync: unsafe fn copy_to_host_async(device: DeviceId, dst: *mut u8, src: DevicePtr, bytes: usize, stream: RawStream) -> ();
        MemcpyDtoDAsync: unsafe fn copy_device_async(device: DeviceId, dst: DevicePtr, src: DevicePtr, bytes: usize, stream: RawStream) -> ();
        MemcpyPeerAsync: unsafe fn copy_peer_async(device: DeviceId, dst_device: DeviceId, dst: DevicePtr, src_device: DeviceId, src: DevicePtr, bytes: usize, stream: RawStream) -> ();
        Memcpy2DAsync: unsafe fn copy_rows_to_device_async(device: DeviceId, dst: DevicePtr, src: *const u8, shape: CopyRows, stream: RawStream) -> ();
        Memcpy2DAsync: unsafe fn copy_rows_to_host_async(device: DeviceId, dst: *mut u8, src: DevicePtr, shape: CopyRows, stream: RawStream) -> ();
        Memcpy2DAsync: unsafe fn copy_rows_device_async(device: DeviceId, dst: DevicePtr, src: DevicePtr, shape: CopyRows, stream: RawStream) -> ();
        Memcpy3DPeerAsync: unsafe fn copy_rows_peer_async(device: DeviceId, dst_device: DeviceId, dst: DevicePtr, src_device: DeviceId, src: DevicePtr, shape: CopyRows, stream: RawStream) -> ();
    }

    unsafe fn fill_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        pattern: Pattern,
        count: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        self.pass(fill_call(pattern, false), Some(device))?;
        // SAFETY: the caller's promise, handed on.
        unsafe { self.inner.fill_async(device, dst, pattern, count, stream) }
    }

    unsafe fn fill_rows_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        pitch_bytes: usize,
        pattern: Pattern,
        width: usize,
        rows: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        self.pass(fill_call(pattern, true), Some(device))?;
        // SAFETY: the caller's promise, handed on.
        unsafe {
            self.inner
                .fill_rows_async(device, dst, pitch_bytes, pattern, width, rows, stream)
        }
    }
}

impl Kernels for Failing {
    hand_on! {
        ModuleLoadData: fn module_load(device: DeviceId, image: &'static ModuleImage) -> RawModule;
        ModuleUnload: unsafe fn module_unload(device: DeviceId, module: RawModule) -> ();
        ModuleGetFunction: fn module_function(device: DeviceId, module: RawModule, name: &'static str) -> RawFunction;
        FuncSetAttribute: fn function_allow_shared(device: DeviceId, function: RawFunction, bytes: u32) -> ();
        FuncLoad: fn function_load(device: DeviceId, function: RawFunction) -> ();
        LaunchKernel: unsafe fn launch(device: DeviceId, function: RawFunction, config: &LaunchConfig, stream: RawStream, args: &[Argument]) -> ();
        LaunchHostFunc: fn launch_host_function(device: DeviceId, stream: RawStream, function: Arc<dyn Fn() + Send + Sync>) -> ();
    }
}

impl Capture for Failing {
    hand_on! {
        StreamBeginCapture: fn capture_begin(device: DeviceId, stream: RawStream, mode: CaptureMode) -> ();
        StreamEndCapture: fn capture_end(device: DeviceId, stream: RawStream) -> RawGraph;
        StreamGetCaptureInfo: fn capture_status(device: DeviceId, stream: RawStream) -> CaptureStatus;
        StreamGetCaptureInfo: fn capture_frontier(device: DeviceId, stream: RawStream) -> Vec<RawGraphNode>;
        GraphAddChildGraphNode: fn capture_child(device: DeviceId, stream: RawStream, graph: RawGraph) -> ();
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> CudaResult<CaptureMode> {
        self.pass(Call::ThreadExchangeStreamCaptureMode, None)?;
        self.inner.exchange_capture_mode(mode)
    }
}

impl Graphs for Failing {
    hand_on! {
        GraphGetNodes: fn graph_node_count(device: DeviceId, graph: RawGraph) -> usize;
        GraphInstantiate: fn graph_instantiate(device: DeviceId, graph: RawGraph) -> RawGraphExec;
        GraphInstantiate: fn graph_instantiate_with(device: DeviceId, graph: RawGraph, flags: GraphFlags) -> RawGraphExec;
        GraphExecUpdate: unsafe fn graph_exec_update(device: DeviceId, exec: RawGraphExec, graph: RawGraph) -> GraphUpdate;
        GraphExecKernelNodeSetParams: unsafe fn graph_exec_set_kernel(device: DeviceId, exec: RawGraphExec, node: RawGraphNode, function: RawFunction, config: &LaunchConfig, args: &[Argument]) -> ();
        GraphLaunch: unsafe fn graph_launch(device: DeviceId, exec: RawGraphExec, stream: RawStream) -> ();
        GraphDestroy: unsafe fn graph_destroy(device: DeviceId, graph: RawGraph) -> ();
        GraphExecDestroy: unsafe fn graph_exec_destroy(device: DeviceId, exec: RawGraphExec) -> ();
    }
}

// SAFETY: everything is the inner driver's own answer, or an error of a call that was not made.
unsafe impl Driver for Failing {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn is_simulated(&self) -> bool {
        self.inner.is_simulated()
    }

    fn counters(&self) -> &CallCounters {
        self.inner.counters()
    }
}
