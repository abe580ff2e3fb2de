//! Where the system gives no thread, adopted memory whose work goes on is kept, and the device says why.

use crate::kit::{N, Rig};
use cuda_buffer::{CudaBuffer, DeviceData};
use cuda_driver::Memory;
use cuda_runtime::RuntimeError;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// In a process in which no thread can be started, since none has room for such a stack.
#[test]
fn adopted_memory_stays_where_no_thread_can_wait_for_its_work() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["no_threads::child", "--exact", "--ignored", "--nocapture"]);
    let output = child.env("RUST_MIN_STACK", (1_u64 << 48).to_string());
    let output = output.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(out.contains("1 passed"), "{out}{err}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let (device, owner) = (rig.device(), Arc::new(AtomicBool::new(false)));
    let address = rig.sim.mem_alloc(device.id(), 4 * N).unwrap();
    let released = owner.clone();
    let release = move |_| released.store(true, Ordering::Relaxed);
    // SAFETY: nobody else uses the memory.
    let x = unsafe { CudaBuffer::<u32>::adopt(&s, address, N, None, release) };
    let mut x = x.unwrap();
    x.fill(&s, 1).unwrap();
    drop(x);
    let error = device.check().unwrap_err();
    let purpose = "releases adopted memory after its last use";
    assert!(
        matches!(&error, RuntimeError::NoThread { purpose: told, reason } if *told == purpose && reason.contains("os error")),
        "{error}"
    );
    s.synchronize().unwrap();
    assert!(!owner.load(Ordering::Relaxed));
    assert_eq!(
        Arc::strong_count(&owner),
        2,
        "what the release owns stays, too"
    );
    assert_eq!(device.alive().leaked_bytes, 4 * N);
    rig.sim.assert_no_reports();
}
