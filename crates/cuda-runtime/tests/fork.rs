//! A runtime and `fork` (case 26, pytorch/pytorch#17357). A test binary of its own: it forks.

#![cfg(all(unix, feature = "sim", not(loom)))]

use cuda_driver::{Call, CaptureMode, Driver, ErrorCode};
use cuda_runtime::{Capture, Graph, PoisonPolicy, Runtime, RuntimeError, RuntimeResult};
use cuda_sim::SimDriver;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// Runs `child` in a forked process. It must end by itself, without a failed assertion.
fn in_child(child: impl FnOnce()) {
    assert_eq!(status_of(child), 0, "the child failed");
}

/// Runs `child` in a forked process; how that ended, as the system tells.
fn status_of(child: impl FnOnce()) -> c_int {
    // SAFETY: the child runs only what it is given, on the one thread that it has, and ends without unwinding further.
    let pid = unsafe { fork() };
    assert!(pid >= 0, "no child could be made");
    if pid == 0 {
        let failed = catch_unwind(AssertUnwindSafe(child)).is_err();
        // SAFETY: it ends the child and nothing else.
        unsafe { _exit(c_int::from(failed)) }
    }
    let begun = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: the child is this process's own; 1 asks without waiting.
        match unsafe { waitpid(pid, &raw mut status, 1) } {
            0 => {}
            ended => {
                assert_eq!(ended, pid);
                return status;
            }
        }
        if begun.elapsed() > Duration::from_secs(10) {
            // SAFETY: as above.
            unsafe { kill(pid, 9) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn refused<T>(result: RuntimeResult<T>, parent: u32) {
    let error = result.map(drop).unwrap_err();
    let expected = RuntimeError::Forked {
        created_pid: parent,
        current_pid: std::process::id(),
    };
    assert_eq!(error, expected);
    assert_ne!(parent, std::process::id());
}

/// In a child every call is refused, drops do nothing, and locks that a thread of the parent held are left alone.
#[test]
fn case_26_a_forked_child_is_told_and_the_parent_goes_on() {
    // Before a runtime is opened a fork is no matter.
    in_child(|| {
        let runtime = Runtime::builder().build().unwrap();
        drop(runtime.default_device().streams().acquire().unwrap());
    });

    let sim = SimDriver::builder().build();
    let runtime = Runtime::builder()
        .driver(sim.as_driver())
        .streams_per_device(4)
        .build()
        .unwrap();
    let device = runtime.default_device().clone();
    let [s, t, held, captured] = [(); 4].map(|()| device.streams().acquire().unwrap());
    let (memory, first) = device.allocate_on(64, &s).unwrap();
    let (kept, _) = device.allocate_on(64, &s).unwrap();
    let pinned = device.allocate_pinned(64).unwrap();
    let done = s.record().unwrap();
    let graph: Graph = Capture::begin(&t, CaptureMode::ThreadLocal)
        .unwrap()
        .end()
        .unwrap()
        .graph;
    let kept_object = device
        .provider(|device| Ok::<_, ErrorCode>(device.clone()))
        .unwrap();
    // Threads of the runtime, which a child does not have.
    assert!(done.wait_within(Duration::ZERO).is_ok());
    let capture = Capture::begin(&captured, CaptureMode::ThreadLocal).unwrap();
    let parent = std::process::id();
    let (locked, over) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _standing = held.standing().unwrap();
            locked.wait();
            over.wait();
        });
        locked.wait();
        let calls = sim.counters().snapshot();
        // What the child drops it must own: the parent's values are left as they are.
        let inherited = (s.clone(), held.clone(), done.clone());
        let everything = std::mem::ManuallyDrop::new((s, t, memory, graph, kept_object, capture));
        let told = catch_unwind(AssertUnwindSafe(|| {
            in_child(|| {
                assert!(device.is_forked());
                let (s, t, memory, graph, kept_object, capture) = unsafe_take(&everything);
                refused(device.check(), parent);
                refused(device.allocate(64), parent);
                refused(device.allocate_on(64, &s), parent);
                refused(device.allocate_pinned(64), parent);
                refused(device.streams().acquire(), parent);
                refused(device.streams().try_acquire_many(2), parent);
                refused(
                    device.streams().acquire_within(Duration::from_secs(1)),
                    parent,
                );
                refused(device.streams().try_acquire_after(&done), parent);
                refused(
                    futures::executor::block_on(device.streams().acquire_async()),
                    parent,
                );
                refused(
                    futures::executor::block_on(done.clone().into_future()),
                    parent,
                );
                refused(held.record(), parent);
                refused(held.wait_for(&done), parent);
                refused(held.standing().map(drop), parent);
                refused(s.synchronize(), parent);
                // SAFETY: nothing is queued.
                refused(unsafe { held.enqueue(|_, _| Ok(())) }, parent);
                refused(done.wait(), parent);
                refused(done.is_complete(), parent);
                refused(Capture::begin(&t, CaptureMode::ThreadLocal), parent);
                refused(capture.end(), parent);
                // SAFETY: nothing is queued.
                refused(unsafe { graph.launch_unordered(&t) }, parent);
                refused(device.drain_frees(), parent);
                refused(runtime.clone().shutdown(), parent);
                assert_eq!(device.alive(), cuda_runtime::Alive::default());
                let _ = (
                    device.order_counts(),
                    device.streams().counts(),
                    held.is_capturing(),
                );
                memory.reclaim([done.clone()]);
                // SAFETY: the memory is of this device and size, and nothing uses it.
                unsafe { device.free_pinned(pinned, 64, []) };
                drop((inherited, s, t, graph, kept_object));
                assert_eq!(
                    (sim.counters().snapshot() - calls).total(),
                    0,
                    "no call reaches the driver"
                );
            })
        }));
        over.wait();
        told.unwrap();
        let (s, t, memory, graph, kept_object, capture) =
            std::mem::ManuallyDrop::into_inner(everything);
        // The parent notices nothing.
        drop(capture.end().unwrap());
        assert!(!device.is_forked());
        s.synchronize().unwrap();
        memory.reclaim([s.record().unwrap()]);
        drop((s, t, graph, kept_object));
    });
    kept.reclaim(first);
    // SAFETY: the memory is of this device and size, and nothing uses it.
    unsafe { device.free_pinned(pinned, 64, []) };
    drop((held, captured, done, device));
    let alive = runtime.shutdown().unwrap()[0].1;
    assert_eq!(alive, cuda_runtime::Alive::default());
    sim.shutdown();
    sim.assert_no_reports();
}

/// A program that is to be started again is ended by the first fault that leaves a device's state unknown.
#[test]
fn a_fault_may_end_the_process() {
    let status = status_of(|| {
        let runtime = Runtime::builder()
            .poison_policy(PoisonPolicy::Abort)
            .build()
            .unwrap();
        let device = runtime.default_device();
        let stream = device.streams().acquire().unwrap();
        let sim = runtime.simulation().unwrap();
        sim.faults()
            .fail_nth(Call::StreamSynchronize, 1, ErrorCode::ILLEGAL_ADDRESS);
        let _ = stream.synchronize();
    });
    let signal = status & 0x7f;
    assert_eq!(signal, 6, "it aborts");
}

/// The child's copy of a value of the parent's.
fn unsafe_take<T>(value: &std::mem::ManuallyDrop<T>) -> T {
    // SAFETY: in the child nobody else has the value: the parent's is in another process, and the child ends without
    // dropping it again.
    unsafe { std::ptr::read(&raw const **value) }
}
