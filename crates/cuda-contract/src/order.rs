//! Streams and events.

use crate::subject::{Subject, ok};
use cuda_driver::{DeviceId, ErrorCode, EventFlags};

const N: usize = 1 << 12;

pub(crate) fn a_stream_runs_in_order(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x, y) = (bench.stream(), bench.zeros(N), bench.zeros(N));
    for number in 1..=8 {
        ok(bench.fill(x, number, N, stream));
        ok(bench.copy(y, x, N, stream));
    }
    bench.wait(stream);
    assert!(ok(bench.driver.stream_query(bench.device, stream)));
    assert_eq!(bench.read(y, N), [8; N]);
}

pub(crate) fn an_event_orders_two_streams(subject: &Subject) {
    let bench = subject.bench();
    let (first, second, event) = (bench.stream(), bench.stream(), bench.event());
    let (x, y) = (bench.zeros(N), bench.zeros(N));
    ok(bench.fill(x, 3, N, first));
    ok(bench.driver.event_record(bench.device, event, first));
    ok(bench.driver.stream_wait_event(bench.device, second, event));
    ok(bench.copy(y, x, N, second));
    bench.wait(second);
    assert!(ok(bench.driver.event_query(bench.device, event)));
    ok(bench.driver.event_synchronize(bench.device, event));
    assert_eq!(bench.read(y, N), [3; N]);
}

/// A record that comes after the wait does not change what is waited for.
pub(crate) fn a_wait_looks_at_the_record_there_is(subject: &Subject) {
    let bench = subject.bench();
    let (first, second, event) = (bench.stream(), bench.stream(), bench.event());
    let x = bench.zeros(N);
    ok(bench.fill(x, 1, N, first));
    ok(bench.driver.event_record(bench.device, event, first));
    ok(bench.driver.stream_wait_event(bench.device, second, event));
    // Recorded anew on the waiting stream itself: the wait is for the first record.
    ok(bench.driver.event_record(bench.device, event, second));
    ok(bench.fill(x, 2, N, second));
    bench.wait(second);
    assert_eq!(bench.read(x, N), [2; N]);
}

pub(crate) fn events_that_were_never_recorded_are_complete(subject: &Subject) {
    let bench = subject.bench();
    let (stream, event) = (bench.stream(), bench.event());
    assert!(ok(bench.driver.event_query(bench.device, event)));
    ok(bench.driver.event_synchronize(bench.device, event));
    ok(bench.driver.stream_wait_event(bench.device, stream, event));
    bench.wait(stream);
}

/// Case 27 (NVIDIA/cuCascade#189): an event that was pooled on one device is recorded on another one's stream.
pub(crate) fn case_27_an_event_is_recorded_on_its_own_device(subject: &Subject) {
    let (here, there) = (subject.bench(), subject.bench_on(DeviceId(1)));
    let (event, stream) = (here.event(), there.stream());
    let error = there
        .driver
        .event_record(there.device, event, stream)
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::INVALID_HANDLE);
}

pub(crate) fn another_devices_stream_can_wait(subject: &Subject) {
    let (here, there) = (subject.bench(), subject.bench_on(DeviceId(1)));
    let (event, producer, consumer) = (here.event(), here.stream(), there.stream());
    let x = here.zeros(N);
    ok(here.fill(x, 1, N, producer));
    ok(here.driver.event_record(here.device, event, producer));
    ok(there
        .driver
        .stream_wait_event(there.device, consumer, event));
    there.wait(consumer);
    assert!(ok(here.driver.event_query(here.device, event)));
}

pub(crate) fn times_grow_and_need_a_flag(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(N));
    let timed = || {
        let flags = EventFlags::default().with_timing().with_blocking_sync();
        ok(bench.driver.event_create(bench.device, flags))
    };
    let (start, end) = (timed(), timed());
    ok(bench.driver.event_record(bench.device, start, stream));
    ok(bench.fill(x, 1, N, stream));
    ok(bench.driver.event_record(bench.device, end, stream));
    bench.wait(stream);
    assert!(ok(bench.driver.event_elapsed(bench.device, start, end)) >= 0.0);
    let untimed = bench.event();
    ok(bench.driver.event_record(bench.device, untimed, stream));
    bench.wait(stream);
    let error = bench
        .driver
        .event_elapsed(bench.device, start, untimed)
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::INVALID_HANDLE);
    for event in [start, end] {
        // SAFETY: nobody uses it afterwards.
        ok(unsafe { bench.driver.event_destroy(bench.device, event) });
    }
}

pub(crate) fn priorities_are_clamped(subject: &Subject) {
    let bench = subject.bench();
    let (least, most) = subject.properties(bench.device).priorities;
    for (asked, got) in [
        (0, 0.clamp(most, least)),
        (least + 3, least),
        (most - 3, most),
    ] {
        let stream = ok(bench.driver.stream_create(bench.device, asked));
        assert_eq!(ok(bench.driver.stream_priority(bench.device, stream)), got);
        // SAFETY: nobody uses it afterwards.
        ok(unsafe { bench.driver.stream_destroy(bench.device, stream) });
    }
}

pub(crate) fn destroying_a_stream_lets_its_work_finish(subject: &Subject) {
    let bench = subject.bench();
    let x = bench.zeros(N);
    let stream = ok(bench.driver.stream_create(bench.device, 0));
    ok(bench.fill(x, 9, N, stream));
    // SAFETY: nobody uses the handle afterwards.
    ok(unsafe { bench.driver.stream_destroy(bench.device, stream) });
    assert_eq!(bench.read(x, N), [9; N]);
}

/// No thread has to be prepared.
pub(crate) fn calls_of_other_threads_find_their_context(subject: &Subject) {
    let bench = subject.bench();
    let x = bench.zeros(N);
    let device = bench.device;
    let driver = subject.driver();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let stream = ok(driver.stream_create(device, 0));
            let pattern = cuda_driver::Pattern::U32(4);
            // SAFETY: within the memory, which nobody else uses now.
            ok(unsafe { driver.fill_async(device, x, pattern, N, stream) });
            ok(driver.stream_synchronize(device, stream));
            // SAFETY: nobody uses it afterwards.
            ok(unsafe { driver.stream_destroy(device, stream) });
        });
        worker.join().unwrap();
    });
    assert_eq!(bench.read(x, N), [4; N]);
}
