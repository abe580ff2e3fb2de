//! Buffers and `fork` (case 26, pytorch/pytorch#17357). A test binary of its own: it forks.

#![cfg(unix)]

use cuda_buffer::{
    BufferError, BufferResult, CaptureStep, CudaBuffer, DeviceArena, DeviceData, DeviceSlab,
    DeviceSpace, PinnedBuffer, PinnedPool, SharedCudaBuffer,
};
use cuda_driver::{Driver, Memory};
use cuda_runtime::{Runtime, RuntimeError};
use cuda_sim::SimDriver;
use space_core::{Space, Undef};
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

#[track_caller]
fn refused<T>(result: BufferResult<T>) {
    let error = result.map(drop).unwrap_err();
    let forked = matches!(
        error,
        BufferError::Runtime(RuntimeError::Forked { created_pid, current_pid })
            if current_pid == std::process::id() && created_pid != current_pid
    );
    assert!(forked, "{error}");
}

/// Case 26: a child uses nothing of its parent's buffers, and what it drops of them stays the parent's.
#[test]
fn case_26_buffers_of_a_forked_child_are_refused_and_dropped_without_a_call() {
    let sim = SimDriver::builder().build();
    let runtime = Runtime::builder().driver(sim.as_driver()).build().unwrap();
    let device = runtime.default_device().clone();
    let [s, t] = [0, 1].map(|_| device.streams().acquire().unwrap());
    let x = CudaBuffer::<u8>::from_slice(&device, &[7; 64]).unwrap();
    let mut y = CudaBuffer::<u8>::new_on(&s, 64).unwrap();
    y.fill(&s, 1).unwrap();
    let graph = s.capture(|_| y.copy_from(&x, &s)).unwrap();
    let mut pinned = PinnedBuffer::<u8>::new(&device, 64).unwrap();
    x.copy_to_pinned(&mut pinned, &s).unwrap();
    let pool = PinnedPool::new(&device);
    drop(pool.buffer::<u8>(64).unwrap());
    let mut arena = DeviceArena::over(DeviceSlab::new(&device, 1024).unwrap()).unwrap();
    let mut left = arena.frame().alloc(Undef::<u8, _>::new([8])).unwrap();
    left.fill(&t, 3).unwrap();
    drop(left);
    let shared = SharedCudaBuffer::from(CudaBuffer::<u8>::new_on(&t, 64).unwrap());
    let access = shared.read().synchronized_with(&t).unwrap();
    let before = sim.counters().snapshot();
    let all = ManuallyDrop::new((x, y, graph, pinned, pool, arena));
    // SAFETY: the child runs what follows on the one thread that it has, and ends.
    let pid = unsafe { fork() };
    assert!(pid >= 0, "no child could be made");
    if pid == 0 {
        let failed = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the child's copy: the parent's is in another process, and the child ends without dropping it again.
            let (mut x, y, graph, mut pinned, pool, mut arena) = unsafe { std::ptr::read(&*all) };
            refused(CudaBuffer::<u8>::new(&device, 64));
            refused(CudaBuffer::<u8>::new_on(&s, 64));
            refused(PinnedBuffer::<u8>::new(&device, 64));
            refused(pool.buffer::<u8>(64));
            refused(x.fill(&s, 1));
            refused(x.copy_from(&y, &s));
            refused(x.copy_from_slice(&[1; 64]));
            refused(y.to_vec());
            refused(x.copy_to_pinned(&mut pinned, &s));
            refused(pinned.host_read().map(drop));
            refused(pinned.host_write().map(drop));
            refused(x.read_synchronized_with(&s).map(drop));
            refused(x.blocking_write_access().map(drop));
            refused(x.synchronize());
            refused(shared.write().synchronized_with(&t).map(drop));
            refused(graph.launch(&s));
            refused(s.capture(|_| Ok::<_, BufferError>(())).map(drop));
            assert!(DeviceSpace::of(&device).typed::<u8, _>([8]).is_err());
            {
                let mut frame = arena.frame();
                if let Ok(mut carve) = frame.alloc(Undef::<u8, _>::new([8])) {
                    refused(carve.fill(&s, 1));
                }
                let _ = frame.scratch(|frame| frame.alloc(Undef::<u8, _>::new([8])).map(drop));
            }
            drop((x, y, graph, pinned, pool, arena, access));
            let made = sim.counters().snapshot() - before;
            assert_eq!(made.total(), 0, "no call reaches the driver");
        }))
        .is_err();
        // SAFETY: it ends the child and nothing else.
        unsafe { _exit(c_int::from(failed)) }
    }
    let mut status = 0;
    // SAFETY: the child is this process's own.
    let ended = unsafe { waitpid(pid, &raw mut status, 0) };
    assert_eq!((ended, status), (pid, 0), "the child failed");
    let (mut x, y, graph, mut pinned, pool, mut arena) = ManuallyDrop::into_inner(all);
    // The parent goes on.
    graph.launch(&t).unwrap();
    assert_eq!(y.to_vec().unwrap(), [7; 64]);
    pinned.host_write().unwrap().fill(9);
    x.copy_from_pinned(&pinned, &s).unwrap();
    assert_eq!(x.to_vec().unwrap(), [9; 64]);
    arena.reset().unwrap();
    drop(access);
    drop((x, y, graph, pinned, pool, arena, shared, s, t, device));
    for (_, alive) in runtime.shutdown().unwrap() {
        assert_eq!(alive, cuda_runtime::Alive::default());
    }
    sim.shutdown();
    sim.assert_no_reports();
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
