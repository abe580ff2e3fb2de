//! Every driver call of a scenario fails once: no panic, no hang, tokens back, the error reported, nothing lost
//! that is not counted, and nothing wrong on the device.

use crate::fault_kit::{CODE, in_time, leaks, may_leave, parked};
use crate::kit::{Kit, N, Rig, block_on, cases, elements};
use cuda_buffer::{
    BufferError, BufferResult, CaptureStep, CapturedLaunch, CudaBuffer, DeviceArena, DeviceData,
    DeviceSlab, Graph, Kept, Launch, PinnedBuffer, Rows,
};
use cuda_driver::{Call, CallCounts, Driver, ErrorCode};
use cuda_runtime::{Device, Runtime, RuntimeError, Stream};
use cuda_sim::{SimDriver, Unwound};
use space_core::{Space, Undef};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// What lives through a failure, and must be usable after it.
struct Fixture {
    device: Device,
    kit: Kit,
    streams: [Stream; 2],
    x: CudaBuffer<u32>,
    y: CudaBuffer<u32>,
    pinned: PinnedBuffer<u32>,
    arena: DeviceArena,
    graph: Graph,
    launch: CapturedLaunch,
}

fn capture(
    kit: &Kit,
    [s, t]: &[Stream; 2],
    x: &mut CudaBuffer<u32>,
    y: &mut CudaBuffer<u32>,
    arena: &mut DeviceArena,
) -> BufferResult<(Graph, CapturedLaunch)> {
    let mut launch = None;
    let graph = s.capture(|capture| {
        capture.join(t)?;
        let mut out = x.write_synchronized_with(s)?;
        let args = (N as u32, 1_u32, &mut out);
        launch = Some(kit.step.launch_captured(s, elements(N), args)?);
        out.release()?;
        kit.map(t, y, x, 2)?;
        arena.frame().scratch(|frame| {
            let mut carve = frame.alloc(Undef::<u32, _>::new([N])).expect("room");
            kit.map(s, &mut carve, y, 3)?;
            kit.join(t, y, &carve, x)
        })
    })?;
    Ok((graph, launch.expect("the step has run")))
}

impl Fixture {
    fn new(rig: &Rig) -> BufferResult<Self> {
        let device = rig.device();
        let kit = Kit::load(&device)?;
        let streams = [device.streams().acquire()?, device.streams().acquire()?];
        let (mut x, mut y) = (CudaBuffer::new(&device, N)?, CudaBuffer::new(&device, N)?);
        let pinned = PinnedBuffer::new(&device, N)?;
        let mut arena = DeviceArena::over(DeviceSlab::new(&device, 2048)?).expect("aligned");
        let (graph, launch) = capture(&kit, &streams, &mut x, &mut y, &mut arena)?;
        x.fill(&streams[0], 0)?;
        y.fill(&streams[1], 0)?;
        Ok(Self {
            device,
            kit,
            streams,
            x,
            y,
            pinned,
            arena,
            graph,
            launch,
        })
    }

    /// Makes every kind of call. Its results depend on nothing that came before.
    fn scenario(&mut self) -> BufferResult<()> {
        let Self {
            device,
            kit,
            streams,
            x,
            y,
            pinned,
            arena,
            graph,
            launch,
        } = self;
        let [s, t] = &*streams;
        x.fill(s, 1)?;
        kit.map(t, y, x, 1)?; // 6
        kit.step(s, x, 4)?; // 7
        let mut z = CudaBuffer::new(device, N)?;
        kit.join(t, &mut z, x, y)?; // 49
        let mut w = CudaBuffer::new_on(s, N)?;
        w.copy_from(&z, s)?;
        pinned.host_write()?.fill(5);
        w.copy_from_pinned(&*pinned, t)?;
        w.copy_to_pinned(&mut *pinned, s)?;
        assert_eq!(pinned.host_read()?[..], [5; N]);

        arena.frame().scratch(|frame| {
            let mut carve = frame.alloc(Undef::<u32, _>::new([N])).expect("room");
            carve.copy_from(&z, t)?;
            kit.step(s, &mut carve, 1)?; // 148
            x.copy_from(&carve, s)
        })?;
        y.copy_from_slice(&[3; N])?;
        graph.set_launch(launch, elements(N), (Kept, 1_u32, Kept))?;
        graph.launch(t)?;
        assert_eq!((x.to_vec()?, y.to_vec()?), (vec![445; N], vec![14_253; N]));
        let (mut other, _) = capture(kit, &[s.clone(), t.clone()], x, y, arena)?;
        other.launch(s)?;
        assert_eq!((x.to_vec()?, y.to_vec()?), (vec![1336; N], vec![42_765; N]));
        // Made anew, and then updated.
        for (a, value) in [(2, 4010), (3, 12_033)] {
            s.recapture(&mut other, |_| kit.step(s, x, a))?;
            other.launch(t)?;
            assert_eq!(block_on(x.to_vec_async())?, [value; N]);
        }
        drop(other);

        let third = device.streams().acquire()?;
        z.fill(&third, 9)?;
        drop(third); // given back with work behind it
        drop(device.streams().acquire()?); // waits for that
        let short = PinnedBuffer::new(device, N)?;
        z.copy_from_pinned(&short, t)?;
        let rows = Rows {
            width: 2,
            rows: 3,
            dst_pitch: 4,
            src_pitch: 5,
        };
        z.copy_rows_from(&w, rows, s)?;
        let own = PinnedBuffer::register(device, vec![5; N]).map_err(|refused| refused.error)?;
        let kept = PinnedBuffer::register(device, vec![6; N]).map_err(|refused| refused.error)?;
        w.copy_from_pinned(&own, t)?;
        z.copy_from_pinned(&kept, s)?;
        assert_eq!(kept.into_vec().map_err(|refused| refused.error)?, [6; N]);
        drop((short, own, z, w));
        device.drain_frees()?;
        Ok(())
    }

    /// Whether every token is back.
    fn assert_free(&mut self) -> BufferResult<()> {
        let stream = &self.streams[0];
        self.x.write_synchronized_with(stream)?.release()?;
        self.y.write_synchronized_with(stream)?.release()?;
        self.pinned.host_write().map(drop)?;
        assert_eq!(self.arena.offset(), 0);
        assert_eq!(self.arena.region().quarantined_bytes(), 0);
        Ok(())
    }
}

fn simulation(pools: bool) -> Rig {
    seeded(pools, 0)
}

fn seeded(pools: bool, seed: u64) -> Rig {
    Rig::new(SimDriver::builder().pools(pools).seed(seed), 3)
}

/// The calls of the scenario, without a fault.
fn calls(pools: bool) -> CallCounts {
    let rig = simulation(pools);
    let mut fixture = Fixture::new(&rig).unwrap();
    let before = rig.sim.counters().snapshot();
    fixture.scenario().unwrap();
    let calls = rig.sim.counters().snapshot() - before;
    fixture.scenario().unwrap();
    drop(fixture);
    rig.finish();
    calls
}

fn fail_once(pools: bool, call: Call, n: u64) {
    for seed in 0..u64::from(cases(3)) {
        fail_under(seeded(pools, seed), call, n);
    }
}

fn fail_under(rig: Rig, call: Call, n: u64) {
    let mut fixture = Fixture::new(&rig).unwrap();
    rig.sim.faults().fail_nth(call, n, CODE);
    let result = fixture.scenario();
    // How often the runtime's own threads ask is a matter of luck.
    let fired = rig.sim.faults().clear() == 0;
    // A wait that can't be queued for a free is made on the host instead. A thread of the runtime that can't be
    // relaxed hears of it from the calls it then may not make.
    let repaired = matches!(
        call,
        Call::StreamWaitEvent | Call::ThreadExchangeStreamCaptureMode
    );
    let parked = parked(&fixture.device, fired && !repaired && result.is_ok());
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
    assert!(!fixture.device.is_poisoned());
    fixture.assert_free().unwrap();
    fixture.scenario().unwrap();
    finish_after(rig, fixture, call);
}

/// Nothing is lost that is not counted, but for what the call that failed was to give back.
fn finish_after(rig: Rig, fixture: Fixture, call: Call) {
    let counted = fixture.device.alive().leaked_bytes as u64;
    drop(fixture);
    let Rig { runtime, sim } = rig;
    for (_, alive) in runtime.shutdown().unwrap() {
        assert_eq!(
            (alive.allocations, alive.graphs, alive.leased_streams),
            (0, 0, 0)
        );
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

/// A call that unwinds has done nothing: what the program had is as it was, and what only the driver could give back is lost and
/// counted.
fn unwind_once(pools: bool, call: Call, n: u64) {
    let rig = simulation(pools);
    let mut fixture = Fixture::new(&rig).unwrap();
    rig.sim.faults().unwind_nth(call, n);
    let run = catch_unwind(AssertUnwindSafe(|| fixture.scenario()));
    let fired = rig.sim.faults().clear() == 0;
    match run {
        Ok(result) => assert!(result.is_ok() || fired, "{result:?}"),
        Err(panic) => assert!(panic.is::<Unwound>(), "another panic"),
    }
    let _ = fixture.device.check();
    assert!(!fixture.device.is_poisoned());
    fixture.assert_free().unwrap();
    fixture.scenario().unwrap();
    finish_after(rig, fixture, call);
}

/// Every call of a poisoned device returns the first error, and drops are silent.
fn finish_poisoned(rig: Rig, mut fixture: Fixture, code: ErrorCode) {
    let poisoned = |error: &RuntimeError| matches!(error, RuntimeError::Poisoned { first, .. } if first.code == code);
    let before = rig.sim.counters().snapshot();
    for _ in 0..2 {
        match fixture.scenario() {
            Err(BufferError::Runtime(error)) => assert!(poisoned(&error), "{error}"),
            other => panic!("{other:?}"),
        }
        let s = fixture.streams[0].clone();
        let refused = [
            fixture.device.check().unwrap_err(),
            s.synchronize().unwrap_err(),
            s.record().unwrap_err(),
            fixture.device.streams().acquire().unwrap_err(),
            fixture.device.allocate(1).unwrap_err(),
            fixture.device.allocate_pinned(1).unwrap_err(),
            fixture
                .device
                .kernel(&crate::kit::MODULE, "cold")
                .unwrap_err(),
        ];
        assert!(refused.iter().all(poisoned), "{refused:?}");
        assert!(fixture.graph.launch(&s).is_err());
        assert!(fixture.y.to_vec().is_err());
    }
    let made = rig.sim.counters().snapshot() - before;
    // A thread of the runtime may have been about to wait.
    let own = made.of(Call::EventSynchronize) + made.of(Call::ThreadExchangeStreamCaptureMode);
    assert_eq!(made.total(), own, "the driver is left alone: {made}");
    drop(fixture);
    let error = rig.runtime.shutdown().unwrap_err();
    assert!(poisoned(&error), "{error}");
    rig.sim.assert_no_reports();
}

/// A failure from which no device recovers: the first error is what every later call returns.
fn lose_device(pools: bool, call: Call, n: u64) {
    if call == Call::ThreadExchangeStreamCaptureMode {
        return; // It concerns no device.
    }
    let rig = simulation(pools);
    let mut fixture = Fixture::new(&rig).unwrap();
    let before = rig.sim.counters().snapshot();
    rig.sim
        .faults()
        .fail_nth(call, n, ErrorCode::ILLEGAL_ADDRESS);
    let result = fixture.scenario();
    if (rig.sim.counters().snapshot() - before).of(call) < n {
        return;
    }
    if let Err(error) = result {
        let code = match error {
            BufferError::Runtime(error) => error.code(),
            _ => None,
        };
        assert_eq!(code, Some(ErrorCode::ILLEGAL_ADDRESS));
    }
    // A thread of the runtime may have met it, and may not have told yet.
    let begun = Instant::now();
    while !fixture.device.is_poisoned() {
        assert!(begun.elapsed() < Duration::from_secs(10), "nobody told");
        std::thread::yield_now();
    }
    finish_poisoned(rig, fixture, ErrorCode::ILLEGAL_ADDRESS);
}

/// Every fault of one kind in turn; how many there were.
fn sweep(pools: bool, fault: fn(bool, Call, u64)) -> usize {
    let mut swept = 0;
    for (call, count) in calls(pools).iter() {
        for n in 1..=count {
            in_time(
                &format!("{call} {n} of {count}, pools {pools}"),
                move || fault(pools, call, n),
            );
            swept += 1;
        }
    }
    swept
}

#[test]
fn any_call_may_fail_once() {
    let swept = sweep(true, fail_once);
    assert!(swept > 80, "only {swept} calls");
}

#[test]
fn any_call_may_fail_once_without_pools() {
    let swept = sweep(false, fail_once);
    assert!(swept > 80, "only {swept} calls");
}

#[test]
fn any_call_may_unwind_once() {
    sweep(true, unwind_once);
    sweep(false, unwind_once);
}

#[test]
fn any_call_may_lose_the_device() {
    sweep(true, lose_device);
    sweep(false, lose_device);
}

#[test]
fn any_kernel_may_lose_the_device() {
    for pools in [true, false] {
        for n in 1..=9 {
            in_time(&format!("kernel {n}, pools {pools}"), move || {
                let rig = simulation(pools);
                let mut fixture = Fixture::new(&rig).unwrap();
                rig.sim
                    .faults()
                    .lose_device_at_launch(n, ErrorCode::LAUNCH_FAILED);
                let error = fixture.scenario().unwrap_err();
                let BufferError::Runtime(error) = error else {
                    panic!("{error}")
                };
                assert_eq!(error.code(), Some(ErrorCode::LAUNCH_FAILED));
                finish_poisoned(rig, fixture, ErrorCode::LAUNCH_FAILED);
            });
        }
    }
}

/// A copy whose end nobody could tell goes on in memory of our own: the caller's is its own again, whatever happens.
#[test]
fn a_copy_whose_end_nobody_can_tell_leaves_the_callers_memory_alone() {
    for seed in 0..40 {
        let rig = Rig::seeded(seed, 1);
        let [stream] = rig.streams();
        let mut x = CudaBuffer::<u32>::new_on(&stream, N).unwrap();
        x.fill(&stream, 7).unwrap();
        let faults = rig.sim.faults();
        let refuse = || faults.fail_nth(Call::EventSynchronize, 1, CODE);
        refuse();
        let mut host = [1_u32; N];
        let error = x.copy_to_slice(&mut host).unwrap_err();
        assert!(matches!(error, BufferError::Runtime(error) if error.code() == Some(CODE)));
        host.fill(2);
        rig.sim.run_all();
        assert_eq!(host, [2; N], "seed {seed}");

        faults.clear();
        refuse();
        let mut host = [3_u32; N];
        x.copy_from_slice(&host).unwrap_err();
        host.fill(4);
        rig.sim.run_all();
        faults.clear();
        // The copy was queued and is ordered like any other; it took what it was given.
        assert_eq!(x.to_vec().unwrap(), [3; N], "seed {seed}");
        drop((stream, x));
        rig.finish();
    }
}

#[test]
fn a_record_that_fails_waits_for_the_stream_or_poisons_the_device() {
    for poisons in [false, true] {
        let rig = simulation(true);
        let mut fixture = Fixture::new(&rig).unwrap();
        let faults = rig.sim.faults();
        faults.fail_nth(Call::EventRecord, 1, CODE);
        if poisons {
            faults.fail_nth(Call::StreamSynchronize, 1, ErrorCode::NOT_PERMITTED);
        }
        let stream = fixture.streams[0].clone();
        let error = fixture.x.fill(&stream, 1).unwrap_err();
        assert!(matches!(error, BufferError::Runtime(error) if error.code() == Some(CODE)));
        if poisons {
            finish_poisoned(rig, fixture, ErrorCode::NOT_PERMITTED);
            continue;
        }
        // The stream was waited for: the fill is over, and nothing orders the next access with it.
        let before = fixture.device.order_counts();
        let other = fixture.streams[1].clone();
        fixture.x.fill(&other, 2).unwrap();
        assert!((fixture.device.order_counts() - before).waits_issued <= 1);
        drop((stream, other));
        let replaced = fixture.device.streams().counts().replaced;
        let device = fixture.device.clone();
        drop(fixture);
        assert_eq!(
            device.streams().counts().replaced,
            replaced + 1,
            "its stream is replaced"
        );
        drop(device);
        rig.finish();
    }
}

/// Opens a runtime, makes and uses everything, and closes it all again, with one call failing on the way.
pub(crate) fn live(pools: bool, arm: impl FnOnce(&SimDriver)) -> SimDriver {
    let sim = SimDriver::builder().pools(pools).build();
    arm(&sim);
    let runtime = Runtime::builder()
        .driver(sim.as_driver())
        .streams_per_device(3)
        .prime_pool_bytes(1 << 16)
        .build();
    if let Ok(runtime) = runtime {
        let rig = Rig {
            runtime,
            sim: sim.clone(),
        };
        if let Ok(mut fixture) = Fixture::new(&rig) {
            let _ = fixture.scenario();
        }
        let _ = rig.runtime.shutdown();
    }
    sim
}

#[test]
fn a_failure_on_the_way_up_or_down_loses_only_what_failed() {
    for pools in [true, false] {
        let counts = live(pools, |_| ()).counters().snapshot();
        for (call, count) in counts.iter() {
            for n in 1..=count {
                in_time(
                    &format!("{call} {n} of {count}, pools {pools}"),
                    move || {
                        let sim = live(pools, |sim| sim.faults().fail_nth(call, n, CODE));
                        sim.run_all();
                        sim.assert_no_reports();
                        if call == Call::StreamSynchronize {
                            return; // A device that can't say whether its work is over keeps all it has.
                        }
                        let (lost, objects) = leaks(&sim);
                        let own = matches!(
                            call,
                            Call::MemFree
                                | Call::MemFreeAsync
                                | Call::MemFreeHost
                                | Call::MemHostUnregister
                                | Call::EventRecord
                                | Call::EventSynchronize
                        );
                        assert!(lost == 0 || own, "{lost} bytes leak");
                        let others: Vec<_> = objects
                            .into_iter()
                            .filter(|&object| !may_leave(call, object))
                            .collect();
                        assert!(others.is_empty(), "{others:?} leak");
                    },
                );
            }
        }
    }
}
