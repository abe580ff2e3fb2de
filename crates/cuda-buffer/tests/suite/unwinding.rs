//! Calls that unwind where a completion has its event at once: on streams whose raw handle was given out, and where the runtime waits after
//! each operation.

use crate::fault_kit::{in_time, leaks, may_leave};
use crate::kit::{Kit, N};
use cuda_buffer::{
    AccessCompletion, BufferResult, CaptureStep, CudaBuffer, DeviceData, Graph, PinnedBuffer,
    acquire_all,
};
use cuda_driver::{Call, CallCounts, Driver};
use cuda_runtime::{Device, Runtime, Stream};
use cuda_sim::{SimDriver, Unwound};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Streams {
    /// The raw handles were given out.
    Exposed,
    /// The runtime waits after each operation.
    Synchronizing,
}

/// What lives through a call that unwinds.
struct Fixture {
    sim: SimDriver,
    runtime: Runtime,
    device: Device,
    kit: Kit,
    streams: [Stream; 2],
    x: CudaBuffer<u32>,
    y: CudaBuffer<u32>,
    pinned: PinnedBuffer<u32>,
    graph: Graph,
}

impl Fixture {
    fn new(kind: Streams) -> Self {
        let sim = SimDriver::builder().seed(7).build();
        let runtime = Runtime::builder()
            .driver(sim.as_driver())
            .streams_per_device(2)
            .synchronize_after_each_operation(kind == Streams::Synchronizing)
            .build()
            .unwrap();
        let device = runtime.default_device().clone();
        let kit = Kit::new(&device);
        let streams = [(); 2].map(|()| device.streams().acquire().unwrap());
        let [s, t] = &streams;
        let [mut x, mut y] = [s, t].map(|stream| CudaBuffer::new_on(stream, N).unwrap());
        x.fill(s, 1).unwrap();
        y.fill(t, 1).unwrap();
        let pinned = PinnedBuffer::new(&device, N).unwrap();
        let graph = s.capture(|_| kit.step(s, &mut x, 3)).unwrap();
        if kind == Streams::Exposed {
            for stream in &streams {
                // SAFETY: nothing is done with the handle.
                let _ = unsafe { stream.raw() };
            }
        }
        Self {
            sim,
            runtime,
            device,
            kit,
            streams,
            x,
            y,
            pinned,
            graph,
        }
    }

    fn scenario(&mut self) -> BufferResult<()> {
        let Self {
            kit,
            streams,
            x,
            y,
            pinned,
            graph,
            ..
        } = self;
        let [s, t] = &*streams;
        for a in 0..6 {
            x.fill(s, a)?; // at home there from some time on
        }
        kit.map(t, y, x, 1)?;
        kit.join(s, y, x, x)?;
        kit.join(t, x, y, y)?; // from the other stream
        let mut z = CudaBuffer::new_on(s, N)?;
        z.copy_from(&*y, s)?;
        pinned.host_write()?.fill(5);
        x.copy_from_pinned(&*pinned, t)?;
        y.copy_to_pinned(&mut *pinned, s)?;
        graph.launch(t)?;
        let (out, from) = acquire_all(s, (z.write(), x.read()))?;
        AccessCompletion::new(s).release((out, from))?;
        let last = z
            .into_read_synchronized_with(t)
            .map_err(|refused| refused.error)?;
        last.release()?;
        pinned.host_read().map(drop)
    }

    /// Every token is back, and nothing is lost that is not counted, but for what the call that unwound was to give back.
    fn finish(mut self, call: Call) {
        let _ = self.device.check();
        self.scenario().unwrap();
        for stream in &self.streams {
            let all = acquire_all(stream, (self.x.write(), self.y.write())).unwrap();
            AccessCompletion::new(stream).release(all).unwrap();
        }
        let counted = self.device.alive().leaked_bytes as u64;
        let (sim, runtime) = (self.sim.clone(), self.runtime);
        drop((self.x, self.y, self.pinned, self.graph));
        drop((self.kit, self.streams, self.device));
        for (_, alive) in runtime.shutdown().unwrap() {
            let left = (alive.allocations, alive.graphs, alive.leased_streams);
            assert_eq!(left, (0, 0, 0));
        }
        sim.run_all();
        let (lost, objects) = leaks(&sim);
        assert!(lost <= counted, "{lost} bytes leak, {counted} are counted");
        let others = objects.iter().find(|&&object| !may_leave(call, object));
        assert!(others.is_none(), "{objects:?} leak");
        sim.assert_no_reports();
    }
}

fn calls(kind: Streams) -> CallCounts {
    let mut fixture = Fixture::new(kind);
    let before = fixture.sim.counters().snapshot();
    fixture.scenario().unwrap();
    fixture.sim.counters().snapshot() - before
}

fn unwind_once(kind: Streams, call: Call, n: u64) {
    let mut fixture = Fixture::new(kind);
    fixture.sim.faults().unwind_nth(call, n);
    let run = catch_unwind(AssertUnwindSafe(|| fixture.scenario()));
    let fired = fixture.sim.faults().clear() == 0;
    match run {
        Ok(result) => assert!(result.is_ok() || fired, "{result:?}"),
        Err(panic) => assert!(panic.is::<Unwound>(), "another panic"),
    }
    fixture.finish(call);
}

fn sweep(kind: Streams) {
    for (call, count) in calls(kind).iter() {
        for n in 1..=count {
            in_time(&format!("{call} {n} of {count}, {kind:?}"), move || {
                unwind_once(kind, call, n);
            });
        }
    }
}

#[test]
fn any_call_may_unwind_on_streams_that_are_exposed() {
    sweep(Streams::Exposed);
}

#[test]
fn any_call_may_unwind_where_each_operation_is_waited_for() {
    sweep(Streams::Synchronizing);
}
