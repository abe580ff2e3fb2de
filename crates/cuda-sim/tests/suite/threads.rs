//! A threaded schedule: the device runs beside the host.

use crate::kit::{D0, Gpu};
use cuda_driver::{Call, Devices, ErrorCode, Events, Kernels, RawStream, Streams};
use cuda_sim::{Schedule, SimBuilder, SimDriver};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn threaded() -> SimBuilder {
    SimDriver::builder().schedule(Schedule::Threaded)
}

fn patient(millis: u64) -> SimBuilder {
    threaded().wait_limit(Duration::from_millis(millis))
}

impl Gpu {
    #[track_caller]
    fn call(&self, stream: RawStream, function: impl Fn() + Send + Sync + 'static) {
        self.sim
            .launch_host_function(D0, stream, Arc::new(function))
            .unwrap();
    }
}

/// A host function that says when it runs, and returns when it is told to.
fn gate() -> (impl Fn() + Send + Sync + 'static, Receiver<()>, Sender<()>) {
    let (entered, is_in) = channel();
    let (leave, may_leave) = channel::<()>();
    let may_leave = Mutex::new(may_leave);
    let function = move || {
        let _ = entered.send(());
        let _ = may_leave.lock().unwrap().recv();
    };
    (function, is_in, leave)
}

#[test]
fn work_goes_on_without_a_call_of_the_host() {
    let gpu = Gpu::new(threaded());
    let (stream, x) = (gpu.stream(), gpu.alloc(4));
    let (done, is_done) = channel();
    gpu.fill(stream, x, 1, 1);
    gpu.call(stream, move || {
        let _ = done.send(());
    });
    // No call of the driver is made meanwhile.
    is_done.recv_timeout(Duration::from_secs(10)).unwrap();
    gpu.synchronize(stream);
    gpu.clean();
}

#[test]
fn waiting_threads_are_woken_by_what_they_wait_for() {
    type Waiter = fn(&Gpu, RawStream, cuda_driver::RawEvent);
    let waiters: [Waiter; 3] = [
        |gpu, stream, _| gpu.synchronize(stream),
        |gpu, _, event| gpu.sim.event_synchronize(D0, event).unwrap(),
        |gpu, _, _| gpu.sim.device_synchronize(D0).unwrap(),
    ];
    for wait in waiters {
        let gpu = Gpu::new(threaded());
        let (stream, x, event) = (gpu.stream(), gpu.alloc(4), gpu.event());
        let (function, is_in, leave) = gate();
        gpu.fill(stream, x, 1, 1);
        gpu.call(stream, function);
        gpu.step(stream, x, 1, 1);
        gpu.record(event, stream);
        let woken = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    wait(&gpu, stream, event);
                    woken.store(true, Ordering::SeqCst);
                    // The host knows all that came before.
                    assert_eq!(gpu.read(x, 1), [4]);
                });
            }
            is_in.recv().unwrap();
            std::thread::sleep(Duration::from_millis(5));
            assert!(!woken.load(Ordering::SeqCst));
            leave.send(()).unwrap();
        });
        gpu.clean();
    }
}

#[test]
fn a_held_stream_wakes_its_waiters_when_it_is_released() {
    let gpu = Gpu::new(threaded());
    let (stream, x) = (gpu.stream(), gpu.alloc(4));
    gpu.sim.hold_stream(stream);
    gpu.fill(stream, x, 1, 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| gpu.synchronize(stream));
        std::thread::sleep(Duration::from_millis(2));
        assert!(!gpu.sim.stream_query(D0, stream).unwrap());
        gpu.sim.release_stream(stream);
        waiter.join().unwrap();
    });
    assert_eq!(gpu.read(x, 1), [1]);
    gpu.clean();
}

#[test]
fn callbacks_have_one_thread_and_other_streams_go_on() {
    let gpu = Gpu::new(threaded());
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
    let (function, is_in, leave) = gate();
    let threads = Arc::new(Mutex::new(Vec::new()));
    let note = || {
        let threads = Arc::clone(&threads);
        move || {
            let thread = std::thread::current();
            threads
                .lock()
                .unwrap()
                .push((thread.id(), thread.name().map(str::to_owned)));
        }
    };
    gpu.call(a, note());
    gpu.call(a, function);
    is_in.recv().unwrap();
    // The callback thread is busy; the device is not.
    gpu.fill(b, x, 1, 1);
    gpu.synchronize(b);
    gpu.call(b, note());
    assert!(!gpu.sim.stream_query(D0, b).unwrap());
    leave.send(()).unwrap();
    gpu.synchronize(a);
    gpu.synchronize(b);
    let threads = threads.lock().unwrap();
    assert_eq!(threads.len(), 2);
    assert_eq!(threads[0], threads[1]);
    assert_eq!(threads[0].1.as_deref(), Some("cuda-sim callbacks"));
    gpu.clean();
}

#[test]
fn a_wait_that_nothing_ends_is_a_deadlock() {
    // Held.
    let gpu = Gpu::new(patient(20));
    let (stream, x) = (gpu.stream(), gpu.alloc(4));
    gpu.sim.hold_stream(stream);
    gpu.fill(stream, x, 1, 1);
    let code = |gpu: &Gpu, stream| gpu.sim.stream_synchronize(D0, stream).unwrap_err().code;
    assert_eq!(code(&gpu, stream), ErrorCode::UNKNOWN);
    assert_eq!(gpu.kinds(), ["deadlock"]);

    // A function that does not return in time.
    let gpu = Gpu::new(patient(20));
    let stream = gpu.stream();
    let (function, _is_in, leave) = gate();
    gpu.call(stream, function);
    assert_eq!(code(&gpu, stream), ErrorCode::UNKNOWN);
    let text = gpu.sim.reports()[0].to_string();
    assert!(text.contains("has not returned"), "{text}");
    leave.send(()).unwrap();

    // One that never does is known at once.
    let gpu = Gpu::new(threaded());
    let stream = gpu.stream();
    gpu.sim.faults().lose_host_function(1);
    gpu.call(stream, || {});
    let start = Instant::now();
    assert_eq!(code(&gpu, stream), ErrorCode::UNKNOWN);
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(gpu.kinds(), ["deadlock"]);
}

#[test]
fn a_lost_device_wakes_who_waits_for_it() {
    let gpu = Gpu::new(threaded());
    let (stream, x) = (gpu.stream(), gpu.alloc(4));
    gpu.sim.hold_stream(stream);
    gpu.fill(stream, x, 1, 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| gpu.sim.stream_synchronize(D0, stream).unwrap_err().code);
        std::thread::sleep(Duration::from_millis(2));
        gpu.sim
            .faults()
            .fail_nth(Call::MemGetInfo, 1, ErrorCode::LAUNCH_FAILED);
        assert!(gpu.sim.memory_info(D0).is_err());
        assert_eq!(waiter.join().unwrap(), ErrorCode::LAUNCH_FAILED);
    });
    // And by what fails on the device itself.
    let gpu = Gpu::new(threaded());
    let stream = gpu.stream();
    gpu.fail(stream).unwrap();
    let error = gpu.sim.stream_synchronize(D0, stream).unwrap_err();
    assert_eq!(error.code, ErrorCode::LAUNCH_FAILED);
    gpu.sim.shutdown();
}

#[test]
fn a_host_function_that_panics_loses_the_device_and_not_the_thread() {
    let gpu = Gpu::new(threaded().devices(2));
    let other = Gpu::on(gpu.sim.clone(), cuda_driver::DeviceId(1));
    let stream = gpu.stream();
    gpu.call(stream, || panic!("in a host function"));
    let error = gpu.sim.stream_synchronize(D0, stream).unwrap_err();
    assert_eq!(error.code, ErrorCode::LAUNCH_FAILED);
    let stream = other.stream();
    let called = Arc::new(AtomicBool::new(false));
    let call = Arc::clone(&called);
    let function = Arc::new(move || call.store(true, Ordering::SeqCst));
    gpu.sim
        .launch_host_function(other.device, stream, function)
        .unwrap();
    other.synchronize(stream);
    assert!(called.load(Ordering::SeqCst));
}

/// Everything that can run has run, and every callback has returned, when a shutdown returns; held work stays.
#[test]
fn a_shutdown_waits_for_what_runs() {
    let gpu = Gpu::new(threaded());
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
    let calls = Arc::new(AtomicU32::new(0));
    gpu.sim.hold_stream(b);
    for stream in [a, a, b] {
        let calls = Arc::clone(&calls);
        gpu.call(stream, move || {
            std::thread::sleep(Duration::from_millis(1));
            calls.fetch_add(1, Ordering::SeqCst);
        });
    }
    gpu.fill(a, x, 1, 1);
    let leaks = gpu.sim.shutdown();
    assert_eq!(leaks.len(), 4, "{leaks:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    assert!(gpu.sim.stream_query(D0, a).unwrap());
}

/// With the last handle the threads end: what runs is waited for, and nothing runs afterwards.
#[test]
fn dropping_the_driver_ends_its_threads() {
    let gpu = Gpu::new(threaded());
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(1 << 16));
    let (function, is_in, leave) = gate();
    let flags = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let [ended, held] = flags.each_ref();
    let (sets_ended, sets_held) = (Arc::clone(ended), Arc::clone(held));
    gpu.sim.hold_stream(b);
    gpu.call(b, move || sets_held.store(true, Ordering::SeqCst));
    gpu.call(a, move || {
        function();
        std::thread::sleep(Duration::from_millis(2));
        sets_ended.store(true, Ordering::SeqCst);
    });
    for _ in 0..100 {
        gpu.fill(a, x, 1, 1 << 14);
        gpu.fill(b, x, 1, 1 << 14);
    }
    is_in.recv().unwrap();
    let dropped = std::thread::spawn(move || drop(gpu));
    leave.send(()).unwrap();
    dropped.join().unwrap();
    assert!(ended.load(Ordering::SeqCst), "what ran has ended");
    assert!(!held.load(Ordering::SeqCst), "what was held has not run");
    assert!(
        flags.iter().all(|flag| Arc::strong_count(flag) == 1),
        "and all of it is gone"
    );
}

/// A host function that never returns does not hold up the end for longer than the wait limit.
#[test]
fn dropping_the_driver_gives_up_on_a_function_that_hangs() {
    let gpu = Gpu::new(patient(20));
    let (function, is_in, leave) = gate();
    gpu.call(gpu.stream(), function);
    is_in.recv().unwrap();
    let start = Instant::now();
    drop(gpu);
    assert!(start.elapsed() < Duration::from_secs(5));
    leave.send(()).unwrap();
}

/// The last handle may be held by a host function, and then goes on the thread that called it.
#[test]
fn the_last_handle_may_end_on_a_thread_of_the_device() {
    for _ in 0..20 {
        let gpu = Gpu::new(threaded());
        let stream = gpu.stream();
        let (sim, ended) = (gpu.sim.clone(), Arc::new(AtomicBool::new(false)));
        let (function, is_in, leave) = gate();
        let note = Arc::clone(&ended);
        gpu.call(stream, move || {
            function();
            let _ = &sim;
            note.store(true, Ordering::SeqCst);
        });
        is_in.recv().unwrap();
        drop(gpu);
        leave.send(()).unwrap();
        // The closure goes when the simulation does.
        let limit = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&ended) > 1 {
            assert!(Instant::now() < limit);
            std::thread::yield_now();
        }
        assert!(ended.load(Ordering::SeqCst));
    }
}

/// Threads of the program that make, use and drop things at once.
#[test]
fn host_threads_share_a_device() {
    for _ in 0..5 {
        crate::order::four_threads(&Gpu::new(threaded()));
    }
}

/// Driver objects of many simulations at once: their threads have nothing to do with each other.
#[test]
fn simulations_are_apart() {
    std::thread::scope(|scope| {
        for value in 0..8 {
            scope.spawn(move || {
                let gpu = Gpu::new(threaded());
                let (stream, x) = (gpu.stream(), gpu.alloc(4));
                gpu.fill(stream, x, value, 1);
                gpu.synchronize(stream);
                assert_eq!(gpu.read(x, 1), [value]);
                gpu.clean();
            });
        }
    });
}
