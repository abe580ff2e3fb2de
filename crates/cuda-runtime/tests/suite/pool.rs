//! Leases of streams: idle only, first come first served, replaced when they can't be handed on.

use crate::kit::{Rig, fill, raw, stall, touch, until};
use cuda_driver::{Call, CudaError, DeviceId, Driver, ErrorCode};
use cuda_runtime::{RuntimeError, Stream};
use cuda_sim::SimDriver;
use std::collections::HashSet;
use std::sync::mpsc;
use std::time::Duration;

/// Case 15 (pytorch/pytorch#173729): a pool never hands one native stream to two owners.
#[test]
fn case_15_live_leases_are_of_distinct_streams_and_one_more_is_refused() {
    let rig = Rig::new(3);
    let device = rig.device();
    let leases: Vec<Stream> = (0..3)
        .map(|_| device.streams().try_acquire().unwrap())
        .collect();
    let names: HashSet<_> = leases.iter().map(raw).collect();
    assert_eq!(names.len(), 3);
    let error = device.streams().try_acquire().unwrap_err();
    assert_eq!(
        error,
        RuntimeError::PoolEmpty {
            device: DeviceId(0),
            size: 3,
            leased: 3,
            pending: 0
        }
    );
    assert_eq!(device.streams().counts().leased, 3);
    drop(leases);
    assert_eq!(device.streams().counts().leased, 0);
    drop(device);
    rig.finish();
}

#[test]
fn clones_share_a_lease_and_a_forgotten_one_keeps_it() {
    let rig = Rig::new(2);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let clone = stream.clone();
    assert_eq!(stream, clone);
    drop(stream);
    assert_eq!(device.streams().counts().leased, 1);
    drop(clone);
    assert_eq!(device.streams().counts().leased, 0);

    let stream = device.streams().acquire().unwrap();
    std::mem::forget(stream.clone());
    drop(stream);
    assert_eq!(
        device.streams().counts().leased,
        1,
        "whoever has the clone may still use it"
    );
    let rest = device.streams().acquire().unwrap();
    assert!(device.streams().try_acquire().is_err());
    drop(rest);
    assert_eq!(rig.runtime.shutdown().unwrap()[0].1.leased_streams, 1);
}

#[test]
fn only_idle_streams_are_leased() {
    let rig = Rig::new(1);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    let name = raw(&stream);
    let done = stall(&rig.sim, &stream, &memory);
    drop(stream);
    let counts = device.streams().counts();
    assert_eq!((counts.idle, counts.leased, counts.pending), (0, 0, 1));
    let error = device.streams().try_acquire().unwrap_err();
    assert!(
        matches!(
            error,
            RuntimeError::PoolEmpty {
                pending: 1,
                leased: 0,
                ..
            }
        ),
        "{error}"
    );
    rig.sim.release_stream(name);
    rig.sim.run_all();
    let again = device.streams().try_acquire().unwrap();
    assert_eq!(raw(&again), name);
    assert!(done.is_known_complete(), "the pool has asked");
    memory.reclaim([done]);
    drop((again, device));
    rig.finish();
}

#[test]
fn acquire_waits_for_a_lease_to_end() {
    let rig = Rig::new(1);
    let device = rig.device();
    let lease = device.streams().acquire().unwrap();
    let waiter = std::thread::spawn({
        let device = device.clone();
        move || device.streams().acquire().unwrap().id()
    });
    std::thread::sleep(Duration::from_millis(30));
    assert!(!waiter.is_finished());
    let id = lease.id();
    drop(lease);
    assert_eq!(waiter.join().unwrap(), id);
    drop(device);
    rig.finish();
}

#[test]
fn acquire_waits_for_work_to_end() {
    let rig = Rig::new(1);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    let name = raw(&stream);
    let done = stall(&rig.sim, &stream, &memory);
    drop(stream);
    let waiter = std::thread::spawn({
        let device = device.clone();
        move || drop(device.streams().acquire().unwrap())
    });
    std::thread::sleep(Duration::from_millis(30));
    assert!(!waiter.is_finished());
    rig.sim.release_stream(name);
    waiter.join().unwrap();
    memory.reclaim([done]);
    drop(device);
    rig.finish();
}

#[test]
fn first_come_first_served() {
    let rig = Rig::new(1);
    let device = rig.device();
    let lease = device.streams().acquire().unwrap();
    let (served, order) = mpsc::channel();
    let waiters: Vec<_> = (0..5)
        .map(|number| {
            let (device, served) = (device.clone(), served.clone());
            let waiter = std::thread::spawn(move || {
                let lease = device.streams().acquire().unwrap();
                served.send(number).unwrap();
                std::thread::sleep(Duration::from_millis(5));
                drop(lease);
            });
            // Nobody can see who waits: give each time to queue up.
            std::thread::sleep(Duration::from_millis(30));
            waiter
        })
        .collect();
    let error = device.streams().try_acquire().unwrap_err();
    assert!(matches!(error, RuntimeError::PoolEmpty { .. }));
    drop(lease);
    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().unwrap());
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    drop(device);
    rig.finish();
}

/// A waiter is served by the first stream that is done, not by the one that was given back first.
#[test]
fn a_long_kernel_does_not_hold_up_who_waits_for_any_stream() {
    let rig = Rig::new(2);
    let device = rig.device();
    let [long, short] = [(); 2].map(|()| device.streams().acquire().unwrap());
    let (memory, _) = device.allocate_on(64, &long).unwrap();
    let (other, _) = device.allocate_on(64, &short).unwrap();
    let names = [raw(&long), raw(&short)];
    let done = [
        stall(&rig.sim, &long, &memory),
        stall(&rig.sim, &short, &other),
    ];
    drop(long);
    drop(short);
    let waiter = std::thread::spawn({
        let device = device.clone();
        move || raw(&device.streams().acquire().unwrap())
    });
    std::thread::sleep(Duration::from_millis(60));
    assert!(!waiter.is_finished());
    rig.sim.release_stream(names[1]);
    assert_eq!(waiter.join().unwrap(), names[1]);
    rig.sim.release_stream(names[0]);
    let [long, short] = done;
    memory.reclaim([long]);
    other.reclaim([short]);
    drop(device);
    rig.finish();
}

#[test]
fn dependent_work_stays_on_its_stream_without_a_wait() {
    let rig = Rig::new(2);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    let name = raw(&stream);
    let mut done = stall(&rig.sim, &stream, &memory);
    drop(stream);
    let before = device.order_counts();
    for _ in 0..5 {
        let next = device.streams().acquire_after(&done).unwrap();
        assert_eq!(
            raw(&next),
            name,
            "pending, and its tail is what the work depends on"
        );
        next.wait_for(&done).unwrap();
        touch(&next, &memory);
        done = next.record().unwrap();
    }
    let made = device.order_counts() - before;
    assert_eq!((made.waits_issued, made.elided_same_stream), (0, 5));

    // Somebody else's lease of that stream means another stream, and a wait.
    let taken = device.streams().try_acquire_after(&done).unwrap().unwrap();
    let next = device.streams().acquire_after(&done).unwrap();
    assert_ne!(raw(&next), name);
    assert_eq!((device.order_counts() - before).waits_issued, 1);
    rig.sim.release_stream(name);
    memory.reclaim([done]);
    drop((taken, next, device));
    rig.finish();
}

#[test]
fn an_older_completion_does_not_lease_a_stream_with_newer_work() {
    let rig = Rig::new(2);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, allocated) = device.allocate_on(64, &stream).unwrap();
    let name = raw(&stream);
    let done = stall(&rig.sim, &stream, &memory);
    drop(stream);
    let allocated = allocated.unwrap();
    assert!(
        device
            .streams()
            .try_acquire_after(&allocated)
            .unwrap()
            .is_none()
    );
    rig.sim.release_stream(name);
    memory.reclaim([done]);
    drop((allocated, device));
    rig.finish();
}

#[test]
fn several_streams_or_none() {
    let rig = Rig::new(3);
    let device = rig.device();
    let streams = device.streams();
    let error = streams.try_acquire_many(4).unwrap_err();
    assert_eq!(
        error,
        RuntimeError::PoolTooSmall {
            device: DeviceId(0),
            wanted: 4,
            size: 3
        }
    );
    let one = streams.acquire().unwrap();
    assert!(matches!(
        streams.try_acquire_many(3),
        Err(RuntimeError::PoolEmpty { .. })
    ));
    assert_eq!(streams.counts().leased, 1);
    let two = streams.try_acquire_many(2).unwrap();
    assert_eq!((two.len(), streams.counts().leased), (2, 3));
    assert!(streams.try_acquire_many(0).unwrap().is_empty());
    drop((one, two, device));
    rig.finish();
}

#[test]
fn a_stream_whose_record_failed_is_replaced() {
    let rig = Rig::new(1);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    let id = stream.id();
    touch(&stream, &memory);
    rig.sim
        .faults()
        .fail_nth(Call::EventRecord, 1, ErrorCode::OUT_OF_MEMORY);
    let done = stream.record().unwrap();
    // Whoever needs the event hears of it; the stream was synchronised instead, so the work is known to be done.
    let error = done.wait().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::OUT_OF_MEMORY));
    assert!(done.is_known_complete());
    done.wait().unwrap();
    drop((stream, done));
    let counts = device.streams().counts();
    assert_eq!((counts.idle, counts.replaced), (1, 1));
    assert_ne!(device.streams().acquire().unwrap().id(), id);
    memory.reclaim([]);
    drop(device);
    rig.finish();
}

/// A pool that has lost its only stream must not let people wait for ever.
#[test]
fn a_stream_that_could_not_be_replaced_is_made_later() {
    let rig = Rig::new(1);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    touch(&stream, &memory);
    rig.sim
        .faults()
        .fail_nth(Call::EventRecord, 1, ErrorCode::OUT_OF_MEMORY);
    stream.record().unwrap().wait().unwrap_err();
    rig.sim
        .faults()
        .fail_nth(Call::StreamCreate, 1, ErrorCode::OUT_OF_MEMORY);
    drop(stream);
    let counts = device.streams().counts();
    assert_eq!(
        (counts.idle, counts.leased, counts.pending, counts.replaced),
        (0, 0, 0, 1)
    );
    let error = device.streams().acquire().unwrap_err();
    assert_eq!(
        error.code(),
        Some(ErrorCode::OUT_OF_MEMORY),
        "what the destructor could not say"
    );
    drop(device.streams().acquire().unwrap());
    assert_eq!(device.streams().counts().idle, 1);
    memory.reclaim([]);
    drop(device);
    rig.finish();
}

#[test]
fn who_waits_for_a_stream_hears_that_the_device_is_lost() {
    let rig = Rig::new(1);
    let device = rig.device();
    let lease = device.streams().acquire().unwrap();
    let waiter = std::thread::spawn({
        let device = device.clone();
        move || device.streams().acquire().unwrap_err()
    });
    std::thread::sleep(Duration::from_millis(30));
    let lost = CudaError::new(
        ErrorCode::LAUNCH_FAILED,
        Call::LaunchKernel,
        Some(DeviceId(0)),
    );
    device.poison(lost);
    until(|| waiter.is_finished());
    let error = waiter.join().unwrap();
    assert!(
        matches!(error, RuntimeError::Poisoned { first, .. } if first == lost),
        "{error}"
    );
    drop(lease);
}

/// Streams that somebody else may use get an event wherever Carve would have known better.
#[test]
fn nothing_is_assumed_of_a_stream_whose_name_was_given_out() {
    let rig = Rig::new(2);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, first) = device.allocate_on(64, &stream).unwrap();
    assert_eq!(
        stream.record().unwrap().point(),
        first.unwrap().point(),
        "nothing new: shared"
    );
    // SAFETY: nothing is done with it.
    let _ = unsafe { stream.raw() };
    let known = stream.record().unwrap();
    assert_ne!(stream.record().unwrap().point(), known.point());
    touch(&stream, &memory);
    let last = stream.record().unwrap();
    drop(stream);
    assert!(
        device.streams().try_acquire_after(&last).unwrap().is_none(),
        "more may have been queued"
    );
    memory.reclaim([last]);
    drop((known, device));
    rig.finish();
}

#[test]
fn a_steady_state_makes_no_events_and_no_streams() {
    let rig = Rig::new(3);
    let device = rig.device();
    let (memory, mut done) = device.allocate(64).unwrap();
    let mut made = None;
    for round in 0..500 {
        let stream = device.streams().acquire().unwrap();
        if let Some(done) = &done {
            stream.wait_for(done).unwrap();
        }
        touch(&stream, &memory);
        done = Some(stream.record().unwrap());
        if round == 20 {
            made = Some((device.events_created(), rig.sim.counters().snapshot()));
        }
    }
    let (events, calls) = made.unwrap();
    // The notifier may hold the completion of each stream for a moment longer: that many events more, once.
    assert!(device.events_created() <= events.max(5) + 3);
    let calls = rig.sim.counters().snapshot() - calls;
    for call in [Call::EventDestroy, Call::StreamCreate, Call::StreamDestroy] {
        assert_eq!(calls.of(call), 0, "{call}");
    }
    memory.reclaim(done);
    drop(device);
    rig.finish();
}

/// Many threads lease, work and give back; the pool stays whole.
#[test]
fn a_pool_survives_a_crowd() {
    let rig = Rig::with(SimDriver::builder().seed(11), |builder| {
        builder.streams_per_device(2)
    });
    let device = rig.device();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let stream = device.streams().acquire().unwrap();
                let (memory, mut done) = device.allocate_on(64, &stream).unwrap();
                drop(stream);
                for _ in 0..60 {
                    let stream = match &done {
                        Some(done) => device.streams().acquire_after(done).unwrap(),
                        None => device.streams().acquire().unwrap(),
                    };
                    let other = stream.clone();
                    fill(&stream, memory.address());
                    done = Some(other.record().unwrap());
                    drop((other, stream));
                }
                memory.reclaim(done);
            });
        }
    });
    let counts = device.streams().counts();
    assert_eq!(
        (counts.idle + counts.pending, counts.leased, counts.replaced),
        (2, 0, 0)
    );
    drop(device);
    rig.finish();
}
