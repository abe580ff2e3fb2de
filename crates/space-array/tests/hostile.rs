//! What arrays must stand: elements, closures and threads that do the worst, and faults that others
//! have had.

mod support;

use std::{
    cell::Cell,
    mem,
    ops::Add,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
    time::Duration,
};

use rayon::prelude::*;
use space_arena::Arena;
use space_array::{
    AllocArray, AllocError, BumperAllocator, CheckedAllocArray, DefaultAllocator, ResetError,
    Scalar, current_scope, with_allocator,
};
use space_core::{Undef, ambient_alloc, with_space};
use support::{bumper, growing};

#[test]
fn case_03_an_array_that_grew_after_a_mark_is_not_given_back_by_a_retract() {
    // bluurryy/bump-scope#129
    let mut arena = Arena::with_capacity(4096).unwrap();
    let below = with_space(&mut arena.frame(), || AllocArray::from([1, 2]).map(|v| v));
    let mark = arena.mark();
    let grown = with_space(&mut arena.frame(), || {
        AllocArray::concatenate(ndarray::Axis(0), &[&below, &below])
    });
    let refused = arena.retract(mark);
    assert!(matches!(refused, Err(AllocError::StillAlive { arrays: 1 })));
    let next = with_space(&mut arena.frame(), || AllocArray::filled([4], 9));
    assert_eq!((grown.sum(), below.sum(), next.sum()), (6, 3, 36));
    drop((grown, next));
    arena.retract(mark).unwrap();
    let reused = with_space(&mut arena.frame(), || AllocArray::filled([4], 7));
    assert_eq!((below.sum(), reused.sum()), (3, 28));
}

#[test]
fn case_13_a_view_is_had_while_another_thread_waits_to_reset() {
    // huggingface/candle#3227
    let bumper = bumper(4096);
    let x = with_allocator(&bumper, || CheckedAllocArray::filled([8], 7_u32));
    let first = x.view();
    let (waits, waiting) = mpsc::channel();
    thread::scope(|threads| {
        let reset = threads.spawn(|| {
            waits.send(()).unwrap();
            bumper.reset_within(Duration::from_secs(60))
        });
        waiting.recv().unwrap();
        thread::sleep(Duration::from_millis(10));
        let second = x.view();
        assert_eq!(first.view(), second.view());
        drop(first);
        thread::sleep(Duration::from_millis(10));
        assert_eq!(second.iter().sum::<u32>(), 56);
        drop(second);
        assert_eq!(reset.join().unwrap(), Ok(()));
    });
    assert!(!x.is_valid());
}

thread_local!(static TRIED: Cell<usize> = const { Cell::new(0) });

/// A number whose sum tries to reset everything, and panics when it is told to.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Meddler(u64);

thread_local!(static BUMPER: BumperAllocator = bumper(1 << 16));

impl Add for Meddler {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let refused = BUMPER.with(BumperAllocator::reset).is_err();
        TRIED.set(TRIED.get() + usize::from(refused));
        // Memory that was given back would be handed out here and overwritten.
        drop(AllocArray::filled([64], u64::MAX));
        assert!(other.0 != 13, "on purpose");
        Self(self.0 + other.0)
    }
}

#[test]
fn elements_that_reset_from_within_are_refused() {
    let bumper = BUMPER.with(BumperAllocator::clone);
    with_allocator(&bumper, || {
        let x = CheckedAllocArray::filled([8], Meddler(1));
        let sum = &x + &x;
        assert_eq!(sum, CheckedAllocArray::filled([8], Meddler(2)));
        let mut y = CheckedAllocArray::filled([8], Meddler(1));
        y += &sum;
        y += Meddler(2);
        assert_eq!(y, ndarray::Array1::from_elem(8, Meddler(5)));
        assert_eq!(y.fold(Meddler(0), Add::add), Meddler(40));
        let tried = TRIED.get();
        assert_eq!(tried, 4 * 8, "each was refused");

        // A panic half way leaves the array initialised and lets all pins go.
        let other = CheckedAllocArray::from([1, 1, 13, 1, 1, 1, 1, 1].map(Meddler));
        assert!(catch_unwind(AssertUnwindSafe(|| y += &other)).is_err());
        assert_eq!(y.view()[[1]], Meddler(6));
        assert_eq!(y.view()[[2]], Meddler(5));
        assert!(catch_unwind(AssertUnwindSafe(|| &x + &other)).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| y + other)).is_err());
        drop((x, sum));
    });
    assert_eq!(bumper.statistics().views, 0);
    assert_eq!(bumper.reset(), Ok(()));
}

#[test]
fn closures_that_drop_forget_and_reset_see_no_memory_of_others() {
    for bumper in [bumper(1 << 20), growing(64)] {
        with_allocator(&bumper, || {
            let x = CheckedAllocArray::filled([100], 1_u64);
            let mut inner = Vec::new();
            let y = x.map(|v| {
                // Arrays and views made, dropped and forgotten in the midst of an operation.
                let other = CheckedAllocArray::filled([10], v + 1);
                if inner.len() < 3 {
                    mem::forget(other.try_view().unwrap());
                }
                inner.push(AllocArray::filled([10], v + 2));
                assert!(bumper.reset().is_err());
                v + 3
            });
            assert!(inner.iter().all(|array| array.sum() == 30));
            assert_eq!(y.sum(), 400);
            assert!(matches!(
                bumper.reset(),
                Err(ResetError::ArraysAlive { arrays: 100 })
            ));
            drop(inner);
            let refused = bumper.reset();
            assert_eq!(refused, Err(ResetError::ViewsAlive { views: 3, own: 3 }));
            // The forgotten views keep the old memory; nothing that is made now touches it.
            bumper.abandon().unwrap();
            let z = AllocArray::filled([100], 9_u64);
            assert_eq!((x.sum(), y.sum(), z.sum()), (100, 400, 900));
            drop(z);
            assert_eq!(bumper.reset(), Ok(()));
            assert_eq!(x.sum(), 100);
        });
    }
}

#[test]
fn an_array_made_in_a_closure_that_abandons_stays_valid() {
    let bumper = bumper(4096);
    with_allocator(&bumper, || {
        let x = AllocArray::filled([8], 1_u64);
        let y = x.map(|v| {
            bumper.abandon().unwrap();
            v + 1
        });
        let z = x.zip_map(Scalar(1), |v, one| {
            bumper.abandon().unwrap();
            bumper.reset().unwrap();
            drop(AllocArray::filled([8], 9_u64));
            v + one
        });
        assert_eq!((x.sum(), y.sum(), z.sum()), (8, 16, 16));
    });
    assert_eq!(bumper.reset(), Ok(()));
}

#[test]
fn the_allocator_is_dropped_while_its_arrays_and_blocks_live() {
    let (x, y, block, sum) = {
        let bumper = bumper(1 << 20);
        with_allocator(&bumper, || {
            let x = AllocArray::filled([300], 1_u64);
            let y = CheckedAllocArray::filled([10_000], 2_u64);
            let block = ambient_alloc(Undef::<u64, _>::new([5])).unwrap().filled(3);
            let sum = thread::spawn({
                let scope = current_scope().unwrap();
                move || scope.enter(|| AllocArray::filled([300], 4_u64))
            });
            (x, y, block, sum)
        })
    };
    let (threads, elsewhere) = (4_u64, sum.join().unwrap());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| assert_eq!((x.sum(), y.sum(), elsewhere.sum()), (300, 20_000, 1200)));
        }
    });
    assert_eq!(block.iter().sum::<u64>(), 15);
}

#[test]
fn over_aligned_elements_and_those_of_no_size_in_every_operation() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    #[repr(align(512))]
    struct Wide(u8);
    #[derive(Debug, Clone, Copy, PartialEq)]
    #[repr(align(128))]
    struct Nothing;
    for bumper in [bumper(1 << 20), bumper(1 << 16), growing(0)] {
        with_allocator(&bumper, || {
            let small = AllocArray::filled([3], 1_u8);
            let wide = small.map(Wide);
            let picked = wide.select(ndarray::Axis(0), &[2, 0]);
            let square = AllocArray::stack(ndarray::Axis(0), &[&picked, &picked]);
            for address in [
                wide.view().as_ptr(),
                picked.view().as_ptr(),
                square.view().as_ptr(),
            ] {
                assert_eq!(address.addr() % 512, 0);
            }
            assert_eq!(square.zip_map(&picked, |a, b| a.0 + b.0).sum(), 8);
            let nothing = wide.map(|_| Nothing);
            assert!(nothing.view().as_ptr().is_aligned());
            // As many as there may be: the limit is on elements, too.
            let many = AllocArray::<Nothing, _>::uninit([isize::MAX as usize]);
            assert_eq!(many.len(), isize::MAX as usize);
            assert!(AllocArray::<Nothing, _>::try_uninit([1 << 63]).is_err());
            let checked = CheckedAllocArray::filled([1000], Nothing);
            assert_eq!(checked.equal(&checked).count(), 1000);
            let empty = AllocArray::<Wide, _>::uninit([0, 7]).init_with(|_| unreachable!());
            assert_eq!(empty.reshape([7, 0, 3]).len(), 0);
        });
        assert_eq!(bumper.reset(), Ok(()));
    }
}

#[test]
fn scopes_nest_across_a_pool_of_threads() {
    let (outer, inner) = (bumper(1 << 20), bumper(1 << 20));
    let heap = DefaultAllocator::new();
    let x = AllocArray::from([1_u64, 2, 3]);
    let used = |bumper: &BumperAllocator| bumper.statistics().in_use_bytes;
    for _ in 0..10 {
        let total: u64 = with_allocator(&outer, || {
            let scope = current_scope().unwrap();
            (0..64_u64)
                .into_par_iter()
                .map(|i| {
                    scope.enter(|| {
                        let a = &x + i;
                        // Work of other jobs may run here, in scopes of their own.
                        let (b, c) = rayon::join(
                            || with_allocator(&inner, || (&x * i).sum()),
                            || with_allocator(&heap, || (&x - 1).sum()),
                        );
                        (&a + b + c - i).sum()
                    })
                })
                .sum()
        });
        let right: u64 = (0..64).map(|i| 6 + 3 * (6 * i + 3)).sum();
        assert_eq!(total, right);
        assert!(used(&outer) > 0 && used(&inner) > 0);
        assert_eq!((outer.reset(), inner.reset()), (Ok(()), Ok(())));
        assert_eq!(heap.statistics().arrays, 0);
    }
}

#[test]
fn a_panic_in_one_thread_of_many_leaves_the_rest_going() {
    let bumper = bumper(1 << 20);
    let x = with_allocator(&bumper, || CheckedAllocArray::filled([100], 1_u64));
    thread::scope(|threads| {
        let jobs: Vec<_> = (0..4)
            .map(|job| {
                let (bumper, x) = (&bumper, &x);
                threads.spawn(move || {
                    with_allocator(bumper, || {
                        let y = x + 1;
                        let _view = y.view();
                        assert!(job != 2, "on purpose");
                        y.sum()
                    })
                })
            })
            .collect();
        let ended: Vec<_> = jobs.into_iter().map(|job| job.join().ok()).collect();
        assert_eq!(ended, [Some(200), Some(200), None, Some(200)]);
    });
    assert_eq!(bumper.statistics().views, 0);
    assert_eq!(bumper.reset(), Ok(()));
}

#[test]
fn errors_say_what_happened_in_numbers() {
    let text = |error: &dyn std::error::Error| error.to_string();
    let x = AllocArray::filled([2, 3], 1_u8);
    let error = |result: Result<AllocArray<u8, ndarray::Ix2>, _>| text(&result.unwrap_err());
    let broadcast = error(x.try_add(&AllocArray::filled([4, 3], 1)));
    assert!(broadcast.contains("[2, 3] and [4, 3]"), "{broadcast}");
    let inner = error(x.try_dot(&x));
    assert!(inner.contains("inner extents 3 and 2"), "{inner}");
    let parts = [&x, &AllocArray::filled([2, 4], 1)];
    let parts = error(AllocArray::try_concatenate(ndarray::Axis(0), &parts));
    assert!(parts.contains("shape [2, 3], not [2, 4]"), "{parts}");
    let axis = error(x.try_select(ndarray::Axis(2), &[]));
    assert!(axis.contains("axis 2 of an array with 2 axes"), "{axis}");
    let index = error(x.try_select(ndarray::Axis(1), &[3]));
    assert!(index.contains("index 3 on axis 1 of extent 3"), "{index}");
    let overflow = AllocArray::<u64, _>::try_uninit([(1 << 61) + 1]).unwrap_err();
    let wanted = "2305843009213693953 elements of 8 bytes";
    assert!(text(&overflow).contains(wanted), "{overflow}");

    let bumper = bumper(256);
    let y = with_allocator(&bumper, || CheckedAllocArray::filled([100], 1_u8));
    with_allocator(&bumper, || {
        let full = AllocArray::<u8, _>::try_uninit([200]).unwrap_err();
        let wanted = "200 bytes at alignment 1 do not fit: 156 of 256 bytes";
        assert!(text(&full).contains(wanted), "{full}");
        assert!(text(&full).contains("at least 364 bytes"), "{full}");
    });
    let view = y.view();
    let held = bumper.reset().unwrap_err();
    assert!(text(&held).contains("1 views"), "{held}");
    drop(view);
    bumper.reset().unwrap();
    let gone = y.try_sum().unwrap_err();
    let wanted = format!("generation 0 of allocator {}", bumper.id());
    assert!(text(&gone).contains(&wanted), "{gone}");
    assert!(text(&gone).contains("generation 1"), "{gone}");
}
