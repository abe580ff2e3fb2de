//! Cases 1, 2 and 6 to 9: sizes and alignment.

use super::{address, arena};
use crate::kit::{Kit, Rig, block_on};
use cuda_buffer::{
    BufferError, CudaBuffer, DeviceData, DeviceSlab, DeviceSpace, PartitionedCudaBuffer,
    PinnedBuffer, PinnedPool, Rows, copy_slice,
};
use cuda_driver::Driver;
use cuda_runtime::RuntimeError;
use cuda_sim::SimDriver;
use space_arena::Arena;
use space_core::{AllocError, Space, Undef};
use std::alloc::Layout;

/// Larger and more aligned than what the driver aligns allocations to.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(align(512))]
struct Sector([u8; 512]);

// SAFETY: bytes without gaps.
unsafe impl bytemuck::Zeroable for Sector {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Sector {}

/// Case 1 (fitzgen/bumpalo#19): alignment is of the address, not of the offset, and what does not fit changes nothing.
#[test]
fn case_01_alignment_above_the_slabs_own_is_of_the_address() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let [s] = rig.streams();
    let mut bases = std::collections::BTreeSet::new();
    let mut shift = Vec::new();
    for _ in 0..4 {
        shift.push(CudaBuffer::<u8>::new_on(&s, 256).unwrap());
        let slab = DeviceSlab::new(&device, 4096 + 128).unwrap();
        let mut arena = Arena::builder()
            .alignment(16)
            .max_alignment(512)
            .build(slab)
            .unwrap();
        let frame = arena.frame();
        let mut wide = frame.alloc(Undef::<[u64; 4], _>::new([32])).unwrap();
        let mut one = frame.alloc(Undef::<u8, _>::new([1])).unwrap();
        assert_eq!(frame.offset(), 1040);
        let mut sectors = frame.alloc(Undef::<Sector, _>::new([2])).unwrap();
        bases.insert(address(&wide, &s).0 % 512);
        assert_eq!(address(&sectors, &s).0 % 512, 0);
        assert_eq!((frame.offset(), sectors.len()), (2560, 2));
        wide.fill_bytes(&s, 1).unwrap();
        one.fill_bytes(&s, 2).unwrap();
        sectors.fill_bytes(&s, 3).unwrap();
        let mut next = frame.alloc(Undef::<u8, _>::new([100])).unwrap();
        next.fill_bytes(&s, 4).unwrap();
        assert_eq!(sectors.to_vec().unwrap(), [Sector([3; 512]); 2]);
        assert_eq!(wide.to_vec().unwrap(), [[0x0101_0101_0101_0101; 4]; 32]);
        assert_eq!(
            (one.to_vec().unwrap(), next.to_vec().unwrap()),
            (vec![2], vec![4; 100])
        );
        let left = frame.remaining();
        let before = frame.offset();
        let refused = frame
            .alloc(Undef::<Sector, _>::new([left / 512 + 1]))
            .map(drop);
        assert!(
            matches!(refused, Err(AllocError::OutOfCapacity { align: 512, remaining_bytes, .. }) if remaining_bytes == left),
            "{refused:?}"
        );
        assert_eq!(frame.offset(), before);
        drop((wide, one, sectors, next));
        assert_eq!((arena.offset(), arena.watermark()), (before, before));
    }
    assert_eq!(
        bases.into_iter().collect::<Vec<_>>(),
        [0],
        "the origin is padded"
    );
    drop((shift, device, s));
    rig.finish();
}

/// Case 2 (fitzgen/bumpalo#313): no bytes fit always, also in an arena of nothing and in a full one.
#[test]
fn case_02_no_bytes_cost_nothing_in_a_full_arena() {
    let rig = Rig::seeded(0, 1);
    for bytes in [0, 256, 512] {
        let mut arena = arena(&rig, bytes);
        let frame = arena.frame();
        let all = frame.alloc(Undef::<u8, _>::new([bytes])).unwrap();
        let offset = frame.offset();
        for align in [1, 16, 256, 4096] {
            let layout = Layout::from_size_align(0, align).unwrap();
            drop(frame.block(layout).unwrap());
        }
        let nothing = frame.alloc(Undef::<Sector, _>::new([3, 0])).unwrap();
        assert!(nothing.is_empty());
        assert!(nothing.to_vec().unwrap().is_empty());
        assert_eq!(frame.offset(), offset);
        let one_more = frame.alloc(Undef::<u8, _>::new([1])).map(drop);
        assert!(
            matches!(
                one_more,
                Err(AllocError::OutOfCapacity {
                    remaining_bytes: 0,
                    ..
                })
            ),
            "{one_more:?}"
        );
        drop((all, nothing));
        assert_eq!((arena.offset(), arena.watermark()), (bytes, bytes));
    }
    rig.finish();
}

/// Case 6 (chelsea0x3b/cudarc#194): a buffer of no elements is a value like any other, and the driver never hears of it.
#[test]
fn case_06_empty_buffers_make_no_driver_call() {
    for pools in [true, false] {
        empty_buffers(Rig::new(SimDriver::builder().pools(pools), 1));
    }
}

fn empty_buffers(rig: Rig) {
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
    let (left, right) = x.view_mut().split_at(0).unwrap();
    assert!(left.is_empty() && right.is_empty());
    assert_eq!(block_on(x.to_vec_async()).unwrap(), [0.0; 0]);
    x.synchronize().unwrap();
    let registered =
        PinnedBuffer::<f32>::register(&device, Vec::new()).map_err(|refused| refused.error);
    assert_eq!(registered.unwrap().host_read().unwrap().len(), 0);
    assert!(
        PinnedPool::new(&device)
            .buffer::<f32>(0)
            .unwrap()
            .is_empty()
    );
    let parts = PartitionedCudaBuffer::<f32>::padded(&device, &[0, 0], 64).unwrap();
    assert_eq!((parts.parts().len(), parts.len()), (2, 0));
    drop(parts);
    drop(DeviceSlab::new(&device, 0).unwrap());
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
fn case_06_empty_buffers_can_be_operands() {
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
fn case_07_sizes_that_wrap_are_refused() {
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
    let above = isize::MAX as usize + 1;
    let too_large = |result: Result<(), BufferError>, len, element_bytes| {
        assert_eq!(
            result,
            Err(BufferError::SizeOverflow { len, element_bytes })
        );
    };
    too_large(CudaBuffer::<u8>::new(&device, above).map(drop), above, 1);
    too_large(PinnedBuffer::<u8>::new(&device, above).map(drop), above, 1);
    too_large(
        PinnedPool::new(&device).buffer::<u8>(above).map(drop),
        above,
        1,
    );
    too_large(DeviceSlab::new(&device, above).map(drop), above, 1);
    let padded = |lens: &[usize]| PartitionedCudaBuffer::<u64>::padded(&device, lens, 64).map(drop);
    for lens in [&[len][..], &[1, len], &[usize::MAX, 1], &[1 << 59, 1 << 59]] {
        let error = padded(lens).unwrap_err();
        assert!(matches!(error, BufferError::SizeOverflow { .. }), "{error}");
    }
    let space = DeviceSpace::of(&device);
    let error = space.typed::<u64, _>([len]).map(drop).unwrap_err();
    assert!(matches!(error, AllocError::SizeOverflow { .. }), "{error}");
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
    drop((device, arena, space));
    rig.finish();
}

/// Case 8 (bheisler/RustaCUDA#38): lengths are elements, byte counts are bytes, and neither is scaled twice.
#[test]
fn case_08_a_buffer_takes_as_many_bytes_as_it_has() {
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

/// Case 8, of elements without size: spaces count them and take no bytes. Buffers of them do not compile, as their
/// documentation says and shows.
#[test]
fn case_08_elements_without_size_are_counted_and_take_no_bytes() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let [s] = rig.streams();
    let mut arena = arena(&rig, 256);
    let before = rig.sim.counters().snapshot();
    let mut x = DeviceSpace::of(&device).typed::<(), _>([10, 100]).unwrap();
    let frame = arena.frame();
    let mut y = frame.alloc(Undef::<(), _>::new([1000])).unwrap();
    assert_eq!((x.len(), y.len(), frame.offset()), (1000, 1000, 0));
    x.copy_from_slice(&[(); 1000]).unwrap();
    y.copy_from(&x, &s).unwrap();
    assert_eq!(y.to_vec().unwrap(), [(); 1000]);
    y.fill(&s, ()).unwrap();
    y.fill_bytes(&s, 7).unwrap();
    let rows = Rows {
        width: 5,
        rows: 10,
        dst_pitch: 100,
        src_pitch: 5,
    };
    y.copy_rows_from(&x, rows, &s).unwrap();
    {
        let mut access = y.write_synchronized_with(&s).unwrap();
        let (left, right) = access.as_slice_mut().split_at(500).unwrap();
        copy_slice(&s, left, right.as_read()).unwrap();
    }
    let (left, right) = y.view_mut().split_at(400).unwrap();
    assert_eq!((left.len(), right.len()), (400, 600));
    assert_eq!(y.read().slice(999..1000).unwrap().len(), 1);
    assert_eq!(
        y.read().slice(1000..1001).unwrap_err(),
        BufferError::OutOfBounds {
            start: 1000,
            end: 1001,
            len: 1000
        }
    );
    assert_eq!(
        y.copy_from_slice(&[(); 999]).unwrap_err(),
        BufferError::LengthMismatch {
            src: 999,
            dst: 1000
        }
    );
    drop((x, y));
    assert_eq!((rig.sim.counters().snapshot() - before).total(), 0);
    drop((arena, device, s));
    rig.finish();
}

/// Case 9 (rapidsai/rmm#2342): an alignment that is not kept is refused.
#[test]
fn case_09_alignment_beyond_what_the_driver_gives_is_refused() {
    let rig = Rig::seeded(0, 1);
    let space = DeviceSpace::of(rig.runtime.default_device());
    for align in [512, 4096] {
        let layout = Layout::from_size_align(1000, align).unwrap();
        let error = space.block(layout).map(drop).unwrap_err();
        assert!(
            matches!(error, AllocError::BadAlign { requested, max: 256 } if requested == align),
            "{error}"
        );
        drop(
            space
                .block(Layout::from_size_align(0, align).unwrap())
                .unwrap(),
        );
    }
    for align in [0, 3, 257] {
        let slab = || DeviceSlab::new(rig.runtime.default_device(), 1024).unwrap();
        for builder in [
            Arena::builder().alignment(align),
            Arena::builder().max_alignment(align),
        ] {
            let error = builder.build(slab()).map(drop).unwrap_err();
            assert!(
                matches!(error, AllocError::BadAlign { requested, .. } if requested == align),
                "{error}"
            );
        }
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
