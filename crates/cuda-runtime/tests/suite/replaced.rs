//! Streams that were replaced, and what they still have to do.

use crate::kit::{Rig, raw};
use cuda_driver::{Call, Driver, ErrorCode};
use cuda_runtime::Stream;
use cuda_sim::SimDriver;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A stream that is replaced goes when its work is over, and the device not before.
#[test]
fn the_work_of_a_replaced_stream_is_waited_for() {
    let rig = Rig::new(1);
    let device = rig.device();
    let s = device.streams().acquire().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let call = |s: &Stream| {
        let ran = ran.clone();
        let function = Arc::new(move || {
            ran.fetch_add(1, Ordering::Release);
        });
        let queue =
            |driver: &dyn Driver, raw| driver.launch_host_function(device.id(), raw, function);
        // SAFETY: it touches no memory of the device.
        unsafe { s.enqueue(queue) }.unwrap();
    };
    call(&s);
    rig.sim
        .faults()
        .fail_nth(Call::EventRecord, 1, ErrorCode::LAUNCH_OUT_OF_RESOURCES);
    s.record().unwrap().wait().unwrap_err();
    let name = raw(&s);
    assert!(rig.sim.hold_stream(name));
    call(&s);
    drop(s);
    assert_eq!(device.streams().counts().replaced, 1);
    let destroyed = |sim: &SimDriver| sim.counters().snapshot().of(Call::StreamDestroy);
    assert_eq!((destroyed(&rig.sim), ran.load(Ordering::Acquire)), (0, 1));
    let Rig { runtime, sim } = rig;
    let (ended, end) = mpsc::channel();
    let last = std::thread::spawn(move || {
        runtime.shutdown().unwrap();
        drop(device);
        ended.send(()).unwrap();
    });
    let early = end.recv_timeout(Duration::from_millis(20));
    assert!(early.is_err(), "the device is gone before the work");
    sim.release_stream(name);
    last.join().unwrap();
    assert_eq!(ran.load(Ordering::Acquire), 2);
    sim.shutdown();
    sim.assert_no_reports();
}

/// The end of a lease may unwind, or the making of the stream in its place: then it is replaced, and nobody waits for it.
#[test]
fn a_stream_whose_lease_ends_in_a_panic_is_replaced() {
    for calls in [
        &[Call::EventRecord][..],
        &[Call::EventCreate],
        &[Call::StreamCreate],
    ] {
        let rig = Rig::new(1);
        let device = rig.device();
        let s = device.streams().acquire().unwrap();
        // SAFETY: nothing is done with the handle.
        let _ = unsafe { s.raw() };
        // SAFETY: nothing is queued.
        unsafe { s.enqueue(|_, _| Ok(())) }.unwrap();
        let faults = rig.sim.faults();
        if calls == [Call::StreamCreate] {
            // So that it has to be replaced.
            faults.fail_nth(Call::EventRecord, 1, ErrorCode::LAUNCH_OUT_OF_RESOURCES);
        }
        calls.iter().for_each(|&call| faults.unwind_nth(call, 1));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(s)));
        assert!(ended.unwrap_err().is::<cuda_sim::Unwound>());
        faults.clear();
        let _ = device.check();
        drop(device.streams().try_acquire().expect("one is free"));
        assert_eq!(device.streams().counts().replaced, 1);
        drop(device);
        rig.finish();
    }
}
