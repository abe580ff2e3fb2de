//! Capture sessions: bound to their thread, refused where they would break, clean at every end.

use crate::kit::{Rig, touch, until};
use cuda_driver::{Call, CaptureMode, Driver, ErrorCode, Memory};
use cuda_runtime::{Capture, RuntimeError, current_session};
use cuda_sim::SimDriver;
use std::sync::Barrier;

#[test]
fn a_thread_captures_once_at_a_time_and_other_threads_are_refused_the_stream() {
    let rig = Rig::new(2);
    let device = rig.device();
    let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
    let (memory, _) = device.allocate_on(64, &s).unwrap();
    let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
    assert!(matches!(
        Capture::begin(&t, CaptureMode::ThreadLocal),
        Err(RuntimeError::CaptureActive { .. })
    ));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert!(current_session().is_none());
            let refused = s.record().map(drop);
            assert_eq!(refused, Err(RuntimeError::CaptureWrongThread));
            let begun = Capture::begin(&s, CaptureMode::ThreadLocal).map(drop);
            assert_eq!(begun, Err(RuntimeError::CaptureWrongThread));
            let waited = s.synchronize().map(drop);
            assert_eq!(waited, Err(RuntimeError::CaptureWrongThread));
            // A capture of its own is its own business.
            let capture = Capture::begin(&t, CaptureMode::ThreadLocal).unwrap();
            drop(capture.end().unwrap());
        });
        other.join().unwrap();
    });
    touch(&s, &memory);
    let captured = capture.end().unwrap();
    assert_eq!(captured.graph.nodes(), 1);
    assert!(current_session().is_none());
    let done = s.record().unwrap();
    drop(captured);
    memory.reclaim([done]);
    drop((s, t, device));
    rig.finish();
}

/// Refused by Carve, so that the driver never sees what would invalidate the capture (cases 18 and 19).
#[test]
fn case_19_what_a_capture_forbids_is_refused_before_the_driver_sees_it() {
    for mode in [
        CaptureMode::Global,
        CaptureMode::ThreadLocal,
        CaptureMode::Relaxed,
    ] {
        let rig = Rig::new(2);
        let device = rig.device();
        let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
        let eager = t.record().unwrap();
        let capture = Capture::begin(&s, mode).unwrap();
        let before = rig.sim.counters().snapshot();
        let refused = [
            device.allocate(64).map(drop),
            device.allocate_on(64, &s).map(drop),
            device.allocate_on(64, &t).map(drop),
            device.allocate_pinned(64).map(drop),
            device.drain_frees(),
            s.synchronize().map(drop),
            t.synchronize().map(drop),
            eager.wait(),
        ];
        for result in refused {
            assert!(
                matches!(result, Err(RuntimeError::CaptureActive { .. })),
                "{result:?}"
            );
        }
        assert_eq!((rig.sim.counters().snapshot() - before).total(), 0);
        // Asking is possible, by a call that does not disturb the capture.
        eager.is_complete().unwrap();
        assert!(device.capturing().unwrap());
        drop(capture.end().unwrap());
        assert!(!device.capturing().unwrap());
        drop((s, t, eager, device));
        rig.finish();
    }
}

#[test]
fn completions_do_not_cross_the_border_of_a_capture() {
    let rig = Rig::new(2);
    let device = rig.device();
    let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
    let (memory, _) = device.allocate_on(64, &t).unwrap();
    touch(&t, &memory);
    let eager = t.record().unwrap();
    let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
    let captured = s.record().unwrap();
    assert!(captured.is_captured() && !captured.is_known_complete());
    let isolated = |result: Result<(), RuntimeError>| {
        assert!(
            matches!(result, Err(RuntimeError::CaptureIsolation { .. })),
            "{result:?}"
        );
    };
    isolated(t.wait_for(&captured));
    isolated(captured.is_complete().map(drop));
    isolated(s.wait_for(&eager));
    // The refused wait was part of the step: there is no graph without it.
    isolated(capture.end().map(drop));
    isolated(t.wait_for(&captured));
    isolated(captured.wait());
    t.synchronize().unwrap();
    memory.reclaim([eager]);
    drop((s, t, captured, device));
    rig.finish();
}

/// Ends that are no end: dropped, failed, forgotten (case 19, NVIDIA/cuda-python#2834).
#[test]
fn case_19_a_capture_that_is_dropped_leaves_every_stream_usable() {
    let rig = Rig::new(2);
    let device = rig.device();
    let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
    let (memory, _) = device.allocate_on(64, &s).unwrap();
    for panics in [false, true] {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
            capture.join(&t).unwrap();
            touch(&t, &memory);
            if panics {
                std::panic::resume_unwind(Box::new("the step panics"));
            }
        }));
        assert_eq!(result.is_err(), panics);
        assert!(!s.is_capturing() && !t.is_capturing() && current_session().is_none());
        touch(&s, &memory);
        s.synchronize().unwrap();
        t.synchronize().unwrap();
    }
    memory.reclaim([s.record().unwrap()]);
    drop((s, t, device));
    rig.finish();
}

#[test]
fn an_end_that_the_driver_refuses_is_repeated() {
    for (call, n) in [
        (Call::StreamEndCapture, 1),
        (Call::GraphInstantiate, 1),
        (Call::GraphGetNodes, 1),
        (Call::GraphDestroy, 1),
        (Call::EventRecord, 2),
        (Call::StreamWaitEvent, 2),
    ] {
        let rig = Rig::new(2);
        let device = rig.device();
        let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
        let (memory, _) = device.allocate_on(64, &s).unwrap();
        let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
        rig.sim.faults().fail_nth(call, n, ErrorCode::NOT_PERMITTED);
        capture.join(&t).unwrap();
        touch(&t, &memory);
        let error = capture.end().map(drop).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::NOT_PERMITTED), "{call}");
        device.check().unwrap();
        touch(&s, &memory);
        s.synchronize().unwrap();
        memory.reclaim([s.record().unwrap()]);
        drop((s, t, device));
        if call == Call::GraphDestroy {
            drop(rig.runtime);
            assert_eq!(rig.sim.leak_report().len(), 1, "the graph whose end failed");
            rig.sim.assert_no_reports();
        } else {
            rig.finish();
        }
    }
}

#[test]
fn case_19_an_invalidated_capture_ends_once_with_its_error() {
    let rig = Rig::new(1);
    let device = rig.device();
    let s = device.streams().acquire().unwrap();
    let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
    // Behind Carve's back.
    rig.sim.mem_alloc(device.id(), 64).unwrap_err();
    assert!(device.capturing().unwrap());
    let before = rig.sim.counters().snapshot();
    let error = capture.end().map(drop).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::STREAM_CAPTURE_INVALIDATED));
    let made = rig.sim.counters().snapshot() - before;
    assert_eq!(
        (made.of(Call::StreamEndCapture), made.of(Call::GraphDestroy)),
        (1, 0)
    );
    assert_eq!(rig.sim.take_reports().len(), 1, "the test's own call");
    let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
    drop(capture.end().unwrap());
    drop((s, device));
    rig.finish();
}

/// A forgotten capture goes on until its thread ends: then its streams are free again, and nobody waits for it.
#[test]
fn a_forgotten_capture_ends_with_its_thread() {
    for pools in [true, false] {
        let rig = Rig::with(SimDriver::builder().pools(pools), |builder| {
            builder.streams_per_device(2)
        });
        let device = rig.device();
        let s = device.streams().acquire().unwrap();
        let (memory, allocated) = device.allocate_on(64, &s).unwrap();
        std::thread::spawn({
            let s = s.clone();
            move || {
                let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
                touch(&s, &memory);
                std::mem::forget(capture);
                assert!(matches!(
                    s.synchronize(),
                    Err(RuntimeError::CaptureActive { .. })
                ));
                memory.reclaim(allocated);
            }
        })
        .join()
        .unwrap();
        until(|| !s.is_capturing());
        s.synchronize().unwrap();
        device.drain_frees().unwrap();
        drop(s);
        assert_eq!(device.streams().counts().leased, 0);
        rig.sim.assert_no_reports();
    }
}

/// Frees that a capture forbids wait until none is open.
#[test]
fn a_plain_free_waits_for_the_end_of_a_capture() {
    let rig = Rig::with(SimDriver::builder().pools(false), |builder| {
        builder.streams_per_device(2)
    });
    let device = rig.device();
    let s = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate(64).unwrap();
    let begun = Barrier::new(2);
    let (capture, before) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let pinned = device.allocate_pinned(64).unwrap();
            begun.wait();
            begun.wait();
            // SAFETY: the memory is of this device and size, and nothing uses it.
            unsafe { device.free_pinned(pinned, 64, []) };
        });
        begun.wait();
        let capture = Capture::begin(&s, CaptureMode::Global).unwrap();
        let before = rig.sim.counters().snapshot();
        memory.reclaim([]);
        begun.wait();
        (capture, before)
    });
    std::thread::sleep(std::time::Duration::from_millis(30));
    let made = rig.sim.counters().snapshot() - before;
    assert_eq!((made.of(Call::MemFree), made.of(Call::MemFreeHost)), (0, 0));
    drop(capture.end().unwrap());
    device.drain_frees().unwrap();
    drop((s, device));
    rig.finish();
}

/// The last handle of one device may go while its thread captures on another.
#[test]
fn a_device_may_end_while_its_thread_captures_on_another() {
    let (one, two) = (Rig::new(1), Rig::new(1));
    let s = one.device().streams().acquire().unwrap();
    let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
    let Rig { runtime, sim } = two;
    drop(runtime);
    sim.shutdown();
    sim.assert_no_reports();
    drop(capture.end().unwrap());
    drop(s);
    one.finish();

    // On the same driver it is the same thread's capture that would suffer.
    let sim = SimDriver::builder().build();
    let open = || {
        cuda_runtime::Runtime::builder()
            .driver(sim.as_driver())
            .build()
            .unwrap()
    };
    let (one, two) = (open(), open());
    let s = one.default_device().streams().acquire().unwrap();
    let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
    drop(two);
    drop(capture.end().unwrap());
    drop((s, one));
    sim.shutdown();
    sim.assert_no_reports();
}

/// Being asked is no occasion to hand over what a destructor left: the answer would be lost on who can't take it.
#[test]
fn asking_whether_a_thread_captures_takes_no_parked_error() {
    let rig = Rig::new(1);
    let device = rig.device();
    let s = device.streams().acquire().unwrap();
    let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
    let parked = RuntimeError::NoThread {
        purpose: "does nothing",
        reason: "a test".into(),
    };
    device.park(parked.clone());
    assert_eq!(device.capturing(), Ok(true));
    assert_eq!(device.check(), Err(parked));
    drop(capture.end().unwrap());
    drop((s, device));
    rig.finish();
}
