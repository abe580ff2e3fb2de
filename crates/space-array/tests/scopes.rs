//! Scopes: which allocator counts where, on threads and in tasks.

mod support;

use std::{
    future, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll, Waker},
    thread,
};

use space_array::{
    AllocArray, Allocator, BumperAllocator, CheckedAllocArray, DefaultAllocator, InScope,
    ResetError, Scope, current_scope, spawn_in_scope, with_allocator,
};
use space_core::{AllocError, Space, Undef, ambient_alloc};
use support::bumper;

#[test]
fn scopes_nest_and_are_restored_on_panic() {
    let (outer, inner) = (bumper(4096), bumper(4096));
    let used = |bumper: &BumperAllocator| bumper.statistics().in_use_bytes;
    with_allocator(&outer, || {
        let _a = AllocArray::filled([4], 1_u64);
        with_allocator(&inner, || drop(AllocArray::filled([2], 1_u64)));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            with_allocator(&inner, || panic!("on purpose"));
        }));
        assert!(panicked.is_err());
        let _b = AllocArray::filled([4], 1_u64);
        with_allocator(&DefaultAllocator::new(), || {
            drop(AllocArray::filled([100], 1_u64));
        });
    });
    drop(AllocArray::filled([4], 1_u64));
    assert_eq!((used(&outer), used(&inner)), (64 + 32, 16));
}

#[test]
fn case_05_a_scope_of_one_thread_is_not_that_of_another() {
    // pytorch/pytorch#152861
    let bumper = bumper(4096);
    with_allocator(&bumper, || {
        let _mine = AllocArray::filled([1], 0_u8);
        thread::spawn(|| drop(AllocArray::filled([1000], 0_u8)))
            .join()
            .unwrap();
        let counted = bumper.statistics();
        assert_eq!((counted.in_use_bytes, counted.arrays), (1, 1));
        spawn_in_scope(|| drop(AllocArray::filled([1], 0_u8)))
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(bumper.statistics().in_use_bytes, 65);
    });
}

#[test]
fn case_05_a_task_keeps_its_scope_wherever_it_is_polled() {
    // pytorch/pytorch#152861
    let (bumper, other) = (bumper(4096), bumper(4096));
    let mut yielded = false;
    let mut task = Box::pin(InScope::new(bumper.scope().clone(), async {
        let a = AllocArray::filled([1], 1_u8);
        let again = |_: &mut Context<'_>| match mem::replace(&mut yielded, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        future::poll_fn(again).await;
        &a + 1
    }));
    let mut context = Context::from_waker(Waker::noop());
    with_allocator(&other, || {
        assert!(task.as_mut().poll(&mut context).is_pending());
        drop(AllocArray::filled([1], 1_u8));
    });
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut context = Context::from_waker(Waker::noop());
            let done = task.as_mut().poll(&mut context);
            assert!(matches!(done, Poll::Ready(sum) if sum[[0]] == 2));
            drop(AllocArray::filled([1], 1_u8));
        });
    });
    let used = |bumper: &BumperAllocator| bumper.statistics().in_use_bytes;
    assert_eq!((used(&bumper), used(&other)), (65, 1));
}

#[test]
fn the_ambient_space_of_space_core_is_the_same_one() {
    let bumper = bumper(4096);
    with_allocator(&bumper, || {
        let array = ambient_alloc(Undef::<u32, _>::new([4])).unwrap().filled(5);
        assert_eq!(bumper.statistics().arrays, 1);
        let more = bumper.alloc(Undef::<u32, _>::new([4])).unwrap().filled(6);
        assert_eq!(bumper.reset(), Err(ResetError::ArraysAlive { arrays: 2 }));
        assert_eq!((array[0], more[3]), (5, 6));
    });
    assert_eq!(bumper.reset(), Ok(()));
}

#[test]
fn a_space_of_ones_own_plugs_in() {
    let inner = bumper(4096);
    let scope = Scope::new(inner.clone());
    with_allocator(&scope, || {
        let x = AllocArray::filled([4], 1_u64);
        let y = CheckedAllocArray::filled([4], 1_u64);
        // It counts as an array of the space, so that it stays valid.
        assert_eq!(inner.reset(), Err(ResetError::ArraysAlive { arrays: 2 }));
        assert_eq!(x.sum() + y.sum(), 8);
    });
    assert_eq!(inner.reset(), Ok(()));
}

#[test]
fn a_space_that_uses_arrays_itself_is_served() {
    struct Nested(BumperAllocator);
    impl Space for Nested {
        type Family = space_core::Host;
        type Block = space_core::HostBlock;
        fn block(&self, layout: std::alloc::Layout) -> Result<Self::Block, AllocError> {
            let inner = with_allocator(&self.0, || AllocArray::filled([layout.size()], 1_u8));
            assert_eq!(inner.len(), layout.size());
            space_core::Heap.block(layout)
        }
    }
    let inner = bumper(4096);
    with_allocator(&Scope::new(Nested(inner.clone())), || {
        assert_eq!(AllocArray::filled([4], 1_u64).sum(), 4);
    });
    assert_eq!(inner.statistics().in_use_bytes, 32);
    assert_eq!(inner.reset(), Ok(()));
}

#[test]
fn a_scope_is_taken_to_jobs() {
    let bumper = bumper(1 << 16);
    let x = AllocArray::from([1, 2, 3]);
    let total: i32 = with_allocator(&bumper, || {
        let scope = current_scope().unwrap();
        thread::scope(|threads| {
            let job = |i: i32| scope.enter(|| (&x + i).sum());
            let jobs: Vec<_> = (1..=10).map(|i| threads.spawn(move || job(i))).collect();
            jobs.into_iter().map(|job| job.join().unwrap()).sum()
        })
    });
    assert_eq!(total, 225);
    assert!(bumper.statistics().in_use_bytes > 0);
    assert_eq!(bumper.reset(), Ok(()));
}
