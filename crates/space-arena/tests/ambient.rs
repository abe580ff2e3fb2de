//! The ambient space of an arena: what is bound, what is pinned, and what comes back.

mod support;

use std::{
    alloc::Layout,
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
};

use proptest::prelude::*;
use space_arena::{Allocating, Arena, BorrowedSlab, HostSlab, Made, MadeInFrame, Mutate, Verb};
use space_core::{
    AllocError, Ambient, Heap, Host, HostBlock, HostLeaf, InScope, Scope, Space, Undef, Zeroed,
    ambient_alloc, ambient_scratch, ambient_space, ambient_space_or, current_scope, spawn_in_scope,
    with_scratch, with_space,
};
use support::{
    ambient::{bytes, check, run, step},
    cases,
};

fn arena() -> Arena<HostSlab> {
    Arena::with_capacity(1 << 14).unwrap()
}

#[test]
fn nothing_is_bound_at_first() {
    assert!(matches!(bytes(1, 0), Err(AllocError::Unbound)));
    assert!(matches!(ambient_space(), Err(AllocError::Unbound)));
    assert!(matches!(ambient_scratch(|| ()), Err(AllocError::Unbound)));
    assert!(matches!(current_scope(), Err(AllocError::Unbound)));
    assert!(matches!(spawn_in_scope(|| ()), Err(AllocError::Unbound)));
    let mut ambient = Ambient;
    let unbound = ambient.scratch(|frame| frame.alloc(Undef::<u8, _>::new([1])).map(drop));
    assert!(matches!(unbound, Err(AllocError::Unbound)));
    let owned = ambient_space_or(Heap)
        .alloc(Zeroed::<u8, _>::new([3]))
        .unwrap();
    assert_eq!(*owned, [0; 3]);
}

#[test]
fn the_innermost_block_is_what_allocates() {
    let mut arena = arena();
    let mut frame = arena.frame();
    with_space(&mut frame, || {
        let outer = bytes(300, 1).unwrap();
        ambient_scratch(|| {
            let inner = bytes(10, 2).unwrap();
            let other = ambient_space_or(Heap)
                .alloc(Zeroed::<u8, _>::new([3]))
                .unwrap();
            assert_eq!(outer.as_ptr().addr() - inner.as_ptr().addr(), 256);
            assert_eq!(inner.as_ptr().addr() - other.as_ptr().addr(), 256);
        })
        .unwrap();
        // What was dropped in the block came back at its end.
        let next = bytes(10, 3).unwrap();
        assert_eq!(outer.as_ptr().addr() - next.as_ptr().addr(), 256);
        assert_eq!(*outer, [1; 300]);
    });
    assert!(matches!(bytes(1, 0), Err(AllocError::Unbound)));
    assert_eq!((frame.offset(), arena.pinned_bytes()), (768, 0));
    arena.reset().unwrap();
    assert_eq!((arena.offset(), arena.watermark()), (0, 1024));
}

#[test]
fn an_array_that_outlives_its_block_pins_its_bytes() {
    let mut arena = arena();
    let mut frame = arena.frame();
    let escaped = frame.scratch(|inner| {
        with_space(inner, || {
            let _first = bytes(10, 1).unwrap();
            let escaped = bytes(10, 2).unwrap();
            let _last = bytes(10, 3).unwrap();
            escaped
        })
    });
    // A count per level: all three carves stay, since the level's token is still held.
    assert_eq!(frame.offset(), 768);
    let carve = frame.alloc(Undef::<u8, _>::new([10])).unwrap().filled(9);
    assert_eq!((&*escaped, &*carve), (&[2; 10][..], &[9; 10][..]));

    assert_eq!(arena.pinned_bytes(), 768);
    let refused = arena.reset();
    assert!(matches!(refused, Err(AllocError::StillAlive { arrays: 1 })));
    assert_eq!((arena.offset(), arena.epoch().number()), (1024, 0));
    std::thread::spawn(move || drop(escaped)).join().unwrap();
    arena.reset().unwrap();
    assert_eq!(
        (arena.offset(), arena.pinned_bytes(), arena.watermark()),
        (0, 0, 1024)
    );
}

#[test]
fn pinned_bytes_come_back_at_the_end_of_an_outer_block() {
    let mut arena = arena();
    let mut frame = arena.frame();
    frame.scratch(|outer| {
        let escaped = with_scratch(outer, || bytes(10, 2).unwrap());
        assert_eq!(outer.offset(), 256);
        drop(escaped);
        let again = with_scratch(outer, || bytes(10, 2).unwrap());
        assert_eq!(outer.offset(), 512);
        drop(again);
    });
    assert_eq!((frame.offset(), arena.pinned_bytes()), (0, 0));
}

#[test]
fn a_retract_below_a_live_array_is_refused() {
    let mut arena = arena();
    let low = arena.mark();
    let array = with_space(&mut arena.frame(), || bytes(10, 4).unwrap());
    let high = arena.mark();
    arena
        .frame()
        .alloc(Undef::<u8, _>::new([10]))
        .map(drop)
        .unwrap();
    arena.retract(high).unwrap();
    assert!(matches!(
        arena.retract(low),
        Err(AllocError::StillAlive { arrays: 1 })
    ));
    assert_eq!((arena.offset(), &*array), (256, &[4; 10][..]));
    drop(array);
    arena.retract(low).unwrap();
    assert_eq!((arena.offset(), arena.watermark()), (0, 512));
}

#[test]
fn an_array_keeps_the_slab_when_the_arena_is_gone() {
    let mut arena = arena();
    let mut array = with_space(&mut arena.frame(), || bytes(1000, 5).unwrap());
    drop(arena);
    array[999] += 1;
    assert_eq!((array[0], array[999]), (5, 6));
}

#[test]
fn the_binding_is_restored_on_panic_and_on_early_return() {
    let mut arena = arena();
    let mut frame = arena.frame();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        with_space(&mut frame, || {
            ambient_scratch(|| {
                let _dropped = bytes(10, 0).unwrap();
                panic!("the user's own");
            })
        })
    }));
    assert!(caught.is_err());
    assert!(ambient_space().is_err());
    assert_eq!(frame.offset(), 0);

    let early: Result<(), AllocError> = with_space(&mut frame, || {
        bytes(1 << 20, 0)?;
        unreachable!("there is no such room");
    });
    assert!(matches!(early, Err(AllocError::OutOfCapacity { .. })));
    assert!(ambient_space().is_err());
}

#[test]
fn an_ambient_specification_is_all_or_nothing() {
    let mut arena = arena();
    let mut frame = arena.frame();
    with_space(&mut frame, || {
        let kept = bytes(10, 7).unwrap();
        let one = Undef::<u8, _>::new([10]);
        for _ in 0..100 {
            assert!(ambient_alloc((one, [one, one], Undef::<u8, _>::new([1 << 20]))).is_err());
        }
        let next = bytes(10, 8).unwrap();
        assert_eq!(kept.as_ptr().addr() - next.as_ptr().addr(), 256);
    });
    assert_eq!(frame.offset(), 512);
    arena.reset().unwrap();
    assert_eq!(arena.watermark(), 512);
}

#[test]
fn a_block_on_another_space_rebinds() {
    let (mut one, mut two) = (arena(), arena());
    let (mut first, mut second) = (one.frame(), two.frame());
    with_space(&mut first, || {
        let here = bytes(10, 1).unwrap();
        with_scratch(&mut second, || {
            bytes(10, 2).unwrap();
            bytes(10, 2).unwrap();
        });
        let there = bytes(10, 3).unwrap();
        assert_eq!(here.as_ptr().addr() - there.as_ptr().addr(), 256);
    });
    assert_eq!((second.offset(), two.watermark()), (0, 512));
}

#[test]
fn a_frame_of_the_bound_arena_suspends_the_binding() {
    let mut arena = arena();
    let mut frame = arena.frame();
    with_space(&mut frame, || {
        Ambient.scratch(|inner| {
            let carve = inner.alloc(Undef::<u8, _>::new([10])).unwrap().filled(1);
            assert!(matches!(bytes(1, 0), Err(AllocError::Unbound)));
            let escaped = with_space(inner, || bytes(10, 2).unwrap());
            assert_eq!((&*carve, &*escaped), (&[1; 10][..], &[2; 10][..]));
        });
        assert!(ambient_space().is_ok());
    });
    assert_eq!(frame.offset(), 0);
}

#[test]
fn what_cannot_keep_its_memory_says_so() {
    let mut memory = [MaybeUninit::<u8>::uninit(); 4096];
    let mut borrowed = Arena::over(BorrowedSlab::new(&mut memory)).unwrap();
    let refused = with_space(&mut borrowed.frame(), || bytes(10, 0).map(drop));
    assert!(matches!(refused, Err(AllocError::BorrowedSlab)));

    // Carves by a borrow of the arena end with the borrow.
    let arena = arena();
    let refused = with_scratch(&mut &arena, || bytes(10, 0).map(drop));
    assert!(matches!(refused, Err(AllocError::BlocksEndWithFrame)));
    assert_eq!((arena.offset(), arena.watermark()), (0, 0));
}

#[test]
fn a_block_on_a_space_of_owned_blocks_makes_arrays_that_own_theirs() {
    let kept = with_scratch(&mut Heap, || {
        let two = Undef::<u8, _>::new([10]);
        let (one, _other) = ambient_alloc((two, two)).unwrap();
        let inner = ambient_scratch(|| bytes(5, 3).unwrap()).unwrap();
        assert_eq!(*inner, [3; 5]);
        assert!(matches!(current_scope(), Err(AllocError::TaskLocalScope)));
        one
    });
    assert_eq!(*kept.filled(7), [7; 10]);
}

#[test]
fn an_arena_is_no_scope_and_a_shared_space_is() {
    let mut arena = arena();
    with_space(&mut arena.frame(), || {
        assert!(matches!(current_scope(), Err(AllocError::TaskLocalScope)));
        assert!(matches!(
            spawn_in_scope(|| ()),
            Err(AllocError::TaskLocalScope)
        ));
        assert!(
            std::thread::spawn(|| ambient_space().is_err())
                .join()
                .unwrap()
        );
    });
    Scope::new(Heap).enter(|| {
        let there = spawn_in_scope(|| bytes(3, 1)).unwrap();
        assert_eq!(*there.join().unwrap().unwrap(), [1; 3]);
        assert!(
            std::thread::spawn(|| ambient_space().is_err())
                .join()
                .unwrap()
        );
        with_space(&mut arena.frame(), || assert!(current_scope().is_err()));
        assert!(current_scope().is_ok());
    });
}

/// A shared space that counts what it hands out.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Space for Counted {
    type Family = Host;
    type Block = HostBlock;

    fn block(&self, layout: Layout) -> Result<HostBlock, AllocError> {
        self.0.fetch_add(layout.size(), Ordering::Relaxed);
        Heap.block(layout)
    }
}

/// pytorch#152861: a scope that was opened on one thread took in the allocations of all.
#[test]
fn a_scope_is_of_the_thread_that_entered_it() {
    let (one, two) = (Counted::default(), Counted::default());
    let (entered, left) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            entered.wait();
            assert!(matches!(bytes(10, 1), Err(AllocError::Unbound)));
            let own = ambient_space_or(two.clone());
            drop(own.alloc(Undef::<u8, _>::new([20])).unwrap());
            Scope::new(two.clone()).enter(|| drop(bytes(30, 1).unwrap()));
            left.wait();
        });
        Scope::new(one.clone()).enter(|| {
            drop(bytes(1, 1).unwrap());
            entered.wait();
            left.wait();
            drop(bytes(2, 1).unwrap());
        });
    });
    let counts = [&one, &two].map(|space| space.0.load(Ordering::Relaxed));
    assert_eq!(counts, [3, 50]);
}

#[test]
fn a_future_keeps_its_scope_wherever_it_is_polled() {
    use std::{
        future::poll_fn,
        pin::pin,
        task::{Context, Poll, Waker},
    };
    let mut polls = 0;
    let future = InScope::new(
        Scope::new(Heap),
        poll_fn(move |_| {
            polls += 1;
            let len = bytes(polls, 0).unwrap().len();
            if polls == 3 {
                Poll::Ready(len)
            } else {
                Poll::Pending
            }
        }),
    );
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut arena = arena();
    assert!(future.as_mut().poll(&mut context).is_pending());
    let polled = with_space(&mut arena.frame(), || future.as_mut().poll(&mut context));
    assert!(polled.is_pending());
    assert_eq!(arena.offset(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(3));
            assert!(ambient_space().is_err());
        });
    });
}

/// y = x + 1, by way of a temporary.
struct Next<'x>(&'x [u8]);

impl Verb for Next<'_> {
    type Outputs = Zeroed<u8, [usize; 1]>;
    type Checkpoints = ();
    type Scratch = Undef<u8, [usize; 1]>;

    fn outputs(&self) -> Self::Outputs {
        Zeroed::like(self.0)
    }

    fn checkpoints(&self) {}

    fn scratch(&self) -> Self::Scratch {
        Undef::like(self.0)
    }
}

impl<B: HostLeaf> Mutate<B> for Next<'_> {
    type Error = AllocError;

    fn mutate<'f>(
        &self,
        y: &mut Made<Self::Outputs, B>,
        (): &mut (),
        scratch: MadeInFrame<'f, Self::Scratch, Host>,
    ) -> Result<(), AllocError> {
        y.copy_from_slice(&scratch.init_with(|i| self.0[i] + 1));
        Ok(())
    }
}

#[test]
fn a_verb_allocates_ambiently() {
    let mut arena = arena();
    let mut frame = arena.frame();
    let (y, ()) = with_space(&mut frame, || Allocating(&Next(&[1, 2])).run(&mut Ambient)).unwrap();
    assert_eq!(*y, [2, 3]);
    assert_eq!((frame.offset(), arena.watermark()), (256, 512));
    let (y, ()) = Allocating(&Next(&[1, 2]))
        .run(&mut ambient_space_or(Heap))
        .unwrap();
    assert_eq!(*y, [2, 3]);
}

/// A verb that makes a temporary ambiently instead of declaring it.
struct Undeclared;

impl Verb for Undeclared {
    type Outputs = Zeroed<u8, [usize; 1]>;
    type Checkpoints = ();
    type Scratch = Undef<u8, [usize; 1]>;

    fn outputs(&self) -> Self::Outputs {
        Zeroed::new([3])
    }

    fn checkpoints(&self) {}

    fn scratch(&self) -> Self::Scratch {
        Undef::new([3])
    }
}

impl<B: HostLeaf> Mutate<B> for Undeclared {
    type Error = AllocError;

    fn mutate<'f>(
        &self,
        y: &mut Made<Self::Outputs, B>,
        (): &mut (),
        scratch: MadeInFrame<'f, Self::Scratch, Host>,
    ) -> Result<(), AllocError> {
        let scratch = scratch.filled(2);
        let undeclared = bytes(3, 3)?;
        let more = ambient_scratch(|| bytes(3, 4))??;
        for (i, y) in y.iter_mut().enumerate() {
            *y = scratch[i] + undeclared[i] + more[i];
        }
        Ok(())
    }
}

#[test]
fn a_verb_may_allocate_ambiently_itself() {
    let mut arena = arena();
    let mut frame = arena.frame();
    let verb = Undeclared;
    let (y, ()) = with_space(&mut frame, || {
        let done = Allocating(&verb).run_ambient();
        assert!(ambient_space().is_ok());
        // Suspended otherwise: nothing is bound while a frame is open.
        assert!(matches!(
            Allocating(&verb).run(&mut Ambient),
            Err(AllocError::Unbound)
        ));
        done
    })
    .unwrap();
    assert_eq!((&*y, frame.offset()), (&[9; 3][..], 512));
    drop(y);
    let (y, ()) = Scope::new(Heap)
        .enter(|| Allocating(&verb).run_ambient())
        .unwrap();
    assert_eq!(*y, [9; 3]);
    assert!(matches!(
        Allocating(&verb).run_ambient(),
        Err(AllocError::Unbound)
    ));
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn live_arrays_are_disjoint_from_everything_made_later(
        programs in prop::collection::vec(prop::collection::vec(step(), 0..12), 1..5),
    ) {
        let mut arena = arena();
        let mut alive = Vec::new();
        let mut made = 0;
        for steps in &programs {
            let mut frame = arena.frame();
            frame.scratch(|frame| with_space(frame, || run(steps, &mut alive, &mut made)));
            check(&alive);
            prop_assert!(arena.pinned_bytes() <= arena.offset());
            let holding = alive.iter().filter(|(array, _)| !array.is_empty()).count();
            match arena.reset() {
                Ok(()) => prop_assert_eq!(holding, 0),
                Err(AllocError::StillAlive { arrays }) => prop_assert_eq!(arrays, holding),
                Err(other) => panic!("{other}"),
            }
        }
        alive.clear();
        arena.reset().unwrap();
        prop_assert_eq!((arena.offset(), arena.pinned_bytes()), (0, 0));
    }
}
