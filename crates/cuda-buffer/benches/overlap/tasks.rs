//! Random task graphs: what runs when if nothing but true dependencies counts, and what a scheduler could make of it.

use cuda_buffer::{
    AccessCompletion, BufferResult, CudaBuffer, Launch, SharedCudaBuffer, acquire_all,
};
use cuda_driver::{
    Access, Arguments, Footprint, KernelDeclaration, LaunchConfig, ModelError, ModelLaunch,
    ModuleImage, Param,
};
use cuda_runtime::{Device, Kernel, Runtime, Stream};
use cuda_sim::{SimDriver, TimeProfile};
use std::time::Duration;

/// Elements of each buffer.
const N: usize = 8;

/// One operation: it reads two buffers and works on a third in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// The stream, where the assignment is given.
    pub(crate) stream: usize,
    pub(crate) out: usize,
    pub(crate) inputs: [usize; 2],
    pub(crate) nanos: u64,
}

/// Streams, and parts of the modelled device: so many tasks run at a time.
pub(crate) const STREAMS: usize = 8;

/// A graph of `count` tasks over `buffers` buffers.
pub(crate) fn random(seed: u64, count: usize, buffers: usize) -> Vec<Task> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % n
    };
    let buffers = buffers as u64;
    (0..count)
        .map(|_| {
            let inputs = [below(buffers) as usize, below(buffers) as usize];
            let mut out = below(buffers) as usize;
            while inputs.contains(&out) {
                out = (out + 1) % buffers as usize;
            }
            Task {
                stream: below(STREAMS as u64) as usize,
                out,
                inputs,
                nanos: 1000 * (1 + below(20)),
            }
        })
        .collect()
}

/// For each task the tasks that it must come after: the writers of what it reads, and all users of what it writes.
pub(crate) fn dependencies(tasks: &[Task]) -> Vec<Vec<usize>> {
    let buffers = 1 + tasks
        .iter()
        .map(|task| task.out.max(task.inputs[0]).max(task.inputs[1]))
        .max()
        .unwrap_or(0);
    let mut writer: Vec<Option<usize>> = vec![None; buffers];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); buffers];
    let mut all = Vec::with_capacity(tasks.len());
    for (at, task) in tasks.iter().enumerate() {
        let written = task.inputs.iter().filter_map(|&input| writer[input]);
        let mut first: Vec<usize> = written.chain(writer[task.out]).collect();
        first.append(&mut readers[task.out]);
        task.inputs
            .iter()
            .for_each(|&input| readers[input].push(at));
        writer[task.out] = Some(at);
        first.sort_unstable();
        first.dedup();
        all.push(first);
    }
    all
}

/// When each task ends if it starts as soon as its stream and its dependencies allow.
pub(crate) fn exact_ends(tasks: &[Task]) -> Vec<u64> {
    let mut streams = [0; STREAMS];
    let mut ends: Vec<u64> = Vec::with_capacity(tasks.len());
    for (task, first) in tasks.iter().zip(dependencies(tasks)) {
        let ready = first.iter().map(|&before| ends[before]).max().unwrap_or(0);
        let end = ready.max(streams[task.stream]) + task.nanos;
        streams[task.stream] = end;
        ends.push(end);
    }
    ends
}

/// When the last task ends under a list scheduler that knows the whole graph: of the tasks that are ready, the one with the
/// longest way to the end comes first.
pub(crate) fn list_schedule(tasks: &[Task]) -> u64 {
    let first = dependencies(tasks);
    let mut way: Vec<u64> = tasks.iter().map(|task| task.nanos).collect();
    for at in (0..tasks.len()).rev() {
        for &before in &first[at] {
            way[before] = way[before].max(tasks[before].nanos + way[at]);
        }
    }
    let mut ends: Vec<Option<u64>> = vec![None; tasks.len()];
    let mut machines = [0_u64; STREAMS];
    for _ in tasks {
        // The free machine, and the task that can start first there; among those the one with the longest way.
        let machine = (0..STREAMS).min_by_key(|&m| machines[m]).expect("some");
        let startable = (0..tasks.len())
            .filter(|&at| ends[at].is_none())
            .filter_map(|at| {
                let ready = first[at]
                    .iter()
                    .map(|&before| ends[before])
                    .max()
                    .unwrap_or(Some(0));
                let known = first[at].iter().all(|&before| ends[before].is_some());
                known.then(|| {
                    (
                        ready.unwrap_or(0).max(machines[machine]),
                        u64::MAX - way[at],
                        at,
                    )
                })
            });
        let (start, _, at) = startable.min().expect("some task is ready");
        machines[machine] = start + tasks[at].nanos;
        ends[at] = Some(machines[machine]);
    }
    machines.into_iter().max().unwrap_or(0)
}

fn footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let bytes = 4 * args.scalar::<u64>(0)?;
    touched.contiguous(2, Access::ReadWrite, bytes);
    touched.contiguous(3, Access::Read, bytes);
    touched.contiguous(4, Access::Read, bytes);
    Some(())
}

fn model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    launch
        .take_write::<f32>(2)?
        .iter_mut()
        .for_each(|out| *out += 1.0);
    Ok(())
}

static IMAGE: ModuleImage = ModuleImage {
    name: "tasks",
    ptx: None,
    kernels: &[
        // SAFETY: there is no image that could differ from the model.
        unsafe {
            KernelDeclaration::new(
                "task",
                &[
                    Param::scalar::<u64>(),
                    Param::scalar::<u64>(),
                    Param::pointer::<f32>(Access::ReadWrite),
                    Param::pointer::<f32>(Access::Read),
                    Param::pointer::<f32>(Access::Read),
                ],
                footprint,
                model,
            )
        }
        .with_flops(|args| args.scalar::<u64>(1).unwrap_or(0) as f64),
    ],
};

/// A device on which a task takes the time it says, and what the tasks work on.
pub(crate) struct World {
    pub(crate) sim: SimDriver,
    pub(crate) device: Device,
    buffers: Vec<SharedCudaBuffer<f32>>,
    kernel: Kernel,
    started: Duration,
}

impl World {
    /// `streams` in the pool; each driver call costs the host `call`.
    pub(crate) fn new(streams: usize, buffers: usize, call: Duration) -> BufferResult<Self> {
        let mut profile = TimeProfile::default();
        profile.call_overhead = call;
        profile.launch_latency = Duration::ZERO;
        // One operation per nanosecond on each of eight parts.
        profile.flops_per_second = 8e9;
        let sim = SimDriver::builder().profile(profile).timeline(true).build();
        let runtime = Runtime::builder()
            .driver(sim.as_driver())
            .streams_per_device(streams)
            .build()?;
        let device = runtime.default_device().clone();
        let buffers = (0..buffers)
            .map(|_| Ok(CudaBuffer::from_slice(&device, &[0.0; N])?.into()))
            .collect::<BufferResult<_>>()?;
        let kernel = device.kernel(&IMAGE, "task")?;
        let started = sim.modelled_time();
        Ok(Self {
            sim,
            device,
            buffers,
            kernel,
            started,
        })
    }

    /// Queues a task.
    pub(crate) fn queue(&self, stream: &Stream, task: &Task) -> BufferResult<()> {
        let config = LaunchConfig::for_elements(N)?;
        let [x, y] = task.inputs.map(|input| self.buffers[input].read());
        let out = self.buffers[task.out].write();
        let (mut out, x, y) = acquire_all(stream, (out, x, y))?;
        let args = (N as u64, task.nanos, &mut out, &x, &y);
        self.kernel.launch(stream, config, args)?;
        AccessCompletion::new(stream).release((out, x, y))
    }

    /// Nanoseconds of modelled time from the first task's start to the last one's end. Everything is done afterwards.
    pub(crate) fn makespan(&self) -> u64 {
        self.sim.run_all();
        let timeline = self.sim.timeline();
        let tasks = timeline.spans().filter(|span| span.start >= self.started);
        let tasks = tasks.filter(|span| span.end > span.start);
        let (start, end) = tasks.fold((Duration::MAX, Duration::ZERO), |(start, end), span| {
            (start.min(span.start), end.max(span.end))
        });
        (end - start).as_nanos() as u64
    }
}
