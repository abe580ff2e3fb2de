//! Safe code that tries to get two live arrays over the same bytes.

use std::{alloc::Layout, cell::Cell, ops::Range};

use space_arena::Arena;
use space_core::{
    AllocError, Ambient, AmbientBlock, Block, Carved, CarvedArray, Describe, Frame, Given, Heap,
    Host, HostArray, HostBlock, HostCarve, Scope, Space, Undef, ambient_alloc, ambient_scratch,
    with_scratch, with_space,
};

type Floats<'a> = CarvedArray<'a, f32, [usize; 1]>;
type Stash<'a> = Cell<Option<Floats<'a>>>;

fn floats(n: usize) -> Undef<f32, [usize; 1]> {
    Undef::new([n])
}

fn too_many() -> Undef<f32, [usize; 1]> {
    floats(1 << 30)
}

fn range<T>(array: &[T]) -> Range<usize> {
    let range = array.as_ptr_range();
    range.start.addr()..range.end.addr()
}

#[track_caller]
fn assert_disjoint<T, U>(one: &[T], other: &[U]) {
    let (one, other) = (range(one), range(other));
    assert!(
        one.end <= other.start || other.end <= one.start,
        "{one:?} and {other:?}"
    );
}

/// A description that carves through a shared frame while it is taken apart.
struct Flattening<'x, 'a> {
    frame: &'x Frame<'a, Host>,
    stash: &'x Stash<'a>,
}

impl<B: Block> Describe<B> for Flattening<'_, '_> {
    type Out = B::Array<f32, [usize; 1]>;
    type Flat = Undef<f32, [usize; 1]>;
    type Held = ();

    fn flatten(self) -> (Self::Flat, ()) {
        self.stash.set(self.frame.alloc(floats(4)).ok());
        (floats(4), ())
    }

    fn finish(array: Carved<Self, B>, (): ()) -> Self::Out {
        array
    }
}

/// A value that carves through a shared frame when it drops.
struct Dropping<'x, 'a> {
    frame: &'x Frame<'a, Host>,
    stash: &'x Stash<'a>,
}

impl Drop for Dropping<'_, '_> {
    fn drop(&mut self) {
        self.stash.set(self.frame.alloc(floats(4)).ok());
    }
}

#[test]
fn a_description_that_carves_is_not_rolled_over() {
    let mut arena = Arena::with_capacity(1 << 16).unwrap();
    let frame = arena.frame();
    let stash = Cell::new(None);
    let evil = Flattening {
        frame: &frame,
        stash: &stash,
    };
    assert!(frame.alloc((floats(1), evil, too_many())).is_err());
    let next = frame.alloc(floats(4)).unwrap();
    assert_disjoint(&stash.take().unwrap(), &next);
}

#[test]
fn a_given_value_that_carves_is_not_rolled_over() {
    let mut arena = Arena::with_capacity(1 << 16).unwrap();
    let frame = arena.frame();
    let stash = Cell::new(None);
    let given = || {
        Given(Dropping {
            frame: &frame,
            stash: &stash,
        })
    };
    assert!(frame.alloc((floats(1), given(), too_many())).is_err());
    let first = stash.take().unwrap();
    assert!(
        frame
            .alloc([(floats(1), Some(given()), Some(too_many()))])
            .is_err()
    );
    let second = stash.take().unwrap();
    let next = frame.alloc(floats(4)).unwrap();
    assert_disjoint(&first, &second);
    assert_disjoint(&first, &next);
    assert_disjoint(&second, &next);
}

/// A space over a frame that keeps a carve of its own for each that it hands out.
struct Hoarding<'x, 'a> {
    frame: &'x Frame<'a, Host>,
    stash: &'x Stash<'a>,
}

impl<'a> Space for Hoarding<'_, 'a> {
    type Family = Host;
    type Block = HostCarve<'a>;

    fn block(&self, layout: Layout) -> Result<HostCarve<'a>, AllocError> {
        self.stash.set(self.frame.alloc(floats(4)).ok());
        self.frame.block(layout)
    }
}

#[test]
fn a_space_that_hoards_is_not_rolled_over() {
    let mut arena = Arena::with_capacity(1 << 16).unwrap();
    let frame = arena.frame();
    let stash = Cell::new(None);
    let mut space = Hoarding {
        frame: &frame,
        stash: &stash,
    };
    assert!(space.alloc((floats(1), floats(2), too_many())).is_err());
    let first = stash.take().unwrap();
    let inner = space.scratch(|inner| {
        assert!(inner.alloc((floats(1), too_many())).is_err());
        stash.take().unwrap()
    });
    let next = frame.alloc(floats(4)).unwrap();
    assert_disjoint(&first, &inner);
    assert_disjoint(&first, &next);
    assert_disjoint(&inner, &next);
}

/// A value that allocates ambiently when it drops.
struct AmbientDrop<'x>(&'x Cell<Option<HostArray<AmbientBlock, f32, [usize; 1]>>>);

impl Drop for AmbientDrop<'_> {
    fn drop(&mut self) {
        self.0.set(ambient_alloc(floats(4)).ok());
    }
}

#[test]
fn an_ambient_roll_back_spares_what_others_made() {
    let mut arena = Arena::with_capacity(1 << 16).unwrap();
    let mut frame = arena.frame();
    let stash = Cell::new(None);
    with_space(&mut frame, || {
        let given = Given(AmbientDrop(&stash));
        assert!(ambient_alloc((floats(1), given, too_many())).is_err());
        let next = ambient_alloc(floats(4)).unwrap();
        assert_disjoint(&stash.take().unwrap(), &next);
    });
}

/// A shared space that itself allocates ambiently.
struct Recursive(Scope);

impl Space for Recursive {
    type Family = Host;
    type Block = AmbientBlock;

    fn block(&self, layout: Layout) -> Result<AmbientBlock, AllocError> {
        self.0.enter(|| Ambient.block(layout))
    }
}

#[test]
fn a_lent_frame_outlives_no_block_of_an_ambient_space() {
    let scope = Scope::new(Recursive(Scope::new(Heap)));
    let sum = scope.enter(|| {
        // A frame over the borrow asks for whatever is bound when it is asked.
        let mut ambient = &Ambient;
        ambient.scratch(|frame| {
            let ones = frame.alloc(floats(100)).unwrap().filled(1.0);
            let mut arena = Arena::with_capacity(1 << 12).unwrap();
            // What the frame asks for here comes from the arena, and is held until it ends.
            let twos = with_space(&mut arena.frame(), || frame.alloc(floats(100)).unwrap());
            let twos = twos.filled(2.0);
            assert!(arena.reset().is_err());
            drop(arena);
            assert_disjoint(&ones, &twos);
            ones.iter().chain(&*twos).sum::<f32>()
        })
    });
    assert_eq!(sum, 300.0);
}

/// The ambient space over the ambient space is no way to ask oneself for ever.
#[test]
fn a_frame_of_the_ambient_space_bound_as_the_ambient_space_asks_nobody() {
    let both = || ambient_alloc((floats(1), floats(1))).map(drop);
    let round = || {
        let mut ambient = &Ambient;
        ambient.scratch(|frame| {
            with_space(frame, || {
                assert!(matches!(both(), Err(AllocError::Unbound)));
                ambient_scratch(|| assert!(both().is_err())).unwrap();
                let explicit = Ambient.scratch(|inner| inner.alloc(floats(1)).map(drop));
                assert!(matches!(explicit, Err(AllocError::Unbound)));
            });
        });
        Ambient.scratch(|frame| with_space(frame, both))
    };
    assert!(matches!(round(), Err(AllocError::Unbound)));
    Scope::new(Heap).enter(round).unwrap();
    let mut arena = Arena::with_capacity(1 << 12).unwrap();
    with_space(&mut arena.frame(), round).unwrap();
    assert_eq!((arena.offset(), arena.pinned_bytes()), (0, 0));
}

/// A space that makes something ambiently whenever it is asked.
struct Chatty<'x>(&'x Cell<usize>);

impl Space for Chatty<'_> {
    type Family = Host;
    type Block = HostBlock;

    fn block(&self, layout: Layout) -> Result<HostBlock, AllocError> {
        self.0
            .set(self.0.get() + usize::from(ambient_alloc((floats(1), floats(2))).is_ok()));
        Heap.block(layout)
    }
}

#[test]
fn a_space_that_allocates_ambiently_is_not_asked_by_itself() {
    let made = Cell::new(0);
    let array = with_scratch(&mut Chatty(&made), || ambient_alloc(floats(3)).unwrap());
    assert_eq!((made.get(), array.len()), (0, 3));
    let mut arena = Arena::with_capacity(1 << 12).unwrap();
    with_space(&mut arena.frame(), || {
        Chatty(&made)
            .scratch(|frame| frame.alloc(floats(3)).map(drop))
            .unwrap();
    });
    assert_eq!(made.get(), 1);
}

#[test]
fn a_panic_between_carves_leaves_what_was_made_before() {
    let mut arena = Arena::with_capacity(1 << 16).unwrap();
    let mut frame = arena.frame();
    let kept = frame.alloc(floats(4)).unwrap().filled(1.0);
    struct Panicking;
    impl<B: Block> Describe<B> for Panicking {
        type Out = ();
        type Flat = ();
        type Held = ();
        fn flatten(self) -> ((), ()) {
            panic!("the user's own")
        }
        fn finish((): (), (): ()) {}
    }
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        frame.scratch(|inner| inner.alloc((floats(1), Panicking)).map(drop))
    }));
    assert!(caught.is_err());
    let next = frame.alloc(floats(4)).unwrap().filled(2.0);
    assert_disjoint(&kept, &next);
    assert_eq!((kept[0], next[0]), (1.0, 2.0));
}

#[test]
fn a_borrow_of_a_frame_gives_nothing_back_before_the_frame() {
    let mut arena = Arena::with_capacity(1 << 16).unwrap();
    let frame = arena.frame();
    let mut borrow = &frame;
    let stash = Cell::new(None);
    borrow.scratch(|inner| {
        let _inner = inner.alloc(floats(4)).unwrap();
        stash.set(frame.alloc(floats(4)).ok());
    });
    let next = frame.alloc(floats(4)).unwrap();
    assert_disjoint(&stash.take().unwrap(), &next);
    assert_eq!(frame.offset(), 3 * 256);
}

#[test]
fn what_may_cross_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Arena<space_arena::HostSlab>>();
    send::<CarvedArray<'static, f32, [usize; 1]>>();
    sync::<CarvedArray<'static, f32, Vec<usize>>>();
    send::<HostArray<AmbientBlock, f32, [usize; 1]>>();
    sync::<HostArray<AmbientBlock, f32, [usize; 1]>>();
    send::<Scope>();
    sync::<Scope>();
}
