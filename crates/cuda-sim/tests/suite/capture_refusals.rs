//! What a capture forbids, one test a rule.

use crate::capture_facts::{code, invalidated};
use crate::kit::{D0, Gpu};
use cuda_driver::{
    Capture, CaptureMode, CudaResult, Devices, ErrorCode, Events, Kernels, Memory, RawStream,
    Streams,
};
use cuda_sim::SimDriver;

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
            Box::new(|| sim.module_load(D0, &crate::kernels::MODULE).map(drop)),
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
