//! Every driver call of copies between devices fails in turn, in whole ranges and in rows, eager and captured; and so does what the
//! other sweeps don't come to.

use crate::fault_kit::{CODE, in_time, leaks, may_leave};
use crate::faults;
use crate::kit::{N, Rig, cases};
use cuda_buffer::{BufferError, BufferResult, CaptureStep, CudaBuffer, DeviceData, Rows};
use cuda_driver::{Call, CallCounts, Driver};
use cuda_runtime::{Device, RuntimeError, Stream};
use cuda_sim::SimDriver;
use std::time::{Duration, Instant};

const ROWS: Rows = Rows {
    width: 2,
    rows: 3,
    dst_pitch: 4,
    src_pitch: 5,
};

/// A buffer and a stream on each of two devices.
struct Fixture {
    streams: [Stream; 2],
    x: CudaBuffer<u32>,
    y: CudaBuffer<u32>,
}

impl Fixture {
    fn new(rig: &Rig) -> BufferResult<Self> {
        let [near, far] = rig.runtime.devices() else {
            panic!("two devices")
        };
        Ok(Self {
            streams: [near.streams().acquire()?, far.streams().acquire()?],
            x: CudaBuffer::new(near, N)?,
            y: CudaBuffer::new(far, N)?,
        })
    }

    /// Its results depend on nothing that came before.
    fn scenario(&mut self) -> BufferResult<()> {
        let Self {
            streams: [s, t],
            x,
            y,
        } = self;
        let with_rows = |of: u32, rest: u32| {
            let mut all = [rest; N];
            (0..3).for_each(|row| all[4 * row..][..2].fill(of));
            all
        };
        x.fill(s, 1)?;
        y.copy_from(&*x, t)?;
        x.fill(s, 2)?;
        y.copy_rows_from(&*x, ROWS, t)?;
        assert_eq!(y.to_vec()?, with_rows(2, 1));
        y.fill(t, 3)?;
        x.copy_rows_from(&*y, ROWS, t)?;
        assert_eq!(x.to_vec()?, with_rows(3, 2));
        x.copy_from(&*y, s)?;
        let graph = s.capture(|_| y.copy_rows_from(&*x, ROWS, s))?;
        y.fill(t, 4)?;
        graph.launch(s)?;
        drop(graph);
        assert_eq!(y.to_vec()?, with_rows(3, 4));
        let mut short = CudaBuffer::<u16>::new_on(s, N)?;
        short.fill(s, 0x0102)?;
        let filled = s.record()?;
        t.wait_for(&filled)?;
        filled.is_complete()?;
        s.device().pool_usage()?;
        // More than there is: the device is asked for what it can still give.
        match CudaBuffer::<u8>::new(s.device(), 1 << 50) {
            Err(BufferError::Runtime(RuntimeError::OutOfMemory { .. })) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => panic!("so much memory"),
        }
    }
}

fn rig(pools: bool, seed: u64) -> Rig {
    let simulation = SimDriver::builder().devices(2).pools(pools);
    Rig::new(simulation.seed(seed), 2)
}

/// The calls of the scenario, without a fault.
fn calls(pools: bool) -> CallCounts {
    let rig = rig(pools, 0);
    let mut fixture = Fixture::new(&rig).unwrap();
    let before = rig.sim.counters().snapshot();
    fixture.scenario().unwrap();
    let calls = rig.sim.counters().snapshot() - before;
    drop(fixture);
    rig.finish();
    calls
}

/// What the devices' own threads, and destructors, met.
fn parked_on(devices: &[Device]) -> Vec<RuntimeError> {
    let parked = devices.iter().filter_map(|device| device.check().err());
    parked.collect()
}

fn fail_once(rig: Rig, call: Call, n: u64) {
    let mut fixture = Fixture::new(&rig).unwrap();
    rig.sim.faults().fail_nth(call, n, CODE);
    let result = fixture.scenario();
    let fired = rig.sim.faults().clear() == 0;
    let devices = rig.runtime.devices();
    // As in the other sweeps: what is done on the host instead, or by a thread that can't be relaxed, need not be told.
    let repaired = matches!(
        call,
        Call::StreamWaitEvent | Call::ThreadExchangeStreamCaptureMode
    );
    let mut told = parked_on(devices);
    let begun = Instant::now();
    // A thread of the runtime may not have told yet.
    while told.is_empty() && result.is_ok() && fired && !repaired {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "nobody heard of it"
        );
        std::thread::sleep(Duration::from_micros(100));
        told = parked_on(devices);
    }
    match result {
        Err(BufferError::Runtime(error)) => assert_eq!(error.code(), Some(CODE), "{error}"),
        Err(error) => assert_eq!(error.to_string(), "", "not the injected one"),
        Ok(()) => {}
    }
    assert!(told.iter().all(|error| error.code() == Some(CODE)));
    assert!(!devices.iter().any(|device| device.is_poisoned()));
    fixture.scenario().unwrap();
    let alive = devices.iter().map(|device| device.alive().leaked_bytes);
    let counted = alive.sum::<usize>() as u64;
    drop(fixture);
    let Rig { runtime, sim } = rig;
    drop(runtime);
    sim.run_all();
    let (lost, objects) = leaks(&sim);
    assert!(lost <= counted, "{lost} bytes leak, {counted} are counted");
    let left = objects.iter().all(|&object| may_leave(call, object));
    assert!(left, "{objects:?} leak");
    sim.assert_no_reports();
}

#[test]
fn any_call_of_copies_between_devices_may_fail_once() {
    for pools in [true, false] {
        let calls = calls(pools);
        for between in [Call::MemcpyPeerAsync, Call::Memcpy3DPeerAsync] {
            assert!(calls.of(between) >= 2, "{calls}");
        }
        for (call, count) in calls.iter() {
            for n in 1..=count {
                let what = format!("{call} {n} of {count}, pools {pools}");
                in_time(&what, move || {
                    for seed in 0..u64::from(cases(3)) {
                        fail_once(rig(pools, seed), call, n);
                    }
                });
            }
        }
    }
}

/// With the sweeps of one device, every call is failed that anything above the port makes.
#[test]
fn every_call_is_failed_in_some_sweep() {
    // Hardware's own; and calls for programs that use the port by themselves.
    let others = [
        Call::CtxSetCurrent,
        Call::DeviceCanAccessPeer,
        Call::CtxSynchronize,
        Call::StreamGetPriority,
        Call::EventElapsedTime,
        Call::MemPoolSetAttribute,
        Call::MemPoolSetAccess,
        Call::MemcpyHtoD,
        Call::MemcpyDtoH,
        Call::MemsetD2D8Async,
        Call::MemsetD2D16Async,
        Call::MemsetD2D32Async,
        Call::FuncSetAttribute,
        Call::LaunchHostFunc,
        Call::GraphAddChildGraphNode,
    ];
    let sweeps = [true, false].map(|pools| {
        let one = faults::live(pools, |_| ()).counters().snapshot();
        [one, calls(pools)]
    });
    let swept = |call: &Call| sweeps.iter().flatten().any(|calls| calls.of(*call) > 0);
    let left: Vec<_> = Call::ALL
        .iter()
        .copied()
        .filter(|call| !swept(call))
        .collect();
    let unknown: Vec<_> = left.iter().filter(|call| !others.contains(call)).collect();
    let swept: Vec<_> = others.iter().filter(|call| !left.contains(call)).collect();
    assert!(
        unknown.is_empty() && swept.is_empty(),
        "{unknown:?} {swept:?}"
    );
}
