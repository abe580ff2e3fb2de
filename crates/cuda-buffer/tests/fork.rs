//! Buffers and `fork`. A test binary of its own: it forks.

#![cfg(unix)]

use cuda_buffer::CudaBuffer;
use cuda_driver::Memory;
use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// Memory of another library is the parent's to give back, as its own is.
#[test]
fn a_child_releases_no_adopted_memory() {
    let sim = SimDriver::builder().build();
    let runtime = Runtime::builder().driver(sim.as_driver()).build().unwrap();
    let device = runtime.default_device().clone();
    let stream = device.streams().acquire().unwrap();
    let address = sim.mem_alloc(device.id(), 64).unwrap();
    let released = Arc::new(AtomicUsize::new(0));
    let tell = released.clone();
    let release = move |_| {
        tell.fetch_add(1, Ordering::Relaxed);
    };
    // SAFETY: the memory is of that size, and nobody else uses it.
    let buffer = unsafe { CudaBuffer::<u8>::adopt(&stream, address, 64, None, release) }.unwrap();
    // SAFETY: the child drops a buffer, on the one thread that it has, and ends.
    let pid = unsafe { fork() };
    assert!(pid >= 0, "no child could be made");
    if pid == 0 {
        drop(buffer);
        // SAFETY: it ends the child and nothing else.
        unsafe { _exit(c_int::from(released.load(Ordering::Relaxed) != 0)) }
    }
    let mut status = 0;
    // SAFETY: the child is this process's own.
    let ended = unsafe { waitpid(pid, &raw mut status, 0) };
    assert_eq!((ended, status), (pid, 0));
    assert_eq!(released.load(Ordering::Relaxed), 0);
    drop(buffer);
    assert_eq!(released.load(Ordering::Relaxed), 1);
    // SAFETY: it was given back.
    unsafe { sim.mem_free(device.id(), address) }.unwrap();
    drop((stream, device));
    runtime.shutdown().unwrap();
    sim.shutdown();
    sim.assert_no_reports();
}
