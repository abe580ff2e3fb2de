//! The other forms of access: owning, by synchronous calls, after a synchronisation, shared, between devices.

use crate::kit::Rig;
use cuda_buffer::{
    AccessCompletion, BufferError, CaptureStep, CudaBuffer, DeviceData, OperandName, PinnedBuffer,
    SharedCudaBuffer, acquire_all, copy_slice,
};
use cuda_driver::{Call, Copies, DeviceId, Driver};
use cuda_runtime::{Runtime, RuntimeError};
use cuda_sim::SimDriver;

#[test]
fn an_owning_access_gives_the_buffer_back_after_its_last_use() {
    let rig = Rig::seeded(1, 2);
    let [one, two] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&one, 8).unwrap();
    x.fill(&one, 7).unwrap();
    let mut y = CudaBuffer::<u32>::new_on(&two, 8).unwrap();
    let before = rig.device().call_counts();
    let last = x
        .into_read_synchronized_with(&two)
        .map_err(|refused| refused.error)
        .unwrap();
    // It refers to nothing, so it may go anywhere.
    let last = std::thread::scope(|scope| scope.spawn(move || last).join().unwrap());
    let mut to = y.write_synchronized_with(&two).unwrap();
    copy_slice(&two, to.as_slice_mut(), last.as_slice()).unwrap();
    to.release().unwrap();
    last.release().unwrap();
    let calls = rig.device().call_counts() - before;
    assert_eq!(calls.of(Call::MemFreeAsync), 1);
    assert_eq!(
        calls.of(Call::EventSynchronize) + calls.of(Call::StreamSynchronize),
        0
    );
    assert_eq!(rig.device().alive().allocations, 1);
    assert_eq!(y.to_vec().unwrap(), [7; 8]);

    let kept = y
        .into_read_synchronized_with(&one)
        .map_err(|refused| refused.error)
        .unwrap();
    let y = kept.into_buffer().unwrap();
    assert_eq!(y.to_vec().unwrap(), [7; 8]);
    drop((one, two, y));
    rig.finish();
}

#[test]
fn an_owning_access_is_refused_while_a_forgotten_guard_writes() {
    let rig = Rig::seeded(1, 1);
    let [stream] = rig.streams();
    let mut x = CudaBuffer::<u8>::new_on(&stream, 8).unwrap();
    std::mem::forget(x.write_synchronized_with(&stream).unwrap());
    let (x, error) = x
        .into_read_synchronized_with(&stream)
        .map(drop)
        .unwrap_err()
        .into_parts();
    assert!(matches!(error, BufferError::Access(_)), "{error}");
    let (x, error) = x
        .into_blocking_read_access()
        .map(drop)
        .unwrap_err()
        .into_parts();
    assert!(matches!(error, BufferError::Access(_)), "{error}");
    assert_eq!(x.len(), 8);
}

#[test]
fn blocking_accesses_wait_on_the_host_for_one_event() {
    let rig = Rig::seeded(2, 1);
    let [stream] = rig.streams();
    let mut x = CudaBuffer::<u8>::new_on(&stream, 8).unwrap();
    x.fill(&stream, 5).unwrap();
    let device = rig.device();
    let before = device.call_counts();
    let mut host = [0_u8; 8];
    let reading = x.blocking_read_access().unwrap();
    // SAFETY: the access has waited for the fill, and the call is synchronous.
    unsafe {
        rig.sim
            .copy_to_host(DeviceId(0), host.as_mut_ptr(), reading.address(), 8)
    }
    .unwrap();
    reading.release();
    assert_eq!(host, [5; 8]);
    let calls = device.call_counts() - before;
    assert_eq!(
        (
            calls.of(Call::EventSynchronize),
            calls.of(Call::EventRecord)
        ),
        (1, 1),
        "the event of the fill"
    );

    let conflict = x.blocking_write_access().map(drop);
    assert_eq!(conflict, Ok(()));
    std::mem::forget(x.blocking_read_access().unwrap());
    let error = x.blocking_write_access().unwrap_err();
    assert!(
        matches!(&error, BufferError::Access(access) if access.stream.is_none()),
        "{error}"
    );
    rig.sim.assert_no_reports();
}

#[test]
fn work_that_outlasts_a_blocking_access_is_ordered_by_its_completion() {
    let rig = Rig::seeded(3, 2);
    let [one, two] = rig.streams();
    let mut x = CudaBuffer::<u8>::new_on(&one, 8).unwrap();
    x.fill(&one, 1).unwrap();
    let pinned = PinnedBuffer::<u8>::new(&rig.device(), 8).unwrap();
    let writing = x.blocking_write_access().unwrap();
    let (to, from) = (writing.address(), pinned.host_read().unwrap());
    // As a copy that returns after staging does: it goes on after the call.
    let queue = |driver: &dyn Driver, raw| {
        // SAFETY: both ranges have 8 bytes, and the page-locked ones are alive and untouched to the end of the test.
        unsafe { driver.copy_to_device_async(DeviceId(0), to, from.as_ptr(), 8, raw) }
    };
    // SAFETY: `queue` queues that copy.
    unsafe { two.enqueue(queue) }.unwrap();
    let done = two.record().unwrap();
    // SAFETY: the copy is over once its stream's completion is.
    unsafe { writing.release_with_completion(done) }.unwrap();
    x.fill(&one, 9).unwrap();
    assert_eq!(x.to_vec().unwrap(), [9; 8]);
    drop((one, two, x, from));
    drop(pinned);
    rig.finish();
}

#[test]
fn blocking_accesses_are_refused_in_a_capture() {
    let rig = Rig::seeded(3, 1);
    let [stream] = rig.streams();
    let x = CudaBuffer::<u8>::new_on(&stream, 8).unwrap();
    let graph = stream.capture(|_| {
        let error = x.blocking_read_access().unwrap_err();
        let active = matches!(
            error,
            BufferError::Runtime(RuntimeError::CaptureActive { .. })
        );
        assert!(active, "{error}");
        Ok::<_, BufferError>(())
    });
    assert_eq!(graph.unwrap().nodes(), 0);
    drop((stream, x));
    rig.finish();
}

#[test]
fn a_synchronised_stream_needs_no_event() {
    let rig = Rig::seeded(4, 2);
    let [one, two] = rig.streams();
    let mut x = CudaBuffer::<u8>::new_on(&one, 8).unwrap();
    let mut y = CudaBuffer::<u8>::new_on(&two, 8).unwrap();
    y.fill(&two, 3).unwrap();
    let queue = |x: &mut CudaBuffer<u8>| {
        let mut to = x.write_synchronized_with(&one).unwrap();
        let from = y.read_synchronized_with(&one).unwrap();
        copy_slice(&one, to.as_slice_mut(), from.as_slice()).unwrap();
        from.release().unwrap();
    };
    queue(&mut x);
    let mut to = x.write_synchronized_with(&one).unwrap();
    let from = y.read_synchronized_with(&one).unwrap();
    copy_slice(&one, to.as_slice_mut(), from.as_slice()).unwrap();
    let synchronized = one.synchronize().unwrap();
    let before = rig.device().call_counts();
    to.release_after_synchronization(&synchronized).unwrap();
    assert_eq!((rig.device().call_counts() - before).total(), 0);

    // What was queued since makes the proof worthless: the guard records as usual. So does another stream's proof.
    let mut again = CudaBuffer::<u8>::new_on(&one, 8).unwrap();
    let mut to = again.write_synchronized_with(&one).unwrap();
    copy_slice(&one, to.as_slice_mut(), from.as_slice()).unwrap();
    let other = two.synchronize().unwrap();
    to.release_after_synchronization(&synchronized).unwrap();
    from.release_after_synchronization(&other).unwrap();
    // The writes of both are ordered with other streams: by an event for the second, which nobody waited for.
    let before = rig.device().call_counts();
    x.fill(&two, 1).unwrap();
    let between = rig.device().call_counts();
    again.fill(&two, 2).unwrap();
    let (first, second) = (between - before, rig.device().call_counts() - between);
    let waits = [first, second].map(|calls| calls.of(Call::StreamWaitEvent));
    assert_eq!(waits, [0, 1], "{first}; {second}");
    drop((one, two, x, y, again));
    rig.finish();
}

#[test]
fn shared_handles_are_checked_when_an_access_is_acquired() {
    let rig = Rig::seeded(5, 2);
    let [one, two] = rig.streams();
    let here = SharedCudaBuffer::from(CudaBuffer::<u8>::new_on(&one, 8).unwrap());
    let there = here.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let access = there.write().synchronized_with(&two).unwrap();
            let refused = here.read().synchronized_with(&one).unwrap_err();
            assert!(matches!(refused, BufferError::Access(_)), "{refused}");
            access.release().unwrap();
        });
    });
    let readers = acquire_all(&one, (here.read(), there.read())).unwrap();
    assert!(acquire_all(&one, (here.write(),)).is_err());
    AccessCompletion::new(&one).release(readers).unwrap();
    // A write and a read of the same value.
    assert!(acquire_all(&one, (here.write(), there.read())).is_err());
    let (here, error) = here.into_buffer().unwrap_err().into_parts();
    assert_eq!(error, BufferError::Held { holders: 1 });
    drop(there);
    assert_eq!(
        here.into_buffer()
            .map_err(|refused| refused.error)
            .unwrap()
            .len(),
        8
    );
    drop((one, two));
    rig.finish();
}

#[test]
fn any_number_of_accesses_is_acquired_at_once() {
    let rig = Rig::seeded(6, 1);
    let [stream] = rig.streams();
    let buffers: Vec<_> = (0..20)
        .map(|_| CudaBuffer::<u8>::new_on(&stream, 8).unwrap())
        .collect();
    let before = rig.device().call_counts();
    let requests: Vec<_> = buffers.iter().map(DeviceData::read).collect();
    let accesses = acquire_all(&stream, requests).unwrap();
    assert_eq!(accesses.len(), 20);
    AccessCompletion::new(&stream).release(accesses).unwrap();
    // Nothing was queued since the last allocation's completion, so that one stands for all.
    assert_eq!((rig.device().call_counts() - before).total(), 0);
    drop((stream, buffers));
    rig.finish();
}

#[test]
fn copies_between_devices_are_ordered_on_either_ones_streams() {
    let sim = SimDriver::builder().devices(2).seed(7).build();
    let runtime = Runtime::builder().driver(sim.as_driver()).build().unwrap();
    let [near, far] = runtime.devices() else {
        panic!("two devices")
    };
    let (here, there) = (
        near.streams().acquire().unwrap(),
        far.streams().acquire().unwrap(),
    );
    let mut x = CudaBuffer::<u32>::new(near, 8).unwrap();
    let mut y = CudaBuffer::<u32>::new(far, 8).unwrap();
    for (value, stream) in [(1, &here), (2, &there)] {
        x.fill(&here, value).unwrap();
        y.copy_from(&x, stream).unwrap();
        assert_eq!(y.to_vec().unwrap(), [value; 8]);
        y.fill(&there, 0).unwrap();
    }
    // Nothing else crosses: a guard on a stream of another device is refused, and so is another driver's buffer.
    let error = x.read_synchronized_with(&there).unwrap_err();
    let error = error.to_string();
    assert_eq!(
        error,
        "the value can't be used there: an object of device 0 was used on device 1"
    );
    // Of several operands the error tells which.
    let error = acquire_all(&there, (y.write(), x.read())).map(drop);
    let operand = OperandName::Request(1);
    assert!(
        matches!(error, Err(BufferError::OperandDevice { operand: named, .. }) if named == operand)
    );
    let other = Rig::seeded(0, 1);
    let mut z = CudaBuffer::<u32>::new(&other.device(), 8).unwrap();
    let both = [
        (x.copy_from(&z, &here), OperandName::Source),
        (z.copy_from(&x, &here), OperandName::Destination),
    ];
    for (refused, operand) in both {
        let error = RuntimeError::WrongDriver {
            device: near.id(),
            given: other.device().id(),
        };
        assert_eq!(refused, Err(BufferError::OperandDevice { operand, error }));
    }
    // To page-locked memory either.
    let mut pinned = PinnedBuffer::<u32>::new(&other.device(), 8).unwrap();
    let both = [
        (
            x.copy_to_pinned(&mut pinned, &here),
            OperandName::Destination,
        ),
        (x.copy_to_pinned(&mut pinned, &there), OperandName::Source),
        (x.copy_from_pinned(&pinned, &here), OperandName::Source),
        (
            x.copy_from_pinned(&pinned, &there),
            OperandName::Destination,
        ),
    ];
    for (refused, operand) in both {
        assert!(
            matches!(refused, Err(BufferError::OperandDevice { operand: told, .. }) if told == operand),
            "{operand:?}: {refused:?}"
        );
    }
    drop(pinned);
    drop((x, y, z, here, there));
    runtime.shutdown().unwrap();
    sim.assert_no_reports();
    other.finish();
}

#[test]
fn objects_of_two_runtimes_are_not_mixed() {
    let sim = SimDriver::builder().devices(2).build();
    let runtime = || {
        let builder = Runtime::builder().driver(sim.as_driver());
        builder.build().unwrap()
    };
    let (one, other) = (runtime(), runtime());
    let x = CudaBuffer::<u8>::new(one.default_device(), 8).unwrap();
    let stream = other.default_device().streams().acquire().unwrap();
    let error = x.read_synchronized_with(&stream).unwrap_err();
    let device = DeviceId(0);
    let (operand, wrong) = (OperandName::Value, RuntimeError::WrongRuntime { device });
    assert_eq!(
        error,
        BufferError::OperandDevice {
            operand,
            error: wrong
        }
    );
    let far = one.devices()[1].streams().acquire().unwrap();
    let error = x.read_synchronized_with(&far).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("an object of device 0 was used on device 1"),
        "{error}"
    );
}

/// Once the runtime is gone a device's own stream has a lease for each who asks for it. Accesses of several leases end together, the last
/// handle of a lease among them.
#[test]
fn accesses_of_two_leases_of_one_stream_end_together() {
    let sim = SimDriver::builder().seed(3).build();
    let runtime = Runtime::builder().driver(sim.as_driver()).build().unwrap();
    let device = runtime.default_device().clone();
    drop(runtime);
    let (ended, end) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let [one, two, three] = [(); 3].map(|()| device.transfer_stream());
        assert!(one == two && two == three);
        let bufs = [(); 4].map(|()| CudaBuffer::<u32>::new_on(&one, 8).unwrap());
        let [a, b, c, d] = bufs.each_ref();
        let guards = [(a, &two), (b, &one), (c, &three), (d, &two)]
            .map(|(x, stream)| x.read_synchronized_with(stream).unwrap());
        drop((two, three));
        AccessCompletion::new(&one).release(guards).unwrap();
        drop(bufs);
        drop((one, device));
        ended.send(()).unwrap();
    });
    let in_time = end.recv_timeout(std::time::Duration::from_secs(60));
    in_time.expect("the thread waits for its own lock");
    thread.join().unwrap();
    sim.shutdown();
    sim.assert_no_reports();
}
