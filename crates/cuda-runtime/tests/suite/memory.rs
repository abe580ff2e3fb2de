//! Allocation, reclamation, and what failures leave.

use crate::kit::{Rig, raw, stall, touch, until};
use cuda_driver::{Call, DeviceId, Driver, ErrorCode};
use cuda_runtime::{Runtime, RuntimeError};
use cuda_sim::SimDriver;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn memory_that_is_about_to_be_free_is_waited_for() {
    let rig = Rig::with(SimDriver::builder().memory_bytes(1 << 20), |builder| {
        builder
    });
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    for _ in 0..4 {
        let (memory, _) = device.allocate_on(700 << 10, &stream).unwrap();
        touch(&stream, &memory);
        memory.reclaim([stream.record().unwrap()]);
    }
    let error = device.allocate(2 << 20).unwrap_err();
    assert!(
        matches!(
            error,
            RuntimeError::OutOfMemory {
                wanted_bytes: 0x20_0000,
                total_bytes: 0x10_0000,
                ..
            }
        ),
        "{error}"
    );
    drop((stream, device));
    rig.finish();
}

/// Also one that waits for several streams, and so is on none of them.
#[test]
fn frees_are_waited_for_wherever_they_are_queued() {
    let rig = Rig::new(2);
    let device = rig.device();
    let streams = device.streams().acquire_many(2).unwrap();
    let (memory, first) = device.allocate(64).unwrap();
    let done = streams.iter().map(|stream| {
        stream.wait_for(first.as_ref().unwrap()).unwrap();
        let (used, _) = device.allocate_on(64, stream).unwrap();
        (stall(&rig.sim, stream, &used), used)
    });
    let (done, used): (Vec<_>, Vec<_>) = done.unzip();
    memory.reclaim(done.clone());
    let drained = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            device.drain_frees().unwrap();
            drained.store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(10));
        assert!(!drained.load(Ordering::Acquire), "the free is not done");
        for stream in &streams {
            rig.sim.release_stream(raw(stream));
        }
    });
    for (used, done) in used.into_iter().zip(done) {
        used.reclaim([done]);
    }
    drop((streams, first, device));
    rig.finish();
}

/// Memory that was allocated goes back when what comes after fails.
#[test]
fn an_allocation_whose_completion_fails_leaves_nothing() {
    for (exposed, call) in [
        (true, Call::EventRecord),
        (true, Call::EventCreate),
        (false, Call::StreamSynchronize),
    ] {
        let rig = Rig::with(SimDriver::builder(), |builder| {
            builder.synchronize_after_each_operation(!exposed)
        });
        let device = rig.device();
        let stream = device.streams().acquire().unwrap();
        if exposed {
            // SAFETY: nothing is done with it.
            let _ = unsafe { stream.raw() };
        }
        rig.sim.faults().fail_nth(call, 1, ErrorCode::NOT_PERMITTED);
        let error = device.allocate_on(64, &stream).map(drop).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::NOT_PERMITTED), "{call}");
        device.drain_frees().unwrap();
        assert_eq!(device.pool_usage().unwrap().unwrap().used_bytes, 0);
        assert_eq!(device.alive().leaked_bytes, 0);
        drop((stream, device));
        rig.finish();
    }
}

#[test]
fn no_thread_waits_for_a_free() {
    for pools in [true, false] {
        let rig = Rig::with(SimDriver::builder().pools(pools), |builder| builder);
        let device = rig.device();
        let stream = device.streams().acquire().unwrap();
        let (memory, _) = device.allocate_on(64, &stream).unwrap();
        stream.synchronize().unwrap();
        let done = stall(&rig.sim, &stream, &memory);
        memory.reclaim([done]); // returns, though the work can't end
        assert_eq!(device.alive().allocated_bytes, 0);
        let pinned = device.allocate_pinned(64).unwrap();
        touch_host(&stream, pinned);
        // SAFETY: the memory is of this device and size, and the copy is the only use.
        unsafe { device.free_pinned(pinned, 64, [stream.record().unwrap()]) };
        rig.sim.release_stream(raw(&stream));
        device.drain_frees().unwrap();
        drop((stream, device));
        rig.finish();
    }
}

/// Queues a copy that reads page-locked memory.
fn touch_host(stream: &cuda_runtime::Stream, from: std::ptr::NonNull<u8>) {
    let device = stream.device();
    let (memory, _) = device.allocate_on(64, stream).unwrap();
    // SAFETY: the memory has as many bytes, and is initialised here.
    unsafe { from.as_ptr().write_bytes(1, 64) };
    // SAFETY: both sides have as many bytes, and the test keeps the source until the copy is over.
    let call = |driver: &dyn Driver, raw| unsafe {
        driver.copy_to_device_async(device.id(), memory.address(), from.as_ptr(), 64, raw)
    };
    // SAFETY: the copy goes to the stream.
    unsafe { stream.enqueue(call) }.unwrap();
    memory.reclaim([stream.record().unwrap()]);
}

#[test]
fn memory_that_is_merely_dropped_is_leaked_and_counted() {
    let rig = Rig::new(1);
    let device = rig.device();
    drop(device.allocate(96).unwrap());
    let alive = device.alive();
    assert_eq!(
        (alive.allocations, alive.allocated_bytes, alive.leaked_bytes),
        (0, 0, 96)
    );
}

/// An error that a destructor could not return waits for the next call that can; meanwhile other destructors work.
#[test]
fn a_parked_error_costs_nobody_anything() {
    let rig = Rig::new(3);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    let other = device.streams().acquire().unwrap();
    let (shared, other_first) = device.allocate_on(64, &other).unwrap();
    let another = device.streams().acquire().unwrap();
    let nothing = |_: &dyn Driver, _| Ok(());
    // SAFETY: nothing is queued.
    unsafe { another.enqueue(nothing) }.unwrap();
    touch(&stream, &memory);
    let parked = RuntimeError::NoThread {
        purpose: "does nothing",
        reason: "a test".into(),
    };
    device.park(parked.clone());
    // None of these begins anything: the error stays where it is, and nothing is waited for, replaced or leaked.
    let done = stream.record().unwrap();
    other.wait_for(&done).unwrap();
    stream.synchronize().unwrap();
    let before = rig.sim.counters().snapshot();
    shared.reclaim([other_first.unwrap(), another.record().unwrap()]);
    memory.reclaim([another.record().unwrap(), done]);
    let made = rig.sim.counters().snapshot() - before;
    assert_eq!(made.of(Call::MemFreeAsync), 2);
    drop((other, another));
    drop(stream);
    assert_eq!(device.alive().leaked_bytes, 0);
    assert_eq!(device.streams().counts().replaced, 0);
    assert_eq!(device.streams().acquire().unwrap_err(), parked);
    drop(device.streams().acquire().unwrap());
    drop(device);
    rig.finish();
}

/// Case 27 (NVIDIA/cuCascade#189): events are of the stream's own device, and waits cross devices.
#[test]
fn case_27_events_belong_to_the_device_of_their_stream_and_waits_cross_devices() {
    let rig = Rig::with(SimDriver::builder().devices(2), |builder| {
        builder.streams_per_device(2)
    });
    let [a, b] = [0, 1].map(|i| rig.runtime.devices()[i].clone());
    let (s, t) = (
        a.streams().acquire().unwrap(),
        b.streams().acquire().unwrap(),
    );
    let (memory, _) = a.allocate_on(64, &s).unwrap();
    let (other, _) = b.allocate_on(64, &t).unwrap();
    for _ in 0..8 {
        touch(&s, &memory);
        t.wait_for(&s.record().unwrap()).unwrap();
        touch(&t, &other);
        s.wait_for(&t.record().unwrap()).unwrap();
    }
    assert_eq!(
        (s.record().unwrap().device(), t.record().unwrap().device()),
        (DeviceId(0), DeviceId(1))
    );
    // Refused before the driver hears of it.
    let calls = b.call_counts().total();
    let refused = b.allocate_on(64, &s).map(drop);
    assert!(
        matches!(refused, Err(RuntimeError::WrongDevice { .. })),
        "{refused:?}"
    );
    assert_eq!(b.call_counts().total(), calls);
    // Across devices the free is ordered by the same means: memory of one is used on a stream of the other.
    memory.reclaim([t.record().unwrap(), s.record().unwrap()]);
    other.reclaim([t.record().unwrap()]);
    drop((s, t, a, b));
    rig.finish();
}

/// Events of one driver mean nothing to another.
#[test]
fn a_completion_of_another_driver_is_refused() {
    let (one, two) = (Rig::new(1), Rig::new(1));
    let (s, t) = (
        one.device().streams().acquire().unwrap(),
        two.device().streams().acquire().unwrap(),
    );
    let done = s.record().unwrap();
    assert!(matches!(
        t.wait_for(&done),
        Err(RuntimeError::WrongDriver { .. })
    ));
    drop((done, s, t));
    one.finish();
    two.finish();
}

#[test]
fn a_runtime_that_can_not_be_built_leaves_nothing() {
    let counts = {
        let sim = SimDriver::builder().build();
        let builder = Runtime::builder()
            .driver(sim.as_driver())
            .prime_pool_bytes(4096);
        drop(builder.build().unwrap());
        sim.counters().snapshot()
    };
    for (call, count) in counts
        .iter()
        .filter(|(call, _)| !call.name().contains("Destroy"))
    {
        for n in 1..=count {
            let sim = SimDriver::builder().build();
            sim.faults().fail_nth(call, n, ErrorCode::OUT_OF_MEMORY);
            let builder = Runtime::builder()
                .driver(sim.as_driver())
                .prime_pool_bytes(4096);
            let built = builder.build();
            if call == Call::StreamSynchronize || call == Call::MemFreeAsync {
                continue; // Made when the runtime goes, or of memory that nobody else can free.
            }
            let error = built.unwrap_err();
            match call {
                Call::MemAllocFromPoolAsync => assert!(
                    matches!(
                        error,
                        RuntimeError::OutOfMemory {
                            wanted_bytes: 4096,
                            ..
                        }
                    ),
                    "{error:?}"
                ),
                _ => assert_eq!(error.code(), Some(ErrorCode::OUT_OF_MEMORY), "{call} {n}"),
            }
            sim.shutdown();
            sim.assert_no_reports();
        }
    }
}

#[test]
fn objects_keep_their_device_alive_and_the_last_one_ends_it() {
    let sim = SimDriver::builder().build();
    let runtime = Runtime::builder().driver(sim.as_driver()).build().unwrap();
    let stream = runtime.default_device().streams().acquire().unwrap();
    let (memory, _) = runtime.default_device().allocate_on(64, &stream).unwrap();
    let alive = runtime.shutdown().unwrap()[0].1;
    assert_eq!(
        (
            alive.allocations,
            alive.allocated_bytes,
            alive.leased_streams
        ),
        (1, 64, 1)
    );
    touch(&stream, &memory);
    let done = stream.record().unwrap();
    drop(stream);
    memory.reclaim([done.clone()]);
    drop(done); // the last event outlives the device it came from
    until(|| sim.leak_report().is_empty());
    sim.shutdown();
    sim.assert_no_reports();
}

/// Streams keep handles of the device at hand for the memory that is made and freed there; those of a lease go with it, in whatever
/// order leases, memory and the device's own handles go.
#[test]
fn a_stream_with_handles_at_hand_does_not_keep_its_device() {
    for order in 0..6 {
        let sim = SimDriver::builder().build();
        let driver = sim.as_driver();
        let runtime = Runtime::builder().driver(driver).streams_per_device(1);
        let runtime = runtime.build().unwrap();
        let device = runtime.default_device().clone();
        // Two leases of the same stream: what is left of the first is none of the second's business.
        let first = device.streams().acquire().unwrap();
        let mut early: Vec<_> = (0..100)
            .map(|_| device.allocate_on(64, &first).unwrap())
            .collect();
        let (memory, used) = early.pop().unwrap();
        memory.reclaim(used);
        drop(first);
        let second = device.streams().acquire().unwrap();
        let (late, late_used) = device.allocate_on(64, &second).unwrap();
        let (memory, used) = early.pop().unwrap();
        memory.reclaim(used);
        assert_eq!(device.alive().allocations, 99);
        let early = move || {
            let early = early.into_iter();
            early.for_each(|(memory, used)| memory.reclaim(used));
        };
        let late = move || late.reclaim(late_used);
        let lease = move || drop(second);
        drop((runtime, device));
        match order {
            0 => (early(), late(), lease()),
            1 => (early(), lease(), late()),
            2 => (late(), early(), lease()),
            3 => (late(), lease(), early()),
            4 => (lease(), early(), late()),
            _ => (lease(), late(), early()),
        };
        assert!(sim.leak_report().is_empty(), "order {order}");
        sim.shutdown();
        sim.assert_no_reports();
    }
}

/// Out of memory, a device waits for its frees, gives its spare memory back and asks once more.
#[test]
fn running_out_of_memory_is_tried_twice() {
    let out = ErrorCode::OUT_OF_MEMORY;
    let rig = Rig::new(1);
    let device = rig.device();
    let faults = rig.sim.faults();
    faults.fail_nth(Call::MemAllocFromPoolAsync, 1, out);
    let before = rig.sim.counters().snapshot();
    let (memory, allocated) = device.allocate(64).unwrap();
    let made = rig.sim.counters().snapshot() - before;
    assert_eq!(
        (
            made.of(Call::MemAllocFromPoolAsync),
            made.of(Call::MemPoolTrimTo)
        ),
        (2, 1)
    );
    memory.reclaim(allocated);

    faults.fail_nth(Call::MemAllocFromPoolAsync, 1, out);
    faults.fail_nth(Call::MemAllocFromPoolAsync, 2, out);
    let error = device.allocate(64).unwrap_err();
    assert!(
        matches!(
            error,
            RuntimeError::OutOfMemory {
                wanted_bytes: 64,
                ..
            }
        ),
        "{error}"
    );
    for call in [
        Call::MemPoolTrimTo,
        Call::MemGetInfo,
        Call::StreamSynchronize,
    ] {
        faults.fail_nth(Call::MemAllocFromPoolAsync, 1, out);
        faults.fail_nth(Call::MemAllocFromPoolAsync, 2, out);
        faults.fail_nth(call, 1, ErrorCode::NOT_PERMITTED);
        let error = device.allocate(64).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::NOT_PERMITTED), "{call}");
        faults.clear();
        let (memory, allocated) = device.allocate(64).unwrap();
        memory.reclaim(allocated);
    }
    drop(device);
    rig.finish();
}
