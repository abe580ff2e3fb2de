//! Where the system gives no thread, what needs one is an error that says which, and everything else goes on.

use crate::kit::{Rig, raw, stall};
use cuda_runtime::{Runtime, RuntimeError};
use cuda_sim::{Schedule, SimDriver};
use futures::FutureExt;
use std::process::Command;
use std::time::Duration;

/// In a process in which no thread can be started, since none has room for such a stack.
#[test]
fn what_needs_a_thread_is_refused_where_there_is_none() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["no_threads::child", "--exact", "--ignored", "--nocapture"]);
    let output = child.env("RUST_MIN_STACK", (1_u64 << 48).to_string());
    let output = output.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(out.contains("1 passed"), "{out}{err}");
}

#[track_caller]
fn no_thread<T>(result: Result<T, RuntimeError>, expected: &str) {
    let error = result.map(drop).unwrap_err();
    let RuntimeError::NoThread { purpose, reason } = &error else {
        panic!("{error}")
    };
    assert_eq!(*purpose, expected);
    assert!(reason.contains("os error"), "{reason}");
    let text = format!("a thread that {expected} could not be started: {reason}");
    assert_eq!(error.to_string(), text);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child() {
    let threaded = SimDriver::builder().schedule(Schedule::Threaded);
    let built = Runtime::builder().simulation(threaded).build();
    no_thread(built, "stands for the simulated device");

    let rig = Rig::with(SimDriver::builder().pools(false), |builder| {
        builder.streams_per_device(1)
    });
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (used, _) = device.allocate(64).unwrap();
    let work = stall(&rig.sim, &stream, &used);
    let wakes = "wakes who waits for work";
    no_thread((&work).into_future().now_or_never().unwrap(), wakes);
    no_thread(work.wait_within(Duration::from_millis(1)), wakes);

    used.reclaim([work.clone()]);
    no_thread(device.check(), "frees memory after its last use");
    assert_eq!(device.alive().leaked_bytes, 64);

    assert!(rig.sim.release_stream(raw(&stream)));
    work.wait().unwrap();
    assert!((&work).into_future().now_or_never().unwrap().is_ok());
    device.check().unwrap();
    assert_eq!(device.alive().leaked_bytes, 64);
}
