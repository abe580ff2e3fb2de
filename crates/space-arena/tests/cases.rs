//! Faults that people met in other allocators, each with the answer that is right here.

use std::{alloc::Layout, mem::MaybeUninit};

#[cfg(feature = "mmap")]
use space_arena::MappedSlab;
use space_arena::{Arena, BorrowedSlab, HostSlab};
#[cfg(feature = "mmap")]
use space_core::Alignment;
use space_core::{AllocError, Block, Heap, Host, HostBlock, HostCarve, Space, Undef};

#[derive(Clone, Copy)]
#[repr(align(512))]
struct Sector([u8; 512]);

/// Case 1 (fitzgen/bumpalo#19): a request aligned above the slab's own alignment.
#[test]
fn case_01_alignment_above_the_slabs_own_is_of_the_address() {
    let mut bytes = vec![MaybeUninit::<u8>::uninit(); 1 << 14];
    for shift in [0, 1, 16, 100, 511] {
        let slab = BorrowedSlab::new(&mut bytes[shift..]);
        let mut arena = Arena::builder()
            .alignment(16)
            .max_alignment(512)
            .build(slab)
            .unwrap();
        let frame = arena.frame();
        let wide = frame
            .block(Layout::from_size_align(1024, 32).unwrap())
            .unwrap();
        assert_eq!(wide.address().addr().get() % 32, 0);
        assert_eq!(frame.offset(), 1024);
        let sector = frame
            .alloc(Undef::<Sector, _>::new([2]))
            .unwrap()
            .filled(Sector([7; 512]));
        assert_eq!(sector.as_ptr().addr() % 512, 0);
        assert_eq!(frame.offset(), 2048);
        let next = frame.alloc(Undef::<u8, _>::new([100])).unwrap().filled(9);
        assert!(sector.iter().all(|it| it.0 == [7; 512]));
        assert_eq!(*next, [9; 100]);
    }
}

/// Case 1: padding that does not fit.
#[test]
fn case_01_alignment_that_does_not_fit_changes_nothing() {
    let mut arena = Arena::builder()
        .alignment(16)
        .max_alignment(512)
        .capacity(1024)
        .unwrap();
    let _one = arena.alloc(Undef::<u8, _>::new([1])).unwrap();
    let mark = arena.mark();
    let refused = arena.alloc(Undef::<Sector, _>::new([2])).map(drop);
    assert!(matches!(
        refused,
        Err(AllocError::OutOfCapacity {
            wanted_bytes: 1024,
            align: 512,
            remaining_bytes: 1008,
            capacity_bytes: 1024,
        })
    ));
    assert_eq!((arena.mark(), arena.watermark()), (mark, 16));
    arena.retract(mark).unwrap();
}

/// An arena of alignment 1 leaves it to the element types, and loses no byte besides.
#[test]
fn natural_alignment_is_the_element_types_own() {
    let mut arena = Arena::builder().alignment(1).capacity(64).unwrap();
    assert_eq!((arena.alignment().alignment(), arena.capacity()), (1, 64));
    let frame = arena.frame();
    let bytes = frame.alloc(Undef::<u8, _>::new([3])).unwrap().filled(1);
    assert_eq!(frame.offset(), 3);
    // No elements take no bytes, wherever the cursor stands.
    assert_eq!(frame.alloc(Undef::<u128, _>::new([0])).unwrap().len(), 0);
    let none = Layout::from_size_align(0, 16).unwrap();
    assert_eq!(frame.block(none).unwrap().address().addr().get() % 16, 0);
    assert_eq!(frame.offset(), 3);
    let floats = frame.alloc(Undef::<f32, _>::new([2])).unwrap().filled(2.0);
    assert_eq!(frame.offset(), 12);
    let triples = frame.alloc(Undef::<[u16; 3], _>::new([1])).unwrap();
    let triples = triples.filled([3; 3]);
    assert_eq!((frame.offset(), triples.as_ptr().addr() % 2), (18, 0));
    let wide = frame.alloc(Undef::<u128, _>::new([1])).unwrap().filled(4);
    assert_eq!((frame.offset(), wide.as_ptr().addr() % 16), (48, 0));
    let layout = Layout::from_size_align(5, 2).unwrap();
    assert_eq!(frame.block(layout).unwrap().address().addr().get() % 2, 0);
    assert_eq!(frame.offset(), 54);
    let rest = frame.alloc(Undef::<u8, _>::new([10])).unwrap().filled(5);
    assert_eq!(frame.remaining(), 0);
    assert_eq!((&*bytes, &*floats), (&[1; 3][..], &[2.0; 2][..]));
    assert_eq!((&*triples, &*wide), (&[[3; 3]][..], &[4][..]));
    assert_eq!(*rest, [5; 10]);
    assert_eq!((arena.offset(), arena.watermark()), (64, 64));
}

/// Case 9 (rapidsai/rmm#2342): an alignment above what the allocator serves, silently ignored.
#[test]
fn case_09_alignment_that_the_arena_was_not_built_for_is_refused() {
    let mut arena = Arena::with_capacity(1 << 14).unwrap();
    let frame = arena.frame();
    for align in [512, 4096, 1 << 30] {
        let refused = frame
            .block(Layout::from_size_align(1000, align).unwrap())
            .map(drop);
        assert!(matches!(
            refused,
            Err(AllocError::BadAlign { requested, max: 256 }) if requested == align
        ));
        let none = frame
            .block(Layout::from_size_align(0, align).unwrap())
            .unwrap();
        assert_eq!(none.address().addr().get() % align, 0);
    }
    assert_eq!(frame.offset(), 0);
    for align in [0, 3, 257] {
        for builder in [
            Arena::builder().alignment(align),
            Arena::builder().max_alignment(align),
        ] {
            assert!(matches!(
                builder.capacity(1000),
                Err(AllocError::BadAlign { requested, .. }) if requested == align
            ));
        }
        assert!(matches!(
            HostSlab::aligned(1000, align),
            Err(AllocError::BadAlign { requested, .. }) if requested == align
        ));
    }
}

/// Case 2 (fitzgen/bumpalo#313): no bytes at a large alignment, of an arena at its limit.
#[test]
fn case_02_no_bytes_cost_nothing_in_a_full_arena() {
    let mut packed = Arena::builder().alignment(1).capacity(16).unwrap();
    let frame = packed.frame();
    let _all_but_one = frame.alloc(Undef::<u8, _>::new([15])).unwrap();
    assert_eq!(frame.alloc(Undef::<u128, _>::new([0])).unwrap().len(), 0);
    assert_eq!(frame.remaining(), 1);
    let _last = frame.alloc(Undef::<u8, _>::new([1])).unwrap();
    assert_eq!(frame.alloc(Undef::<u128, _>::new([0])).unwrap().len(), 0);
    assert_eq!((packed.offset(), packed.watermark()), (16, 16));

    let mut arena = Arena::builder()
        .alignment(16)
        .max_alignment(64)
        .capacity(64)
        .unwrap();
    let frame = arena.frame();
    let _all_but_one = frame.alloc(Undef::<u128, _>::new([3])).unwrap();
    for remaining in [16, 16, 0, 0] {
        if remaining == 0 && frame.remaining() > 0 {
            frame.alloc(Undef::<u8, _>::new([1])).unwrap();
        }
        let none = frame.alloc(Undef::<u128, _>::new([0])).unwrap();
        assert_eq!((none.len(), none.as_ptr().addr() % 16), (0, 0));
        let wide = frame
            .block(Layout::from_size_align(0, 4096).unwrap())
            .unwrap();
        assert_eq!((wide.bytes(), wide.address().addr().get() % 4096), (0, 0));
        let units = frame.alloc(Undef::<(), _>::new([1000])).unwrap().filled(());
        assert_eq!(units.len(), 1000);
        assert_eq!(
            frame.alloc(Undef::<f64, _>::new([3, 0, 2])).unwrap().len(),
            0
        );
        assert_eq!(frame.remaining(), remaining);
    }
    assert!(matches!(
        frame.alloc(Undef::<u8, _>::new([1])),
        Err(AllocError::OutOfCapacity {
            remaining_bytes: 0,
            ..
        })
    ));
    assert_eq!((arena.offset(), arena.watermark()), (64, 64));
}

/// Case 3 (bluurryy/bump-scope#129): storage moved above a mark, and a rewind below it. Here an array can't be used
/// after a retract at all (see the compile-fail tests); what is left are the marks themselves.
#[test]
fn case_03_marks_are_told_apart() {
    let mut arena = Arena::with_capacity(1 << 14).unwrap();
    let mut other = Arena::with_capacity(1 << 14).unwrap();
    let carve = |arena: &mut Arena<HostSlab>| {
        arena
            .frame()
            .alloc(Undef::<u8, _>::new([1]))
            .map(drop)
            .unwrap();
    };
    let early = arena.mark();
    carve(&mut arena);
    let late = arena.mark();
    assert_eq!((early.offset(), late.offset()), (0, 256));

    assert!(matches!(
        other.retract(late),
        Err(AllocError::MarkOfOtherArena { mark, arena }) if mark != arena
    ));
    arena.retract(early).unwrap();
    assert!(matches!(
        arena.retract(late),
        Err(AllocError::MarkAboveOffset {
            mark_bytes: 256,
            offset_bytes: 0
        })
    ));
    arena.retract(early).unwrap();
    arena.retract(early).unwrap();

    carve(&mut arena);
    arena.reset().unwrap();
    let refused = arena.retract(early);
    assert!(matches!(
        &refused,
        Err(AllocError::StaleMark { mark, now }) if (mark.number(), now.number()) == (0, 1)
    ));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "this mark is of epoch 0, the arena is in epoch 1: it was reset since; take marks anew \
         after a reset"
    );
    assert_eq!((arena.offset(), arena.watermark()), (0, 256));
}

/// Case 7 (NVlabs/cuda-oxide#252): a byte count that wraps gives a tiny block with a huge length.
#[test]
fn case_07_byte_counts_that_overflow_are_refused() {
    let mut arena = Arena::with_capacity(1 << 14).unwrap();
    let mut frame = arena.frame();
    let wraps = (1 << 61) + 1;
    for refused in [
        frame.alloc(Undef::<u64, _>::new([wraps])).map(drop),
        frame.alloc(Undef::<u64, _>::new(vec![wraps])).map(drop),
        frame.scratch(|inner| inner.alloc(Undef::<u64, _>::new([wraps])).map(drop)),
        Heap.alloc(Undef::<u64, _>::new([wraps])).map(drop),
    ] {
        assert!(matches!(
            refused,
            Err(AllocError::SizeOverflow { len, elem_size: 8 }) if len == wraps
        ));
    }
    let rows_and_columns = frame.alloc(Undef::<u64, _>::new([1 << 33, 1 << 33]));
    assert!(matches!(
        rows_and_columns,
        Err(AllocError::SizeOverflow {
            len: usize::MAX,
            elem_size: 8
        })
    ));
    let above_isize_max = frame.alloc(Undef::<u8, _>::new([isize::MAX as usize + 1]));
    assert!(matches!(
        above_isize_max,
        Err(AllocError::SizeOverflow { elem_size: 1, .. })
    ));
    let merely_large = frame.alloc(Undef::<u64, _>::new([1 << 40]));
    assert!(matches!(
        merely_large,
        Err(AllocError::OutOfCapacity { .. })
    ));
    assert_eq!((arena.offset(), arena.watermark()), (0, 0));
}

/// Case 7, of elements without size.
#[test]
fn case_07_lengths_that_overflow_are_refused_of_elements_without_size_too() {
    let mut arena = Arena::with_capacity(1 << 14).unwrap();
    let mut frame = arena.frame();
    let overflow = [usize::MAX, 2];
    for refused in [
        frame.alloc(Undef::<(), _>::new(overflow)).map(drop),
        frame
            .alloc(Undef::<(), _>::new(overflow.to_vec()))
            .map(drop),
        frame.scratch(|inner| inner.alloc(Undef::<(), _>::new(overflow)).map(drop)),
        Heap.scratch(|inner| inner.alloc(Undef::<(), _>::new(overflow)).map(drop)),
        Heap.alloc(Undef::<(), _>::new(overflow)).map(drop),
    ] {
        assert!(
            matches!(refused, Err(AllocError::SizeOverflow { elem_size: 0, .. })),
            "{refused:?}"
        );
    }
    let most = frame.alloc(Undef::<(), _>::new([usize::MAX])).unwrap();
    assert_eq!((most.len(), frame.offset()), (usize::MAX, 0));
}

#[test]
fn a_slab_that_ends_inside_its_pad_is_refused() {
    let mut bytes = [MaybeUninit::<u8>::uninit(); 64];
    let odd = usize::from(bytes.as_ptr().addr().is_multiple_of(2));
    let base = bytes[odd..].as_ptr().addr();
    let pad = base.next_multiple_of(256) - base;
    if pad > 63 {
        let refused = Arena::over(BorrowedSlab::new(&mut bytes[odd..63 + odd]));
        assert!(matches!(
            refused,
            Err(AllocError::SlabTooSmall { slab_bytes: 63, pad_bytes, align: 256 })
                if pad_bytes == pad
        ));
    }
}

#[cfg(feature = "mmap")]
#[test]
#[cfg_attr(miri, ignore = "two gibibytes are too many there")]
fn an_alignment_of_a_gibibyte_is_served() {
    let gibibyte = 1 << 30;
    let alignment = Alignment::new(16).unwrap().up_to(gibibyte).unwrap();
    let slab = MappedSlab::new(alignment.slab_bytes(gibibyte).unwrap()).unwrap();
    let mut arena = Arena::aligned(slab, alignment).unwrap();
    assert!(arena.capacity() >= gibibyte);
    let frame = arena.frame();
    let layout = Layout::from_size_align(1000, gibibyte).unwrap();
    let block = frame.block(layout).unwrap();
    assert_eq!(block.address().addr().get() % gibibyte, 0);
    assert_eq!(frame.offset(), gibibyte);
}

#[cfg(feature = "mmap")]
#[test]
fn a_mapping_is_zeroed_memory_of_its_size() {
    let slab = MappedSlab::new(100_000).unwrap();
    assert!(slab.bytes() >= 100_000);
    let mut arena = Arena::over(slab).unwrap();
    assert_eq!(arena.capacity(), 100_096);
    let all = arena
        .frame()
        .alloc(Undef::<u8, _>::new([100_096]))
        .unwrap()
        .filled(1);
    assert_eq!(
        all.iter().map(|&it| usize::from(it)).sum::<usize>(),
        100_096
    );

    assert_eq!(
        Arena::over(MappedSlab::new(0).unwrap()).unwrap().capacity(),
        0
    );
    assert!(matches!(
        MappedSlab::new(usize::MAX),
        Err(AllocError::SizeOverflow {
            len: usize::MAX,
            elem_size: 1
        })
    ));
}

#[cfg(feature = "mmap")]
#[test]
#[cfg_attr(miri, ignore = "its system has no huge pages to ask for")]
fn huge_pages_are_asked_for_and_whatever_comes_is_used() {
    let (slab, granted) = MappedSlab::huge(3 << 20).unwrap();
    let mut arena = Arena::over(slab).unwrap();
    assert!(arena.capacity() >= 3 << 20, "{granted:?}");
    let ones = arena
        .frame()
        .alloc(Undef::<u32, _>::new([1 << 18]))
        .unwrap()
        .filled(1);
    assert_eq!(ones.iter().sum::<u32>(), 1 << 18);
}

#[test]
fn a_failed_specification_leaves_no_trace() {
    let mut arena = Arena::with_capacity(1 << 12).unwrap();
    let frame = arena.frame();
    let one = Undef::<f32, _>::new([100]);
    let too_large = Undef::<f32, _>::new([1 << 20]);
    let first = frame.alloc(one).unwrap().as_ptr().addr();
    for _ in 0..100 {
        assert!(frame.alloc((one, [one, one], Some(too_large))).is_err());
    }
    assert_eq!(frame.offset(), 512);
    let second = frame.alloc(one).unwrap().as_ptr().addr();
    assert_eq!(first - second, 512);
    assert_eq!(arena.watermark(), 1024);
}

#[test]
fn a_panic_in_a_frame_retracts() {
    let mut arena = Arena::with_capacity(1 << 12).unwrap();
    let mut frame = arena.frame();
    let kept = frame.alloc(Undef::<u8, _>::new([10])).unwrap().filled(3);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        frame.scratch(|inner| {
            inner.scratch(|inmost| inmost.alloc(Undef::<u8, _>::new([600])).map(drop).unwrap());
            let _there = inner.alloc(Undef::<u8, _>::new([10])).unwrap();
            panic!("the user's own");
        })
    }));
    assert!(caught.is_err());
    assert_eq!(frame.offset(), 256);
    assert_eq!(*kept, [3; 10]);
    assert_eq!(arena.watermark(), 256 + 768);
}

#[test]
fn an_arena_moves_between_threads() {
    fn sendable<T: Send>(_: &T) {}
    let mut arena = Arena::with_capacity(1 << 12).unwrap();
    sendable(&arena);
    let mark = arena.mark();
    arena
        .frame()
        .alloc(Undef::<u8, _>::new([10]))
        .map(drop)
        .unwrap();
    let mut arena = std::thread::spawn(move || {
        arena
            .frame()
            .alloc(Undef::<u8, _>::new([10]))
            .map(drop)
            .unwrap();
        arena
    })
    .join()
    .unwrap();
    assert_eq!(arena.offset(), 512);
    arena.retract(mark).unwrap();
}

#[test]
fn arrays_of_a_frame_can_be_worked_on_by_other_threads() {
    let mut arena = Arena::with_capacity(1 << 12).unwrap();
    let frame = arena.frame();
    let mut halves = frame
        .alloc([Undef::<u32, _>::new([100]); 2])
        .unwrap()
        .map(|it| it.filled(1));
    std::thread::scope(|scope| {
        for half in &mut halves {
            scope.spawn(|| half.iter_mut().for_each(|it| *it += 1));
        }
    });
    assert_eq!(*halves[1], [2; 100]);
}

#[test]
fn raw_marks_of_a_frame_give_back_without_ending_it() {
    let mut arena = Arena::with_capacity(1 << 12).unwrap();
    let mut frame = arena.frame();
    frame.scratch(|inner| {
        let kept = inner.alloc(Undef::<u8, _>::new([10])).unwrap().filled(1);
        let mark = inner.mark();
        for _ in 0..100 {
            inner.alloc(Undef::<u8, _>::new([2000])).map(drop).unwrap();
            // SAFETY: The carve is gone, and the mark is of this frame.
            unsafe { inner.retract_raw(mark) }.unwrap();
        }
        assert_eq!((inner.offset(), &*kept), (256, &[1; 10][..]));
    });
    assert_eq!((arena.offset(), arena.watermark()), (0, 256 + 2048));
}

#[test]
fn a_space_without_its_type_does_the_same() {
    fn step<S: Space<Family = Host>>(space: &mut S, n: usize) -> Result<(), AllocError> {
        space
            .alloc((Undef::<f32, _>::new([4]), Undef::<u8, _>::new([n])))
            .map(drop)?;
        space.scratch(|frame| frame.alloc(Undef::<f64, _>::new(vec![2, 3])).map(drop))
    }
    let mut arena = Arena::with_capacity(1 << 12).unwrap();
    let frame = arena.frame();
    let mut erased: &dyn Space<Family = Host, Block = HostCarve<'_>> = &frame;
    step(&mut erased, 1).unwrap();
    // The frame over the borrow keeps its blocks; the arena has them until its own frame ends.
    assert_eq!(frame.offset(), 768);
    assert!(step(&mut erased, 1 << 12).is_err());
    assert_eq!(frame.offset(), 768);

    let heap: &dyn Space<Family = Host, Block = HostBlock> = &Heap;
    let array = (&heap)
        .alloc(Undef::<u32, _>::new([2, 2]))
        .unwrap()
        .filled(7);
    assert_eq!(*array, [7; 4]);
}
