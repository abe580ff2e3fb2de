//! Rules of events and streams, one test each.

use crate::kit::{D0, Gpu, seeds};
use cuda_driver::{Capture, CaptureMode, DeviceId, ErrorCode, EventFlags, Events, Memory, Streams};
use cuda_sim::SimDriver;

/// A wait looks the event's most recent record up when it is called; recording the event again, or destroying it,
/// changes nothing for waits already queued.
#[test]
fn a_wait_keeps_the_record_it_found() {
    seeds(100, |gpu| {
        let (a, b, c) = (gpu.stream(), gpu.stream(), gpu.stream());
        let (x, y, event) = (gpu.alloc(4), gpu.alloc(4), gpu.event());
        gpu.fill(a, x, 1, 1);
        gpu.record(event, a);
        gpu.wait(c, event);
        gpu.fill(b, y, 1, 1);
        gpu.record(event, b);
        gpu.destroy_event(event);
        gpu.step(c, x, 0, 1);
        gpu.synchronize(c);
        assert_eq!(gpu.read(x, 1), [3]);
        gpu.clean();
        gpu.step(c, y, 0, 1);
        assert_eq!(
            gpu.kinds(),
            ["race"],
            "the wait was for the first record only"
        );
    });
}

/// Waiting for an event that was never recorded does nothing; asked, it is complete.
#[test]
fn an_event_never_recorded_is_complete() {
    seeds(20, |gpu| {
        let (stream, event) = (gpu.stream(), gpu.event());
        gpu.wait(stream, event);
        assert_eq!(gpu.sim.event_query(D0, event), Ok(true));
        gpu.sim.event_synchronize(D0, event).unwrap();
        gpu.synchronize(stream);
    });
}

/// An event is recorded on streams of its own device only; streams of other devices may wait for it.
#[test]
fn case_27_events_are_recorded_at_home_and_waited_for_anywhere() {
    for seed in 0..50 {
        let sim = SimDriver::builder().devices(2).seed(seed).build();
        let (home, away) = (Gpu::on(sim.clone(), D0), Gpu::on(sim.clone(), DeviceId(1)));
        let (at_home, far) = (home.stream(), away.stream());
        let event = home.event();
        let code = |result: cuda_driver::CudaResult<()>| result.unwrap_err().code;
        assert_eq!(
            code(sim.event_record(DeviceId(1), event, far)),
            ErrorCode::INVALID_HANDLE
        );
        assert_eq!(
            code(sim.event_record(D0, event, far)),
            ErrorCode::INVALID_HANDLE
        );
        let x = home.alloc(4);
        home.fill(at_home, x, 7, 1);
        home.record(event, at_home);
        away.wait(far, event);
        let y = away.alloc(4);
        away.on_device(far, y, x, 1);
        away.synchronize(far);
        assert_eq!(away.read(y, 1), [7]);
        sim.assert_no_reports();
    }
}

/// Handles of destroyed objects are refused, are reported with both places, and are handed out again at once.
#[test]
fn destroyed_handles_are_refused_and_reused() {
    let gpu = Gpu::seeded(1);
    let (stream, event) = (gpu.stream(), gpu.event());
    gpu.destroy_event(event);
    let error = gpu.sim.event_record(D0, event, stream).unwrap_err();
    assert_eq!(error.code, ErrorCode::INVALID_HANDLE);
    assert_eq!(
        gpu.sim.event_query(D0, event).unwrap_err().code,
        ErrorCode::INVALID_HANDLE
    );
    assert_eq!(gpu.event(), event, "the raw handle is used again");
    gpu.destroy_stream(stream);
    assert_eq!(
        gpu.sim.stream_query(D0, stream).unwrap_err().code,
        ErrorCode::INVALID_HANDLE
    );
    assert_eq!(gpu.stream(), stream);
    assert_eq!(gpu.kinds(), ["destroyed handle"; 3]);
    assert_eq!(
        gpu.sim.stream_query(DeviceId(1), stream).unwrap_err().code,
        ErrorCode::INVALID_DEVICE
    );
}

/// Destroying a stream lets the work that is queued on it finish.
#[test]
fn a_destroyed_stream_finishes_its_work() {
    seeds(100, |gpu| {
        let (a, b, x, event) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.event());
        gpu.fill(a, x, 1, 1);
        gpu.step(a, x, 1, 1);
        gpu.record(event, a);
        gpu.destroy_stream(a);
        let c = gpu.stream();
        gpu.wait(b, event);
        gpu.step(b, x, 1, 1);
        gpu.synchronize(b);
        assert_eq!(gpu.read(x, 1), [13]);
        gpu.synchronize(c);
        gpu.clean();
    });
}

/// The host knows what it synchronised with, or found complete, and nothing else.
#[test]
fn the_host_is_ordered_by_what_it_waited_for() {
    seeds(100, |gpu| {
        let (a, b, x, event) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.event());
        gpu.fill(a, x, 1, 1);
        gpu.record(event, a);
        gpu.sim.event_synchronize(D0, event).unwrap();
        gpu.step(b, x, 1, 1);
        while !gpu.sim.stream_query(D0, b).unwrap() {}
        gpu.step(a, x, 1, 1);
        gpu.synchronize(a);
        assert_eq!(gpu.read(x, 1), [13]);
        gpu.clean();
        gpu.step(b, x, 1, 1);
        let _ = gpu.read(x, 1);
        assert_eq!(
            gpu.kinds(),
            ["race"],
            "reading without waiting for the last step"
        );
    });
}

/// Events with timing measure modelled time; others can't be asked.
#[test]
fn timing_events_measure_modelled_time() {
    let gpu = Gpu::seeded(0);
    let timed = || {
        gpu.sim
            .event_create(D0, EventFlags::default().with_timing())
            .unwrap()
    };
    let (start, end, stream, x) = (timed(), timed(), gpu.stream(), gpu.alloc(1 << 20));
    gpu.record(start, stream);
    gpu.fill(stream, x, 0, 1 << 18);
    gpu.record(end, stream);
    gpu.sim.event_synchronize(D0, end).unwrap();
    let milliseconds = gpu.sim.event_elapsed(D0, start, end).unwrap();
    assert!((0.003..0.1).contains(&milliseconds), "{milliseconds}");
    let plain = gpu.event();
    gpu.record(plain, stream);
    let code = gpu.sim.event_elapsed(D0, start, plain).unwrap_err().code;
    assert_eq!(code, ErrorCode::INVALID_HANDLE);
}

/// Case 28 (pytorch/pytorch#169052): the stand-in is no more lenient than a driver: the codes of its refusals, work that
/// is late and out of order, freed memory that holds a pattern, handles and addresses that are used again at once.
#[test]
fn case_28_the_stand_in_refuses_what_a_driver_refuses() {
    let sim = SimDriver::builder().devices(2).build();
    let (gpu, away) = (Gpu::on(sim.clone(), D0), Gpu::on(sim.clone(), DeviceId(1)));
    let (a, b, event) = (gpu.stream(), gpu.stream(), gpu.event());
    let code = |result: cuda_driver::CudaResult<()>| result.unwrap_err().code;
    assert_eq!(
        code(sim.event_record(DeviceId(1), event, away.stream())),
        ErrorCode::INVALID_HANDLE
    );
    assert_eq!(
        code(sim.mem_alloc(D0, 0).map(drop)),
        ErrorCode::INVALID_VALUE
    );
    let x = gpu.alloc(4);
    gpu.free(x);
    assert_eq!(code(gpu.try_free(x)), ErrorCode::INVALID_VALUE);
    let x = gpu.alloc(4);
    gpu.begin(a);
    assert_eq!(code(gpu.try_free(x)), ErrorCode::STREAM_CAPTURE_UNSUPPORTED);
    let _ = sim.capture_end(D0, a);
    gpu.begin(a);
    gpu.record(event, a);
    gpu.end(a);
    assert_eq!(
        code(sim.event_query(D0, event).map(drop)),
        ErrorCode::CAPTURED_EVENT
    );
    gpu.begin(a);
    assert_eq!(
        code(sim.capture_begin(D0, a, CaptureMode::Global)),
        ErrorCode::ILLEGAL_STATE
    );
    gpu.edge(a, b);
    gpu.step(b, x, 1, 1);
    assert_eq!(
        code(sim.capture_end(D0, a).map(drop)),
        ErrorCode::STREAM_CAPTURE_UNJOINED
    );
    // Freed and taken again: the same address, and nothing of what was there.
    let _ = sim.take_reports();
    gpu.fill(a, x, 7, 1);
    gpu.synchronize(a);
    gpu.free(x);
    let y = gpu.alloc(4);
    assert_eq!(y, x);
    assert_eq!(gpu.read(y, 1), [u32::MAX]);
    assert_eq!(gpu.kinds(), ["uninitialised read"]);
}
