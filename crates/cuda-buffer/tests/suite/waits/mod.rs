//! Every kind of wait there is, each with a program that needs it: without the wait the simulated device reports the program, or its
//! result is wrong.
//!
//! Not here: the question whether a reclamation stream is idle, which decides where a free goes and orders nothing.

mod device;
mod host;

use crate::cases::raw;
use crate::kit::{Kit, N, Rig};
use crate::tap::{Tap, Waits};
use cuda_buffer::{BufferError, BufferResult, CudaBuffer, DeviceArena, DeviceData, DeviceSlab};
use cuda_driver::{Call, Driver, EventFlags, Events, Memory, RawStream};
use cuda_runtime::{Device, Runtime, Stream};
use cuda_sim::SimDriver;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// What a program runs on. Most of them work on the first two streams.
struct Case {
    rig: Rig,
    tap: Arc<Tap>,
    kit: Kit,
    streams: [Stream; 3],
    held: RawStream,
    waits: Waits,
    broken: bool,
}

impl Case {
    fn new(kind: &Kind, seed: u64, broken: bool) -> Self {
        let sim = SimDriver::builder().seed(seed).devices(2);
        let sim = sim.pools(kind.pools).build();
        let tap = Arc::new(Tap::new(sim.clone()));
        let builder = Runtime::builder().driver(tap.clone()).streams_per_device(4);
        let builder = builder.synchronize_after_each_operation(kind.each);
        let rig = Rig {
            runtime: builder.build().unwrap(),
            sim,
        };
        let streams = rig.streams();
        Self {
            kit: Kit::new(&rig.device()),
            held: raw(&streams[0]),
            waits: kind.waits,
            rig,
            tap,
            streams,
            broken,
        }
    }

    fn device(&self) -> &Device {
        self.rig.runtime.default_device()
    }

    /// A buffer whose contents the host knows to be there.
    fn buffer(&self) -> BufferResult<CudaBuffer<u32>> {
        let mut x = CudaBuffer::new_on(&self.streams[1], N)?;
        x.fill(&self.streams[1], 1)?;
        x.synchronize()?;
        Ok(x)
    }

    fn arena(&self) -> BufferResult<DeviceArena> {
        Ok(DeviceArena::over(DeviceSlab::new(self.device(), 1024)?).unwrap())
    }

    /// From here on the first stream gets nowhere, and nobody waits.
    fn no_waits(&self) {
        if self.broken {
            self.rig.sim.hold_stream(self.held);
            self.tap.remove(self.waits, true);
        }
    }

    /// From here on the `n`th wait is lacking.
    fn no_wait(&self, n: u64) {
        if self.broken {
            self.tap.swallow(n);
        }
    }

    /// Gives threads of the runtime the time to do a call too early.
    fn time_for(&self, call: Call) {
        let begun = Instant::now();
        let made = || self.rig.sim.counters().snapshot().of(call);
        let before = made();
        while self.broken && made() == before && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

type Program = fn(&Case, [&Stream; 3]) -> BufferResult<()>;

struct Kind {
    name: &'static str,
    waits: Waits,
    pools: bool,
    /// Whether the runtime waits after each operation.
    each: bool,
    run: Program,
}

const fn kind(name: &'static str, waits: Waits, run: Program) -> Kind {
    Kind {
        name,
        waits,
        pools: true,
        each: false,
        run,
    }
}

/// Memory that a library uses until its event, adopted.
fn adopt(
    c: &Case,
    on: &Stream,
    prepare: impl FnOnce(),
) -> BufferResult<(CudaBuffer<u32>, std::sync::mpsc::Receiver<()>)> {
    let (sim, device) = (c.rig.sim.clone(), c.device().id());
    let address = sim.mem_alloc(device, 4 * N).map_err(runtime)?;
    let ready = sim
        .event_create(device, EventFlags::default())
        .map_err(runtime)?;
    prepare();
    let s = &c.streams[0];
    let fill = |driver: &dyn Driver, raw| {
        // SAFETY: the memory is that large, and nobody else uses it before the event.
        unsafe { driver.fill_async(device, address, cuda_driver::Pattern::U32(1), N, raw) }?;
        driver.event_record(device, ready, raw)
    };
    // SAFETY: as above.
    unsafe { s.enqueue(fill) }?;
    let (tell, told) = channel();
    let release = move |address| {
        // SAFETY: it was made above, and Carve has given it back.
        unsafe { sim.mem_free(device, address) }.unwrap();
        let _ = tell.send(());
    };
    // SAFETY: the memory is of that size, and the library uses it no more after its event.
    let x = unsafe { CudaBuffer::adopt(on, address, N, Some(ready), release) }?;
    // SAFETY: waits that are queued keep what they wait for.
    unsafe { c.rig.sim.event_destroy(device, ready) }.map_err(runtime)?;
    Ok((x, told))
}

fn runtime(error: cuda_driver::CudaError) -> BufferError {
    BufferError::Runtime(error.into())
}

/// What came of a program: whatever was reported, or wrong.
fn run(kind: &Kind, seed: u64, broken: bool) -> Vec<String> {
    let case = Case::new(kind, seed, broken);
    let streams = case.streams.each_ref();
    let result = catch_unwind(AssertUnwindSafe(|| (kind.run)(&case, streams)));
    let Case {
        rig,
        tap,
        kit,
        streams,
        held,
        ..
    } = case;
    if !broken {
        drop((kit, streams));
        result.unwrap().unwrap();
        rig.finish();
        assert_eq!(tap.costly_events(), 0, "{}", kind.name);
        return Vec::new();
    }
    let Rig { runtime, sim } = rig;
    let wrong = result.is_err().then(|| "a wrong result".to_owned());
    for waits in [Waits::OfDevice, Waits::OfHost, Waits::ByAsking] {
        tap.remove(waits, false);
    }
    sim.release_stream(held);
    sim.run_all();
    drop((kit, streams, runtime));
    let reports = sim.reports();
    let reports = reports.iter().map(|report| report.kind().to_owned());
    reports.chain(wrong).collect()
}

#[test]
fn every_kind_of_wait_is_missed() {
    let mut unseen = Vec::new();
    for kind in device::KINDS.iter().chain(host::KINDS) {
        run(kind, 1, false);
        // A wrong result panics, which is what is looked for.
        if run(kind, 1, true).is_empty() {
            unseen.push(kind.name);
        }
    }
    assert!(unseen.is_empty(), "nobody misses {unseen:#?}");
}
