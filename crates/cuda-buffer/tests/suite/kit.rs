//! What the tests share: kernels over `u32`, and a runtime on a simulation whose reports can be asked for.

use cuda_buffer::{BufferResult, CudaBuffer, DeviceData, Launch};
use cuda_driver::{
    Access, Arguments, Footprint, KernelDeclaration, LaunchConfig, ModelError, ModelLaunch,
    ModuleImage, Param,
};
use cuda_runtime::{Device, Kernel, Runtime, Stream};
use cuda_sim::{SimBuilder, SimDriver};

/// Elements of most buffers.
pub(crate) const N: usize = 24;

/// `x[i] = 3 * x[i] + a`: the order of two launches shows in the result.
fn step_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.contiguous(2, Access::ReadWrite, 4 * u64::from(args.scalar::<u32>(0)?));
    Some(())
}

pub(crate) fn step_of(x: u32, a: u32) -> u32 {
    x.wrapping_mul(3).wrapping_add(a)
}

fn step_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let a = launch.scalar::<u32>(1)?;
    let x = launch.take_write::<u32>(2)?;
    x.iter_mut().for_each(|x| *x = step_of(*x, a));
    Ok(())
}

/// `out[i] = 5 * x[i] + a`.
fn map_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
    touched.contiguous(2, Access::Write, bytes);
    touched.contiguous(3, Access::Read, bytes);
    Some(())
}

pub(crate) fn map_of(x: u32, a: u32) -> u32 {
    x.wrapping_mul(5).wrapping_add(a)
}

fn map_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let a = launch.scalar::<u32>(1)?;
    let (out, x) = (launch.take_write::<u32>(2)?, launch.take_read::<u32>(3)?);
    out.iter_mut()
        .zip(x)
        .for_each(|(out, x)| *out = map_of(*x, a));
    Ok(())
}

/// `out[i] = x[i] + 7 * y[i]`.
fn join_footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
    touched.contiguous(1, Access::Write, bytes);
    touched.contiguous(2, Access::Read, bytes);
    touched.contiguous(3, Access::Read, bytes);
    Some(())
}

pub(crate) fn join_of(x: u32, y: u32) -> u32 {
    x.wrapping_add(y.wrapping_mul(7))
}

fn join_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let out = launch.take_write::<u32>(1)?;
    let (x, y) = (launch.take_read::<u32>(2)?, launch.take_read::<u32>(3)?);
    for (out, (x, y)) in out.iter_mut().zip(x.iter().zip(y)) {
        *out = join_of(*x, *y);
    }
    Ok(())
}

const U32: Param = Param::scalar::<u32>();
const OUT: Param = Param::pointer::<u32>(Access::Write);
const IN: Param = Param::pointer::<u32>(Access::Read);
const INOUT: Param = Param::pointer::<u32>(Access::ReadWrite);

#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one promise for all")]
// SAFETY: there are no images that could differ from the models.
static KERNELS: [KernelDeclaration; 4] = unsafe {
    [
        KernelDeclaration::new("step", &[U32, U32, INOUT], step_footprint, step_model),
        KernelDeclaration::new("map", &[U32, U32, OUT, IN], map_footprint, map_model),
        KernelDeclaration::new("join", &[U32, OUT, IN, IN], join_footprint, join_model),
        KernelDeclaration::new("cold", &[U32, U32, INOUT], step_footprint, step_model),
    ]
};

pub(crate) static MODULE: ModuleImage = ModuleImage {
    name: "kit",
    ptx: None,
    kernels: &KERNELS,
};

/// The kernels of the kit on one device, launched once.
#[derive(Clone)]
pub(crate) struct Kit {
    pub(crate) step: Kernel,
    pub(crate) map: Kernel,
    pub(crate) join: Kernel,
}

pub(crate) fn elements(n: usize) -> LaunchConfig {
    LaunchConfig::for_elements(n).unwrap()
}

impl Kit {
    pub(crate) fn new(device: &Device) -> Self {
        Self::load(device).unwrap()
    }

    pub(crate) fn load(device: &Device) -> BufferResult<Self> {
        let kit = Self {
            step: device.kernel(&MODULE, "step")?,
            map: device.kernel(&MODULE, "map")?,
            join: device.kernel(&MODULE, "join")?,
        };
        let stream = device.streams().acquire()?;
        let (mut x, mut y) = (CudaBuffer::new(device, 1)?, CudaBuffer::new(device, 1)?);
        x.fill(&stream, 1)?;
        kit.step(&stream, &mut x, 1)?;
        kit.map(&stream, &mut y, &x, 1)?;
        let mut z = CudaBuffer::new(device, 1)?;
        kit.join(&stream, &mut z, &x, &y)?;
        drop((x, y, z));
        stream.synchronize()?;
        Ok(kit)
    }

    pub(crate) fn step(
        &self,
        stream: &Stream,
        x: &mut (impl DeviceData<Element = u32> + ?Sized),
        a: u32,
    ) -> BufferResult<()> {
        let mut x = x.write_synchronized_with(stream)?;
        let n = x.len();
        self.step
            .launch(stream, elements(n), (n as u32, a, &mut x))?;
        Ok(x.release()?)
    }

    pub(crate) fn map(
        &self,
        stream: &Stream,
        out: &mut (impl DeviceData<Element = u32> + ?Sized),
        x: &(impl DeviceData<Element = u32> + ?Sized),
        a: u32,
    ) -> BufferResult<()> {
        // Acquired together, released one by one.
        let (mut out, x) = cuda_buffer::acquire_all(stream, (out.write(), x.read()))?;
        let n = out.len();
        self.map
            .launch(stream, elements(n), (n as u32, a, &mut out, &x))
    }

    pub(crate) fn join(
        &self,
        stream: &Stream,
        out: &mut (impl DeviceData<Element = u32> + ?Sized),
        x: &(impl DeviceData<Element = u32> + ?Sized),
        y: &(impl DeviceData<Element = u32> + ?Sized),
    ) -> BufferResult<()> {
        let (x, y) = (x.read(), y.read());
        let n = x.len();
        let args = (n as u32, out.write(), x, y);
        self.join.launch_with(stream, elements(n), args)
    }

    /// The same in three steps.
    pub(crate) fn join_under_guards(
        &self,
        stream: &Stream,
        out: &mut (impl DeviceData<Element = u32> + ?Sized),
        x: &(impl DeviceData<Element = u32> + ?Sized),
        y: &(impl DeviceData<Element = u32> + ?Sized),
    ) -> BufferResult<()> {
        let (mut out, x, y) = cuda_buffer::acquire_all(stream, (out.write(), x.read(), y.read()))?;
        let n = out.len();
        self.join
            .launch(stream, elements(n), (n as u32, &mut out, &x, &y))?;
        cuda_buffer::AccessCompletion::new(stream).release((out, x, y))
    }
}

/// A runtime on a simulation.
pub(crate) struct Rig {
    pub(crate) runtime: Runtime,
    pub(crate) sim: SimDriver,
}

impl Rig {
    pub(crate) fn new(simulation: SimBuilder, streams: usize) -> Self {
        let sim = simulation.build();
        let runtime = Runtime::builder()
            .driver(sim.as_driver())
            .streams_per_device(streams)
            .build()
            .unwrap();
        Self { runtime, sim }
    }

    pub(crate) fn seeded(seed: u64, streams: usize) -> Self {
        Self::new(SimDriver::builder().seed(seed), streams)
    }

    pub(crate) fn device(&self) -> Device {
        self.runtime.default_device().clone()
    }

    pub(crate) fn streams<const K: usize>(&self) -> [Stream; K] {
        std::array::from_fn(|_| self.runtime.default_device().streams().acquire().unwrap())
    }

    /// Ends a test whose objects are gone: nothing is alive, nothing was wrong, nothing leaks.
    #[track_caller]
    pub(crate) fn finish(self) {
        let Self { runtime, sim } = self;
        let device = runtime.default_device().clone();
        let alive = runtime.shutdown().unwrap();
        for (id, alive) in alive {
            assert_eq!(alive, cuda_runtime::Alive::default(), "{id}");
        }
        device.check().unwrap();
        drop(device);
        sim.shutdown();
        sim.assert_no_reports();
    }
}

/// How many cases a test runs: `CARVE_CASES` times what it runs by default.
pub(crate) fn cases(default: u32) -> u32 {
    let times = std::env::var("CARVE_CASES")
        .ok()
        .and_then(|times| times.parse().ok());
    default * times.unwrap_or(1)
}

/// Under how many schedules each random program runs: `CARVE_SCHEDULES`, or the default.
pub(crate) fn schedules(default: u32) -> u32 {
    let many = std::env::var("CARVE_SCHEDULES");
    many.ok()
        .and_then(|many| many.parse().ok())
        .unwrap_or(default)
}

/// How many random programs run, each under `schedules(default)`: the more schedules, the fewer programs, but at least 25.
pub(crate) fn programs(default: u32, default_schedules: u32) -> u32 {
    let runs = u64::from(cases(default)) * u64::from(default_schedules);
    let programs = runs / u64::from(schedules(default_schedules).max(1));
    programs.max(25) as u32
}

/// Runs a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
