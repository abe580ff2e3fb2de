//! Every driver call of a program over adopted memory and a pool of page-locked memory fails once: no hang, tokens back, the
//! error reported, nothing lost that is not counted, and the memory released once.

use crate::fault_kit::{CODE, in_time, leaks, may_leave, parked};
use crate::kit::{Kit, N, Rig, cases, step_of};
use cuda_buffer::{BufferError, BufferResult, CudaBuffer, DeviceData, PinnedPool};
use cuda_driver::{
    Call, CallCounts, Copies, DevicePtr, Driver, EventFlags, Events, Memory, Pattern, RawEvent,
    RawStream, Streams,
};
use cuda_runtime::{RuntimeError, Stream};
use cuda_sim::SimDriver;
use std::sync::mpsc;
use std::time::Duration;

const BYTES: usize = 4 * N;

/// Memory of another library, which its own stream fills.
struct Library {
    stream: RawStream,
    address: DevicePtr,
    ready: RawEvent,
}

impl Library {
    fn new(rig: &Rig) -> Self {
        let (sim, id) = (&rig.sim, rig.device().id());
        let stream = sim.stream_create(id, 0).unwrap();
        let address = sim.mem_alloc(id, BYTES).unwrap();
        let ready = sim.event_create(id, EventFlags::default()).unwrap();
        // SAFETY: the memory is allocated, and nothing else uses it.
        unsafe { sim.fill_async(id, address, Pattern::U8(1), BYTES, stream) }.unwrap();
        sim.event_record(id, ready, stream).unwrap();
        Self {
            stream,
            address,
            ready,
        }
    }

    fn end(self, rig: &Rig) {
        let (sim, id) = (&rig.sim, rig.device().id());
        sim.stream_synchronize(id, self.stream).unwrap();
        // SAFETY: the memory was given back, and the library's own work is done.
        unsafe { sim.mem_free(id, self.address) }.unwrap();
        // SAFETY: nobody knows the event any more.
        unsafe { sim.event_destroy(id, self.ready) }.unwrap();
        // SAFETY: nor the stream.
        unsafe { sim.stream_destroy(id, self.stream) }.unwrap();
    }
}

/// What lives through a failure, and must be usable after it.
struct Fixture {
    kit: Kit,
    streams: [Stream; 2],
    y: CudaBuffer<u32>,
    pool: PinnedPool,
}

/// What became of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    NotAdopted,
    Released,
}

impl Fixture {
    fn new(rig: &Rig) -> Self {
        let device = rig.device();
        let streams = rig.streams();
        let mut y = CudaBuffer::new_on(&streams[0], N).unwrap();
        y.fill(&streams[0], 0).unwrap();
        Self {
            kit: Kit::new(&device),
            streams,
            y,
            pool: PinnedPool::new(&device),
        }
    }

    /// Adopts the memory and works with it, until it is dropped under a kernel.
    fn scenario(
        &mut self,
        library: &Library,
        adopted: &mut bool,
        tell: mpsc::Sender<DevicePtr>,
    ) -> BufferResult<()> {
        let Self {
            kit,
            streams: [s, t],
            y,
            pool,
        } = self;
        let release = move |address| tell.send(address).unwrap();
        let ready = Some(library.ready);
        // SAFETY: the memory is of that size, and the library uses it no more after its event.
        let mut x = unsafe { CudaBuffer::<u32>::adopt(s, library.address, N, ready, release) }?;
        *adopted = true;
        kit.step(t, &mut x, 2)?;
        y.copy_from(&x, s)?;

        let mut batch = pool.buffer::<u32>(N)?;
        batch.host_write()?.fill(5);
        x.copy_from_pinned(&batch, t)?;
        drop(batch); // under its copy
        let mut again = pool.buffer::<u32>(N)?;
        let mut more = pool.buffer::<u32>(N)?;
        y.copy_to_pinned(&mut again, s)?;
        x.copy_to_pinned(&mut more, t)?;
        assert_eq!(again.host_read()?[..], [step_of(0x0101_0101, 2); N]);
        assert_eq!(more.host_read()?[..], [5; N]);
        let keeping = PinnedPool::keeping(s.device(), 0);
        let mut other = keeping.buffer::<u32>(N)?;
        x.copy_to_pinned(&mut other, t)?;
        drop((other, again, more)); // one is freed, the others wait for the next run

        kit.step(t, &mut x, 1)?;
        drop(x);
        pool.trim();
        s.device().drain_frees()?;
        Ok(())
    }

    /// Runs the scenario, and waits for the end of the memory.
    fn run(&mut self, rig: &Rig, library: &Library) -> (BufferResult<()>, Fate) {
        let (tell, told) = mpsc::channel();
        let mut adopted = false;
        let result = self.scenario(library, &mut adopted, tell);
        let first = told.recv_timeout(Duration::from_secs(20));
        let fate = match (first, adopted) {
            (Ok(address), true) => {
                assert_eq!(address, library.address);
                Fate::Released
            }
            (Err(mpsc::RecvTimeoutError::Disconnected), false) => Fate::NotAdopted,
            other => panic!("the release is neither called nor given up: {other:?}"),
        };
        assert!(told.recv().is_err(), "released once");
        rig.sim.run_all();
        (result, fate)
    }

    /// Whether every token is back.
    fn assert_free(&mut self) {
        for stream in &self.streams {
            self.y.fill(stream, 0).unwrap();
        }
    }
}

fn simulation(pools: bool, seed: u64) -> Rig {
    Rig::new(SimDriver::builder().pools(pools).seed(seed), 3)
}

/// The calls of the scenario, without a fault.
fn calls(pools: bool) -> CallCounts {
    let rig = simulation(pools, 0);
    let mut fixture = Fixture::new(&rig);
    let library = Library::new(&rig);
    let before = rig.sim.counters().snapshot();
    let (result, fate) = fixture.run(&rig, &library);
    result.unwrap();
    assert_eq!(fate, Fate::Released);
    let calls = rig.sim.counters().snapshot() - before;
    library.end(&rig);
    drop(fixture);
    rig.finish();
    calls
}

fn fail_once(rig: Rig, call: Call, n: u64) {
    let mut fixture = Fixture::new(&rig);
    let device = rig.device();
    let library = Library::new(&rig);
    rig.sim.faults().fail_nth(call, n, CODE);
    let (result, _) = fixture.run(&rig, &library);
    let fired = rig.sim.faults().clear() == 0;
    // As in the sweep of everything else: these are made up for.
    let repaired = matches!(
        call,
        Call::StreamWaitEvent | Call::ThreadExchangeStreamCaptureMode
    );
    let parked = parked(&device, fired && !repaired && result.is_ok());
    let injected = |error: &RuntimeError| error.code() == Some(CODE);
    let seen = match (&result, &parked) {
        (Err(BufferError::Runtime(error)), _) | (_, Err(error)) => {
            assert!(injected(error), "not the injected error: {error}");
            true
        }
        (Err(error), _) => panic!("not the injected error: {error}"),
        (Ok(()), Ok(())) => false,
    };
    assert!(seen || repaired || !fired, "nobody heard of the failure");
    assert!(!device.is_poisoned());
    fixture.assert_free();

    let next = Library::new(&rig);
    let (result, fate) = fixture.run(&rig, &next);
    result.unwrap();
    assert_eq!(fate, Fate::Released);
    library.end(&rig);
    next.end(&rig);
    let counted = device.alive().leaked_bytes as u64;
    drop((fixture, device));
    let Rig { runtime, sim } = rig;
    for (_, alive) in runtime.shutdown().unwrap() {
        assert_eq!((alive.allocations, alive.leased_streams), (0, 0));
    }
    sim.run_all();
    let (lost, objects) = leaks(&sim);
    assert!(lost <= counted, "{lost} bytes leak, {counted} are counted");
    assert!(
        objects.iter().all(|&object| may_leave(call, object)),
        "{objects:?} leak"
    );
    sim.assert_no_reports();
}

#[test]
fn any_call_for_adopted_and_pooled_memory_may_fail_once() {
    let mut swept = 0;
    for pools in [true, false] {
        for (call, count) in calls(pools).iter() {
            for n in 1..=count {
                let what = format!("{call} {n} of {count}, pools {pools}");
                in_time(&what, move || {
                    for seed in 0..u64::from(cases(3)) {
                        fail_once(simulation(pools, seed), call, n);
                    }
                });
                swept += 1;
            }
        }
    }
    assert!(swept > 60, "only {swept} calls");
}
