//! Allocators: what they hand out, and when they take it back.

mod support;

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Barrier, mpsc},
    thread,
    time::{Duration, Instant},
};

use ndarray::{Axis, Ix1, s};
use space_array::{
    AllocArray, AllocBuffer, ArrayError, BumperAllocator, CheckedAllocArray, InvalidMemory,
    ResetError, with_allocator,
};
use space_core::AllocError;
use support::{bumper, growing};

#[test]
fn a_live_array_keeps_the_memory() {
    let bumper = bumper(4096);
    let x = with_allocator(&bumper, || AllocArray::filled([8], 7_u32));
    let y = with_allocator(&bumper, || &x + 1);
    assert_eq!(bumper.reset(), Err(ResetError::ArraysAlive { arrays: 2 }));
    assert_eq!(
        bumper.reset_within(Duration::from_secs(60)),
        Err(ResetError::ArraysAlive { arrays: 2 })
    );
    assert_eq!(y.sum(), 64);
    drop(x);
    assert_eq!(bumper.reset(), Err(ResetError::ArraysAlive { arrays: 1 }));
    drop(y);
    assert_eq!(bumper.reset(), Ok(()));
    assert_eq!(bumper.generation(), 1);
}

#[test]
fn arrays_outlive_their_allocator() {
    let x = with_allocator(&bumper(4096), || AllocArray::filled([8], 7_u32));
    let y = with_allocator(&growing(0), || CheckedAllocArray::filled([8], 7_u32));
    assert_eq!((x.sum(), y.sum()), (56, 56));
}

#[test]
fn case_04_checked_arrays_become_invalid() {
    // bluurryy/bump-scope#137: the byte 2 is never seen as a `bool`.
    let bumper = bumper(4096);
    let mut flag = with_allocator(&bumper, || CheckedAllocArray::filled([1], true));
    assert_eq!(bumper.reset(), Ok(()));
    let byte = with_allocator(&bumper, || AllocArray::filled([1], 2_u8));
    let gone = InvalidMemory::GivenBack {
        allocator: bumper.id(),
        made: 0,
        now: 1,
    };
    assert_eq!(flag.try_get([0]), Err(gone.clone()));
    assert_eq!(flag.try_set([0], false), Err(gone.clone()));
    assert_eq!(flag.try_view().err(), Some(gone.clone()));
    assert_eq!(flag.try_view_mut().err(), Some(gone));
    assert!(matches!(flag.try_map(|x| x), Err(ArrayError::Invalid(_))));
    assert!(matches!(flag.try_fill(true), Err(ArrayError::Invalid(_))));
    assert!(!flag.is_valid());
    assert_eq!(flag.shape(), [1]);
    assert!(format!("{flag:?}").contains("generation"), "{flag:?}");
    assert_eq!(byte[[0]], 2);
}

#[test]
fn a_view_keeps_the_memory() {
    let bumper = bumper(4096);
    let x = with_allocator(&bumper, || CheckedAllocArray::filled([8], 7_u32));
    let first = x.try_view().unwrap();
    let second = x.try_view().unwrap().slice(s![2..4]);
    let views = |views, own| Err(ResetError::ViewsAlive { views, own });
    assert_eq!(bumper.reset(), views(2, 2));
    drop(first);
    let start = Instant::now();
    assert_eq!(
        bumper.reset_within(Duration::from_secs(60)),
        Err(ResetError::OwnViews { views: 1, own: 1 })
    );
    assert!(start.elapsed() < Duration::from_secs(30));
    thread::scope(|threads| {
        let (bumper, second) = (&bumper, &second);
        threads.spawn(move || {
            assert_eq!(second.view().sum(), 14);
            assert_eq!(bumper.reset(), views(1, 0));
            let waited = bumper.reset_within(Duration::from_millis(5));
            assert!(matches!(waited, Err(ResetError::TimedOut { views: 1, .. })));
        });
    });
    drop(second);
    assert_eq!(bumper.reset(), Ok(()));
}

#[test]
fn a_reset_waits_for_views_of_other_threads() {
    let bumper = bumper(4096);
    let x = with_allocator(&bumper, || CheckedAllocArray::filled([8], 7_u32));
    let (viewed, seen) = mpsc::channel();
    thread::scope(|threads| {
        threads.spawn(|| {
            let view = x.try_view().unwrap();
            viewed.send(()).unwrap();
            thread::sleep(Duration::from_millis(20));
            assert_eq!(view.view().sum(), 56);
        });
        seen.recv().unwrap();
        assert_eq!(bumper.reset_within(Duration::from_secs(60)), Ok(()));
    });
    assert!(!x.is_valid());
}

#[test]
fn several_threads_wait_to_reset() {
    let bumper = bumper(4096);
    let x = with_allocator(&bumper, || CheckedAllocArray::filled([8], 7_u32));
    let start = Barrier::new(3);
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                start.wait();
                assert_eq!(bumper.reset_within(Duration::from_secs(60)), Ok(()));
            });
        }
        let view = x.try_view().unwrap();
        start.wait();
        thread::sleep(Duration::from_millis(20));
        drop(view);
    });
    assert_eq!(bumper.statistics().resets, 2);
}

#[test]
fn what_is_forgotten_makes_resets_fail_until_the_memory_is_abandoned() {
    let bumper = bumper(4096);
    let counted = with_allocator(&bumper, || AllocArray::filled([8], 7_u32));
    let checked = with_allocator(&bumper, || CheckedAllocArray::filled([8], 8_u32));
    let kept = with_allocator(&bumper, || AllocArray::filled([8], 9_u32));
    mem::forget(counted);
    mem::forget(checked.try_view().unwrap());
    assert_eq!(bumper.reset(), Err(ResetError::ArraysAlive { arrays: 2 }));
    bumper.abandon().unwrap();
    let stats = bumper.statistics();
    assert_eq!((stats.in_use_bytes, stats.arrays, stats.views), (0, 0, 0));
    assert_eq!((stats.abandoned, bumper.generation()), (1, 1));
    // What was made before stays valid, whatever happens to the fresh chunk.
    with_allocator(&bumper, || drop(AllocArray::filled([1024], 0_u32)));
    assert_eq!(bumper.reset(), Ok(()));
    assert_eq!((kept.sum(), checked.sum()), (72, 64));
}

#[test]
fn resetting_from_within_changes_nothing_that_is_in_use() {
    let bumper = bumper(1 << 16);
    with_allocator(&bumper, || {
        let x = AllocArray::filled([8], 1_u64);
        let y = x.map(|element| {
            assert!(bumper.reset().is_err());
            element + 1
        });
        drop(x);
        assert_eq!(bumper.reset(), Err(ResetError::ArraysAlive { arrays: 1 }));
        assert_eq!(y.sum(), 16);
        drop(y);
        assert_eq!(bumper.reset(), Ok(()));

        // Operand and result of a checked operation are pinned while the closure runs.
        let x = CheckedAllocArray::filled([8], 1_u64);
        let y = x.map(|element| {
            let refused = ResetError::ViewsAlive { views: 2, own: 2 };
            assert_eq!(bumper.reset(), Err(refused));
            element + 1
        });
        assert_eq!(y.sum(), 16);
        assert_eq!(bumper.reset(), Ok(()));
        assert!(!x.is_valid() && !y.is_valid());
    });
}

#[test]
fn a_panic_in_a_closure_lets_the_memory_go() {
    let bumper = bumper(1 << 16);
    with_allocator(&bumper, || {
        let x = CheckedAllocArray::filled([8], 1_u64);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            x.map(|_| -> u64 { panic!("on purpose") })
        }));
        assert!(panicked.is_err());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _uninit = AllocArray::<u64, _>::uninit([8]);
            let _view = x.view();
            panic!("on purpose")
        }));
        assert!(panicked.is_err());
    });
    assert_eq!(bumper.reset(), Ok(()));
}

#[test]
fn an_array_is_pinned_until_it_is_initialised() {
    let bumper = bumper(4096);
    with_allocator(&bumper, || {
        let fresh = CheckedAllocArray::<u32, _>::uninit([4]);
        assert_eq!(
            bumper.reset(),
            Err(ResetError::ViewsAlive { views: 1, own: 1 })
        );
        let x = fresh.filled(3);
        assert_eq!(x.sum(), 12);
        assert_eq!(bumper.reset(), Ok(()));
        assert!(!x.is_valid());
    });
}

#[test]
fn case_02_a_full_buffer_says_what_it_would_take() {
    let bumper = bumper(256);
    with_allocator(&bumper, || {
        let x = AllocArray::filled([16], 0_u32);
        let error = AllocArray::<u8, _>::try_uninit([200]).unwrap_err();
        let ArrayError::Exhausted(full) = error else {
            panic!("{error}")
        };
        assert_eq!((full.wanted_bytes, full.left_bytes), (200, 192));
        assert_eq!(full.capacity_bytes, 256);
        assert_eq!(full.peak_bytes, 64 + 200 + 64);
        assert_eq!(bumper.statistics().in_use_bytes, 64);
        // fitzgen/bumpalo#313: no bytes fit always, at any alignment, and move nothing.
        let rest = AllocArray::filled([192], 0_u8);
        #[derive(Debug, Clone, Copy)]
        #[repr(align(4096))]
        struct Wide;
        let none = AllocArray::filled([0], 0_u128);
        let wide = AllocArray::filled([0], Wide);
        assert!(none.view().as_ptr().is_aligned() && wide.view().as_ptr().is_aligned());
        assert_eq!(bumper.statistics().in_use_bytes, 256);
        assert!(AllocArray::try_filled([1], 0_u8).is_err());
        drop((x, rest));
    });
    let larger = AllocBuffer::new(328).unwrap();
    with_allocator(&BumperAllocator::new(larger), || {
        let _x = AllocArray::filled([16], 0_u32);
        assert!(AllocArray::<u8, _>::try_uninit([200]).is_ok());
    });
}

#[test]
fn case_01_over_aligned_elements_are_aligned() {
    // fitzgen/bumpalo#19: also where the buffer has to grow.
    #[derive(Debug, Clone, Copy, PartialEq)]
    #[repr(align(8192))]
    struct Page(u8);
    for bumper in [bumper(1 << 16), growing(100)] {
        with_allocator(&bumper, || {
            let _shift = AllocArray::filled([3], 0_u8);
            let x = AllocArray::filled([2], Page(3));
            let y = AllocArray::filled([2], Page(4));
            for array in [&x, &y] {
                assert_eq!(array.view().as_ptr().addr() % 8192, 0);
            }
            assert_eq!((x[[1]], y[[0]]), (Page(3), Page(4)));
        });
        assert_eq!(bumper.reset(), Ok(()));
    }
}

#[test]
fn case_08_elements_of_no_size_take_no_bytes() {
    // bheisler/RustaCUDA#38
    let bumper = bumper(64);
    with_allocator(&bumper, || {
        let units = AllocArray::filled([1000], ());
        assert_eq!((units.len(), bumper.statistics().in_use_bytes), (1000, 0));
        assert_eq!(units.view().get(999), Some(&()));
        assert_eq!(units.view().get(1000), None);
        let (left, right) = units.view().split_at(Axis(0), 400);
        assert_eq!((left.len(), right.len()), (400, 600));
        assert_eq!(bumper.reset(), Err(ResetError::ArraysAlive { arrays: 1 }));
    });
}

#[test]
fn case_07_sizes_that_overflow_are_refused_before_anything_is_asked() {
    // NVlabs/cuda-oxide#252
    let bumper = bumper(4096);
    with_allocator(&bumper, || {
        for dims in [
            [(1 << 61) + 1, 1],
            [1 << 40, 1 << 40],
            [usize::MAX, 2],
            [usize::MAX, 0],
        ] {
            let error = AllocArray::<u64, _>::try_uninit(dims).unwrap_err();
            let overflow = matches!(error, ArrayError::Alloc(AllocError::SizeOverflow { .. }));
            assert!(overflow, "{error}");
        }
        let large = AllocArray::<u64, _>::try_uninit([1 << 40]);
        assert!(matches!(large, Err(ArrayError::Exhausted(_))));
    });
    assert_eq!(bumper.statistics().peak_bytes, 0);
}

#[test]
fn a_growing_buffer_ends_as_one_chunk_and_shrinks() {
    let bumper = growing(0);
    let run = |arrays: usize| {
        with_allocator(&bumper, || {
            let arrays: Vec<_> = (0..arrays as u64)
                .map(|i| AllocArray::filled([1000], i))
                .collect();
            for (i, array) in arrays.iter().enumerate() {
                assert_eq!(array.sum(), 1000 * i as u64);
            }
        });
    };
    run(20);
    let stats = bumper.statistics();
    assert!(
        stats.chunks > 1 && stats.growing > Duration::ZERO,
        "{stats:?}"
    );
    assert!(stats.in_use_bytes >= 160_000);
    bumper.reset().unwrap();
    let one = bumper.statistics();
    assert_eq!(one.chunks, 1);
    run(20);
    assert_eq!(bumper.statistics().chunks, 1);
    assert_eq!(bumper.statistics().growing, one.growing);
    for _ in 0..20 {
        bumper.reset().unwrap();
        run(1);
    }
    let quiet = bumper.statistics();
    assert_eq!((quiet.chunks, quiet.capacity_bytes), (1, 12_288));
    assert!(quiet.peak_bytes >= 160_000);
}

#[test]
fn memory_of_a_chunk_that_was_replaced_is_not_reached() {
    let bumper = growing(64);
    let old = with_allocator(&bumper, || CheckedAllocArray::filled([10_000], 1_u64));
    bumper.reset().unwrap();
    assert_eq!(bumper.statistics().chunks, 1);
    assert!(old.try_view().is_err());
}

#[test]
fn arrays_of_two_allocators_mix() {
    let (left, right) = (bumper(4096), bumper(4096));
    let x = with_allocator(&left, || CheckedAllocArray::filled([4], 1_i32));
    let y = with_allocator(&right, || CheckedAllocArray::filled([4], 2_i32));
    let sum = &x + &y; // on the heap
    left.reset().unwrap();
    assert!(!x.is_valid() && y.is_valid());
    assert!(matches!(y.try_add(&x), Err(ArrayError::Invalid(_))));
    assert_eq!((sum.sum(), y.sum()), (12, 8));
}

#[test]
fn the_same_sequence_gives_the_same_addresses() {
    let bumper = bumper(4096);
    let addresses = || {
        with_allocator(&bumper, || {
            let x = AllocArray::filled([5], 1_u16);
            let y: AllocArray<u16, Ix1> = &x + &x;
            (x.view().as_ptr(), y.view().as_ptr())
        })
    };
    let first = addresses();
    bumper.reset().unwrap();
    assert_eq!(addresses(), first);
}

#[test]
fn threads_of_a_large_buffer_have_lanes() {
    let bumper = bumper(1 << 20);
    let arrays: Vec<_> = thread::scope(|threads| {
        let job = || with_allocator(&bumper, || AllocArray::filled([100], 1_u8));
        let jobs: Vec<_> = (0..6).map(|_| threads.spawn(job)).collect();
        jobs.into_iter().map(|job| job.join().unwrap()).collect()
    });
    let mut at: Vec<_> = arrays.iter().map(|x| x.view().as_ptr().addr()).collect();
    at.sort_unstable();
    assert!(
        at.windows(2).all(|pair| pair[1] - pair[0] >= 128),
        "{at:x?}"
    );
    assert_eq!(bumper.reset(), Err(ResetError::ArraysAlive { arrays: 6 }));
    assert_eq!(bumper.statistics().arrays, 6);
    drop(arrays);
    assert_eq!(bumper.reset(), Ok(()));
    assert_eq!(bumper.statistics().in_use_bytes, 0);

    // A lane is used up, and then the rest of the buffer, to the end.
    with_allocator(&bumper, || {
        let mut arrays = Vec::new();
        while let Ok(array) = AllocArray::try_filled([1000], 1_u8) {
            arrays.push(array);
        }
        assert_eq!(arrays.len(), 1024);
        let checked = CheckedAllocArray::try_filled([1000], 1_u8);
        assert!(matches!(checked, Err(ArrayError::Exhausted(_))));
        assert_eq!(
            bumper.reset(),
            Err(ResetError::ArraysAlive { arrays: 1024 })
        );
    });
    bumper.abandon().unwrap();
    let old = with_allocator(&bumper, || CheckedAllocArray::filled([1000], 1_u8));
    assert_eq!(bumper.reset(), Ok(()));
    assert!(!old.is_valid());
}
