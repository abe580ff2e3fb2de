//! Rules of capture and graphs, one test each.

use crate::kit::{D0, Gpu, seeds};
use cuda_driver::{
    Capture, CaptureMode, CaptureStatus, CudaResult, Devices, ErrorCode, Events, Graphs, Kernels,
    Memory, RawStream, Streams,
};
use cuda_sim::SimDriver;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn code<T: std::fmt::Debug>(result: CudaResult<T>) -> ErrorCode {
    result.unwrap_err().code
}

fn status(gpu: &Gpu, stream: RawStream) -> CaptureStatus {
    gpu.sim.capture_status(D0, stream).unwrap()
}

/// After an invalidating call: every use says [901], the end returns an error and no graph, and the stream is usable.
#[track_caller]
fn invalidated(gpu: &Gpu, stream: RawStream) {
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

/// Work on a capturing stream is recorded, not run; each launch of the graph runs it.
#[test]
fn captured_work_runs_at_each_launch() {
    seeds(50, |gpu| {
        let (stream, x) = (gpu.stream(), gpu.alloc(4));
        gpu.fill(stream, x, 1, 1);
        gpu.synchronize(stream);
        gpu.begin(stream);
        gpu.step(stream, x, 1, 1);
        gpu.step(stream, x, 2, 1);
        let graph = gpu.end(stream);
        assert_eq!(gpu.read(x, 1), [1], "nothing has run");
        assert_eq!(gpu.sim.graph_node_count(D0, graph), Ok(2));
        let exec = gpu.instantiate(graph);
        gpu.destroy_graph(graph);
        gpu.replay(exec, stream).unwrap();
        gpu.replay(exec, stream).unwrap();
        gpu.destroy_exec(exec);
        gpu.synchronize(stream);
        let step = |x| 3 * (3 * x + 1) + 2;
        assert_eq!(gpu.read(x, 1), [step(step(1))]);
        gpu.clean();
    });
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

/// Nodes of a graph that nothing orders are a race, found when the graph is made executable.
#[test]
fn unordered_nodes_of_a_graph_race() {
    let gpu = Gpu::seeded(0);
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(8));
    gpu.begin(a);
    gpu.fill(a, x, 1, 2);
    gpu.edge(a, b);
    gpu.fill(a, x, 2, 1);
    gpu.fill(b, x, 3, 2);
    gpu.edge(b, a);
    let graph = gpu.end(a);
    gpu.clean();
    gpu.instantiate(graph);
    assert_eq!(gpu.kinds(), ["race"]);
}

/// Allocation and free nodes are ordered with the nodes that use the memory.
#[test]
fn nodes_use_memory_that_the_graph_allocates_in_order() {
    let gpu = Gpu::seeded(0);
    let (pool, a, b, c) = (gpu.pool(), gpu.stream(), gpu.stream(), gpu.stream());
    gpu.begin(a);
    gpu.edge(a, b);
    let nothing = Arc::new(|| {});
    gpu.sim.launch_host_function(D0, a, nothing).unwrap();
    gpu.edge(a, b);
    gpu.edge(a, c);
    let x = gpu.alloc_async(pool, 4, a);
    gpu.fill(b, x, 1, 1);
    gpu.edge(b, a);
    gpu.edge(a, c);
    gpu.step(c, x, 1, 1);
    gpu.free_async(x, a);
    gpu.edge(c, a);
    let graph = gpu.end(a);
    let dot = gpu.sim.graph_dot(graph).unwrap();
    assert_eq!(dot.matches("->").count(), 7, "{dot}");
    assert!(dot.contains("kernel step") && dot.contains("capture_facts.rs:"));
    gpu.instantiate(graph);
    assert_eq!(
        gpu.kinds(),
        ["free before use ends", "use before allocation"]
    );
    // SAFETY: it names nothing, which is what is asked.
    let unknown = unsafe { cuda_driver::RawGraph::from_raw(0) };
    assert_eq!(gpu.sim.graph_dot(unknown), None);
}

/// Replays are ordered with the work of their stream and with each other, and with nothing else.
#[test]
fn replays_order_like_any_work() {
    seeds(50, |gpu| {
        let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
        gpu.fill(a, x, 1, 1);
        gpu.synchronize(a);
        gpu.begin(a);
        gpu.step(a, x, 1, 1);
        let graph = gpu.end(a);
        let exec = gpu.instantiate(graph);
        gpu.replay(exec, a).unwrap();
        gpu.replay(exec, b).unwrap();
        gpu.synchronize(b);
        assert_eq!(
            gpu.read(x, 1),
            [13],
            "launches of one executable graph follow each other on any stream"
        );
        gpu.clean();
        gpu.replay(exec, a).unwrap();
        gpu.step(b, x, 0, 1);
        assert_eq!(gpu.kinds(), ["race"]);
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

/// Querying or synchronising a capturing stream fails [900] and invalidates, and so does synchronising its device.
#[test]
fn a_capturing_stream_is_not_asked() {
    type Ask = fn(&Gpu, RawStream) -> CudaResult<()>;
    let asks: [Ask; 4] = [
        |gpu, stream| gpu.sim.stream_query(D0, stream).map(drop),
        |gpu, stream| gpu.sim.stream_synchronize(D0, stream),
        |gpu, _| gpu.sim.device_synchronize(D0),
        // SAFETY: the stream is not destroyed, as the test shows.
        |gpu, stream| unsafe { gpu.sim.stream_destroy(D0, stream) },
    ];
    for ask in asks {
        for mode in [
            CaptureMode::Global,
            CaptureMode::ThreadLocal,
            CaptureMode::Relaxed,
        ] {
            let gpu = Gpu::seeded(0);
            let stream = gpu.stream();
            gpu.sim.capture_begin(D0, stream, mode).unwrap();
            assert_eq!(
                code(ask(&gpu, stream)),
                ErrorCode::STREAM_CAPTURE_UNSUPPORTED
            );
            invalidated(&gpu, stream);
            assert_eq!(gpu.kinds(), ["capture misuse"]);
        }
    }
}

/// An event recorded in a capture can't be queried or synchronised with, during the capture [907, invalidates] or
/// after it [907]; waiting for it after the capture fails [1].
#[test]
fn captured_events_mean_nothing_to_the_host() {
    let gpu = Gpu::seeded(0);
    let (a, b, event) = (gpu.stream(), gpu.stream(), gpu.event());
    gpu.begin(a);
    gpu.record(event, a);
    assert_eq!(
        code(gpu.sim.event_query(D0, event)),
        ErrorCode::CAPTURED_EVENT
    );
    invalidated(&gpu, a);
    gpu.begin(a);
    gpu.record(event, a);
    assert_eq!(
        code(gpu.sim.event_synchronize(D0, event)),
        ErrorCode::CAPTURED_EVENT
    );
    invalidated(&gpu, a);
    gpu.begin(a);
    gpu.record(event, a);
    gpu.end(a);
    assert_eq!(
        code(gpu.sim.event_query(D0, event)),
        ErrorCode::CAPTURED_EVENT
    );
    assert_eq!(
        code(gpu.sim.stream_wait_event(D0, b, event)),
        ErrorCode::INVALID_VALUE
    );
    gpu.record(event, a);
    gpu.sim.event_synchronize(D0, event).unwrap();
}

/// Unsafe calls fail and invalidate if this thread has a capture that is not relaxed, or another has a global one; a
/// thread whose mode is relaxed may make them, and one whose mode is thread-local does not mind other threads.
#[test]
fn unsafe_calls_are_forbidden_by_mode() {
    use CaptureMode::{Global, Relaxed, ThreadLocal};
    let allowed = |capture: CaptureMode, here: bool, thread: CaptureMode| {
        let gpu = Gpu::seeded(0);
        let stream = gpu.stream();
        gpu.sim.capture_begin(D0, stream, capture).unwrap();
        let attempt = || {
            let before = gpu.sim.exchange_capture_mode(thread).unwrap();
            assert_eq!(before, Global, "threads begin in the global mode");
            let result = gpu.sim.mem_alloc(D0, 256);
            assert_eq!(gpu.sim.exchange_capture_mode(before), Ok(thread));
            result
        };
        let result = if here {
            attempt()
        } else {
            std::thread::scope(|scope| scope.spawn(attempt).join().unwrap())
        };
        match result {
            Ok(_) => {
                gpu.end(stream);
                gpu.clean();
                true
            }
            Err(error) => {
                assert_eq!(error.code, ErrorCode::STREAM_CAPTURE_UNSUPPORTED);
                invalidated(&gpu, stream);
                false
            }
        }
    };
    for (capture, here, thread, expected) in [
        (Global, true, Global, false),
        (Global, true, ThreadLocal, false),
        (Global, true, Relaxed, true),
        (Global, false, Global, false),
        (Global, false, ThreadLocal, true),
        (Global, false, Relaxed, true),
        (ThreadLocal, true, Global, false),
        (ThreadLocal, true, ThreadLocal, false),
        (ThreadLocal, true, Relaxed, true),
        (ThreadLocal, false, Global, true),
        (Relaxed, true, Global, true),
        (Relaxed, true, Relaxed, true),
        (Relaxed, false, Global, true),
    ] {
        assert_eq!(
            allowed(capture, here, thread),
            expected,
            "{capture:?} {here} {thread:?}"
        );
    }
}

/// The unsafe calls: allocation and free outside stream order, page-locked memory, modules, pools, synchronous
/// copies, and asking about events.
#[test]
fn these_calls_are_unsafe_in_a_capture() {
    let gpu = Gpu::seeded(0);
    let (stream, x, pool, event, pinned) = (
        gpu.stream(),
        gpu.alloc(4),
        gpu.pool(),
        gpu.event(),
        gpu.pinned(1),
    );
    let mut value = [0_u32];
    let unlocked = 0_u32;
    type Attempt<'a> = Box<dyn FnMut() -> CudaResult<()> + 'a>;
    let sim = &gpu.sim;
    let attempts: Vec<(&str, Attempt<'_>)> = vec![
        ("alloc", Box::new(|| sim.mem_alloc(D0, 4).map(drop))),
        ("free", Box::new(|| gpu.try_free(x))),
        ("pin", Box::new(|| sim.host_alloc(D0, 4).map(drop))),
        (
            "unpin",
            Box::new(|| {
                // SAFETY: the memory is not freed, as the test shows.
                unsafe { sim.host_free(D0, pinned.pointer.cast()) }
            }),
        ),
        (
            "register",
            Box::new(|| {
                // SAFETY: refused, as the test shows.
                unsafe { sim.host_register(D0, std::ptr::NonNull::from(&unlocked).cast(), 4) }
            }),
        ),
        (
            "unregister",
            Box::new(|| {
                // SAFETY: as above.
                unsafe { sim.host_unregister(D0, std::ptr::NonNull::from(&unlocked).cast()) }
            }),
        ),
        (
            "module",
            Box::new(|| sim.module_load(D0, &crate::kit::MODULE).map(drop)),
        ),
        (
            "unload",
            Box::new(|| {
                // SAFETY: the module is not unloaded, as the test shows.
                unsafe { sim.module_unload(D0, gpu.module) }
            }),
        ),
        ("pool", Box::new(|| sim.pool_create(D0, 0).map(drop))),
        ("trim", Box::new(|| sim.pool_trim(D0, pool, 0))),
        ("copy in", Box::new(|| gpu.write(x, &[1]))),
        (
            "copy out",
            Box::new(|| {
                // SAFETY: `value` is writable.
                unsafe {
                    cuda_driver::Copies::copy_to_host(sim, D0, value.as_mut_ptr().cast(), x, 4)
                }
            }),
        ),
        ("query", Box::new(|| sim.event_query(D0, event).map(drop))),
        ("synchronize", Box::new(|| sim.event_synchronize(D0, event))),
    ];
    for (name, mut attempt) in attempts {
        gpu.begin(stream);
        assert_eq!(
            code(attempt()),
            ErrorCode::STREAM_CAPTURE_UNSUPPORTED,
            "{name}"
        );
        invalidated(&gpu, stream);
    }
    gpu.free(x);
}

/// A capture can't begin on a stream that captures [401]; that does not hurt the capture.
#[test]
fn a_second_begin_is_refused() {
    let gpu = Gpu::seeded(0);
    let stream = gpu.stream();
    gpu.begin(stream);
    let again = gpu.sim.capture_begin(D0, stream, CaptureMode::Relaxed);
    assert_eq!(code(again), ErrorCode::ILLEGAL_STATE);
    gpu.end(stream);
}

/// A graph whose allocation is not freed inside it runs once; the next launch fails [1] until the memory is freed.
#[test]
fn allocation_nodes_let_a_graph_run_once() {
    seeds(20, |gpu| {
        let (pool, stream) = (gpu.pool(), gpu.stream());
        gpu.begin(stream);
        let x = gpu.alloc_async(pool, 4, stream);
        gpu.fill(stream, x, 5, 1);
        let graph = gpu.end(stream);
        let exec = gpu.instantiate(graph);
        assert_eq!(
            code(gpu.sim.graph_instantiate(D0, graph)),
            ErrorCode::INVALID_VALUE,
            "one at a time"
        );
        gpu.replay(exec, stream).unwrap();
        assert_eq!(code(gpu.replay(exec, stream)), ErrorCode::INVALID_VALUE);
        assert_eq!(gpu.kinds(), ["capture misuse"; 2]);
        let _ = gpu.sim.take_reports();
        gpu.step(stream, x, 0, 1);
        gpu.synchronize(stream);
        assert_eq!(gpu.read(x, 1), [15]);
        gpu.free_async(x, stream);
        gpu.replay(exec, stream).unwrap();
        gpu.synchronize(stream);
        assert_eq!(gpu.read(x, 1), [5]);
        gpu.free(x);
        gpu.destroy_graph(graph);
        gpu.destroy_exec(exec);
        let (free, total) = gpu.sim.memory_info(D0).unwrap();
        assert_eq!(
            free, total,
            "the graph's addresses return with its last owner"
        );
        gpu.clean();
    });
}

/// Allocated and freed inside, a graph can be launched again and again, with the same bytes of memory.
#[test]
fn freed_inside_a_graph_can_be_replayed() {
    let gpu = Gpu::seeded(0);
    let (pool, stream, out) = (gpu.pool(), gpu.stream(), gpu.alloc(4));
    gpu.begin(stream);
    let x = gpu.alloc_async(pool, 4, stream);
    gpu.fill(stream, x, 5, 1);
    gpu.on_device(stream, out, x, 1);
    gpu.free_async(x, stream);
    let graph = gpu.end(stream);
    let exec = gpu.instantiate(graph);
    gpu.replay(exec, stream).unwrap();
    let after_one = gpu.sim.memory_info(D0).unwrap();
    for _ in 0..100 {
        gpu.replay(exec, stream).unwrap();
    }
    gpu.synchronize(stream);
    assert_eq!(gpu.sim.memory_info(D0).unwrap(), after_one);
    gpu.clean();
    let _ = gpu.try_fill(stream, x, 1, 1);
    assert_eq!(gpu.kinds(), ["use after free"]);
}

/// Freeing, in a capture, memory that no node of it allocated fails [1].
#[test]
fn a_capture_frees_only_its_own() {
    let gpu = Gpu::seeded(0);
    let (pool, stream) = (gpu.pool(), gpu.stream());
    let x = gpu.alloc_async(pool, 4, stream);
    gpu.begin(stream);
    assert_eq!(
        code(gpu.try_free_async(x, stream)),
        ErrorCode::INVALID_VALUE
    );
    assert_eq!(gpu.kinds(), ["capture misuse"]);
}

/// A kernel loads at its first launch, which a capture forbids, unless it was loaded by a call.
#[test]
fn kernels_are_loaded_before_they_are_captured() {
    for (lazy, can_load) in [(true, true), (true, false), (false, false)] {
        for load in [true, false] {
            let sim = SimDriver::builder().lazy_loading(lazy);
            let gpu = Gpu::on(sim.function_load(can_load).build(), D0);
            let stream = gpu.stream();
            let function = gpu.sim.module_function(D0, gpu.module, "fail").unwrap();
            if load {
                let loaded = gpu.sim.function_load(D0, function);
                match can_load || !lazy {
                    true => loaded.unwrap(),
                    false => assert_eq!(code(loaded), ErrorCode::NOT_SUPPORTED),
                }
            }
            gpu.begin(stream);
            let first = gpu.fail(stream);
            if !lazy || (load && can_load) {
                first.unwrap();
                gpu.end(stream);
            } else {
                assert_eq!(code(first), ErrorCode::STREAM_CAPTURE_UNSUPPORTED);
                invalidated(&gpu, stream);
            }
        }
    }
}

/// Loading a kernel in a capture is forbidden as its first launch is; what is loaded already may be named again.
#[test]
fn no_kernel_is_loaded_in_a_capture() {
    let gpu = Gpu::on(SimDriver::builder().build(), D0);
    let stream = gpu.stream();
    let function = gpu.sim.module_function(D0, gpu.module, "fail").unwrap();
    gpu.begin(stream);
    assert_eq!(
        code(gpu.sim.function_load(D0, function)),
        ErrorCode::STREAM_CAPTURE_UNSUPPORTED
    );
    invalidated(&gpu, stream);
    gpu.sim.function_load(D0, function).unwrap();
    gpu.begin(stream);
    gpu.sim.function_load(D0, function).unwrap();
    gpu.fail(stream).unwrap();
    gpu.end(stream);
}

/// Graphs and their executable forms are destroyed in any order; a replay under way finishes. Destroyed handles are
/// refused [1].
#[test]
fn graphs_are_destroyed_in_any_order() {
    seeds(50, |gpu| {
        let (stream, x) = (gpu.stream(), gpu.alloc(4));
        gpu.begin(stream);
        gpu.fill(stream, x, 1, 1);
        gpu.step(stream, x, 1, 1);
        let graph = gpu.end(stream);
        let exec = gpu.instantiate(graph);
        gpu.replay(exec, stream).unwrap();
        gpu.destroy_exec(exec);
        gpu.destroy_graph(graph);
        gpu.synchronize(stream);
        assert_eq!(gpu.read(x, 1), [4]);
        gpu.clean();
        assert_eq!(code(gpu.replay(exec, stream)), ErrorCode::INVALID_VALUE);
        assert_eq!(
            code(gpu.sim.graph_instantiate(D0, graph)),
            ErrorCode::INVALID_VALUE
        );
    });
}

/// A host function in a graph runs at every replay, after what it follows.
#[test]
fn host_functions_of_a_graph_run_at_each_replay() {
    seeds(20, |gpu| {
        let (stream, x, out) = (gpu.stream(), gpu.alloc(4), gpu.pinned(1));
        gpu.fill(stream, x, 0, 1);
        gpu.synchronize(stream);
        let calls = Arc::new(AtomicU32::new(0));
        gpu.begin(stream);
        gpu.step(stream, x, 1, 1);
        let counted = Arc::clone(&calls);
        let count = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        gpu.sim.launch_host_function(D0, stream, count).unwrap();
        gpu.to_host(stream, &out, x, 1);
        let graph = gpu.end(stream);
        let exec = gpu.instantiate(graph);
        for _ in 0..3 {
            gpu.replay(exec, stream).unwrap();
        }
        gpu.synchronize(stream);
        assert_eq!((calls.load(Ordering::Relaxed), out.get(0)), (3, 13));
        gpu.clean();
    });
}

/// Launching an executable graph into a capture is not simulated, and says so: a graph is captured as a child.
#[test]
fn executable_graphs_are_not_captured() {
    let gpu = Gpu::seeded(0);
    let stream = gpu.stream();
    gpu.begin(stream);
    let graph = gpu.end(stream);
    let exec = gpu.instantiate(graph);
    gpu.replay(exec, stream).unwrap();
    gpu.begin(stream);
    assert_eq!(code(gpu.replay(exec, stream)), ErrorCode::NOT_SUPPORTED);
    gpu.end(stream);
    gpu.synchronize(stream);
}
