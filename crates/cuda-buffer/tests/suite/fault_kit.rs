//! What the sweeps of faults share.

use cuda_driver::{Call, ErrorCode};
use cuda_runtime::{Device, RuntimeError};
use cuda_sim::{Finding, LeakedObject, SimDriver};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub(crate) const CODE: ErrorCode = ErrorCode::LAUNCH_OUT_OF_RESOURCES;

/// Runs `body` on a thread of its own, and panics when it takes too long.
pub(crate) fn in_time(what: &str, body: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        _ => {
            if let Err(panic) = thread.join() {
                eprintln!("in {what}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Bytes of memory, and kinds of other objects, that the simulation still holds.
pub(crate) fn leaks(sim: &SimDriver) -> (u64, Vec<LeakedObject>) {
    let (mut lost, mut objects) = (0, Vec::new());
    for report in sim.leak_report() {
        match report.finding {
            Finding::Leak {
                bytes: Some(bytes), ..
            } => lost += bytes,
            Finding::Leak { object, .. } => objects.push(object),
            _ => {}
        }
    }
    (lost, objects)
}

/// Objects that a failed call of this name leaves behind: nobody can say whether they are gone.
pub(crate) fn may_leave(call: Call, object: LeakedObject) -> bool {
    matches!(
        (call, object),
        (Call::StreamDestroy, LeakedObject::Stream { .. })
            | (Call::EventDestroy, LeakedObject::Event { .. })
            | (Call::GraphDestroy, LeakedObject::Graph { .. })
            | (Call::GraphExecDestroy, LeakedObject::GraphExec { .. })
            | (Call::ModuleUnload, LeakedObject::Module { .. })
            | (Call::MemPoolDestroy, LeakedObject::Pool { .. })
    )
}

/// What a thread of the runtime met; `surely`, when it did meet something: then it is waited for, as it may not have told yet.
pub(crate) fn parked(device: &Device, surely: bool) -> Result<(), RuntimeError> {
    let begun = Instant::now();
    loop {
        let told = device.check();
        if told.is_err() || !surely || begun.elapsed() > Duration::from_secs(10) {
            return told;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}
