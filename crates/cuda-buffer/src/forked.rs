//! A child process, made while a thread of the parent may hold any lock: it takes none, and is told.

use crate::domain::{Domain, Memory, OwnedDomain, Whole};
use crate::{
    BufferError, BufferResult, CudaBuffer, DeviceArena, DeviceData, DeviceSlab,
    PartitionedCudaBuffer, PinnedBuffer, PinnedPool, PinnedPoolCounts,
};
use cuda_runtime::{Device, Runtime, RuntimeError, Stream};
use space_core::{Space, Undef};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn alarm(seconds: std::ffi::c_uint) -> std::ffi::c_uint;
    fn _exit(status: c_int) -> !;
}

/// Runs `body` in a child of this process. It has to end, and not to panic. What it owns, this process keeps for ever.
#[track_caller]
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child runs `body` on the one thread that it has, and ends.
    let pid = unsafe { fork() };
    assert!(pid >= 0, "no child could be made");
    if pid == 0 {
        // SAFETY: it ends a child that waits for a lock.
        unsafe { alarm(10) };
        let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
        // SAFETY: it ends the child and nothing else.
        unsafe { _exit(c_int::from(failed)) }
    }
    std::mem::forget(body);
    let mut status = 0;
    // SAFETY: the child is this process's own.
    let ended = unsafe { waitpid(pid, &raw mut status, 0) };
    assert_eq!((ended, status), (pid, 0));
}

fn rig() -> (Runtime, Device, Stream) {
    let runtime = Runtime::builder().build().unwrap();
    let device = runtime.default_device().clone();
    let stream = device.streams().acquire().unwrap();
    (runtime, device, stream)
}

fn told<T>(result: BufferResult<T>) {
    let error = result.err().expect("refused");
    assert!(
        matches!(error, BufferError::Runtime(RuntimeError::Forked { .. })),
        "{error}"
    );
}

fn owned(domain: &Domain) -> &OwnedDomain {
    match domain {
        Domain::Owned(owned) => owned,
        Domain::Carve(_) => unreachable!("it has memory of its own"),
    }
}

/// The whole that the parts share.
fn whole(part: &CudaBuffer<u32>) -> Arc<Whole> {
    match &owned(part.domain()).memory {
        Memory::Part { whole, .. } => whole.clone(),
        memory => unreachable!("it is a part: {memory:?}"),
    }
}

#[test]
fn accesses_of_the_host_end_without_a_lock() {
    let (_runtime, device, _stream) = rig();
    let pinned = PinnedBuffer::<u32>::new(&device, 4).unwrap();
    let mut other = PinnedBuffer::<u32>::new(&device, 4).unwrap();
    let buffer = CudaBuffer::<u32>::from_slice(&device, &[1; 4]).unwrap();
    let (read, write) = (pinned.host_read().unwrap(), other.host_write().unwrap());
    let blocking = buffer.blocking_read_access().unwrap();
    let locked = [pinned.domain(), buffer.domain()].map(|domain| owned(domain).ledger.lock());
    let (pinned, buffer) = (&pinned, &buffer);
    in_child(move || {
        drop((read, write, blocking));
        told(pinned.host_read());
        told(buffer.blocking_read_access());
    });
    drop(locked);
}

#[test]
fn values_and_guards_end_without_a_lock() {
    let (_runtime, device, stream) = rig();
    let buffer = CudaBuffer::<u32>::from_slice(&device, &[1; 4]).unwrap();
    let pinned = PinnedBuffer::<u32>::new(&device, 4).unwrap();
    let uncut = CudaBuffer::<u32>::from_slice(&device, &[1; 8]).unwrap();
    let parts = PartitionedCudaBuffer::new(uncut, &[0..4, 4..8]).map_err(|refused| refused.error);
    let parts = parts.unwrap().into_parts();
    let (shared, pool) = (whole(&parts[0]), PinnedPool::new(&device));
    let read = buffer.read_synchronized_with(&stream).unwrap();
    let (retiring, pooling) = (shared.retired.lock(), pool.0.state.lock());
    let locked = [pinned.domain(), buffer.domain()].map(|domain| owned(domain).ledger.lock());
    let handle = PinnedBuffer::<u32>::from_domain(pinned.domain().clone(), 4);
    let pool = &pool;
    in_child(move || {
        read.release().unwrap_err();
        told(handle.into_vec().map_err(|refused| refused.error));
        drop(parts);
        told(pool.buffer::<u32>(4));
        pool.trim();
        assert_eq!(pool.counts(), PinnedPoolCounts::default());
    });
    drop((locked, retiring, pooling));
}

/// The ledger is at home on a stream that another thread of the parent has at that moment.
#[test]
fn ledgers_at_home_are_left_there() {
    let (_runtime, device, stream) = rig();
    let other = device.streams().acquire().unwrap();
    let new = || {
        let mut buffer = CudaBuffer::<u32>::new_on(&stream, 4).unwrap();
        while !owned(buffer.domain()).ledger.is_home_of(stream.id()) {
            buffer.fill(&stream, 1).unwrap();
        }
        buffer
    };
    let [buffer, mut written, whole] = [(); 3].map(|()| new());
    let read = buffer.read_synchronized_with(&stream).unwrap();
    let write = written.write_synchronized_with(&stream).unwrap();
    let locked = stream.standing().unwrap();
    let (kept, other) = (&buffer, &other);
    in_child(move || {
        drop((read, write));
        assert!(kept.last_write().is_none());
        told(kept.synchronize());
        told(kept.to_vec());
        told(kept.blocking_read_access());
        told(kept.read_synchronized_with(other));
        told(PartitionedCudaBuffer::new(whole, &[0..2, 2..4]).map_err(|refused| refused.error));
    });
    drop(locked);
}

/// An arena goes in a child while another thread of the parent uses what was carved there.
#[test]
fn arenas_end_without_a_lock() {
    let (_runtime, device, stream) = rig();
    let mut arena = DeviceArena::over(DeviceSlab::new(&device, 1024).unwrap()).unwrap();
    let domain = {
        let mut carve = arena.frame().alloc(Undef::<u32, _>::new([4])).unwrap();
        carve.fill(&stream, 1).unwrap();
        match carve.read().domain {
            Domain::Carve(domain) => domain.clone(),
            Domain::Owned(_) => unreachable!("it is a carve"),
        }
    };
    domain.locked(|| in_child(move || drop(arena)));
}
