//! Injected faults, deadlocks and leaks.

use crate::kit::{D0, Gpu};
use cuda_driver::{
    Call, Capture, CaptureMode, DeviceId, Devices, Driver, ErrorCode, Events, Kernels, Memory,
    Streams,
};
use cuda_sim::{Checks, Finding, LeakedObject, Report, Schedule, SimDriver};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn the_nth_call_fails_once_and_does_nothing() {
    let gpu = Gpu::seeded(0);
    let (stream, event, x) = (gpu.stream(), gpu.event(), gpu.alloc(4));
    gpu.sim
        .faults()
        .fail_nth(Call::EventRecord, 2, ErrorCode::UNKNOWN);
    gpu.record(event, stream);
    gpu.sim.event_synchronize(D0, event).unwrap();
    gpu.sim.hold_stream(stream);
    gpu.fill(stream, x, 0, 1);
    let before = gpu.sim.counters().snapshot();
    let error = gpu.sim.event_record(D0, event, stream).unwrap_err();
    assert_eq!(
        (error.code, error.call, error.device),
        (ErrorCode::UNKNOWN, Call::EventRecord, Some(D0))
    );
    assert_eq!(
        (gpu.sim.counters().snapshot() - before).of(Call::EventRecord),
        1
    );
    assert_eq!(
        gpu.sim.event_query(D0, event),
        Ok(true),
        "the earlier record stands"
    );
    gpu.record(event, stream);
    assert_eq!(gpu.sim.event_query(D0, event), Ok(false));
    gpu.sim
        .faults()
        .fail_nth(Call::EventQuery, 1, ErrorCode::UNKNOWN);
    gpu.sim.faults().clear();
    gpu.sim.event_query(D0, event).unwrap();
}

#[test]
fn a_lost_device_returns_its_error_for_ever_and_others_go_on() {
    for seed in 0..50 {
        let sim = SimDriver::builder().devices(2).seed(seed).build();
        let (lost, other) = (Gpu::on(sim.clone(), D0), Gpu::on(sim.clone(), DeviceId(1)));
        let (a, b) = (lost.stream(), other.stream());
        let (x, y) = (lost.alloc(4), other.alloc(4));
        let event = lost.event();
        sim.faults()
            .lose_device_at_launch(2, ErrorCode::LAUNCH_FAILED);
        lost.fill(a, x, 1, 1);
        lost.step(a, x, 1, 1);
        let _ = lost.try_step(a, x, 1, 1);
        let _ = lost.try_step(a, x, 1, 1);
        let _ = sim.event_record(D0, event, a);
        other.wait(b, event);
        other.fill(b, y, 1, 1);
        let error = sim.stream_synchronize(D0, a).unwrap_err();
        assert_eq!(error.code, ErrorCode::LAUNCH_FAILED);
        for _ in 0..3 {
            assert_eq!(
                sim.mem_alloc(D0, 4).unwrap_err().code,
                ErrorCode::LAUNCH_FAILED
            );
            assert_eq!(
                sim.device_synchronize(D0).unwrap_err().code,
                ErrorCode::LAUNCH_FAILED
            );
        }
        other.synchronize(b);
        assert_eq!(other.read(y, 1), [1]);
        let leaked = |report: &Report| matches!(report.finding, Finding::Leak { object: LeakedObject::DeviceMemory { address }, .. } if address == x.0);
        assert!(
            !sim.leak_report().iter().any(leaked),
            "nobody can free memory of a lost device"
        );
    }
}

/// Codes that are not sticky fail their call and nothing else.
#[test]
fn an_error_that_is_not_sticky_is_over_with_its_call() {
    let gpu = Gpu::seeded(0);
    let stream = gpu.stream();
    let x = gpu.alloc(4);
    for code in [1, 2, 701, 900, 910] {
        let code = ErrorCode(code);
        gpu.sim.faults().fail_nth(Call::MemsetD32Async, 1, code);
        assert_eq!(gpu.try_fill(stream, x, 1, 1).unwrap_err().code, code);
        gpu.fill(stream, x, 1, 1);
        gpu.synchronize(stream);
    }
    for code in [214, 220, 700, 702, 710, 714, 719] {
        let gpu = Gpu::seeded(0);
        let (stream, x) = (gpu.stream(), gpu.alloc(4));
        let code = ErrorCode(code);
        gpu.sim.faults().fail_nth(Call::MemsetD32Async, 1, code);
        assert_eq!(gpu.try_fill(stream, x, 1, 1).unwrap_err().code, code);
        assert_eq!(gpu.sim.mem_alloc(D0, 4).unwrap_err().code, code);
    }
}

/// Host functions do not run after the context has failed.
#[test]
fn host_functions_end_with_their_device() {
    for seed in 0..50 {
        let gpu = Gpu::seeded(seed);
        let stream = gpu.stream();
        let called = Arc::new(AtomicBool::new(false));
        let call = Arc::clone(&called);
        gpu.fail(stream).unwrap();
        let function = Arc::new(move || call.store(true, Ordering::SeqCst));
        let _ = gpu.sim.launch_host_function(D0, stream, function);
        assert!(gpu.sim.stream_synchronize(D0, stream).is_err());
        gpu.sim.run_all();
        assert!(!called.load(Ordering::SeqCst));
        assert_eq!(Arc::strong_count(&called), 1);
    }
}

/// At the end of a process the driver may be gone before destructors run [4]: every call says so and does nothing.
#[test]
fn a_driver_that_is_gone_does_nothing() {
    let gpu = Gpu::seeded(0);
    let (stream, x) = (gpu.stream(), gpu.alloc(4));
    gpu.sim.faults().deinitialize();
    for error in [
        gpu.try_free(x).unwrap_err(),
        gpu.sim.stream_synchronize(D0, stream).unwrap_err(),
        gpu.sim.device_count().unwrap_err(),
    ] {
        assert_eq!(error.code, ErrorCode::DEINITIALIZED);
    }
    gpu.sim.faults().clear();
    gpu.free(x);
    gpu.clean();
}

#[test]
fn a_failed_kernel_loses_the_device() {
    let gpu = Gpu::seeded(0);
    let stream = gpu.stream();
    gpu.fail(stream).unwrap();
    assert_eq!(
        gpu.sim.stream_synchronize(D0, stream).unwrap_err().code,
        ErrorCode::LAUNCH_FAILED
    );
    let reports = gpu.sim.reports();
    assert!(
        matches!(&reports[0].finding, Finding::KernelFault { message, .. } if message.contains("assertion failed"))
    );
}

#[test]
fn a_host_function_that_never_returns_is_a_deadlock_for_who_waits() {
    let gpu = Gpu::seeded(0);
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
    gpu.sim.faults().lose_host_function(1);
    gpu.sim
        .launch_host_function(D0, a, Arc::new(|| {}))
        .unwrap();
    gpu.fill(a, x, 1, 1);
    gpu.edge(a, b);
    assert_eq!(
        gpu.sim.stream_synchronize(D0, b).unwrap_err().code,
        ErrorCode::UNKNOWN
    );
    assert_eq!(gpu.kinds(), ["deadlock"]);
    let text = gpu.sim.reports()[0].to_string();
    assert!(
        text.contains("cuStreamSynchronize") && text.contains("faults.rs"),
        "{text}"
    );
}

#[test]
fn waiting_for_a_held_stream_is_a_deadlock_after_a_while() {
    for schedule in [Schedule::Eager, Schedule::Stepped { seed: 1 }] {
        let builder = SimDriver::builder()
            .schedule(schedule)
            .wait_limit(Duration::from_millis(20));
        let gpu = Gpu::new(builder);
        let (a, x) = (gpu.stream(), gpu.alloc(4));
        gpu.sim.hold_stream(a);
        gpu.fill(a, x, 1, 1);
        assert_eq!(
            gpu.sim.stream_synchronize(D0, a).unwrap_err().code,
            ErrorCode::UNKNOWN
        );
        assert_eq!(gpu.kinds(), ["deadlock"]);
        gpu.sim.release_stream(a);
        gpu.synchronize(a);
        assert_eq!(gpu.read(x, 1), [1]);
    }
}

#[test]
fn a_host_function_may_take_the_locks_of_a_thread_that_calls_the_driver() {
    let gpu = Gpu::seeded(0);
    let stream = gpu.stream();
    let lock = Arc::new(std::sync::Mutex::new(0));
    let guard = lock.lock().unwrap();
    let inner = Arc::clone(&lock);
    let function = Arc::new(move || *inner.lock().unwrap() += 1);
    gpu.sim.hold_stream(stream);
    gpu.sim.launch_host_function(D0, stream, function).unwrap();
    std::thread::scope(|scope| {
        gpu.sim.release_stream(stream);
        let waiter = scope.spawn(|| gpu.synchronize(stream));
        // The waiting thread is inside the function, or will be; the driver serves others meanwhile.
        gpu.sim.device_count().unwrap();
        drop(guard);
        waiter.join().unwrap();
    });
    assert_eq!(*lock.lock().unwrap(), 1);
}

/// Holds device memory, as a host function of a program may.
struct Holder {
    sim: SimDriver,
    x: cuda_driver::DevicePtr,
}

impl Drop for Holder {
    fn drop(&mut self) {
        // SAFETY: the simulated device checks that nothing uses the memory.
        let _ = unsafe { self.sim.mem_free(D0, self.x) };
    }
}

#[test]
fn what_a_host_function_holds_may_call_the_driver_when_it_is_dropped() {
    for seed in 0..20 {
        let gpu = Gpu::seeded(seed);
        let stream = gpu.stream();
        let holder = || {
            let holder = Holder {
                sim: gpu.sim.clone(),
                x: gpu.alloc(4),
            };
            Arc::new(move || assert!(holder.x.0 > 0))
        };
        let launch = |holder| gpu.sim.launch_host_function(D0, stream, holder);
        launch(holder()).unwrap();
        gpu.synchronize(stream);
        let captured = holder();
        gpu.begin(stream);
        launch(captured).unwrap();
        let graph = gpu.end(stream);
        let exec = gpu.instantiate(graph);
        gpu.replay(exec, stream).unwrap();
        gpu.destroy_graph(graph);
        gpu.destroy_exec(exec);
        gpu.synchronize(stream);
        // SAFETY: it names nothing, which is what is asked.
        let unknown = unsafe { cuda_driver::RawStream::from_raw(0) };
        assert!(gpu.sim.launch_host_function(D0, unknown, holder()).is_err());
        gpu.clean();
        let memory = gpu.sim.memory_info(D0).unwrap();
        assert_eq!(memory.0, memory.1, "all of it was freed");
        launch(holder()).unwrap();
        gpu.sim
            .faults()
            .fail_nth(Call::CtxSynchronize, 1, ErrorCode::LAUNCH_FAILED);
        assert!(gpu.sim.device_synchronize(D0).is_err());
    }
}

#[test]
fn a_host_function_that_panics_loses_the_device_and_not_the_caller() {
    let gpu = Gpu::seeded(0);
    let stream = gpu.stream();
    gpu.sim
        .launch_host_function(D0, stream, Arc::new(|| panic!("in a host function")))
        .unwrap();
    assert_eq!(
        gpu.sim.stream_synchronize(D0, stream).unwrap_err().code,
        ErrorCode::LAUNCH_FAILED
    );
    assert!(
        gpu.sim.reports()[0]
            .to_string()
            .contains("panicked: in a host function")
    );
}

#[test]
fn what_is_alive_at_the_end_is_reported_with_its_place() {
    let gpu = Gpu::seeded(0);
    assert_eq!(gpu.sim.leak_report().len(), 1, "the kit's module");
    let (stream, _x, _event, pool) = (gpu.stream(), gpu.alloc(100), gpu.event(), gpu.pool());
    let _y = gpu.alloc_async(pool, 4, stream);
    let _pinned = gpu.pinned(1);
    gpu.begin(stream);
    let graph = gpu.end(stream);
    gpu.instantiate(graph);
    gpu.sim
        .capture_begin(D0, stream, CaptureMode::Relaxed)
        .unwrap();
    let mut leaked: Vec<&'static str> = Vec::new();
    for report in gpu.sim.shutdown() {
        let Finding::Leak {
            object,
            site,
            bytes,
        } = report.finding
        else {
            panic!("{report}")
        };
        assert!(site.file().ends_with("faults.rs") || site.file().ends_with("kit.rs"));
        leaked.push(match object {
            LeakedObject::DeviceMemory { .. } if bytes == Some(100) => "memory",
            LeakedObject::DeviceMemory { .. } => "pool memory",
            LeakedObject::HostMemory { .. } => "pinned",
            LeakedObject::Pool { .. } => "pool",
            LeakedObject::Stream { .. } => "stream",
            LeakedObject::Event { .. } => "event",
            LeakedObject::Module { .. } => "module",
            LeakedObject::Graph { .. } => "graph",
            LeakedObject::GraphExec { .. } => "exec",
            LeakedObject::Capture { .. } => "capture",
            _ => "other",
        });
    }
    leaked.sort_unstable();
    let expected = [
        "capture",
        "event",
        "exec",
        "graph",
        "memory",
        "module",
        "pinned",
        "pool",
        "pool memory",
        "stream",
    ];
    assert_eq!(leaked, expected);
}

#[test]
fn checks_can_be_switched_off() {
    let gpu = Gpu::new(SimDriver::builder().checks(Checks::NONE));
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(8));
    gpu.fill(a, x, 1, 1);
    gpu.step(b, x, 1, 2);
    gpu.destroy_stream(a);
    let _ = gpu.sim.stream_query(D0, a);
    gpu.free(x);
    let _ = gpu.try_free(x);
    assert!(gpu.sim.shutdown().is_empty());
}

#[test]
fn an_eager_device_does_everything_at_once_and_finds_the_same() {
    let gpu = Gpu::new(SimDriver::builder().schedule(Schedule::Eager));
    let (a, b, x, event) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.event());
    gpu.fill(a, x, 1, 1);
    gpu.record(event, a);
    assert_eq!(gpu.sim.event_query(D0, event), Ok(true));
    gpu.clean();
    gpu.step(a, x, 0, 1);
    gpu.step(b, x, 0, 1);
    assert_eq!(gpu.kinds(), ["race"]);
    gpu.sim.hold_stream(a);
    gpu.step(a, x, 0, 1);
    gpu.edge(a, b);
    gpu.step(b, x, 0, 1);
    assert!(
        !gpu.sim.stream_query(D0, b).unwrap(),
        "b waits for the held stream"
    );
    gpu.sim.release_stream(a);
    assert!(gpu.sim.stream_query(D0, b).unwrap());
    assert_eq!(gpu.read(x, 1), [81]);
}
