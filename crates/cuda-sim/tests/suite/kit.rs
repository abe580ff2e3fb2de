//! A thin safe face of the simulated driver for tests, and a few kernels.
//!
//! Its functions are safe to call on the simulated device only, which checks what hardware would not: wrong programs
//! are what it is for.

use cuda_driver::{
    Access, Argument, Arguments, Capture, CaptureMode, Copies, CudaResult, DeviceId, DevicePtr,
    EventFlags, Events, Footprint, Graphs, KernelDeclaration, Kernels, LaunchConfig, Memory,
    ModelError, ModelLaunch, ModuleImage, Param, Pattern, RawEvent, RawFunction, RawGraph,
    RawGraphExec, RawPool, RawStream, Region, Streams,
};
use cuda_sim::{Report, SimBuilder, SimDriver};
use std::ptr::NonNull;
use std::sync::Mutex;

pub(crate) const D0: DeviceId = DeviceId(0);

/// `out[i] = x[i] + y[i]` for `n` values.
fn add_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
    touched.contiguous(1, Access::Write, bytes);
    touched.contiguous(2, Access::Read, bytes);
    touched.contiguous(3, Access::Read, bytes);
    Some(())
}

fn add_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let (x, y) = (launch.take_read::<u32>(2)?, launch.take_read::<u32>(3)?);
    let out = launch.take_write::<u32>(1)?;
    for (out, (x, y)) in out.iter_mut().zip(x.iter().zip(y)) {
        *out = x.wrapping_add(*y);
    }
    Ok(())
}

/// `x[i] = 3 * x[i] + a` for `n` values: the order of two launches shows in the result.
fn step_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.contiguous(2, Access::ReadWrite, 4 * u64::from(args.scalar::<u32>(0)?));
    Some(())
}

fn step_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let a = launch.scalar::<u32>(1)?;
    launch
        .take_write::<u32>(2)?
        .iter_mut()
        .for_each(|x| *x = x.wrapping_mul(3).wrapping_add(a));
    Ok(())
}

/// Writes `a` to a column of `width` values in a matrix of `rows` rows of 8 values.
fn column_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.region(Region {
        param: 3,
        access: Access::Write,
        offset_bytes: 0,
        width_bytes: 4 * u64::from(args.scalar::<u32>(1)?),
        pitch_bytes: 32,
        rows: u64::from(args.scalar::<u32>(0)?),
    });
    Some(())
}

fn column_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let (width, a) = (launch.scalar::<u32>(1)?, launch.scalar::<u32>(2)?);
    for row in launch.take_write::<u32>(3)?.chunks_mut(8) {
        row.iter_mut().take(width as usize).for_each(|x| *x = a);
    }
    Ok(())
}

/// Writes two outputs.
fn both_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
    touched.contiguous(1, Access::Write, bytes);
    touched.contiguous(2, Access::Write, bytes);
    Some(())
}

fn both_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    launch.take_write::<u32>(1)?.fill(1);
    launch.take_write::<u32>(2)?.fill(2);
    Ok(())
}

/// Declares that it writes `n` values, increments the first and forgets the others.
fn sloppy_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.contiguous(1, Access::Write, 4 * u64::from(args.scalar::<u32>(0)?));
    Some(())
}

fn sloppy_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    launch
        .take_write::<u32>(1)?
        .iter_mut()
        .take(1)
        .for_each(|x| *x = x.wrapping_add(1));
    Ok(())
}

/// Declares that it reads the first value of each of two rows of `n` values and the last value of all, and copies them all.
fn ends_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let pitch_bytes = 4 * u64::from(args.scalar::<u32>(0)?);
    touched.contiguous(1, Access::Write, 2 * pitch_bytes);
    for (offset_bytes, rows) in [(0, 2), (2 * pitch_bytes as i64 - 4, 1)] {
        touched.region(Region {
            param: 2,
            access: Access::Read,
            offset_bytes,
            width_bytes: 4,
            pitch_bytes,
            rows,
        });
    }
    Some(())
}

fn ends_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let x = launch.take_read::<u32>(2)?;
    launch.take_write::<u32>(1)?.copy_from_slice(x);
    Ok(())
}

fn fail_footprint(_: &Arguments<'_>, _: &mut Footprint) -> Option<()> {
    Some(())
}

fn fail_model(_: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    Err(ModelError::Fault("assertion failed".into()))
}

/// Says that it writes as many rows of one value as it is told, a value apart.
fn rows_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.region(Region {
        param: 1,
        access: Access::Write,
        offset_bytes: 0,
        width_bytes: 4,
        pitch_bytes: 8,
        rows: args.scalar::<u64>(0)?,
    });
    Some(())
}

fn panic_model(_: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    panic!("in a model")
}

/// A simulated device that a model may call, which it must not.
pub(crate) static CALLED: Mutex<Option<SimDriver>> = Mutex::new(None);

fn calling_model(_: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let called = CALLED.lock().unwrap().take();
    let _ = called.map(|sim| sim.reports());
    Ok(())
}

const U32: Param = Param::scalar::<u32>();
const OUT: Param = Param::pointer::<u32>(Access::Write);
const IN: Param = Param::pointer::<u32>(Access::Read);
const INOUT: Param = Param::pointer::<u32>(Access::ReadWrite);

#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one promise for all")]
// SAFETY: there are no images that could differ from the models.
static KERNELS: [KernelDeclaration; 10] = unsafe {
    [
        KernelDeclaration::new("add", &[U32, OUT, IN, IN], add_footprint, add_model),
        KernelDeclaration::new("step", &[U32, U32, INOUT], step_footprint, step_model),
        KernelDeclaration::new(
            "column",
            &[U32, U32, U32, OUT],
            column_footprint,
            column_model,
        ),
        KernelDeclaration::new("both", &[U32, OUT, OUT], both_footprint, both_model),
        KernelDeclaration::new("fail", &[], fail_footprint, fail_model),
        KernelDeclaration::new("sloppy", &[U32, OUT], sloppy_footprint, sloppy_model),
        KernelDeclaration::new(
            "rows",
            &[Param::scalar::<u64>(), OUT],
            rows_footprint,
            fail_model,
        ),
        KernelDeclaration::new("panic", &[], fail_footprint, panic_model),
        KernelDeclaration::new("ends", &[U32, OUT, IN], ends_footprint, ends_model),
        KernelDeclaration::new("calling", &[], fail_footprint, calling_model),
    ]
};

pub(crate) static MODULE: ModuleImage = ModuleImage {
    name: "kit",
    ptx: None,
    kernels: &KERNELS,
};

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
