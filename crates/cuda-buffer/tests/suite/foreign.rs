//! Memory of another library: adopted, ordered, and given back once, after its last use.

use crate::kit::{Kit, N, Rig, elements, step_of};
use cuda_buffer::{
    BufferError, CaptureStep, CudaBuffer, DeviceData, DeviceSlab, Launch, PartitionedCudaBuffer,
};
use cuda_driver::{
    Call, DevicePtr, Driver, EventFlags, Events, Memory, RawEvent, RawStream, Streams,
};
use cuda_runtime::Stream;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const BYTES: usize = 4 * N;

fn raw(stream: &Stream) -> RawStream {
    let name = Cell::new(None);
    let call = |_: &dyn Driver, raw| {
        name.set(Some(raw));
        Ok(())
    };
    // SAFETY: nothing is queued.
    unsafe { stream.enqueue(call) }.unwrap();
    name.get().expect("the call was made")
}

/// Another library: it allocates, works on a stream of its own, and frees.
struct Library<'r> {
    rig: &'r Rig,
    stream: RawStream,
    address: DevicePtr,
    ready: RawEvent,
}

impl<'r> Library<'r> {
    /// Memory full of `byte`, as of its event.
    fn new(rig: &'r Rig, byte: u8) -> Self {
        let (sim, id) = (&rig.sim, rig.device().id());
        let stream = sim.stream_create(id, 0).unwrap();
        let address = sim.mem_alloc(id, BYTES).unwrap();
        let ready = sim.event_create(id, EventFlags::default()).unwrap();
        let pattern = cuda_driver::Pattern::U8(byte);
        // SAFETY: the memory is allocated, and nothing else uses it.
        unsafe { cuda_driver::Copies::fill_async(sim, id, address, pattern, BYTES, stream) }
            .unwrap();
        sim.event_record(id, ready, stream).unwrap();
        Self {
            rig,
            stream,
            address,
            ready,
        }
    }

    /// The buffer over the memory; each release is told.
    fn adopt(&self, stream: &Stream, told: &mpsc::Sender<DevicePtr>) -> CudaBuffer<u32> {
        let told = told.clone();
        let release = move |address| told.send(address).unwrap();
        let ready = Some(self.ready);
        // SAFETY: the memory is of that size, and the library uses it no more after its event.
        unsafe { CudaBuffer::adopt(stream, self.address, N, ready, release) }.unwrap()
    }

    fn end(self) {
        let (sim, id) = (&self.rig.sim, self.rig.device().id());
        // SAFETY: the memory was given back.
        unsafe { sim.mem_free(id, self.address) }.unwrap();
        // SAFETY: nobody knows the event any more.
        unsafe { sim.event_destroy(id, self.ready) }.unwrap();
        // SAFETY: nor the stream.
        unsafe { sim.stream_destroy(id, self.stream) }.unwrap();
    }
}

#[test]
fn adopted_memory_is_ordered_and_released_after_its_last_use() {
    for seed in 0..40 {
        let rig = Rig::seeded(seed, 3);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let library = Library::new(&rig, 1);
        let (tell, told) = mpsc::channel();
        let mut x = library.adopt(&s, &tell);
        // After the library's own work, on the stream it was adopted on and on another one.
        kit.step(&t, &mut x, 2).unwrap();
        kit.step(&s, &mut x, 3).unwrap();
        let expected = step_of(step_of(0x0101_0101, 2), 3);
        assert_eq!(x.to_vec().unwrap(), [expected; N]);
        // Dropped under a kernel: released when that is over, not before, and the dropping thread does not wait.
        rig.sim.hold_stream(raw(&t));
        kit.step(&t, &mut x, 4).unwrap();
        drop(x);
        assert!(
            told.recv_timeout(Duration::from_millis(5)).is_err(),
            "too early"
        );
        rig.sim.release_stream(raw(&t));
        rig.sim.run_all();
        let released = told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(released, library.address);
        assert!(told.try_recv().is_err(), "once");
        library.end();
        drop((kit, s, t));
        rig.finish();
    }
}

#[test]
fn idle_memory_is_released_at_once_and_forgotten_memory_never() {
    let rig = Rig::seeded(3, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s] = rig.streams();
    let library = Library::new(&rig, 1);
    let (tell, told) = mpsc::channel();
    let mut x = library.adopt(&s, &tell);
    kit.step(&s, &mut x, 1).unwrap();
    x.synchronize().unwrap();
    drop(x);
    assert_eq!(told.try_recv(), Ok(library.address));

    // A graph keeps it.
    let mut x = library.adopt(&s, &tell);
    let graph = s.capture(|_| kit.step(&s, &mut x, 1)).unwrap();
    drop(x);
    assert!(told.try_recv().is_err(), "the graph has it");
    graph.launch(&s).unwrap();
    s.synchronize().unwrap();
    drop(graph);
    assert_eq!(
        told.recv_timeout(Duration::from_secs(20)),
        Ok(library.address)
    );

    // Whole or not at all.
    let x = library.adopt(&s, &tell);
    let (x, error) = PartitionedCudaBuffer::new(x, &[0..4, 4..N])
        .unwrap_err()
        .into_parts();
    assert_eq!(error, BufferError::ForeignMemory);
    let bytes = {
        // SAFETY: nobody uses the memory meanwhile.
        let told = unsafe { CudaBuffer::<u8>::adopt(&s, library.address, BYTES, None, |_| {}) };
        told.unwrap()
    };
    let (bytes, error) = DeviceSlab::from_buffer(bytes, 4).unwrap_err().into_parts();
    assert_eq!(error, BufferError::ForeignMemory);
    drop((x, bytes));
    assert_eq!(
        told.recv_timeout(Duration::from_secs(20)),
        Ok(library.address)
    );

    let owner = Arc::new(());
    let owned = owner.clone();
    let release = move |_| drop(owned);
    // SAFETY: nobody else uses the memory.
    let x = unsafe { CudaBuffer::<u32>::adopt(&s, library.address, N, None, release) };
    let mut x = x.unwrap();
    let mut access = x.write_synchronized_with(&s).unwrap();
    let args = (N as u32, 1_u32, &mut access);
    kit.step.launch(&s, elements(N), args).unwrap();
    std::mem::forget(access);
    drop(x);
    s.synchronize().unwrap();
    assert_eq!(Arc::strong_count(&owner), 2, "it may be in use for ever");
    assert_eq!(rig.device().alive().leaked_bytes, BYTES);
    rig.sim.assert_no_reports();
}

/// Whether the work is over nobody knows then.
#[test]
fn memory_whose_wait_unwinds_is_counted_as_leaked() {
    let rig = Rig::seeded(5, 1);
    let [s] = rig.streams();
    let library = Library::new(&rig, 1);
    let (tell, told) = mpsc::channel();
    let mut x = library.adopt(&s, &tell);
    x.fill(&s, 2).unwrap();
    rig.sim.faults().unwind_nth(Call::EventSynchronize, 1);
    drop(x);
    let begun = Instant::now();
    while rig.device().alive().leaked_bytes == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "nobody counts it"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(rig.sim.faults().clear(), 0);
    assert_eq!(rig.device().alive().leaked_bytes, BYTES);
    assert!(told.try_recv().is_err());
    rig.sim.assert_no_reports();
}

#[test]
fn what_can_not_be_adopted_is_refused_and_not_released() {
    let rig = Rig::seeded(4, 1);
    let [s] = rig.streams();
    let released = Arc::new(AtomicUsize::new(0));
    let adopt = |address, len| {
        let released = released.clone();
        let release = move |_| {
            released.fetch_add(1, Ordering::Relaxed);
        };
        // SAFETY: what is refused is not used.
        unsafe { CudaBuffer::<u32>::adopt(&s, DevicePtr(address), len, None, release) }.map(drop)
    };
    for address in [0, 0x1001, 0x1002] {
        let align_bytes = 4;
        let wrong = BufferError::BadAddress {
            address,
            align_bytes,
        };
        assert_eq!(adopt(address, N), Err(wrong));
    }
    let overflow = adopt(0x1000, usize::MAX / 4);
    assert!(
        matches!(overflow, Err(BufferError::SizeOverflow { .. })),
        "{overflow:?}"
    );
    let refused = s.capture(|_| adopt(0x1000, N)).map(drop);
    assert!(refused.is_err());
    assert_eq!(released.load(Ordering::Relaxed), 0);
    drop(s);
    rig.finish();
}

/// Kernels on a stream of the user's are waited for before their module is unloaded, whatever they use.
/// A call that unwinds while Carve forgets a stream leaves out neither this one nor those forgotten before.
#[test]
fn a_call_that_unwinds_loses_no_adopted_stream() {
    for (seed, call) in (0..40).map(|i| (i, [Call::EventRecord, Call::EventQuery][i as usize % 2]))
    {
        let rig = Rig::seeded(seed, 2);
        let (sim, id) = (rig.sim.clone(), rig.device().id());
        let own = [(); 2].map(|()| sim.stream_create(id, 0).unwrap());
        {
            let kit = Kit::new(rig.runtime.default_device());
            // SAFETY: the streams are of the device, and are destroyed at the end.
            let streams = own.map(|own| unsafe { rig.device().adopt_stream(own) }.unwrap());
            for stream in &streams {
                let mut x = CudaBuffer::<u32>::new(&rig.device(), 0).unwrap();
                let mut access = x.write_synchronized_with(stream).unwrap();
                let args = (0_u32, 2_u32, &mut access);
                kit.step.launch(stream, elements(1), args).unwrap();
                access.release().unwrap();
            }
            let [first, second] = streams;
            drop(first);
            sim.faults().unwind_nth(call, 1);
            let ended = catch_unwind(AssertUnwindSafe(|| drop(second)));
            assert!(ended.is_err(), "{call} was not made");
        }
        drop(rig);
        for own in own {
            // SAFETY: Carve has forgotten it.
            unsafe { sim.stream_destroy(id, own) }.unwrap();
        }
        sim.shutdown();
        sim.assert_no_reports();
    }
}

#[test]
fn the_device_ends_after_the_work_on_adopted_streams() {
    for uses_memory in [true, false] {
        for seed in 0..20 {
            let rig = Rig::seeded(seed, 2);
            let (sim, id) = (rig.sim.clone(), rig.device().id());
            let own = sim.stream_create(id, 0).unwrap();
            {
                let kit = Kit::new(rig.runtime.default_device());
                // SAFETY: the stream is of the device, and is destroyed at the end.
                let stream = unsafe { rig.device().adopt_stream(own) }.unwrap();
                let len = if uses_memory { N } else { 0 };
                let mut x = CudaBuffer::<u32>::new(&rig.device(), len).unwrap();
                x.fill(&stream, 1).unwrap();
                let mut access = x.write_synchronized_with(&stream).unwrap();
                let args = (len as u32, 2_u32, &mut access);
                kit.step.launch(&stream, elements(1), args).unwrap();
                access.release().unwrap();
            }
            drop(rig);
            // SAFETY: Carve has forgotten it.
            unsafe { sim.stream_destroy(id, own) }.unwrap();
            sim.shutdown();
            sim.assert_no_reports();
        }
    }
}
