//! How many operations per second the simulated device takes: `cargo bench -p cuda-sim`.
//!
//! Small operations, all checks on unless a name says otherwise. Each iteration is 1,000 operations and one wait.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use cuda_driver::{
    Capture, CaptureMode, Copies, DeviceId, DevicePtr, EventFlags, Events, Graphs, Memory, Pattern,
    RawEvent, RawStream, Streams,
};
use cuda_sim::{Checks, Schedule, SimDriver};
use std::hint::black_box;

const DEVICE: DeviceId = DeviceId(0);
const OPERATIONS: u64 = 1000;

struct Bench {
    sim: SimDriver,
    streams: [(RawStream, RawEvent); 4],
    x: DevicePtr,
}

impl Bench {
    fn new(schedule: Schedule, checks: Checks) -> Self {
        let sim = SimDriver::builder()
            .schedule(schedule)
            .checks(checks)
            .build();
        let streams = [(); 4].map(|()| {
            let stream = sim.stream_create(DEVICE, 0).unwrap();
            (
                stream,
                sim.event_create(DEVICE, EventFlags::default()).unwrap(),
            )
        });
        let x = sim.mem_alloc(DEVICE, 256).unwrap();
        Self { sim, streams, x }
    }

    fn fill(&self, stream: RawStream) {
        // SAFETY: the simulated device checks range and order.
        unsafe {
            self.sim
                .fill_async(DEVICE, self.x, Pattern::U8(1), 256, stream)
        }
        .unwrap();
    }

    fn wait(&self, stream: RawStream) {
        self.sim
            .stream_synchronize(DEVICE, black_box(stream))
            .unwrap();
    }

    /// Fills on one stream.
    fn fills(&self) {
        (0..OPERATIONS).for_each(|_| self.fill(self.streams[0].0));
        self.wait(self.streams[0].0);
    }

    /// A fill, a record and a wait in turn, round four streams.
    fn hand_over(&self) {
        let turns = OPERATIONS as usize / 3;
        for turn in 0..turns {
            let (stream, event) = self.streams[turn % 4];
            self.fill(stream);
            self.sim.event_record(DEVICE, event, stream).unwrap();
            self.sim
                .stream_wait_event(DEVICE, self.streams[(turn + 1) % 4].0, event)
                .unwrap();
        }
        self.wait(self.streams[turns % 4].0);
    }
}

fn throughput(criterion: &mut Criterion) {
    let eager = Schedule::Eager;
    let stepped = Schedule::Stepped { seed: 1 };
    let mut group = criterion.benchmark_group("operations");
    group.throughput(Throughput::Elements(OPERATIONS));
    for (name, schedule, checks) in [
        ("eager, no checks", eager, Checks::NONE),
        ("eager", eager, Checks::ALL),
        ("stepped", stepped, Checks::ALL),
    ] {
        let bench = Bench::new(schedule, checks);
        group.bench_function(format!("fills, {name}"), |b| b.iter(|| bench.fills()));
        group.bench_function(format!("hand-over between streams, {name}"), |b| {
            b.iter(|| bench.hand_over())
        });
        bench.sim.assert_no_reports();
    }
    group.finish();

    let bench = Bench::new(stepped, Checks::ALL);
    let (stream, _) = bench.streams[0];
    bench
        .sim
        .capture_begin(DEVICE, stream, CaptureMode::Relaxed)
        .unwrap();
    (0..OPERATIONS).for_each(|_| bench.fill(stream));
    let graph = bench.sim.capture_end(DEVICE, stream).unwrap();
    let exec = bench.sim.graph_instantiate(DEVICE, graph).unwrap();
    let mut group = criterion.benchmark_group("graph");
    group.throughput(Throughput::Elements(OPERATIONS));
    group.bench_function("replay of 1,000 nodes, stepped", |b| {
        b.iter(|| {
            // SAFETY: the simulated device checks what the nodes touch.
            unsafe { bench.sim.graph_launch(DEVICE, exec, stream) }.unwrap();
            bench.wait(stream);
        });
    });
    group.finish();
}

criterion_group!(benches, throughput);
criterion_main!(benches);
