//! Every driver call of a scenario over the runtime's own paths fails once: no panic, no hang, the error reported, nothing lost
//! that is not counted, and nothing wrong on the device.

use crate::kit::{Rig, until};
use cuda_driver::{Call, CallCounts, CaptureMode, Driver, ErrorCode, Pattern, RawStream, Streams};
use cuda_runtime::{Allocation, Capture, Completion, Device, RuntimeError, RuntimeResult, Stream};
use cuda_sim::SimDriver;
use std::sync::mpsc;
use std::time::Duration;

const CODE: ErrorCode = ErrorCode::LAUNCH_OUT_OF_RESOURCES;

/// Memory and the streams that used it, which goes back whatever fails.
struct Used {
    allocation: Option<Allocation>,
    first: Option<Completion>,
    by: Vec<Stream>,
}

impl Used {
    fn on(device: &Device, stream: Option<&Stream>) -> RuntimeResult<Self> {
        let (allocation, first) = match stream {
            Some(stream) => device.allocate_on(256, stream)?,
            None => device.allocate(256)?,
        };
        let by = Vec::new();
        Ok(Self {
            allocation: Some(allocation),
            first,
            by,
        })
    }

    fn fill(&mut self, stream: &Stream, byte: u8) -> RuntimeResult<()> {
        stream.wait_for_all(&self.first)?;
        let memory = self.allocation.as_ref().unwrap().address();
        let device = stream.device().id();
        if !self.by.contains(stream) {
            self.by.push(stream.clone());
        }
        // SAFETY: the scenario orders the fills.
        let call = |driver: &dyn Driver, raw| unsafe {
            driver.fill_async(device, memory, Pattern::U8(byte), 64, raw)
        };
        // SAFETY: the fill goes to the stream.
        unsafe { stream.enqueue(call) }
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let allocation = self.allocation.take().unwrap();
        let uses: RuntimeResult<Vec<_>> = self.by.iter().map(Stream::record_eager).collect();
        match uses {
            Ok(uses) => allocation.reclaim(uses.into_iter().flatten().chain(self.first.take())),
            // What still uses it is unknown: lost, and counted.
            Err(error) => allocation.device().park(error),
        }
    }
}

fn scenario(device: &Device, own: RawStream) -> RuntimeResult<()> {
    let streams = device.streams().acquire_many(2)?;
    let [s, t] = &streams[..] else { unreachable!() };
    let urgent = device.streams_at(-1)?.acquire()?;
    // SAFETY: the stream is of the device, and outlives the scenario.
    let own = unsafe { device.adopt_stream(own) }?;
    let (mut a, mut b) = (Used::on(device, Some(s))?, Used::on(device, None)?);
    a.fill(s, 1)?;
    let mut last = s.record()?;
    for next in [t, &urgent, &own, s] {
        next.wait_for(&last)?;
        a.fill(next, 2)?;
        last = next.record()?;
    }
    last.is_complete()?;
    // Used by several streams, by one, and by none.
    drop((a, Used::on(device, Some(&urgent))?));
    b.fill(&urgent, 3)?;
    let before = urgent.record()?;

    let mut graph = {
        let capture = Capture::begin(s, CaptureMode::Global)?;
        capture.join(t)?;
        b.fill_captured(t, 4)?;
        capture.end()?.graph
    };
    // Where replays run.
    b.by.extend([s.clone(), t.clone()]);
    // SAFETY: what the graph touches is alive until its replays were waited for.
    let replayed = unsafe { graph.launch_after(t, [&before]) }?;
    let capture = Capture::begin(s, CaptureMode::ThreadLocal)?;
    capture.join(t)?;
    b.fill_captured(t, 5)?;
    drop(capture.end_into(&mut graph)?);
    // SAFETY: as above.
    let again = unsafe { graph.launch_after(s, [&replayed]) }?;
    again.wait()?;
    b.by.retain(|stream| *stream == urgent);
    drop(graph);

    let pinned = device.allocate_pinned(64)?;
    // SAFETY: the memory is of this device and size, and unused.
    unsafe { device.free_pinned(pinned, 64, [before.clone()]) };
    let done = s.record()?;
    drop(streams);
    let chained = device.streams().acquire_after(&done)?;
    b.fill(&chained, 6)?;
    drop(chained);
    futures::executor::block_on(before.into_future())?;
    drop((urgent, own, b, done, last));
    device.streams().acquire_many(2)?;
    device.drain_frees()
}

impl Used {
    /// In a capture, where nothing from outside is waited for. The replays are waited for by the scenario.
    fn fill_captured(&mut self, stream: &Stream, byte: u8) -> RuntimeResult<()> {
        let first = self.first.take();
        let known = self.by.clone();
        let result = self.fill(stream, byte);
        (self.first, self.by) = (first, known);
        result
    }
}

fn run(pools: bool, arm: Option<(Call, u64)>) -> CallCounts {
    let rig = Rig::with(SimDriver::builder().pools(pools).seed(1), |builder| {
        builder
            .streams_per_device(2)
            .streams_at_priority(-1, 1)
            .host_pool_bytes(64)
    });
    let device = rig.device();
    let own = rig.sim.stream_create(device.id(), 0).unwrap();
    let before = rig.sim.counters().snapshot();
    if let Some((call, n)) = arm {
        rig.sim.faults().fail_nth(call, n, CODE);
    }
    let result = scenario(&device, own);
    let hit = rig.sim.faults().clear() == 0;
    let made = rig.sim.counters().snapshot() - before;
    let mut parked = device.check();
    if let Some((call, n)) = arm {
        let told = |result: &RuntimeResult<()>| {
            result
                .as_ref()
                .is_err_and(|error| error.code() == Some(CODE))
        };
        // Where the thread can't be relaxed or told apart, the call is not made or its failure harms nobody.
        let silent = matches!(
            call,
            Call::ThreadExchangeStreamCaptureMode | Call::StreamGetCaptureInfo
        );
        if hit && !silent && !told(&result) && parked.is_ok() {
            // A thread of the runtime met it, and may not have told yet.
            until(|| {
                parked = device.check();
                parked.is_err()
            });
        }
        let what = format!("{call} {n}, pools {pools}: {result:?}, {parked:?}");
        assert!(!hit || silent || told(&result) || told(&parked), "{what}");
        let leaks = matches!(
            call,
            Call::MemFree
                | Call::MemFreeAsync
                | Call::MemFreeHost
                | Call::EventRecord
                | Call::EventCreate
                | Call::StreamSynchronize
                | Call::EventSynchronize
        );
        assert!(leaks || device.alive().leaked_bytes == 0, "{what}");
    } else {
        assert_eq!((result, parked), (Ok(()), Ok(())));
    }
    if device.is_poisoned() {
        return made;
    }
    // The device is as usable as before.
    let second = scenario(&device, own);
    assert!(
        second.is_ok() || matches!(second, Err(RuntimeError::Driver(_))),
        "{second:?}"
    );
    // SAFETY: nobody uses it any more.
    let _ = unsafe { rig.sim.stream_destroy(device.id(), own) };
    drop((device, rig.runtime));
    rig.sim.run_all();
    rig.sim.assert_no_reports();
    made
}

#[test]
fn every_call_of_the_runtime_may_fail_once() {
    for pools in [true, false] {
        let counts = run(pools, None);
        for (call, count) in counts.iter() {
            for n in 1..=count {
                let (ended, end) = mpsc::channel();
                let thread = std::thread::spawn(move || {
                    let made = run(pools, Some((call, n)));
                    let _ = ended.send(());
                    made
                });
                if end.recv_timeout(Duration::from_secs(20)) == Err(mpsc::RecvTimeoutError::Timeout)
                {
                    panic!("{call} {n}, pools {pools}: it hangs");
                }
                thread.join().unwrap();
            }
        }
    }
}
