//! Rules of capture: who joins, what stays outside, where it ends; one test each.

use crate::kit::{D0, Gpu, seeds};
use cuda_driver::{
    Capture, CaptureMode, CaptureStatus, CudaResult, ErrorCode, Events, Kernels, RawStream, Streams,
};
use std::sync::Arc;

pub(crate) fn code<T: std::fmt::Debug>(result: CudaResult<T>) -> ErrorCode {
    result.unwrap_err().code
}

fn status(gpu: &Gpu, stream: RawStream) -> CaptureStatus {
    gpu.sim.capture_status(D0, stream).unwrap()
}

/// After an invalidating call: every use says [901], the end returns an error and no graph, and the stream is usable.
#[track_caller]
pub(crate) fn invalidated(gpu: &Gpu, stream: RawStream) {
    assert_eq!(status(gpu, stream), CaptureStatus::Invalidated);
    let x = gpu.sim.capture_status(D0, stream);
    assert_eq!(x, Ok(CaptureStatus::Invalidated));
    let event = gpu.event();
    assert_eq!(
        code(gpu.sim.event_record(D0, event, stream)),
        ErrorCode::STREAM_CAPTURE_INVALIDATED
    );
    assert_eq!(
        code(gpu.sim.stream_wait_event(D0, stream, event)),
        ErrorCode::STREAM_CAPTURE_INVALIDATED
    );
    assert_eq!(
        code(gpu.sim.stream_query(D0, stream)),
        ErrorCode::STREAM_CAPTURE_INVALIDATED
    );
    let nothing = Arc::new(|| {});
    assert_eq!(
        code(gpu.sim.launch_host_function(D0, stream, nothing)),
        ErrorCode::STREAM_CAPTURE_INVALIDATED
    );
    assert_eq!(
        code(gpu.sim.capture_end(D0, stream)),
        ErrorCode::STREAM_CAPTURE_INVALIDATED
    );
    usable(gpu, stream);
}

#[track_caller]
fn usable(gpu: &Gpu, stream: RawStream) {
    assert_eq!(status(gpu, stream), CaptureStatus::None);
    gpu.synchronize(stream);
}

/// A stream that waits for an event of the capture joins it, and must be joined back.
#[test]
fn streams_fork_and_join_through_events() {
    seeds(100, |gpu| {
        let (a, b, x, y) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.alloc(4));
        gpu.fill(a, x, 1, 1);
        gpu.fill(a, y, 2, 1);
        gpu.synchronize(a);
        gpu.begin(a);
        gpu.step(a, x, 1, 1);
        gpu.edge(a, b);
        assert_eq!(status(gpu, a), status(gpu, b));
        gpu.step(b, y, 1, 1);
        gpu.step(a, x, 2, 1);
        gpu.edge(b, a);
        gpu.add(a, x, x, y, 1);
        let graph = gpu.end(a);
        usable(gpu, b);
        let exec = gpu.instantiate(graph);
        gpu.replay(exec, b).unwrap();
        gpu.synchronize(b);
        assert_eq!(gpu.read(x, 1), [3 * (3 + 1) + 2 + 7]);
        gpu.clean();
    });
}

/// A stream that joined and has later work of its own must be joined back [904].
#[test]
fn unjoined_streams_fail_the_end() {
    let gpu = Gpu::seeded(0);
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
    gpu.begin(a);
    gpu.edge(a, b);
    gpu.step(b, x, 1, 1);
    assert_eq!(
        code(gpu.sim.capture_end(D0, a)),
        ErrorCode::STREAM_CAPTURE_UNJOINED
    );
    usable(&gpu, a);
    usable(&gpu, b);
    assert_eq!(gpu.kinds(), ["capture misuse"]);
}

/// A wait can't merge two captures [902]; both are invalid afterwards.
#[test]
fn captures_do_not_merge() {
    let gpu = Gpu::seeded(0);
    let (a, b, event) = (gpu.stream(), gpu.stream(), gpu.event());
    gpu.begin(a);
    gpu.begin(b);
    gpu.record(event, a);
    assert_eq!(
        code(gpu.sim.stream_wait_event(D0, b, event)),
        ErrorCode::STREAM_CAPTURE_MERGE
    );
    invalidated(&gpu, b);
    assert_eq!(status(&gpu, a), CaptureStatus::Invalidated);
    assert_eq!(
        code(gpu.sim.capture_end(D0, a)),
        ErrorCode::STREAM_CAPTURE_INVALIDATED
    );
    usable(&gpu, a);
}

/// A stream that does not capture has nothing to end [401]. A capture ends on the stream on which it began [903], and on
/// the thread that began it in the thread-bound modes [908].
#[test]
fn a_capture_ends_where_it_began() {
    let gpu = Gpu::seeded(0);
    let (a, b) = (gpu.stream(), gpu.stream());
    assert_eq!(code(gpu.sim.capture_end(D0, a)), ErrorCode::ILLEGAL_STATE);
    gpu.begin(a);
    gpu.edge(a, b);
    assert_eq!(
        code(gpu.sim.capture_end(D0, b)),
        ErrorCode::STREAM_CAPTURE_UNMATCHED
    );
    invalidated(&gpu, a);
    usable(&gpu, b);
    for (mode, expected) in [
        (
            CaptureMode::Global,
            Some(ErrorCode::STREAM_CAPTURE_WRONG_THREAD),
        ),
        (
            CaptureMode::ThreadLocal,
            Some(ErrorCode::STREAM_CAPTURE_WRONG_THREAD),
        ),
        (CaptureMode::Relaxed, None),
    ] {
        gpu.sim.capture_begin(D0, a, mode).unwrap();
        let other =
            std::thread::scope(|scope| scope.spawn(|| gpu.sim.capture_end(D0, a)).join().unwrap());
        assert_eq!(other.err().map(|error| error.code), expected);
        if expected.is_some() {
            gpu.end(a);
        }
        usable(&gpu, a);
    }
}

/// A stream that does not capture can't join an invalid capture [1].
#[test]
fn an_invalid_capture_is_not_joined() {
    let gpu = Gpu::seeded(0);
    let (a, b, event) = (gpu.stream(), gpu.stream(), gpu.event());
    gpu.begin(a);
    gpu.record(event, a);
    let _ = gpu.sim.stream_query(D0, a);
    assert_eq!(
        code(gpu.sim.stream_wait_event(D0, b, event)),
        ErrorCode::INVALID_VALUE
    );
    usable(&gpu, b);
    invalidated(&gpu, a);
}

/// Waiting, in a capturing stream, for an event recorded outside fails [905] and invalidates.
#[test]
fn a_capture_is_isolated_from_eager_work() {
    let gpu = Gpu::seeded(0);
    let (a, b, event, x) = (gpu.stream(), gpu.stream(), gpu.event(), gpu.alloc(4));
    gpu.fill(b, x, 1, 1);
    gpu.record(event, b);
    gpu.begin(a);
    assert_eq!(
        code(gpu.sim.stream_wait_event(D0, a, event)),
        ErrorCode::STREAM_CAPTURE_ISOLATION
    );
    invalidated(&gpu, a);
}
