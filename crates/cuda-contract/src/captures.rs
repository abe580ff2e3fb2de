//! Stream capture.

use crate::subject::{Bench, Subject, ok};
use cuda_driver::{CaptureMode, CaptureStatus, CudaResult, ErrorCode, RawGraph, RawStream};

const N: usize = 64;

/// Begins a capture of this thread.
#[track_caller]
pub(crate) fn begin(bench: &Bench<'_>, stream: RawStream) {
    ok(bench
        .driver
        .capture_begin(bench.device, stream, CaptureMode::ThreadLocal));
}

/// Ends a capture that went well.
#[track_caller]
pub(crate) fn end(bench: &Bench<'_>, stream: RawStream) -> RawGraph {
    ok(bench.driver.capture_end(bench.device, stream))
}

/// Destroys a graph.
pub(crate) fn discard(bench: &Bench<'_>, graph: RawGraph) {
    // SAFETY: nobody uses it afterwards.
    ok(unsafe { bench.driver.graph_destroy(bench.device, graph) });
}

fn code<T>(result: CudaResult<T>) -> ErrorCode {
    match result {
        Ok(_) => panic!("the call was not refused"),
        Err(error) => error.code,
    }
}

pub(crate) fn captured_work_runs_when_it_is_launched(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(N));
    begin(&bench, stream);
    ok(bench.fill(x, 5, N, stream));
    let graph = end(&bench, stream);
    assert_eq!(ok(bench.driver.graph_node_count(bench.device, graph)), 1);
    assert_eq!(bench.read(x, N), [0; N]);
    let exec = ok(bench.driver.graph_instantiate(bench.device, graph));
    // SAFETY: the memory is alive, and nothing else uses it.
    ok(unsafe { bench.driver.graph_launch(bench.device, exec, stream) });
    bench.wait(stream);
    assert_eq!(bench.read(x, N), [5; N]);
    // SAFETY: nobody uses it afterwards.
    ok(unsafe { bench.driver.graph_exec_destroy(bench.device, exec) });
    discard(&bench, graph);
}

pub(crate) fn a_capture_has_a_status(subject: &Subject) {
    let bench = subject.bench();
    let (stream, other) = (bench.stream(), bench.stream());
    let status = |stream| ok(bench.driver.capture_status(bench.device, stream));
    assert_eq!(status(stream), CaptureStatus::None);
    begin(&bench, stream);
    assert!(matches!(status(stream), CaptureStatus::Active(_)));
    assert_eq!(status(other), CaptureStatus::None);
    discard(&bench, end(&bench, stream));
    assert_eq!(status(stream), CaptureStatus::None);
}

pub(crate) fn streams_join_by_events_and_must_come_back(subject: &Subject) {
    let bench = subject.bench();
    let (origin, side) = (bench.stream(), bench.stream());
    let (fork, join, x) = (bench.event(), bench.event(), bench.zeros(N));
    for joins in [true, false] {
        begin(&bench, origin);
        ok(bench.driver.event_record(bench.device, fork, origin));
        ok(bench.driver.stream_wait_event(bench.device, side, fork));
        ok(bench.fill(x, 1, N, side));
        let status = ok(bench.driver.capture_status(bench.device, side));
        assert!(matches!(status, CaptureStatus::Active(_)));
        if joins {
            ok(bench.driver.event_record(bench.device, join, side));
            ok(bench.driver.stream_wait_event(bench.device, origin, join));
            discard(&bench, end(&bench, origin));
        } else {
            let ended = bench.driver.capture_end(bench.device, origin);
            assert_eq!(code(ended), ErrorCode::STREAM_CAPTURE_UNJOINED);
        }
        // Either way both streams are as before.
        bench.wait(origin);
        bench.wait(side);
    }
}

pub(crate) fn work_from_outside_is_kept_out(subject: &Subject) {
    let bench = subject.bench();
    let (stream, outside, event) = (bench.stream(), bench.stream(), bench.event());
    let x = bench.zeros(N);
    ok(bench.fill(x, 1, N, outside));
    ok(bench.driver.event_record(bench.device, event, outside));
    begin(&bench, stream);
    let waited = bench.driver.stream_wait_event(bench.device, stream, event);
    assert_eq!(code(waited), ErrorCode::STREAM_CAPTURE_ISOLATION);
    let ended = bench.driver.capture_end(bench.device, stream);
    assert_eq!(code(ended), ErrorCode::STREAM_CAPTURE_INVALIDATED);
    bench.wait(stream);
}

pub(crate) fn a_captured_event_means_nothing_outside(subject: &Subject) {
    let bench = subject.bench();
    let (stream, event, x) = (bench.stream(), bench.event(), bench.zeros(N));
    begin(&bench, stream);
    ok(bench.fill(x, 1, N, stream));
    ok(bench.driver.event_record(bench.device, event, stream));
    discard(&bench, end(&bench, stream));
    let queried = bench.driver.event_query(bench.device, event);
    assert_eq!(code(queried), ErrorCode::CAPTURED_EVENT);
    // Recorded anew, it is an event as any other.
    ok(bench.driver.event_record(bench.device, event, stream));
    ok(bench.driver.event_synchronize(bench.device, event));
}

pub(crate) fn synchronising_a_captured_stream_ends_the_capture(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(N));
    begin(&bench, stream);
    let waited = bench.driver.stream_synchronize(bench.device, stream);
    assert_eq!(code(waited), ErrorCode::STREAM_CAPTURE_UNSUPPORTED);
    let status = ok(bench.driver.capture_status(bench.device, stream));
    assert_eq!(status, CaptureStatus::Invalidated);
    assert_eq!(
        code(bench.fill(x, 1, N, stream)),
        ErrorCode::STREAM_CAPTURE_INVALIDATED
    );
    let ended = bench.driver.capture_end(bench.device, stream);
    assert_eq!(code(ended), ErrorCode::STREAM_CAPTURE_INVALIDATED);
    ok(bench.fill(x, 2, N, stream));
    assert_eq!(bench.read(x, N), [2; N]);
}

pub(crate) fn allocating_is_forbidden_on_the_capturing_thread(subject: &Subject) {
    let bench = subject.bench();
    let stream = bench.stream();
    begin(&bench, stream);
    let allocated = bench.driver.mem_alloc(bench.device, 256);
    assert_eq!(code(allocated), ErrorCode::STREAM_CAPTURE_UNSUPPORTED);
    let ended = bench.driver.capture_end(bench.device, stream);
    assert_eq!(code(ended), ErrorCode::STREAM_CAPTURE_INVALIDATED);
    // In relaxed mode, it is the thread's own affair.
    begin(&bench, stream);
    let earlier = ok(bench.driver.exchange_capture_mode(CaptureMode::Relaxed));
    let memory = ok(bench.driver.mem_alloc(bench.device, 256));
    ok(bench.driver.exchange_capture_mode(earlier));
    discard(&bench, end(&bench, stream));
    // SAFETY: nothing uses it.
    ok(unsafe { bench.driver.mem_free(bench.device, memory) });
}

pub(crate) fn a_loaded_kernel_is_captured_before_its_first_launch(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(N));
    let kernel = bench.kernel("contract_count");
    match bench.driver.function_load(bench.device, kernel) {
        Err(error) if error.code == ErrorCode::NOT_SUPPORTED => {
            eprintln!("this driver loads kernels at their first launch");
            return;
        }
        loaded => ok(loaded),
    }
    begin(&bench, stream);
    // Again, it does nothing.
    ok(bench.driver.function_load(bench.device, kernel));
    ok(bench.count_up(kernel, x, N, 3, stream));
    let graph = end(&bench, stream);
    let exec = ok(bench.driver.graph_instantiate(bench.device, graph));
    // SAFETY: the memory is alive, and nothing else uses it.
    ok(unsafe { bench.driver.graph_launch(bench.device, exec, stream) });
    bench.wait(stream);
    assert_eq!(bench.read(x, N), [3; N]);
    // SAFETY: nobody uses it afterwards.
    ok(unsafe { bench.driver.graph_exec_destroy(bench.device, exec) });
    discard(&bench, graph);
}

pub(crate) fn a_capture_begins_and_ends_once(subject: &Subject) {
    let bench = subject.bench();
    let stream = bench.stream();
    let not_begun = bench.driver.capture_end(bench.device, stream);
    assert_eq!(code(not_begun), ErrorCode::ILLEGAL_STATE);
    begin(&bench, stream);
    let again = bench
        .driver
        .capture_begin(bench.device, stream, CaptureMode::ThreadLocal);
    assert_eq!(code(again), ErrorCode::ILLEGAL_STATE);
    discard(&bench, end(&bench, stream));
}

pub(crate) fn modes_are_exchanged(subject: &Subject) {
    let driver = subject.driver();
    let modes = [
        CaptureMode::Relaxed,
        CaptureMode::ThreadLocal,
        CaptureMode::Global,
    ];
    let before = ok(driver.exchange_capture_mode(CaptureMode::Global));
    let mut last = CaptureMode::Global;
    for mode in modes {
        assert_eq!(ok(driver.exchange_capture_mode(mode)), last);
        last = mode;
    }
    ok(driver.exchange_capture_mode(before));
}
