//! The operations that are measured.

use crate::null::Null;
use cuda_buffer::{
    AccessCompletion, BufferResult, CaptureStep, CudaBuffer, DeviceArena, DeviceData, DeviceSlab,
    Graph, Launch, PartitionedCudaBuffer, acquire_all,
};
use cuda_driver::{
    Access, Arguments, CallCounts, Driver, Footprint, KernelDeclaration, LaunchConfig, ModuleImage,
    Param,
};
use cuda_runtime::{Device, Kernel, Runtime, Stream};
use cuda_sim::{Schedule, SimDriver};
use space_core::{Space, Undef};
use std::sync::Arc;

/// Elements of each buffer.
const N: usize = 1024;

/// Parts of the buffer that is accessed as a whole.
const PARTS: usize = 1000;

/// An operation to measure.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What instructions and time are divided by.
    pub(crate) per: u32,
    pub(crate) run: fn(&mut World) -> BufferResult<()>,
}

/// What the operations work on.
pub(crate) struct World {
    graph: Graph,
    arena: DeviceArena,
    parts: PartitionedCudaBuffer<f32>,
    out: CudaBuffer<f32>,
    x: CudaBuffer<f32>,
    y: CudaBuffer<f32>,
    kernel: Kernel,
    config: LaunchConfig,
    streams: [Stream; 3],
    turn: usize,
    device: Device,
    _runtime: Runtime,
    sim: Option<SimDriver>,
}

/// What is under it.
#[derive(Clone, Copy)]
pub(crate) enum Under {
    /// A driver that does nothing.
    Null,
    /// The simulated device, which does everything at once, and checks it.
    Simulated,
}

/// `out[i] = x[i] + y[i]`.
fn footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let bytes = 4 * u64::from(args.scalar::<u32>(0)?);
    touched.contiguous(1, Access::Write, bytes);
    touched.contiguous(2, Access::Read, bytes);
    touched.contiguous(3, Access::Read, bytes);
    Some(())
}

static IMAGE: ModuleImage = ModuleImage {
    name: "costs",
    ptx: None,
    kernels: &[
        // SAFETY: there is no image, and nothing runs.
        unsafe {
            KernelDeclaration::new(
                "add",
                &[
                    Param::scalar::<u32>(),
                    Param::pointer::<f32>(Access::Write),
                    Param::pointer::<f32>(Access::Read),
                    Param::pointer::<f32>(Access::Read),
                ],
                footprint,
                |launch| {
                    let (x, y) = (launch.take_read::<f32>(2)?, launch.take_read::<f32>(3)?);
                    let sums = x.iter().zip(y).map(|(x, y)| x + y);
                    let out = launch.take_write::<f32>(1)?;
                    out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum);
                    Ok(())
                },
            )
        },
    ],
};

impl World {
    pub(crate) fn new(under: Under) -> Self {
        Self::build(under).expect("nothing fails")
    }

    fn build(under: Under) -> BufferResult<Self> {
        let sim = match under {
            Under::Null => None,
            Under::Simulated => Some(SimDriver::builder().schedule(Schedule::Eager).build()),
        };
        let driver: Arc<dyn Driver> = match &sim {
            None => Arc::new(Null::default()),
            Some(sim) => sim.as_driver(),
        };
        let runtime = Runtime::builder()
            .driver(driver)
            .streams_per_device(4)
            .build()?;
        let device = runtime.default_device().clone();
        let streams = device.streams().try_acquire_many(3)?;
        let streams: [Stream; 3] = streams.try_into().expect("three");
        let buffer = || CudaBuffer::<f32>::new_on(&streams[0], N);
        let (mut out, mut x, mut y) = (buffer()?, buffer()?, buffer()?);
        x.fill(&streams[0], 1.0)?;
        y.fill(&streams[0], 2.0)?;
        let ranges: Vec<_> = (0..PARTS).map(|i| 4 * i..4 * i + 4).collect();
        let whole = CudaBuffer::new_on(&streams[0], 4 * PARTS)?;
        let parts = PartitionedCudaBuffer::new(whole, &ranges).map_err(|refused| refused.error)?;
        let kernel = device.kernel(&IMAGE, "add")?;
        let config = LaunchConfig::for_elements(N)?;
        join(&kernel, &config, &streams[0], &mut out, &x, &y)?;
        let graph =
            streams[0].capture(|_| join(&kernel, &config, &streams[0], &mut out, &x, &y))?;
        let slab = DeviceSlab::new(&device, 1 << 20)?;
        Ok(Self {
            graph,
            arena: DeviceArena::over(slab).expect("an arena"),
            parts,
            out,
            x,
            y,
            kernel,
            config,
            streams,
            turn: 0,
            device,
            _runtime: runtime,
            sim,
        })
    }

    /// Fails when the simulated device has found something wrong.
    pub(crate) fn check(&self) {
        if let Some(sim) = &self.sim {
            sim.assert_no_reports();
        }
    }

    pub(crate) fn calls(&self) -> CallCounts {
        self.device.call_counts()
    }

    fn join(&mut self, stream: usize) -> BufferResult<()> {
        join(
            &self.kernel,
            &self.config,
            &self.streams[stream],
            &mut self.out,
            &self.x,
            &self.y,
        )
    }
}

impl World {
    /// As [`join`], without guards.
    fn launch(&mut self, stream: usize) -> BufferResult<()> {
        let args = (N as u32, self.out.write(), self.x.read(), self.y.read());
        self.kernel
            .launch_with(&self.streams[stream], self.config, args)
    }
}

/// One output, two inputs: all accesses at once, the launch, one completion.
fn join(
    kernel: &Kernel,
    config: &LaunchConfig,
    stream: &Stream,
    out: &mut CudaBuffer<f32>,
    x: &CudaBuffer<f32>,
    y: &CudaBuffer<f32>,
) -> BufferResult<()> {
    let (mut out, x, y) = acquire_all(stream, (out.write(), x.read(), y.read()))?;
    kernel.launch(stream, *config, (N as u32, &mut out, &x, &y))?;
    AccessCompletion::new(stream).release((out, x, y))
}

pub(crate) static CASES: &[Case] = &[
    Case {
        name: "operation, same stream",
        per: 1,
        run: |world| world.join(0),
    },
    Case {
        name: "operation, alternating streams",
        per: 1,
        run: |world| {
            world.turn = 1 - world.turn;
            world.join(world.turn)
        },
    },
    Case {
        name: "operation in one call, same stream",
        per: 1,
        run: |world| world.launch(0),
    },
    Case {
        name: "operation in one call, alternating streams",
        per: 1,
        run: |world| {
            world.turn = 1 - world.turn;
            world.launch(world.turn)
        },
    },
    Case {
        name: "guards and completion only, same stream",
        per: 1,
        run: |world| {
            let requests = (world.out.write(), world.x.read(), world.y.read());
            let guards = acquire_all(&world.streams[0], requests)?;
            AccessCompletion::new(&world.streams[0]).release(guards)
        },
    },
    Case {
        name: "copy, same stream",
        per: 1,
        run: |world| world.out.copy_from(&world.x, &world.streams[0]),
    },
    Case {
        name: "allocate with new, drop",
        per: 1,
        run: |world| CudaBuffer::<f32>::new(&world.device, N).map(drop),
    },
    Case {
        name: "allocate with new_on, drop",
        per: 1,
        run: |world| CudaBuffer::<f32>::new_on(&world.streams[0], N).map(drop),
    },
    Case {
        name: "allocate with new_on, fill, drop",
        per: 1,
        run: |world| {
            let mut x = CudaBuffer::<f32>::new_on(&world.streams[0], N)?;
            x.fill(&world.streams[0], 1.0)
        },
    },
    Case {
        name: "replay of a graph with three accesses",
        per: 1,
        run: |world| world.graph.launch(&world.streams[0]),
    },
    Case {
        name: "frame with a carve, filled twice",
        per: 1,
        run: |world| {
            let stream = &world.streams[0];
            world.arena.frame().scratch(|frame| {
                let mut carve = frame.alloc(Undef::<f32, _>::new([N])).expect("it fits");
                carve.fill(stream, 1.0)?;
                carve.fill(stream, 2.0)
            })
        },
    },
    Case {
        name: "frame with a carve, not used",
        per: 1,
        run: |world| {
            world.arena.frame().scratch(|frame| {
                frame.alloc(Undef::<f32, _>::new([N])).expect("it fits");
            });
            Ok(())
        },
    },
    Case {
        name: "write access of 1,000 parts, each",
        per: PARTS as u32,
        run: |world| {
            let access = world.parts.write_synchronized_with(&world.streams[0])?;
            Ok(access.release()?)
        },
    },
    Case {
        name: "read access of 1,000 parts, each",
        per: PARTS as u32,
        run: |world| {
            let access = world.parts.read_synchronized_with(&world.streams[0])?;
            Ok(access.release()?)
        },
    },
    Case {
        name: "copy from ordinary memory",
        per: 1,
        run: |world| world.x.copy_from_slice(&[0.5; N]),
    },
];
