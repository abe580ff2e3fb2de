//! Page-locked buffers over vectors of the program.

use crate::cases::raw;
use crate::kit::{N, Rig, cases};
use cuda_buffer::{BufferError, CaptureStep, CudaBuffer, DeviceData, PinnedBuffer};
use cuda_driver::{Call, Driver, ErrorCode};
use cuda_runtime::{Device, RuntimeError};
use cuda_sim::{Finding, LeakedObject, SimDriver};

fn register<T: bytemuck::Pod>(device: &Device, values: Vec<T>) -> PinnedBuffer<T> {
    PinnedBuffer::register(device, values)
        .map_err(|refused| refused.error)
        .unwrap()
}

fn back<T: bytemuck::Pod>(buffer: PinnedBuffer<T>) -> Vec<T> {
    buffer.into_vec().map_err(|refused| refused.error).unwrap()
}

/// How often memory was registered, and how often that ended.
fn registrations(rig: &Rig) -> (u64, u64) {
    let calls = rig.sim.counters().snapshot();
    (
        calls.of(Call::MemHostRegister),
        calls.of(Call::MemHostUnregister),
    )
}

/// Copies in both directions on several streams, with buffers dropped while copies go on, equal what the host does.
#[test]
fn registered_memory_is_ordered_and_comes_back() {
    for seed in 0..u64::from(cases(100)) {
        let rig = Rig::seeded(seed, 3);
        let device = rig.device();
        let streams = rig.streams::<3>();
        let mut x = CudaBuffer::<u32>::new(&device, N).unwrap();
        let mut y = CudaBuffer::<u32>::new(&device, N).unwrap();
        for round in 0..6_u32 {
            let on = |i: u32| &streams[(round + i) as usize % 3];
            let mut values = Vec::with_capacity(N + 7);
            values.extend((0..N as u32).map(|i| i + round));
            let (address, capacity) = (values.as_ptr(), values.capacity());
            let mut own = register(&device, values);
            x.copy_from_pinned(&own, on(0)).unwrap();
            y.copy_from(&x, on(1)).unwrap();
            own.host_write().unwrap().fill(0); // waits for the copy
            y.copy_to_pinned(&mut own, on(2)).unwrap();
            drop(register(&device, vec![9_u8; 100]));
            let part = register(&device, vec![100 + round; 2 * N]);
            x.copy_from_pinned(part.slice(N..2 * N).unwrap(), on(1))
                .unwrap();
            drop(part); // read by a copy
            let values = back(own); // waits for the copy
            assert_eq!((values.as_ptr(), values.capacity()), (address, capacity));
            assert!(values.iter().copied().eq((0..N as u32).map(|i| i + round)));
            assert_eq!(x.to_vec().unwrap(), [100 + round; N]);
        }
        drop((x, y, streams));
        device.drain_frees().unwrap();
        assert_eq!(registrations(&rig), (18, 18));
        drop(device);
        rig.finish();
    }
}

/// What drops under a copy stays registered, and allocated, until the copy is over.
#[test]
fn a_drop_waits_for_the_copy_behind_the_scenes() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    let own = register(&device, vec![3_u32; N]);
    rig.sim.hold_stream(raw(&s));
    x.copy_from_pinned(&own, &s).unwrap();
    drop(own);
    assert_eq!(registrations(&rig), (1, 0));
    rig.sim.release_stream(raw(&s));
    assert_eq!(x.to_vec().unwrap(), [3; N]);
    device.drain_frees().unwrap();
    assert_eq!(registrations(&rig), (1, 1));
    drop((x, s, device));
    rig.finish();
}

/// No elements, and memory that was not registered.
#[test]
fn no_elements_make_no_call_and_other_memory_is_copied() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let empty = register(&device, Vec::<u32>::with_capacity(5));
    assert!(empty.is_empty() && empty.host_read().unwrap().is_empty());
    assert!(back(empty).is_empty());
    assert_eq!(registrations(&rig), (0, 0));
    let mut locked = PinnedBuffer::<u32>::new(&device, N).unwrap();
    locked.host_write().unwrap().fill(4);
    assert_eq!(back(locked), [4; N]);
    assert_eq!(rig.sim.counters().snapshot().of(Call::MemFreeHost), 1);
    drop(device);
    rig.finish();
}

/// A graph keeps the memory, and its replays read what the host wrote last.
#[test]
fn a_graph_keeps_registered_memory() {
    for seed in 0..u64::from(cases(20)) {
        let rig = Rig::seeded(seed, 2);
        let device = rig.device();
        let [s, t] = rig.streams();
        let mut x = CudaBuffer::<u32>::new(&device, N).unwrap();
        let mut own = register(&device, vec![1_u32; N]);
        let mut during = None;
        let graph = s
            .capture(|_| {
                x.copy_from_pinned(&own, &s)?;
                // Nothing is registered in a capture, and what ends there stays registered until after it.
                during = PinnedBuffer::register(&device, vec![2_u8; 3]).err();
                Ok::<(), BufferError>(())
            })
            .unwrap();
        let (values, error) = during.unwrap().into_parts();
        assert_eq!(values, [2; 3]);
        assert!(
            matches!(
                error,
                BufferError::Runtime(RuntimeError::CaptureActive { .. })
            ),
            "{error}"
        );
        graph.launch(&t).unwrap();
        own.host_write().unwrap().fill(2);
        let (held, error) = own.into_vec().unwrap_err().into_parts();
        assert!(
            matches!(error, BufferError::Held { holders: 1.. }),
            "{error}"
        );
        graph.launch(&s).unwrap();
        drop(held);
        graph.launch(&t).unwrap();
        assert_eq!(x.to_vec().unwrap(), [2; N]);
        assert_eq!(registrations(&rig), (1, 0));
        drop(graph);
        device.drain_frees().unwrap();
        assert_eq!(registrations(&rig), (1, 1));
        drop((x, s, t, device));
        rig.finish();
    }
}

/// While this thread captures, a registration neither ends by a drop nor gives its memory back.
#[test]
fn the_end_of_a_registration_waits_for_captures() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let [s] = rig.streams();
    let (dropped, kept) = (
        register(&device, vec![1_u32; N]),
        register(&device, vec![2_u32; N]),
    );
    let mut refused = None;
    s.capture(|_| {
        drop(dropped);
        refused = kept.into_vec().err();
        assert_eq!(registrations(&rig), (2, 0));
        Ok::<(), BufferError>(())
    })
    .unwrap();
    let (kept, error) = refused.unwrap().into_parts();
    assert!(
        matches!(
            error,
            BufferError::Runtime(RuntimeError::CaptureActive { .. })
        ),
        "{error}"
    );
    assert_eq!(back(kept), [2; N]);
    device.drain_frees().unwrap();
    assert_eq!(registrations(&rig), (2, 2));
    drop((s, device));
    rig.finish();
}

/// A failure to register gives the vector back; one to unregister leaves the buffer; one behind a drop leaks the memory,
/// which the driver still has, and is counted and told.
#[test]
fn failures_lose_nothing_that_is_not_counted() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let code = ErrorCode::LAUNCH_OUT_OF_RESOURCES;
    let values = vec![1_u32; N];
    let address = values.as_ptr();
    rig.sim.faults().fail_nth(Call::MemHostRegister, 1, code);
    let (values, error) = PinnedBuffer::register(&device, values)
        .unwrap_err()
        .into_parts();
    assert!(
        matches!(&error, BufferError::Runtime(error) if error.code() == Some(code)),
        "{error}"
    );
    assert_eq!((values.as_ptr(), &values[..]), (address, &[1; N][..]));

    let own = register(&device, values);
    rig.sim.faults().fail_nth(Call::MemHostUnregister, 1, code);
    let (own, error) = own.into_vec().unwrap_err().into_parts();
    assert!(
        matches!(&error, BufferError::Runtime(error) if error.code() == Some(code)),
        "{error}"
    );
    assert_eq!(own.host_read().unwrap()[..], [1; N]);
    assert_eq!(device.alive().leaked_bytes, 0);

    rig.sim.faults().fail_nth(Call::MemHostUnregister, 1, code);
    drop(own);
    assert_eq!(device.check().unwrap_err().code(), Some(code));
    assert_eq!(device.alive().leaked_bytes, 4 * N);
    rig.sim.assert_no_reports();
    let leaks = rig.sim.leak_report();
    let registered = leaks.iter().filter(|leak| {
        let object = LeakedObject::HostMemory {
            address: address.addr() as u64,
        };
        matches!(leak.finding, Finding::Leak { object: found, .. } if found == object)
    });
    assert_eq!(registered.count(), 1);
}

/// Forgotten accesses, and devices that are lost, keep the memory for ever.
#[test]
fn memory_that_may_be_in_use_is_never_freed() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let mut own = register(&device, vec![1_u32; N]);
    std::mem::forget(own.host_write().unwrap());
    let (own, error) = own.into_vec().unwrap_err().into_parts();
    assert!(matches!(error, BufferError::Access(_)), "{error}");
    drop(own);
    assert_eq!(device.alive().leaked_bytes, 4 * N);
    assert_eq!(registrations(&rig), (1, 0));
    rig.sim.assert_no_reports();

    let rig = Rig::new(SimDriver::builder(), 1);
    let device = rig.device();
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new(&device, N).unwrap();
    let (idle, busy) = (
        register(&device, vec![1_u32; N]),
        register(&device, vec![1_u32; N]),
    );
    rig.sim.hold_stream(raw(&s));
    x.copy_from_pinned(&busy, &s).unwrap();
    rig.sim
        .faults()
        .fail_nth(Call::StreamQuery, 1, ErrorCode::ILLEGAL_ADDRESS);
    rig.sim
        .faults()
        .fail_nth(Call::EventQuery, 1, ErrorCode::ILLEGAL_ADDRESS);
    rig.sim
        .faults()
        .fail_nth(Call::EventSynchronize, 1, ErrorCode::ILLEGAL_ADDRESS);
    let (busy, error) = busy.into_vec().unwrap_err().into_parts();
    assert!(matches!(error, BufferError::Runtime(_)), "{error}");
    assert!(device.is_poisoned());
    drop((idle, busy));
    device.drain_frees().unwrap();
    assert_eq!(device.alive().leaked_bytes, 8 * N);
    assert_eq!(registrations(&rig), (2, 0));
}
