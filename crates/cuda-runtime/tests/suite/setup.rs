//! What the builder sets up, several runtimes side by side, and how they end.

use crate::kit::{Rig, fill, raw, stall, touch, until};
use cuda_driver::{Call, CudaError, DeviceId, Driver, ErrorCode, Pattern, Streams};
use cuda_runtime::{Capture, PoisonPolicy, Runtime, RuntimeBuilder, RuntimeError};
use cuda_sim::SimDriver;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn settings_that_can_not_work_are_refused_with_their_values() {
    let build = |setup: fn(RuntimeBuilder) -> RuntimeBuilder| {
        let sim = SimDriver::builder().devices(2).build();
        let built = setup(Runtime::builder().driver(sim.as_driver())).build();
        let error = built.map(drop).unwrap_err();
        sim.shutdown();
        sim.assert_no_reports();
        error
    };
    let two = |at: u32| DeviceId(at);
    assert_eq!(
        build(|it| it.streams_per_device(0)),
        RuntimeError::BadSetting {
            what: "streams_per_device",
            value: 0
        }
    );
    assert_eq!(
        build(|it| it.devices([DeviceId(0), DeviceId(2)])),
        RuntimeError::NoSuchDevice {
            device: two(2),
            count: 2
        }
    );
    assert_eq!(
        build(|it| it.devices([DeviceId(1), DeviceId(1)])),
        RuntimeError::DeviceTwice { device: two(1) }
    );
    assert_eq!(
        build(|it| it.devices([DeviceId(1)]).default_device(DeviceId(0))),
        RuntimeError::NoSuchDevice {
            device: two(0),
            count: 2
        }
    );
    assert_eq!(
        build(|it| it.streams_at_priority(0, 1)),
        RuntimeError::PriorityTwice { priority: 0 }
    );
    assert!(matches!(
        build(|it| it.streams_at_priority(-1, 0)),
        RuntimeError::BadSetting { value: 0, .. }
    ));
    assert!(matches!(
        build(|it| it.streams_at_priority(99, 1)),
        RuntimeError::BadPriority { priority: 99, .. }
    ));
}

/// None of them is made, nor is memory taken for them.
#[test]
fn pools_too_large_to_be_meant_are_refused() {
    type Setup = fn(RuntimeBuilder, usize) -> RuntimeBuilder;
    let setups: [Setup; 2] = [RuntimeBuilder::streams_per_device, |builder, n| {
        builder.streams_at_priority(-1, n)
    }];
    for setup in setups {
        for n in [RuntimeBuilder::MOST_STREAMS + 1, 1 << 40, usize::MAX] {
            let sim = SimDriver::builder().build();
            let built = setup(Runtime::builder().driver(sim.as_driver()), n).build();
            let error = built.map(drop).unwrap_err();
            assert!(
                matches!(error, RuntimeError::BadSetting { value, .. } if value == n),
                "{error}"
            );
            assert_eq!(sim.counters().snapshot().of(Call::StreamCreate), 0);
        }
    }
}

#[test]
fn streams_have_the_priority_of_their_pool() {
    let sim = SimDriver::builder().build();
    let properties = cuda_driver::Devices::device_properties(&sim, DeviceId(0)).unwrap();
    let (least, most) = properties.priorities;
    assert!(most < least, "the simulated device has several");
    let runtime = Runtime::builder()
        .driver(sim.as_driver())
        .streams_per_device(2)
        .streams_at_priority(most, 1)
        .build()
        .unwrap();
    let device = runtime.default_device();
    let urgent = device.streams_at(most).unwrap();
    let stream = urgent.acquire().unwrap();
    assert_eq!(sim.stream_priority(device.id(), raw(&stream)), Ok(most));
    let usual = device.streams_at(0).unwrap().acquire().unwrap();
    assert_eq!(sim.stream_priority(device.id(), raw(&usual)), Ok(0));
    assert_eq!(
        (urgent.counts().leased, device.streams().counts().leased),
        (1, 1)
    );
    assert!(urgent.try_acquire().is_err());
    assert_eq!(device.alive().leased_streams, 2);
    assert_eq!(
        device.streams_at(most - 1).map(drop),
        Err(RuntimeError::NoSuchPriority {
            device: device.id(),
            priority: most - 1
        })
    );
    // Each goes back where it came from, also as a replacement.
    let done = stream.record().unwrap();
    drop((stream, usual));
    assert_eq!(
        (urgent.counts().leased, device.streams().counts().leased),
        (0, 0)
    );
    let again = urgent.acquire_after(&done).unwrap();
    assert_eq!(sim.stream_priority(device.id(), raw(&again)), Ok(most));
    drop((again, done, runtime));
    sim.shutdown();
    sim.assert_no_reports();
}

/// What the user queues on a stream of their own is unknown, so each completion has its own event.
#[test]
fn nothing_is_assumed_of_a_stream_that_the_user_made() {
    let rig = Rig::new(1);
    let device = rig.device();
    let own = rig.sim.stream_create(device.id(), 0).unwrap();
    // SAFETY: the stream is of the device, and is destroyed at the end.
    let stream = unsafe { device.adopt_stream(own) }.unwrap();
    let other = device.streams().acquire().unwrap();
    let (memory, first) = device.allocate_on(64, &stream).unwrap();
    assert_eq!(device.streams().counts().leased, 1, "it is of no pool");
    let before = rig.sim.counters().snapshot();
    let (one, two) = (stream.record().unwrap(), stream.record().unwrap());
    assert_ne!(one.point(), two.point());
    assert_eq!(
        (rig.sim.counters().snapshot() - before).of(Call::EventRecord),
        2
    );
    other.wait_for(&two).unwrap();
    touch(&other, &memory);
    stream.wait_for(&other.record().unwrap()).unwrap();
    touch(&stream, &memory);
    let last = stream.record().unwrap();
    let proof = stream.synchronize().unwrap();
    assert!(!stream.is_done(&proof), "more may have come");
    // The free never goes there: somebody may capture the stream.
    let before = rig.sim.counters().snapshot();
    touch(&stream, &memory);
    memory.reclaim([stream.record().unwrap()]);
    let made = rig.sim.counters().snapshot() - before;
    assert_eq!(
        (made.of(Call::StreamWaitEvent), made.of(Call::MemFreeAsync)),
        (1, 1)
    );
    let clone = stream.clone();
    drop(stream);
    clone.record().unwrap();
    drop((clone, other, first, one, two, last));
    // Carve has forgotten it: it is there, and the user's.
    device.drain_frees().unwrap();
    // SAFETY: nobody uses it any more.
    unsafe { rig.sim.stream_destroy(device.id(), own) }.unwrap();
    drop(device);
    rig.finish();
}

#[test]
fn page_locked_memory_is_kept_up_to_a_limit() {
    let rig = Rig::with(SimDriver::builder(), |builder| {
        builder.host_pool_bytes(1024)
    });
    let device = rig.device();
    let free = |address, bytes, done: Option<cuda_runtime::Completion>| {
        // SAFETY: the memory is of this device and size, and `done` is its only use.
        unsafe { device.free_pinned(address, bytes, done) };
    };
    let before = rig.sim.counters().snapshot();
    let calls = || {
        let made = rig.sim.counters().snapshot() - before;
        (made.of(Call::MemHostAlloc), made.of(Call::MemFreeHost))
    };
    let first = device.allocate_pinned(300).unwrap();
    free(first, 300, None);
    let again = device.allocate_pinned(512).unwrap();
    assert_eq!((again, calls()), (first, (1, 0)));
    // Of two blocks of 512 and one of 256 the last does not fit any more; neither does one that is larger than all.
    let (more, small) = (
        device.allocate_pinned(400).unwrap(),
        device.allocate_pinned(256).unwrap(),
    );
    let large = device.allocate_pinned(5000).unwrap();
    for (address, bytes) in [(again, 512), (more, 400), (small, 256), (large, 5000)] {
        free(address, bytes, None);
    }
    assert_eq!(calls(), (4, 2));
    // Memory that is still in use comes back when that is over, and not before.
    let busy = device.allocate_pinned(512).unwrap();
    let stream = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    let done = stall(&rig.sim, &stream, &memory);
    free(busy, 512, Some(done));
    let second = device.allocate_pinned(512).unwrap();
    assert_ne!(second, busy);
    rig.sim.release_stream(raw(&stream));
    device.drain_frees().unwrap();
    assert_eq!(device.allocate_pinned(512).unwrap(), busy);
    free(busy, 512, None);
    free(second, 512, None);
    memory.reclaim([stream.record().unwrap()]);
    drop((stream, device));
    rig.finish();
}

/// What is kept goes back to the system before a request fails.
#[test]
fn page_locked_memory_that_is_kept_makes_room() {
    let rig = Rig::with(SimDriver::builder(), |builder| {
        builder.host_pool_bytes(1024)
    });
    let device = rig.device();
    let kept = device.allocate_pinned(512).unwrap();
    // SAFETY: the memory is of this device and size, and unused.
    unsafe { device.free_pinned(kept, 512, []) };
    rig.sim
        .faults()
        .fail_nth(Call::MemHostAlloc, 1, ErrorCode::OUT_OF_MEMORY);
    let before = rig.sim.counters().snapshot();
    let large = device.allocate_pinned(4096).unwrap();
    let made = rig.sim.counters().snapshot() - before;
    assert_eq!(
        (made.of(Call::MemHostAlloc), made.of(Call::MemFreeHost)),
        (2, 1)
    );
    // SAFETY: as above.
    unsafe { device.free_pinned(large, 4096, []) };
    drop(device);
    rig.finish();
}

/// Memory whose uses end meanwhile makes room, too; and when nothing does, the request and its size are named.
#[test]
fn page_locked_memory_runs_out_with_its_size_after_pending_frees() {
    let rig = Rig::with(SimDriver::builder(), |builder| {
        builder.host_pool_bytes(1024)
    });
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    let busy = device.allocate_pinned(4096).unwrap();
    let done = stall(&rig.sim, &stream, &memory);
    // SAFETY: the memory is of this device and size, and `done` is its only use.
    unsafe { device.free_pinned(busy, 4096, [done]) };
    let fail_next = |call, times: u64| {
        (1..=times).for_each(|n| {
            let code = ErrorCode::OUT_OF_MEMORY;
            rig.sim.faults().fail_nth(call, n, code);
        });
    };
    fail_next(Call::MemHostAlloc, 1);
    let freed = || rig.sim.counters().snapshot().of(Call::MemFreeHost);
    let before = freed();
    let large = std::thread::scope(|scope| {
        let asked = scope.spawn(|| device.allocate_pinned(8192).map(|it| it.as_ptr() as usize));
        // The request waits for the pending free, which waits for the stream.
        std::thread::sleep(Duration::from_millis(20));
        assert!(!asked.is_finished());
        rig.sim.release_stream(raw(&stream));
        asked.join().unwrap().unwrap()
    });
    assert_eq!(freed() - before, 1);
    let large = std::ptr::NonNull::new(large as *mut u8).unwrap();
    // SAFETY: the memory is of this device and size, and unused.
    unsafe { device.free_pinned(large, 8192, []) };

    let refused = |bytes| RuntimeError::HostOutOfMemory {
        device: device.id(),
        bytes,
    };
    fail_next(Call::MemHostAlloc, 2);
    assert_eq!(device.allocate_pinned(5000).unwrap_err(), refused(5000));
    let mut owned = [0_u8; 64];
    let address = std::ptr::NonNull::from(&mut owned).cast();
    fail_next(Call::MemHostRegister, 2);
    // SAFETY: the memory outlives the call, which registers nothing.
    let registered = unsafe { device.register_host(address, 64) };
    assert_eq!(registered.unwrap_err(), refused(64));
    memory.reclaim([stream.record().unwrap()]);
    drop((stream, device));
    rig.finish();
}

fn lost() -> CudaError {
    CudaError::new(
        ErrorCode::LAUNCH_FAILED,
        Call::LaunchKernel,
        Some(DeviceId(0)),
    )
}

#[test]
fn the_policy_says_which_devices_a_failure_takes_along() {
    for (policy, shared) in [(PoisonPolicy::Device, false), (PoisonPolicy::Runtime, true)] {
        let rig = Rig::with(SimDriver::builder().devices(3), |builder| {
            builder
                .poison_policy(policy)
                .devices([DeviceId(0), DeviceId(2)])
        });
        // Another runtime over the same driver is another program's business.
        let other = Runtime::builder()
            .driver(rig.runtime.driver().clone())
            .build()
            .unwrap();
        let [one, two] = [0, 1].map(|i| rig.runtime.devices()[i].clone());
        one.poison(lost());
        assert!(one.is_poisoned());
        assert_eq!(two.is_poisoned(), shared, "{policy:?}");
        if shared {
            let error = two.check().unwrap_err();
            assert!(
                matches!(error, RuntimeError::Poisoned { first, .. } if first == lost()),
                "{error}"
            );
        }
        assert!(other.devices().iter().all(|device| !device.is_poisoned()));
    }
}

/// A fault is reported by the call that asked for the work, and everything is known to be complete at once.
#[test]
fn each_operation_can_be_waited_for() {
    let rig = Rig::with(SimDriver::builder(), |builder| {
        builder.synchronize_after_each_operation(true)
    });
    let device = rig.device();
    let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
    let (memory, first) = device.allocate_on(64, &s).unwrap();
    assert!(first.unwrap().is_known_complete());
    let before = rig.sim.counters().snapshot();
    fill(&s, memory.address());
    let done = s.record().unwrap();
    assert!(done.is_known_complete());
    t.wait_for(&done).unwrap();
    fill(&t, memory.address());
    let made = rig.sim.counters().snapshot() - before;
    assert_eq!((made.of(Call::StreamSynchronize), made.total()), (2, 4));
    // Captures are not disturbed.
    let capture = Capture::begin(&s, cuda_driver::CaptureMode::ThreadLocal).unwrap();
    fill(&s, memory.address());
    drop(capture.end().unwrap());
    // The wait after the fill fails: so does the fill.
    rig.sim
        .faults()
        .fail_nth(Call::StreamSynchronize, 1, ErrorCode::ILLEGAL_ADDRESS);
    // SAFETY: nothing is queued.
    let error = unsafe { s.enqueue(|_, _| Ok(())) }.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::ILLEGAL_ADDRESS));
    let RuntimeError::Poisoned { origin, .. } = s.record().unwrap_err() else {
        panic!("the error is sticky");
    };
    assert_eq!(origin.file(), file!());
}

/// Who is told that an operation failed takes it for not queued: so it is over then, or the device is lost.
#[test]
fn an_operation_whose_wait_fails_is_over_all_the_same() {
    for lost in [false, true] {
        let rig = Rig::with(SimDriver::builder(), |builder| {
            builder.synchronize_after_each_operation(true)
        });
        let device = rig.device();
        let s = device.streams().acquire().unwrap();
        let name = raw(&s);
        let (memory, _) = device.allocate_on(64, &s).unwrap();
        let address = memory.address();
        let faults = rig.sim.faults();
        for n in 1..=1 + u64::from(lost) {
            faults.fail_nth(Call::StreamSynchronize, n, ErrorCode::NOT_PERMITTED);
        }
        // SAFETY: the simulated device checks range and order.
        let call = |driver: &dyn Driver, raw| unsafe {
            driver.fill_async(device.id(), address, Pattern::U8(1), 1, raw)
        };
        // SAFETY: the fill goes to the stream.
        let error = unsafe { s.enqueue(call) }.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::NOT_PERMITTED));
        assert_eq!(device.is_poisoned(), lost);
        if !lost {
            assert_eq!(rig.sim.stream_query(device.id(), name), Ok(true));
            memory.reclaim([]);
            drop((s, device));
            rig.finish();
        }
    }
}

/// A stream of the user's is forgotten when its last clone is gone: also by who is just waiting for all that a device does.
#[test]
fn an_adopted_stream_is_not_forgotten_under_a_wait_for_it() {
    let rig = Rig::new(1);
    let device = rig.device();
    let own = rig.sim.stream_create(device.id(), 0).unwrap();
    // SAFETY: the stream is of the device, and is destroyed at the end.
    let stream = unsafe { device.adopt_stream(own) }.unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    let done = stall(&rig.sim, &stream, &memory);
    let forgotten = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let runtime = rig.runtime.clone();
        scope.spawn(|| runtime.shutdown().unwrap());
        let pause = || std::thread::sleep(Duration::from_millis(10));
        pause();
        scope.spawn(|| {
            drop(stream);
            forgotten.store(true, Ordering::Release);
        });
        pause();
        assert!(!forgotten.load(Ordering::Acquire));
        rig.sim.release_stream(own);
        until(|| forgotten.load(Ordering::Acquire));
    });
    memory.reclaim([done]);
    drop(device);
    // SAFETY: Carve has forgotten it.
    unsafe {
        rig.sim
            .stream_destroy(rig.runtime.default_device().id(), own)
    }
    .unwrap();
    rig.finish();
}

#[test]
fn runtimes_side_by_side_share_nothing() {
    let sim = SimDriver::builder().build();
    let driver = sim.as_driver();
    let open = |streams| {
        let builder = Runtime::builder()
            .driver(driver.clone())
            .streams_per_device(streams);
        builder.build().unwrap()
    };
    let (one, two) = (open(1), open(2));
    let (a, b) = (one.default_device(), two.default_device());
    assert!(!a.same(b) && a.check_driver(b).is_ok());
    let s = a.streams().acquire().unwrap();
    assert_eq!(b.streams().counts().leased, 0);
    assert!(matches!(
        b.allocate_on(64, &s),
        Err(RuntimeError::WrongRuntime { .. })
    ));
    // Completions order across them: it is the same driver.
    let (memory, first) = a.allocate_on(64, &s).unwrap();
    let t = b.streams().acquire().unwrap();
    t.wait_for(&first.unwrap()).unwrap();
    touch(&t, &memory);
    memory.reclaim([t.record().unwrap()]);
    drop(s);
    one.shutdown().unwrap();
    t.record().unwrap().wait().unwrap();
    drop((t, two));
    sim.shutdown();
    sim.assert_no_reports();
}

/// Leased streams are drained, too; one that somebody captures as far as it can be.
#[test]
fn a_shutdown_waits_for_all_work_and_tells_what_is_alive() {
    let rig = Rig::new(3);
    let device = rig.device();
    let streams = device.streams().acquire_many(3).unwrap();
    let mut done = Vec::new();
    let mut kept = Vec::new();
    for stream in &streams {
        let (memory, _) = device.allocate_on(64, stream).unwrap();
        touch(stream, &memory);
        done.push(stream.record().unwrap());
        kept.push(memory);
    }
    let (begun, end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let capture =
                Capture::begin(&streams[2], cuda_driver::CaptureMode::ThreadLocal).unwrap();
            begun.wait();
            end.wait();
            drop(capture.end().unwrap());
        });
        begun.wait();
        let alive = rig.runtime.clone().shutdown().unwrap()[0].1;
        assert_eq!(
            (
                alive.allocations,
                alive.allocated_bytes,
                alive.leased_streams,
                alive.captures
            ),
            (3, 192, 3, 1)
        );
        assert!(done.iter().all(cuda_runtime::Completion::is_known_complete));
        end.wait();
    });
    for memory in kept {
        memory.reclaim([]);
    }
    drop((streams, done, device));
    rig.finish();
}

/// Raw handles are used again at once; identities never are.
#[test]
fn identities_are_not_used_again() {
    let sim = SimDriver::builder().build();
    let (mut names, mut streams) = (HashSet::new(), HashSet::new());
    for _ in 0..5 {
        let builder = Runtime::builder().driver(sim.as_driver());
        let runtime = builder.streams_per_device(2).build().unwrap();
        let device = runtime.default_device().clone();
        let leases = [(); 2].map(|()| device.streams().acquire().unwrap());
        for lease in &leases {
            names.insert(raw(lease));
            assert!(streams.insert(lease.id()), "{:?}", lease.id());
        }
        drop((leases, device));
        runtime.shutdown().unwrap();
    }
    assert!(names.len() < streams.len());
    sim.shutdown();
    sim.assert_no_reports();
}
