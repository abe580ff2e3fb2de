//! With the device running beside the host: waiting, being woken, and shutting down.

use crate::busy::{self, Busy};
use crate::kit::{Rig, raw, stall, touch};
use cuda_runtime::Completion;
use cuda_sim::{Schedule, SimBuilder, SimDriver};
use std::time::Duration;

fn beside() -> SimBuilder {
    SimDriver::builder().schedule(Schedule::Threaded)
}

#[test]
fn every_form_of_waiting_ends() {
    let rig = Rig::with(beside(), |builder| builder.streams_per_device(3));
    let device = rig.device();
    let streams = device.streams().acquire_many(3).unwrap();
    let (memory, first) = device.allocate_on(64, &streams[0]).unwrap();
    first.unwrap().wait().unwrap();
    for round in 0..20 {
        let held = &streams[round % 3];
        assert!(rig.sim.hold_stream(raw(held)));
        touch(held, &memory);
        let done = held.record().unwrap();
        assert!(!done.is_complete().unwrap());
        assert!(!done.wait_within(Duration::from_millis(1)).unwrap());
        let other = streams[(round + 1) % 3].record().unwrap();
        assert_eq!(Completion::wait_any([&done, &other]).unwrap(), 1);
        std::thread::scope(|scope| {
            let all = scope.spawn(|| Completion::wait_all([&done, &other]));
            let any = scope.spawn(|| Completion::wait_any([&done]));
            let awaited = scope.spawn(|| futures::executor::block_on(done.clone().into_future()));
            let within = scope.spawn(|| done.wait_within(Duration::from_secs(20)));
            std::thread::sleep(Duration::from_millis(1));
            rig.sim.release_stream(raw(held));
            all.join().unwrap().unwrap();
            assert_eq!(any.join().unwrap(), Ok(0));
            awaited.join().unwrap().unwrap();
            assert_eq!(within.join().unwrap(), Ok(true));
        });
        assert!(done.is_known_complete());
        // What comes next on another stream is ordered by the host's knowledge alone.
        streams[(round + 1) % 3].wait_for(&done).unwrap();
    }
    memory.reclaim([]);
    drop((streams, device));
    rig.finish();
}

#[test]
fn leases_pass_from_hand_to_hand() {
    let rig = Rig::with(beside(), |builder| builder.streams_per_device(2));
    let device = rig.device();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = &device;
            scope.spawn(move || {
                let (memory, mut done) = device.allocate(64).unwrap();
                for round in 0..40 {
                    let streams = device.streams();
                    let stream = match (round + thread) % 3 {
                        0 => streams.acquire().unwrap(),
                        1 => streams.acquire_after(done.as_ref().unwrap()).unwrap(),
                        _ => futures::executor::block_on(streams.acquire_async()).unwrap(),
                    };
                    stream.wait_for(done.as_ref().unwrap()).unwrap();
                    touch(&stream, &memory);
                    done = Some(stream.record().unwrap());
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

/// A shutdown returns once all work is over, whoever has the streams; without one the last handle waits.
#[test]
fn a_runtime_ends_while_its_device_works() {
    for explicit in [true, false] {
        let builder = busy::simulation().schedule(Schedule::Threaded);
        let rig = Rig::with(builder, |builder| builder.streams_per_device(2));
        let device = rig.device();
        let kernel = Busy::on(&device);
        let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
        for _ in 0..50 {
            kernel.micros(&s, 10);
            t.wait_for(&s.record().unwrap()).unwrap();
            kernel.micros(&t, 10);
        }
        let last = t.record().unwrap();
        drop(s);
        if explicit {
            let alive = rig.runtime.clone().shutdown().unwrap()[0].1;
            assert_eq!(alive.leased_streams, 1);
            assert!(last.is_known_complete());
        }
        drop((kernel, t, last, device));
        rig.finish();
    }
}

/// Frees of memory that is in use, by every way that there is.
#[test]
fn frees_wait_for_a_device_that_works() {
    for pools in [true, false] {
        let rig = Rig::with(beside().pools(pools), |builder| {
            builder.streams_per_device(3)
        });
        let device = rig.device();
        let streams = device.streams().acquire_many(3).unwrap();
        for round in 0..30 {
            let (one, two) = (&streams[round % 3], &streams[(round + 1) % 3]);
            let (memory, _) = device.allocate_on(64, one).unwrap();
            let name = raw(one);
            let done = stall(&rig.sim, one, &memory);
            match round % 2 {
                0 => memory.reclaim([done]),
                _ => {
                    two.wait_for(&done).unwrap();
                    touch(two, &memory);
                    memory.reclaim([two.record().unwrap(), one.record().unwrap()]);
                }
            }
            rig.sim.release_stream(name);
        }
        device.drain_frees().unwrap();
        assert_eq!(device.alive().leaked_bytes, 0);
        drop((streams, device));
        rig.finish();
    }
}
