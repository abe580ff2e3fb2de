//! A driver that does nothing: every call is counted and succeeds at once. What an operation costs with it, Carve costs.

use cuda_driver::{
    Argument, Call, CallCounters, Capture, CaptureMode, CaptureStatus, Copies, CudaResult,
    DeviceId, DeviceProperties, DevicePtr, Devices, Driver, EventFlags, Events, Graphs, Kernels,
    LaunchConfig, Memory, ModuleImage, Pattern, PoolUsage, RawEvent, RawFunction, RawGraph,
    RawGraphExec, RawModule, RawPool, RawStream, Streams,
};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes before each block of host memory, where its size is kept.
const HEADER: usize = 4096;

/// The driver.
#[derive(Debug, Default)]
pub(crate) struct Null {
    counters: CallCounters,
    last_handle: AtomicU64,
    /// The stream that captures; 0 for none.
    capturing: AtomicU64,
}

impl Null {
    fn handle(&self) -> u64 {
        self.last_handle.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn address(&self) -> DevicePtr {
        DevicePtr(self.handle() << 32)
    }
}

/// Methods that count a call and return a value.
macro_rules! calls {
    () => {};
    ($call:ident: fn $name:ident($($ty:ty),*) -> $ret:ty = |$null:ident| $value:expr; $($rest:tt)*) => {
        fn $name(&self $(, _: $ty)*) -> CudaResult<$ret> {
            self.counters.record(Call::$call);
            let $null = self;
            Ok($value)
        }
        calls! { $($rest)* }
    };
    ($call:ident: unsafe fn $name:ident($($ty:ty),*) -> $ret:ty = |$null:ident| $value:expr; $($rest:tt)*) => {
        unsafe fn $name(&self $(, _: $ty)*) -> CudaResult<$ret> {
            self.counters.record(Call::$call);
            let $null = self;
            Ok($value)
        }
        calls! { $($rest)* }
    };
}

/// A handle of the driver's own. Nothing is behind it.
macro_rules! fresh {
    ($null:ident, $kind:ident) => {{
        // SAFETY: the number was given out by this driver, just now and for this.
        unsafe { $kind::from_raw($null.handle()) }
    }};
}

impl Devices for Null {
    calls! {
        DeviceGetCount: fn device_count() -> u32 = |_null| 1;
        MemGetInfo: fn memory_info(DeviceId) -> (u64, u64) = |_null| (1 << 40, 1 << 40);
        DeviceCanAccessPeer: fn can_access_peer(DeviceId, DeviceId) -> bool = |_null| false;
        CtxSynchronize: fn device_synchronize(DeviceId) -> () = |_null| ();
        DeviceGetAttribute: fn device_properties(DeviceId) -> DeviceProperties = |_null| DeviceProperties::new("null", 1 << 40);
    }
}

impl Streams for Null {
    calls! {
        StreamCreate: fn stream_create(DeviceId, i32) -> RawStream = |null| fresh!(null, RawStream);
        StreamDestroy: unsafe fn stream_destroy(DeviceId, RawStream) -> () = |_null| ();
        StreamWaitEvent: fn stream_wait_event(DeviceId, RawStream, RawEvent) -> () = |_null| ();
        StreamQuery: fn stream_query(DeviceId, RawStream) -> bool = |_null| true;
        StreamSynchronize: fn stream_synchronize(DeviceId, RawStream) -> () = |_null| ();
    }
}

impl Events for Null {
    calls! {
        EventCreate: fn event_create(DeviceId, EventFlags) -> RawEvent = |null| fresh!(null, RawEvent);
        EventDestroy: unsafe fn event_destroy(DeviceId, RawEvent) -> () = |_null| ();
        EventRecord: fn event_record(DeviceId, RawEvent, RawStream) -> () = |_null| ();
        EventQuery: fn event_query(DeviceId, RawEvent) -> bool = |_null| true;
        EventSynchronize: fn event_synchronize(DeviceId, RawEvent) -> () = |_null| ();
        EventElapsedTime: fn event_elapsed(DeviceId, RawEvent, RawEvent) -> f32 = |_null| 0.0;
    }
}

fn host_layout(bytes: usize) -> Layout {
    Layout::from_size_align(HEADER + bytes, HEADER).expect("a size that was allocated")
}

impl Memory for Null {
    calls! {
        MemAlloc: fn mem_alloc(DeviceId, usize) -> DevicePtr = |null| null.address();
        MemFree: unsafe fn mem_free(DeviceId, DevicePtr) -> () = |_null| ();
        MemPoolCreate: fn pool_create(DeviceId, u64) -> RawPool = |null| fresh!(null, RawPool);
        MemPoolDestroy: unsafe fn pool_destroy(DeviceId, RawPool) -> () = |_null| ();
        MemPoolTrimTo: fn pool_trim(DeviceId, RawPool, u64) -> () = |_null| ();
        MemPoolGetAttribute: fn pool_usage(DeviceId, RawPool) -> PoolUsage = |_null| PoolUsage::default();
        MemPoolSetAccess: fn pool_set_access(DeviceId, RawPool, DeviceId) -> () = |_null| ();
        MemAllocFromPoolAsync: fn mem_alloc_async(DeviceId, RawPool, usize, RawStream) -> DevicePtr = |null| null.address();
        MemFreeAsync: unsafe fn mem_free_async(DeviceId, DevicePtr, RawStream) -> () = |_null| ();
    }

    fn host_alloc(&self, _: DeviceId, bytes: usize) -> CudaResult<NonNull<u8>> {
        self.counters.record(Call::MemHostAlloc);
        // SAFETY: the layout is not empty.
        let block = unsafe { alloc_zeroed(host_layout(bytes)) };
        let block = NonNull::new(block).expect("host memory");
        // SAFETY: the header is of the block and aligned for the size.
        unsafe { block.cast::<usize>().write(bytes) };
        // SAFETY: behind the header, within the block.
        Ok(unsafe { block.add(HEADER) })
    }

    unsafe fn host_free(&self, _: DeviceId, address: NonNull<u8>) -> CudaResult<()> {
        self.counters.record(Call::MemFreeHost);
        // SAFETY: the block starts with its header.
        let block = unsafe { address.sub(HEADER) };
        // SAFETY: the size was written there.
        let bytes = unsafe { block.cast::<usize>().read() };
        // SAFETY: the block was allocated with this layout, and the caller gives it back.
        unsafe { dealloc(block.as_ptr(), host_layout(bytes)) };
        Ok(())
    }
}

impl Copies for Null {
    calls! {
        MemcpyHtoD: unsafe fn copy_to_device(DeviceId, DevicePtr, *const u8, usize) -> () = |_null| ();
        MemcpyDtoH: unsafe fn copy_to_host(DeviceId, *mut u8, DevicePtr, usize) -> () = |_null| ();
        MemcpyHtoDAsync: unsafe fn copy_to_device_async(DeviceId, DevicePtr, *const u8, usize, RawStream) -> () = |_null| ();
        MemcpyDtoHAsync: unsafe fn copy_to_host_async(DeviceId, *mut u8, DevicePtr, usize, RawStream) -> () = |_null| ();
        MemcpyDtoDAsync: unsafe fn copy_device_async(DeviceId, DevicePtr, DevicePtr, usize, RawStream) -> () = |_null| ();
        MemcpyPeerAsync: unsafe fn copy_peer_async(DeviceId, DeviceId, DevicePtr, DeviceId, DevicePtr, usize, RawStream) -> () = |_null| ();
        MemsetD8Async: unsafe fn fill_async(DeviceId, DevicePtr, Pattern, usize, RawStream) -> () = |_null| ();
    }
}

impl Kernels for Null {
    calls! {
        ModuleLoadData: fn module_load(DeviceId, &'static ModuleImage) -> RawModule = |null| fresh!(null, RawModule);
        ModuleUnload: unsafe fn module_unload(DeviceId, RawModule) -> () = |_null| ();
        ModuleGetFunction: fn module_function(DeviceId, RawModule, &'static str) -> RawFunction = |null| fresh!(null, RawFunction);
        FuncLoad: fn function_load(DeviceId, RawFunction) -> () = |_null| ();
        LaunchKernel: unsafe fn launch(DeviceId, RawFunction, &LaunchConfig, RawStream, &[Argument]) -> () = |_null| ();
        LaunchHostFunc: fn launch_host_function(DeviceId, RawStream, Arc<dyn Fn() + Send + Sync>) -> () = |_null| ();
    }
}

impl Capture for Null {
    calls! {
        ThreadExchangeStreamCaptureMode: fn exchange_capture_mode(CaptureMode) -> CaptureMode = |_null| CaptureMode::Relaxed;
    }

    fn capture_begin(&self, _: DeviceId, stream: RawStream, _: CaptureMode) -> CudaResult<()> {
        self.counters.record(Call::StreamBeginCapture);
        self.capturing.store(stream.raw(), Ordering::Relaxed);
        Ok(())
    }

    fn capture_end(&self, _: DeviceId, _: RawStream) -> CudaResult<RawGraph> {
        self.counters.record(Call::StreamEndCapture);
        self.capturing.store(0, Ordering::Relaxed);
        Ok(fresh!(self, RawGraph))
    }

    fn capture_status(&self, _: DeviceId, stream: RawStream) -> CudaResult<CaptureStatus> {
        self.counters.record(Call::StreamGetCaptureInfo);
        Ok(match self.capturing.load(Ordering::Relaxed) {
            capturing if capturing == stream.raw() => CaptureStatus::Active(1),
            _ => CaptureStatus::None,
        })
    }
}

impl Graphs for Null {
    calls! {
        GraphGetNodes: fn graph_node_count(DeviceId, RawGraph) -> usize = |_null| 1;
        GraphInstantiate: fn graph_instantiate(DeviceId, RawGraph) -> RawGraphExec = |null| fresh!(null, RawGraphExec);
        GraphLaunch: unsafe fn graph_launch(DeviceId, RawGraphExec, RawStream) -> () = |_null| ();
        GraphDestroy: unsafe fn graph_destroy(DeviceId, RawGraph) -> () = |_null| ();
        GraphExecDestroy: unsafe fn graph_exec_destroy(DeviceId, RawGraphExec) -> () = |_null| ();
    }
}

// SAFETY: host memory is a block of its own with the size and alignment asked for, until it is freed; it is never
// touched, no work is ever under way, and handles and addresses are numbers that are given out once.
unsafe impl Driver for Null {
    fn name(&self) -> String {
        "null".to_owned()
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn counters(&self) -> &CallCounters {
        &self.counters
    }
}
