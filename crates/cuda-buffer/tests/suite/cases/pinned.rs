//! Cases 24 and 27: page-locked memory.

use super::raw;
use crate::kit::{N, Rig};
use cuda_buffer::{BufferError, CudaBuffer, DeviceData, OperandName, PinnedBuffer};
use cuda_driver::{Call, ErrorCode};
use cuda_runtime::RuntimeError;
use cuda_sim::SimDriver;

/// Case 24 (chelsea0x3b/cudarc#340): page-locked memory does not change under a copy that still reads it.
#[test]
fn case_24_the_host_can_not_touch_what_a_copy_uses() {
    let rig = Rig::seeded(0, 2);
    let device = rig.device();
    let [s, t] = rig.streams();
    let n = 10_000;
    let mut pinned = PinnedBuffer::<f32>::new(&device, n).unwrap();
    pinned.host_write().unwrap().fill(1.0);
    let mut x = CudaBuffer::<f32>::new_on(&s, n).unwrap();
    let name = raw(&s);
    rig.sim.hold_stream(name);
    x.copy_from_pinned(&pinned, &s).unwrap();
    let busy = pinned.try_host_write().map(drop).unwrap_err();
    assert_eq!(busy, BufferError::Busy { copies: 1 });
    assert!(pinned.try_host_read().is_ok(), "the copy only reads");
    // A copy out makes even reading wait.
    let mut other = PinnedBuffer::<f32>::new(&device, n).unwrap();
    x.copy_to_pinned(&mut other, &t).unwrap();
    assert_eq!(
        other.try_host_read().map(drop).unwrap_err(),
        BufferError::Busy { copies: 1 }
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            rig.sim.release_stream(name);
        });
        *pinned.host_write().unwrap().last_mut().unwrap() += 1.0; // waits
    });
    assert_eq!(other.host_read().unwrap()[n - 1], 1.0);
    assert_eq!(x.to_vec().unwrap()[n - 1], 1.0);

    // Dropped under a copy, it is freed after that.
    rig.sim.hold_stream(name);
    x.copy_from_pinned(&pinned, &s).unwrap();
    drop(pinned);
    let mut third = PinnedBuffer::<f32>::new(&device, n).unwrap();
    third.host_write().unwrap().fill(9.0);
    rig.sim.release_stream(name);
    assert_eq!(x.to_vec().unwrap()[n - 1], 2.0);
    drop((x, other, third, device, s, t));
    rig.finish();
}

/// Case 24: a second copy into the same memory comes after the first one, whatever streams they are on, and a copy from
/// ordinary memory has read it when the call returns.
#[test]
fn case_24_copies_into_one_buffer_are_ordered_and_read_their_sources_in_time() {
    for seed in 0..20 {
        let rig = Rig::seeded(seed, 2);
        let device = rig.device();
        let [s, t] = rig.streams();
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        let [mut first, mut second] = [0, 1].map(|_| PinnedBuffer::<u32>::new(&device, N).unwrap());
        first.host_write().unwrap().fill(1);
        second.host_write().unwrap().fill(2);
        let name = raw(&s);
        rig.sim.hold_stream(name);
        x.copy_from_pinned(&first, &s).unwrap();
        x.copy_from_pinned(&second, &t).unwrap();
        for source in [&mut first, &mut second] {
            let busy = source.try_host_write().map(drop);
            assert_eq!(busy, Err(BufferError::Busy { copies: 1 }));
        }
        rig.sim.release_stream(name);
        assert_eq!(x.to_vec().unwrap(), [2; N]);
        first.try_host_write().unwrap().fill(3);
        // Ordinary memory, changed at once.
        let mut ordinary = vec![4_u32; N];
        x.copy_from_slice(&ordinary).unwrap();
        ordinary.fill(5);
        drop(ordinary);
        rig.sim.run_all();
        assert_eq!(x.to_vec().unwrap(), [4; N]);
        drop((x, first, second, device, s, t));
        rig.finish();
    }
}

/// Case 24: a wait of the host that is missing is seen by the simulated device.
#[test]
fn case_24_a_forgotten_host_access_keeps_copies_out() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let mut pinned = PinnedBuffer::<u32>::new(rig.runtime.default_device(), N).unwrap();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    std::mem::forget(pinned.host_write().unwrap());
    let error = x.copy_from_pinned(&pinned, &s).unwrap_err();
    assert!(
        matches!(&error, BufferError::Access(error) if error.stream.is_none()),
        "{error}"
    );
    assert!(error.to_string().contains("on the host"), "{error}");
    x.fill(&s, 1).unwrap();
    rig.sim.assert_no_reports();
    let leaked = rig.device();
    drop(pinned);
    assert_eq!(leaked.alive().leaked_bytes, 4 * N);
}

/// Case 27 (NVIDIA/cuCascade#189): page-locked memory of one device's making serves another, with that one's events.
#[test]
fn case_27_page_locked_memory_serves_every_device_of_its_driver() {
    let rig = Rig::new(SimDriver::builder().devices(2), 2);
    let [a, b] = [0, 1].map(|i| rig.runtime.devices()[i].clone());
    let (s, t) = (
        a.streams().acquire().unwrap(),
        b.streams().acquire().unwrap(),
    );
    let mut pinned = PinnedBuffer::<u32>::new(&a, N).unwrap();
    let (mut x, mut y) = (
        CudaBuffer::new(&a, N).unwrap(),
        CudaBuffer::new(&b, N).unwrap(),
    );
    x.fill(&s, 5).unwrap();
    x.copy_to_pinned(&mut pinned, &s).unwrap();
    y.copy_from_pinned(&pinned, &t).unwrap(); // waits across the devices
    x.fill(&s, 6).unwrap();
    x.copy_to_pinned(&mut pinned, &s).unwrap(); // and back
    assert_eq!(y.to_vec().unwrap(), [5; N]);
    assert_eq!(pinned.host_read().unwrap()[..], [6; N]);
    // Device memory is its own device's.
    let refused = x.read_synchronized_with(&t).map(drop).unwrap_err();
    let wrong = RuntimeError::WrongDevice {
        expected: b.id(),
        given: a.id(),
    };
    let operand = OperandName::Value;
    assert_eq!(
        refused,
        BufferError::OperandDevice {
            operand,
            error: wrong
        }
    );

    // A device that is lost under a copy keeps the memory, whoever made it.
    pinned.host_write().unwrap().fill(7);
    y.copy_from_pinned(&pinned, &t).unwrap();
    let faults = rig.sim.faults();
    faults.fail_nth(Call::EventRecord, 1, ErrorCode::NOT_PERMITTED);
    faults.fail_nth(Call::StreamSynchronize, 1, ErrorCode::NOT_PERMITTED);
    y.copy_from_pinned(&pinned, &t).unwrap_err();
    assert!(b.is_poisoned() && !a.is_poisoned());
    let error = pinned.host_write().map(drop).unwrap_err();
    assert!(
        matches!(error, BufferError::Access(_)),
        "the copy may never end: {error}"
    );
    drop(pinned);
    assert_eq!(a.alive().leaked_bytes, 4 * N);
    rig.sim.assert_no_reports();
}
