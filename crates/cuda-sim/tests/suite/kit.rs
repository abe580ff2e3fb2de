//! A thin safe face of the simulated driver for tests.
//!
//! Its functions are safe to call on the simulated device only, which checks what hardware would not: wrong programs
//! are what it is for.

use crate::kernels::MODULE;
use cuda_driver::{
    Argument, Capture, CaptureMode, Copies, CudaResult, DeviceId, DevicePtr, EventFlags, Events,
    Graphs, Kernels, LaunchConfig, Memory, Pattern, RawEvent, RawFunction, RawGraph, RawGraphExec,
    RawPool, RawStream, Streams,
};
use cuda_sim::{Report, SimBuilder, SimDriver};
use std::ptr::NonNull;

pub(crate) const D0: DeviceId = DeviceId(0);

/// A device with a module loaded and its kernels launched once.
pub(crate) struct Gpu {
    pub(crate) sim: SimDriver,
    pub(crate) device: DeviceId,
    pub(crate) module: cuda_driver::RawModule,
    functions: [RawFunction; 7],
}

/// The schedules that most tests run under.
pub(crate) fn seeds(n: u64, program: impl Fn(&Gpu)) {
    for seed in 0..n {
        program(&Gpu::seeded(seed));
    }
}

impl Gpu {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::new(SimDriver::builder().seed(seed))
    }

    pub(crate) fn new(builder: SimBuilder) -> Self {
        Self::on(builder.build(), D0)
    }

    /// A device of a simulation.
    pub(crate) fn on(sim: SimDriver, device: DeviceId) -> Self {
        let module = sim.module_load(device, &MODULE).unwrap();
        let functions = ["add", "step", "column", "both", "fail", "sloppy", "ends"]
            .map(|name| sim.module_function(device, module, name).unwrap());
        let gpu = Self {
            sim,
            device,
            module,
            functions,
        };
        let stream = gpu.stream();
        let block = gpu.alloc(256);
        gpu.add(stream, block, block, block, 0);
        gpu.step(stream, block, 0, 0);
        gpu.column(stream, block, 0, 0, 0);
        gpu.both(stream, block, block, 0);
        gpu.synchronize(stream);
        gpu.free(block);
        gpu.destroy_stream(stream);
        gpu
    }

    #[track_caller]
    pub(crate) fn stream(&self) -> RawStream {
        self.sim.stream_create(self.device, 0).unwrap()
    }

    #[track_caller]
    pub(crate) fn destroy_stream(&self, stream: RawStream) {
        // SAFETY: the simulated device checks the handle.
        unsafe { self.sim.stream_destroy(self.device, stream) }.unwrap();
    }

    #[track_caller]
    pub(crate) fn event(&self) -> RawEvent {
        self.sim
            .event_create(self.device, EventFlags::default())
            .unwrap()
    }

    #[track_caller]
    pub(crate) fn destroy_event(&self, event: RawEvent) {
        // SAFETY: the simulated device checks the handle.
        unsafe { self.sim.event_destroy(self.device, event) }.unwrap();
    }

    #[track_caller]
    pub(crate) fn record(&self, event: RawEvent, stream: RawStream) {
        self.sim.event_record(self.device, event, stream).unwrap();
    }

    #[track_caller]
    pub(crate) fn wait(&self, stream: RawStream, event: RawEvent) {
        self.sim
            .stream_wait_event(self.device, stream, event)
            .unwrap();
    }

    /// An edge from what `from` holds to what `to` will hold.
    #[track_caller]
    pub(crate) fn edge(&self, from: RawStream, to: RawStream) {
        let event = self.event();
        self.record(event, from);
        self.wait(to, event);
        self.destroy_event(event);
    }

    #[track_caller]
    pub(crate) fn synchronize(&self, stream: RawStream) {
        self.sim.stream_synchronize(self.device, stream).unwrap();
    }

    #[track_caller]
    pub(crate) fn alloc(&self, bytes: usize) -> DevicePtr {
        self.sim.mem_alloc(self.device, bytes).unwrap()
    }

    #[track_caller]
    pub(crate) fn try_free(&self, address: DevicePtr) -> CudaResult<()> {
        // SAFETY: the simulated device checks that nothing uses the memory.
        unsafe { self.sim.mem_free(self.device, address) }
    }

    #[track_caller]
    pub(crate) fn free(&self, address: DevicePtr) {
        self.try_free(address).unwrap();
    }

    #[track_caller]
    pub(crate) fn pool(&self) -> RawPool {
        self.sim.pool_create(self.device, u64::MAX).unwrap()
    }

    #[track_caller]
    pub(crate) fn alloc_async(&self, pool: RawPool, bytes: usize, stream: RawStream) -> DevicePtr {
        self.sim
            .mem_alloc_async(self.device, pool, bytes, stream)
            .unwrap()
    }

    #[track_caller]
    pub(crate) fn try_free_async(&self, address: DevicePtr, stream: RawStream) -> CudaResult<()> {
        // SAFETY: the simulated device checks that nothing uses the memory.
        unsafe { self.sim.mem_free_async(self.device, address, stream) }
    }

    #[track_caller]
    pub(crate) fn free_async(&self, address: DevicePtr, stream: RawStream) {
        self.try_free_async(address, stream).unwrap();
    }

    #[track_caller]
    pub(crate) fn fill(&self, stream: RawStream, dst: DevicePtr, value: u32, count: usize) {
        self.try_fill(stream, dst, value, count).unwrap();
    }

    #[track_caller]
    pub(crate) fn try_fill(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        value: u32,
        count: usize,
    ) -> CudaResult<()> {
        // SAFETY: the simulated device checks range and order.
        unsafe {
            self.sim
                .fill_async(self.device, dst, Pattern::U32(value), count, stream)
        }
    }

    #[track_caller]
    fn launch(&self, function: usize, stream: RawStream, args: &[Argument]) -> CudaResult<()> {
        let config = LaunchConfig::for_elements(1).unwrap();
        // SAFETY: the simulated device checks arguments, ranges and order.
        unsafe {
            self.sim
                .launch(self.device, self.functions[function], &config, stream, args)
        }
    }

    #[track_caller]
    pub(crate) fn add(
        &self,
        stream: RawStream,
        out: DevicePtr,
        x: DevicePtr,
        y: DevicePtr,
        n: u32,
    ) {
        let args = [
            Argument::scalar(n),
            Argument::Pointer(out),
            Argument::Pointer(x),
            Argument::Pointer(y),
        ];
        self.launch(0, stream, &args).unwrap();
    }

    #[track_caller]
    pub(crate) fn step(&self, stream: RawStream, x: DevicePtr, a: u32, n: u32) {
        self.try_step(stream, x, a, n).unwrap();
    }

    #[track_caller]
    pub(crate) fn try_step(
        &self,
        stream: RawStream,
        x: DevicePtr,
        a: u32,
        n: u32,
    ) -> CudaResult<()> {
        self.launch(
            1,
            stream,
            &[
                Argument::scalar(n),
                Argument::scalar(a),
                Argument::Pointer(x),
            ],
        )
    }

    #[track_caller]
    pub(crate) fn column(&self, stream: RawStream, x: DevicePtr, a: u32, width: u32, rows: u32) {
        let args = [
            Argument::scalar(rows),
            Argument::scalar(width),
            Argument::scalar(a),
            Argument::Pointer(x),
        ];
        self.launch(2, stream, &args).unwrap();
    }

    #[track_caller]
    pub(crate) fn both(&self, stream: RawStream, a: DevicePtr, b: DevicePtr, n: u32) {
        self.launch(
            3,
            stream,
            &[
                Argument::scalar(n),
                Argument::Pointer(a),
                Argument::Pointer(b),
            ],
        )
        .unwrap();
    }

    #[track_caller]
    pub(crate) fn sloppy(&self, stream: RawStream, x: DevicePtr, n: u32) {
        self.launch(5, stream, &[Argument::scalar(n), Argument::Pointer(x)])
            .unwrap();
    }

    #[track_caller]
    pub(crate) fn ends(&self, stream: RawStream, out: DevicePtr, x: DevicePtr, n: u32) {
        let args = [
            Argument::scalar(n),
            Argument::Pointer(out),
            Argument::Pointer(x),
        ];
        self.launch(6, stream, &args).unwrap();
    }

    #[track_caller]
    pub(crate) fn fail(&self, stream: RawStream) -> CudaResult<()> {
        self.launch(4, stream, &[])
    }

    /// Page-locked memory of `len` values.
    #[track_caller]
    pub(crate) fn pinned(&self, len: usize) -> Pinned {
        Pinned {
            pointer: self.sim.host_alloc(self.device, 4 * len).unwrap().cast(),
            len,
        }
    }

    #[track_caller]
    pub(crate) fn free_pinned(&self, pinned: &Pinned) {
        // SAFETY: the simulated device checks that nothing uses the memory, and keeps it while something does.
        unsafe { self.sim.host_free(self.device, pinned.pointer.cast()) }.unwrap();
    }

    #[track_caller]
    pub(crate) fn to_device(&self, stream: RawStream, dst: DevicePtr, src: &Pinned, len: usize) {
        let src = src.pointer.as_ptr().cast();
        // SAFETY: page-locked memory lives at least as long as copies of it in the simulation.
        unsafe {
            self.sim
                .copy_to_device_async(self.device, dst, src, 4 * len, stream)
        }
        .unwrap();
    }

    #[track_caller]
    pub(crate) fn to_host(&self, stream: RawStream, dst: &Pinned, src: DevicePtr, len: usize) {
        let dst = dst.pointer.as_ptr().cast();
        // SAFETY: page-locked memory lives at least as long as copies of it in the simulation.
        unsafe {
            self.sim
                .copy_to_host_async(self.device, dst, src, 4 * len, stream)
        }
        .unwrap();
    }

    #[track_caller]
    pub(crate) fn on_device(&self, stream: RawStream, dst: DevicePtr, src: DevicePtr, len: usize) {
        // SAFETY: the simulated device checks ranges and order.
        unsafe {
            self.sim
                .copy_device_async(self.device, dst, src, 4 * len, stream)
        }
        .unwrap();
    }

    /// A synchronous copy of the values at `src`.
    #[track_caller]
    pub(crate) fn read(&self, src: DevicePtr, len: usize) -> Vec<u32> {
        let mut values = vec![0_u32; len];
        // SAFETY: `values` has room; the simulated device checks range and order.
        unsafe {
            self.sim
                .copy_to_host(self.device, values.as_mut_ptr().cast(), src, 4 * len)
        }
        .unwrap();
        values
    }

    /// A synchronous copy to the device.
    #[track_caller]
    pub(crate) fn write(&self, dst: DevicePtr, values: &[u32]) -> CudaResult<()> {
        // SAFETY: `values` is readable; the simulated device checks range and order.
        unsafe {
            self.sim
                .copy_to_device(self.device, dst, values.as_ptr().cast(), 4 * values.len())
        }
    }

    #[track_caller]
    pub(crate) fn begin(&self, stream: RawStream) {
        self.sim
            .capture_begin(self.device, stream, CaptureMode::ThreadLocal)
            .unwrap();
    }

    #[track_caller]
    pub(crate) fn end(&self, stream: RawStream) -> RawGraph {
        self.sim.capture_end(self.device, stream).unwrap()
    }

    #[track_caller]
    pub(crate) fn instantiate(&self, graph: RawGraph) -> RawGraphExec {
        self.sim.graph_instantiate(self.device, graph).unwrap()
    }

    #[track_caller]
    pub(crate) fn replay(&self, exec: RawGraphExec, stream: RawStream) -> CudaResult<()> {
        // SAFETY: the simulated device checks what the nodes touch.
        unsafe { self.sim.graph_launch(self.device, exec, stream) }
    }

    #[track_caller]
    pub(crate) fn destroy_graph(&self, graph: RawGraph) {
        // SAFETY: the simulated device checks the handle.
        unsafe { self.sim.graph_destroy(self.device, graph) }.unwrap();
    }

    #[track_caller]
    pub(crate) fn destroy_exec(&self, exec: RawGraphExec) {
        // SAFETY: the simulated device checks the handle.
        unsafe { self.sim.graph_exec_destroy(self.device, exec) }.unwrap();
    }

    /// The kinds of the reports, sorted.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        let mut kinds: Vec<_> = self.sim.reports().iter().map(Report::kind).collect();
        kinds.sort_unstable();
        kinds
    }

    #[track_caller]
    pub(crate) fn clean(&self) {
        self.sim.assert_no_reports();
    }
}

/// Page-locked memory of values. What the device does with it meanwhile is what tests are about.
pub(crate) struct Pinned {
    pub(crate) pointer: NonNull<u32>,
    pub(crate) len: usize,
}

impl Pinned {
    pub(crate) fn set(&self, index: usize, value: u32) {
        assert!(index < self.len);
        // SAFETY: in bounds.
        let place = unsafe { self.pointer.add(index) };
        // SAFETY: valid; the simulation touches it only inside driver calls, and tests use one thread.
        unsafe { place.write(value) };
    }

    pub(crate) fn fill(&self, value: u32) {
        (0..self.len).for_each(|index| self.set(index, value));
    }

    pub(crate) fn get(&self, index: usize) -> u32 {
        assert!(index < self.len);
        // SAFETY: in bounds.
        let place = unsafe { self.pointer.add(index) };
        // SAFETY: valid and initialised; the simulation touches it only inside driver calls.
        unsafe { place.read() }
    }
}
