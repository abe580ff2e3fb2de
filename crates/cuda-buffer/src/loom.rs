//! Ledgers and arenas under all interleavings of two threads.
//!
//! What runs is the crate's own code on a simulated device, whose checkers say whether the order that results is enough. Each
//! model is run again with a fault in the code that it is there for, and has to find it.

use crate::arena::{ArenaShared, CarveDomain, Carves, ClaimError};
use crate::domain::Domain;
use crate::ledger::{Holder, Token};
use crate::primitive::Fault;
use crate::primitive::modelled::FAULT;
use crate::{
    AccessKind, BufferError, BufferResult, CaptureStep, CudaBuffer, DeviceData, Graph,
    PartitionedCudaBuffer, PinnedPool, ReadRequest, SharedCudaBuffer, WriteRequest, copy_slice,
    fill_slice,
};
use cuda_runtime::{Device, Runtime, Stream};
use cuda_sim::{Schedule, SimDriver};
use loom::thread;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Mutex};

const BYTES: usize = 64;

/// Runs a model as the code is, then with each fault, which it has to find.
fn check(faults: &[Fault], model: fn()) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let run = || {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.max_branches = 20_000;
        builder.check(model);
    };
    run();
    for &fault in faults {
        *FAULT.lock().unwrap() = Some(fault);
        let found = catch_unwind(AssertUnwindSafe(run)).is_err();
        *FAULT.lock().unwrap() = None;
        assert!(found, "the model does not find {fault:?}");
    }
}

/// A device, and two streams of it.
struct Rig {
    sim: SimDriver,
    device: Device,
    streams: [Stream; 2],
}

impl Rig {
    fn new() -> Self {
        let sim = SimDriver::builder().schedule(Schedule::Eager).build();
        let runtime = Runtime::builder()
            .driver(sim.as_driver())
            .streams_per_device(2)
            .build()
            .unwrap();
        let device = runtime.default_device().clone();
        let streams = [(); 2].map(|()| device.streams().acquire().unwrap());
        Self {
            sim,
            device,
            streams,
        }
    }

    /// A value that several threads share, written on the first stream.
    fn shared(&self) -> SharedCudaBuffer<u8> {
        let x = SharedCudaBuffer::from(CudaBuffer::new(&self.device, BYTES).unwrap());
        write(&x, &self.streams[0]).unwrap();
        x
    }

    /// Nothing was wrong, and nothing is left.
    fn finish(self) {
        let Self {
            sim,
            device,
            streams,
        } = self;
        drop(streams);
        assert_eq!(device.alive().leaked_bytes, 0);
        drop(device);
        sim.shutdown();
        sim.assert_no_reports();
    }
}

fn fill(request: WriteRequest<'_, u8>, stream: &Stream) -> BufferResult<()> {
    let mut access = request.synchronized_with(stream)?;
    fill_slice(stream, access.as_slice_mut(), 1)?;
    Ok(access.release()?)
}

fn write(x: &SharedCudaBuffer<u8>, stream: &Stream) -> BufferResult<()> {
    fill(x.write(), stream)
}

/// Copies the value to memory that the reader owns.
fn read(x: &SharedCudaBuffer<u8>, stream: &Stream) -> BufferResult<()> {
    let copy = CudaBuffer::<u8>::new(stream.device(), BYTES)?;
    let mut to = WriteRequest::new(copy.domain(), 0, BYTES).synchronized_with(stream)?;
    let from = x.read().synchronized_with(stream)?;
    copy_slice(stream, to.as_slice_mut(), from.as_slice())?;
    from.release()?;
    Ok(to.release()?)
}

/// What a forgotten guard leaves behind: its token. The guard itself has references that loom wants back.
fn forget(request: WriteRequest<'_, u8>, stream: &Stream) {
    let holder = Holder {
        stream: Some(stream.id()),
        since: Location::caller(),
    };
    let kind = AccessKind::Write;
    let token = Token { kind, holder };
    request.domain.begin(token, &mut |_| {}).unwrap();
}

/// Whether the access was granted. A refusal names who holds what.
fn granted(result: BufferResult<()>, held: AccessKind) -> bool {
    match result {
        Ok(()) => true,
        Err(BufferError::Access(error)) => {
            assert_eq!((error.held, error.holders), (held, 1));
            false
        }
        Err(error) => panic!("{error}"),
    }
}

type Use = fn(&SharedCudaBuffer<u8>, &Stream) -> BufferResult<()>;

/// Two threads use one value, each on a stream of its own. Those that exclude each other are both granted only one after the
/// other, also on the device.
fn two_uses(here: (Use, AccessKind), there: (Use, AccessKind)) {
    let rig = Rig::new();
    let x = rig.shared();
    let other = thread::spawn({
        let (x, stream) = (x.clone(), rig.streams[1].clone());
        move || granted(there.0(&x, &stream), here.1)
    });
    let mine = granted(here.0(&x, &rig.streams[0]), there.1);
    let others = other.join().unwrap();
    match (here.1, there.1) {
        (AccessKind::Read, AccessKind::Read) => assert!(mine && others, "readers share"),
        _ => assert!(mine || others, "one of two is granted"),
    }
    // Every token is back, and what was published orders whoever comes next.
    for stream in &rig.streams {
        write(&x, stream).unwrap();
    }
    drop(x);
    rig.finish();
}

#[test]
fn loom_two_writers_write_one_after_the_other() {
    let writer: fn() = || two_uses((write, AccessKind::Write), (write, AccessKind::Write));
    check(&[Fault::SplitGrant, Fault::SplitEnd], writer);
}

#[test]
fn loom_a_writer_comes_after_a_reader_or_is_refused() {
    let model: fn() = || two_uses((write, AccessKind::Write), (read, AccessKind::Read));
    check(&[Fault::SplitGrant, Fault::SplitEnd], model);
}

#[test]
fn loom_readers_share_and_the_next_writer_comes_after_both() {
    check(&[], || {
        two_uses((read, AccessKind::Read), (read, AccessKind::Read));
    });
}

/// A guard that a thread forgets holds the value for ever, and its memory with it, whoever drops the last handle.
#[test]
fn loom_a_forgotten_guard_keeps_the_memory() {
    check(&[Fault::ForgottenFreed], || {
        let rig = Rig::new();
        let x = rig.shared();
        let other = thread::spawn({
            let (x, stream) = (x.clone(), rig.streams[1].clone());
            move || forget(x.write(), &stream)
        });
        drop(x.clone());
        other.join().unwrap();
        assert!(!granted(read(&x, &rig.streams[0]), AccessKind::Write));
        assert!(!granted(write(&x, &rig.streams[1]), AccessKind::Write));
        drop(x);
        assert_eq!(rig.device.alive().leaked_bytes, BYTES);
        rig.sim.assert_no_reports();
    });
}

/// The shared state of an arena of one carve's bytes, with two ledgers.
fn arena(rig: &Rig) -> Arc<ArenaShared> {
    let buffer = CudaBuffer::<u8>::new(&rig.device, BYTES).unwrap();
    let (allocation, outstanding) = buffer.into_allocation().unwrap();
    ArenaShared::new(
        rig.device.clone(),
        allocation,
        outstanding,
        Carves::new(2).unwrap(),
    )
}

/// A carve of all bytes.
fn carve(arena: &Arc<ArenaShared>) -> Result<Domain, ClaimError> {
    let (id, at) = arena.claim(0..BYTES)?;
    let carve = CarveDomain::new(arena.clone(), id, at, 0, BYTES);
    Ok(Domain::Carve(carve))
}

fn fill_carve(domain: &Domain, stream: &Stream) -> BufferResult<()> {
    fill(WriteRequest::new(domain, 0, BYTES), stream)
}

/// A graph that fills the carve.
fn graph(domain: &Domain, stream: &Stream) -> Graph {
    stream.capture(|_| fill_carve(domain, stream)).unwrap()
}

/// Launches the graph. The arena's thread may have a carve where the graph writes.
fn launch(graph: &Graph, stream: &Stream) {
    match graph.launch(stream) {
        Ok(()) | Err(BufferError::ArenaInUse { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// A carve ends, and the next one over its bytes is used, while another thread launches a graph that writes the first.
#[test]
fn loom_a_carve_ends_under_a_launch() {
    check(
        &[
            Fault::EndUnderLaunch,
            Fault::SilentToken,
            Fault::GoneUnfolded,
        ],
        || {
            let rig = Rig::new();
            let shared = arena(&rig);
            let first = carve(&shared).unwrap();
            let graph = graph(&first, &rig.streams[0]);
            fill_carve(&first, &rig.streams[0]).unwrap();
            let launcher = thread::spawn({
                let stream = rig.streams[1].clone();
                move || launch(&graph, &stream)
            });
            shared.retract(0..BYTES);
            let next = carve(&shared).unwrap();
            fill_carve(&next, &rig.streams[0]).unwrap();
            launcher.join().unwrap();
            assert_eq!(shared.quarantined_bytes(), 0);
            drop((first, next, shared));
            rig.finish();
        },
    );
}

/// A carve opens and ends over bytes that a graph uses whose own carve is over.
#[test]
fn loom_a_carve_opens_under_a_launch() {
    check(&[Fault::OpenUnderLaunch, Fault::SilentLaunch], || {
        let rig = Rig::new();
        let shared = arena(&rig);
        let first = carve(&shared).unwrap();
        let graph = graph(&first, &rig.streams[0]);
        shared.retract(0..BYTES);
        let launcher = thread::spawn({
            let stream = rig.streams[1].clone();
            move || launch(&graph, &stream)
        });
        let next = carve(&shared).unwrap();
        fill_carve(&next, &rig.streams[0]).unwrap();
        shared.retract(0..BYTES);
        launcher.join().unwrap();
        let last = carve(&shared).unwrap();
        let read = ReadRequest::<u8>::new(&last, 0, BYTES);
        drop(read.synchronized_with(&rig.streams[1]).unwrap());
        drop((first, next, last, shared));
        rig.finish();
    });
}

/// Two threads launch graphs over the same bytes: one replay comes after the other.
#[test]
fn loom_launches_over_the_same_bytes_take_turns() {
    check(&[Fault::NoTurns], || {
        let rig = Rig::new();
        let shared = arena(&rig);
        let [one, two] = [(); 2].map(|()| {
            let carve = carve(&shared).unwrap();
            let graph = graph(&carve, &rig.streams[0]);
            shared.retract(0..BYTES);
            graph
        });
        let launcher = thread::spawn({
            let stream = rig.streams[1].clone();
            move || two.launch(&stream).unwrap()
        });
        one.launch(&rig.streams[0]).unwrap();
        launcher.join().unwrap();
        drop((one, shared));
        rig.finish();
    });
}

/// Bytes under a guard that was forgotten are used no more: neither carved again nor replayed over, whenever a launch looks.
#[test]
fn loom_bytes_under_a_forgotten_guard_are_lost() {
    check(&[Fault::ForgottenReused], || {
        let rig = Rig::new();
        let shared = arena(&rig);
        let first = carve(&shared).unwrap();
        let graph = graph(&first, &rig.streams[0]);
        fill_carve(&first, &rig.streams[0]).unwrap();
        forget(WriteRequest::new(&first, 0, BYTES), &rig.streams[0]);
        let launcher = thread::spawn({
            let stream = rig.streams[1].clone();
            move || graph.launch(&stream)
        });
        shared.retract(0..BYTES);
        let carved = carve(&shared).map(drop);
        let launched = launcher.join().unwrap();
        // Both threads are over: loom can't unwind one that runs.
        assert!(matches!(carved, Err(ClaimError::Quarantined { .. })));
        let refused = launched.unwrap_err();
        assert!(
            matches!(
                refused,
                BufferError::Access(_) | BufferError::ArenaLost { .. }
            ),
            "{refused}"
        );
        assert_eq!(shared.quarantined_bytes(), BYTES);
        drop((first, shared));
        assert_eq!(rig.device.alive().leaked_bytes, BYTES);
        rig.sim.assert_no_reports();
    });
}

/// Two parts of a buffer end on two threads while work uses both: the memory goes after all of it.
#[test]
fn loom_parts_that_end_at_once_leave_all_they_did() {
    check(&[Fault::LostRetirement], || {
        let rig = Rig::new();
        let whole = CudaBuffer::<u8>::new(&rig.device, BYTES).unwrap();
        let parts = PartitionedCudaBuffer::new(whole, &[0..BYTES / 2, BYTES / 2..BYTES]);
        let mut parts = parts.map_err(|refused| refused.error).unwrap().into_parts();
        for (part, stream) in parts.iter_mut().zip(&rig.streams) {
            part.fill(stream, 1).unwrap();
        }
        let (first, second) = (parts.remove(0), parts.remove(0));
        let other = thread::spawn(move || drop(first));
        drop(second);
        other.join().unwrap();
        rig.finish();
    });
}

/// Page-locked memory comes back to its pool under a copy while another thread asks for some: the next copy comes after that.
#[test]
fn loom_a_block_of_a_pool_comes_with_what_uses_it() {
    check(&[Fault::BareBlock], || {
        let rig = Rig::new();
        let mut x = CudaBuffer::<u8>::new(&rig.device, BYTES).unwrap();
        let y = CudaBuffer::<u8>::new(&rig.device, BYTES).unwrap();
        fill(WriteRequest::new(y.domain(), 0, BYTES), &rig.streams[1]).unwrap();
        let pool = PinnedPool::new(&rig.device);
        let first = pool.buffer::<u8>(BYTES).unwrap();
        x.copy_from_pinned(&first, &rig.streams[0]).unwrap();
        let other = thread::spawn(move || drop(first));
        let mut second = pool.buffer::<u8>(BYTES).unwrap();
        y.copy_to_pinned(&mut second, &rig.streams[1]).unwrap();
        other.join().unwrap();
        // What is known to be over is freed here, and not on a thread that loom knows nothing of.
        for stream in &rig.streams {
            stream.synchronize().unwrap();
        }
        drop((x, y, second, pool));
        rig.finish();
    });
}
