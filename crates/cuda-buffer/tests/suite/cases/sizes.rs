//! Cases 6 to 9: sizes and alignment.

use super::arena;
use crate::kit::{Kit, Rig};
use cuda_buffer::{BufferError, CudaBuffer, DeviceData, DeviceSpace, PinnedBuffer, copy_slice};
use cuda_driver::Driver;
use cuda_runtime::RuntimeError;
use space_core::{AllocError, Space, Undef};
use std::alloc::Layout;

/// Case 6 (chelsea0x3b/cudarc#194): a buffer of no elements is a value like any other, and the driver never hears of it.
#[test]
fn empty_buffers_make_no_driver_call() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let [s] = rig.streams();
    let before = rig.sim.counters().snapshot();
    let mut x = CudaBuffer::<f32>::new(&device, 0).unwrap();
    let mut y = CudaBuffer::<f32>::new_on(&s, 0).unwrap();
    let mut pinned = PinnedBuffer::<f32>::new(&device, 0).unwrap();
    assert_eq!(
        (x.len(), x.bytes(), x.is_empty(), pinned.is_empty()),
        (0, 0, true, true)
    );
    x.fill(&s, 1.0).unwrap();
    x.fill_bytes(&s, 1).unwrap();
    x.copy_from(&y, &s).unwrap();
    x.copy_from_pinned(&pinned, &s).unwrap();
    x.copy_to_pinned(&mut pinned, &s).unwrap();
    x.copy_from_slice(&[]).unwrap();
    assert_eq!(x.to_vec().unwrap(), [0.0; 0]);
    assert_eq!(pinned.host_read().unwrap().len(), 0);
    assert!(pinned.host_write().unwrap().as_ptr().is_aligned());
    assert!(x.write().slice(0..0).is_ok());
    let error = x.read().slice(0..1).unwrap_err();
    assert_eq!(
        error,
        BufferError::OutOfBounds {
            start: 0,
            end: 1,
            len: 0
        }
    );
    let error = y.copy_from_slice(&[1.0]).unwrap_err();
    assert_eq!(error, BufferError::LengthMismatch { src: 1, dst: 0 });
    let carve = DeviceSpace::of(&device).typed::<f32, _>([0, 5]).unwrap();
    assert!(carve.is_empty());
    drop((x, y, pinned, carve));
    assert_eq!((rig.sim.counters().snapshot() - before).total(), 0);
    drop((device, s));
    rig.finish();
}

/// Case 6, under guards: an access of nothing can be held, split and launched with.
#[test]
fn empty_buffers_can_be_operands() {
    let rig = Rig::seeded(0, 1);
    let kit = Kit::new(rig.runtime.default_device());
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, 0).unwrap();
    kit.step(&s, &mut x, 1).unwrap();
    let mut access = x.write_synchronized_with(&s).unwrap();
    let (left, right) = access.as_slice_mut().split_at(0).unwrap();
    assert!(left.is_empty() && right.is_empty());
    copy_slice(&s, left, right.as_read()).unwrap();
    drop(access);
    drop((x, kit, s));
    rig.finish();
}

/// Case 7 (NVlabs/cuda-oxide#252): a byte count that wraps is refused before the driver hears of it.
#[test]
fn sizes_that_wrap_are_refused() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let mut arena = arena(&rig, 1024);
    let before = rig.sim.counters().snapshot();
    let len = (1 << 61) + 1;
    let overflow = BufferError::SizeOverflow {
        len,
        element_bytes: 8,
    };
    assert_eq!(CudaBuffer::<u64>::new(&device, len).unwrap_err(), overflow);
    assert_eq!(
        PinnedBuffer::<u64>::new(&device, len).unwrap_err(),
        overflow
    );
    assert!(CudaBuffer::<u8>::new(&device, isize::MAX as usize + 1).is_err());
    let frame = arena.frame();
    let error = frame.alloc(Undef::<u64, _>::new([len])).unwrap_err();
    assert!(matches!(error, AllocError::SizeOverflow { .. }), "{error}");
    let error = frame
        .alloc(Undef::<u64, _>::new([1 << 31, 1 << 31]))
        .unwrap_err();
    assert!(matches!(error, AllocError::SizeOverflow { .. }), "{error}");
    assert_eq!(arena.offset(), 0);
    assert_eq!((rig.sim.counters().snapshot() - before).total(), 0);
    // Too much, but a number: the device is asked, and says no.
    let error = CudaBuffer::<u64>::new(&device, 1 << 40).unwrap_err();
    assert!(
        matches!(error, BufferError::Runtime(RuntimeError::OutOfMemory { wanted_bytes, .. }) if wanted_bytes == 1 << 43),
        "{error}"
    );
    drop((device, arena));
    rig.finish();
}

/// Case 8 (bheisler/RustaCUDA#38): lengths are elements, byte counts are bytes, and neither is scaled twice.
#[test]
fn a_buffer_takes_as_many_bytes_as_it_has() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let x = CudaBuffer::<i64>::new(&device, 1000).unwrap();
    assert_eq!(
        (x.len(), x.bytes(), device.alive().allocated_bytes),
        (1000, 8000, 8000)
    );
    let y = DeviceSpace::of(&device).typed::<i64, _>([10, 10]).unwrap();
    assert_eq!((y.len(), device.alive().allocated_bytes), (100, 8800));
    drop((x, y, device));
    rig.finish();
}

/// Case 9 (rapidsai/rmm#2342): an alignment that is not kept is refused.
#[test]
fn alignment_beyond_what_the_driver_gives_is_refused() {
    let rig = Rig::seeded(0, 1);
    let space = DeviceSpace::of(rig.runtime.default_device());
    for align in [512, 4096] {
        let layout = Layout::from_size_align(1000, align).unwrap();
        let error = space.block(layout).map(drop).unwrap_err();
        assert!(
            matches!(error, AllocError::BadAlign { requested, max: 256 } if requested == align),
            "{error}"
        );
    }
    for align in [1, 16, 256] {
        drop(
            space
                .block(Layout::from_size_align(1000, align).unwrap())
                .unwrap(),
        );
    }
    drop(space);
    rig.finish();
}
