//! Frames over spaces that are not arenas: what they keep, and when they give it back.

use std::{
    alloc::Layout,
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
};

use proptest::prelude::*;
use space_core::{
    AllocError, Block, Dims, Element, Heap, Host, HostArray, HostBlock, Observer, Space, Undef,
};

/// A user's own borrowing space: it numbers its blocks and hears of their drop.
#[derive(Default)]
struct Pool {
    made: Cell<usize>,
    dropped: RefCell<Vec<usize>>,
    open: Cell<usize>,
    fail_at: Option<usize>,
    panic_at: Option<usize>,
}

struct Pooled<'p> {
    block: HostBlock,
    number: usize,
    pool: &'p Pool,
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        self.pool.dropped.borrow_mut().push(self.number);
        assert!(
            self.pool.panic_at != Some(self.number),
            "dropped {}",
            self.number
        );
    }
}

// SAFETY: The bytes are the inner block's, which is there for as long.
unsafe impl<'p> Block for Pooled<'p> {
    type Family = Host;
    type Array<T: Element, D: Dims> = HostArray<Pooled<'p>, T, D>;

    fn place(&self) -> NonNull<u8> {
        self.block.place()
    }

    fn bytes(&self) -> usize {
        self.block.bytes()
    }

    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> HostArray<Self, T, D> {
        // SAFETY: Handed on.
        unsafe { HostArray::over(self, dims) }
    }
}

impl<'p> Space for &'p Pool {
    type Family = Host;
    type Block = Pooled<'p>;

    fn block(&self, layout: Layout) -> Result<Pooled<'p>, AllocError> {
        let number = self.made.get();
        if self.fail_at == Some(number) {
            return Err(AllocError::other("that was enough"));
        }
        self.made.set(number + 1);
        Ok(Pooled {
            block: Heap.block(layout)?,
            number,
            pool: self,
        })
    }

    fn observer(&self) -> Option<&dyn Observer> {
        Some(*self)
    }
}

impl Observer for Pool {
    fn frame_opened(&self) {
        self.open.set(self.open.get() + 1);
    }

    fn frame_closed(&self) {
        self.open.set(self.open.get() - 1);
    }
}

fn bytes(len: usize) -> Undef<u8, [usize; 1]> {
    Undef::new([len])
}

#[test]
fn each_level_gives_back_its_own_blocks_latest_first() {
    let pool = Pool::default();
    let mut space = &pool;
    let outside = space.alloc(bytes(1)).unwrap();
    space.scratch(|frame| {
        let a = frame.alloc(bytes(3)).unwrap().filled(1);
        frame.scratch(|inner| {
            inner
                .alloc((bytes(1), bytes(2), Undef::<f64, _>::new([3])))
                .unwrap();
            assert_eq!(pool.open.get(), 2);
        });
        assert_eq!(*pool.dropped.borrow(), [4, 3, 2]);
        frame.alloc(bytes(5)).unwrap();
        assert_eq!(*a, [1; 3]);
    });
    assert_eq!(*pool.dropped.borrow(), [4, 3, 2, 5, 1]);
    assert_eq!(pool.open.get(), 0);
    drop(outside);
    assert_eq!(*pool.dropped.borrow(), [4, 3, 2, 5, 1, 0]);
}

#[test]
fn no_bytes_are_asked_of_nobody() {
    let pool = Pool {
        fail_at: Some(0),
        ..Pool::default()
    };
    (&pool).scratch(|frame| {
        let none = frame.alloc(Undef::<u128, _>::new([0, 3])).unwrap();
        assert_eq!(
            (none.len(), none.as_ptr().addr() % align_of::<u128>()),
            (0, 0)
        );
    });
    assert_eq!(pool.made.get(), 0);
}

#[test]
fn raw_marks_give_nothing_back_here() {
    let pool = Pool::default();
    (&pool).scratch(|frame| {
        let mark = frame.mark();
        let kept = frame.alloc(bytes(3)).unwrap().filled(5);
        // SAFETY: Not over an arena: the carves since the mark stay.
        unsafe { frame.retract_raw(mark) }.unwrap();
        frame.scratch(|inner| inner.alloc(bytes(4)).map(drop).unwrap());
        assert_eq!((&*kept, &*pool.dropped.borrow()), (&[5; 3][..], &vec![1]));
    });
    assert_eq!(*pool.dropped.borrow(), [1, 0]);
}

#[test]
fn a_panic_in_the_block_gives_back_too() {
    let pool = Pool::default();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        (&pool).scratch(|frame| {
            let _kept = frame.alloc((bytes(1), bytes(2))).unwrap();
            frame.scratch(|inner| {
                let _kept = inner.alloc(bytes(3)).unwrap();
                panic!("the user's own");
            })
        })
    }));
    assert!(caught.is_err());
    assert_eq!(*pool.dropped.borrow(), [2, 1, 0]);
    assert_eq!(pool.open.get(), 0);
}

#[test]
fn a_panic_in_a_drop_does_not_keep_the_others() {
    let pool = Pool {
        panic_at: Some(1),
        ..Pool::default()
    };
    let caught = catch_unwind(AssertUnwindSafe(|| {
        (&pool).scratch(|frame| {
            frame
                .alloc((bytes(1), bytes(2), bytes(3)))
                .map(drop)
                .unwrap();
        });
    }));
    assert!(caught.is_err());
    assert_eq!(*pool.dropped.borrow(), [2, 1, 0]);
    assert_eq!(pool.open.get(), 0);
}

#[test]
fn a_specification_is_materialised_in_full_or_not_at_all() {
    let pool = Pool {
        fail_at: Some(2),
        ..Pool::default()
    };
    assert!((&pool).alloc((bytes(1), bytes(2), bytes(3))).is_err());
    assert_eq!(pool.dropped.borrow().len(), 2);

    let pool = Pool {
        fail_at: Some(3),
        ..Pool::default()
    };
    (&pool).scratch(|frame| {
        let kept = frame.alloc(bytes(1)).unwrap().filled(7);
        assert!(frame.alloc([bytes(1), bytes(2), bytes(3)]).is_err());
        assert_eq!(*pool.dropped.borrow(), [2, 1]);
        assert_eq!(*kept, [7]);
    });
    assert_eq!(*pool.dropped.borrow(), [2, 1, 0]);
}

/// A space that returns less than it was asked for, or puts it at an odd address.
struct Wrong<'s> {
    buffer: &'s RefCell<[u64; 8]>,
    offset: usize,
    bytes: usize,
}

impl<'s> Space for Wrong<'s> {
    type Family = Host;
    type Block = space_core::HostCarve<'s>;

    fn block(&self, _: Layout) -> Result<Self::Block, AllocError> {
        let start = NonNull::new(self.buffer.as_ptr()).unwrap().cast::<u8>();
        // SAFETY: The buffer has 64 bytes.
        let start = unsafe { start.add(self.offset) };
        // SAFETY: In bounds; each test takes one block.
        Ok(unsafe { space_core::HostCarve::new(start, self.bytes) })
    }
}

#[test]
fn a_block_other_than_the_one_asked_for_is_refused() {
    let buffer = RefCell::new([0; 8]);
    let mut short = Wrong {
        buffer: &buffer,
        offset: 0,
        bytes: 8,
    };
    let mut odd = Wrong {
        buffer: &buffer,
        offset: 1,
        bytes: 32,
    };
    let four = Undef::<u32, _>::new([4]);
    for refused in [
        short.alloc(four).map(drop),
        short.scratch(|frame| frame.alloc(four).map(drop)),
    ] {
        assert!(matches!(
            refused,
            Err(AllocError::BadBlock {
                wanted_bytes: 16,
                align: 4,
                got_bytes: 8,
                ..
            })
        ));
    }
    for refused in [
        odd.alloc(four).map(drop),
        odd.scratch(|frame| frame.alloc(four).map(drop)),
    ] {
        assert!(matches!(
            refused,
            Err(AllocError::BadBlock { got_bytes: 32, .. })
        ));
    }
}

/// A tree of frames, each with some carves before and after its inner ones.
#[derive(Debug, Clone)]
enum Tree {
    Carve(usize),
    Frame(Vec<Tree>),
}

fn tree() -> impl Strategy<Value = Tree> {
    (1..50_usize)
        .prop_map(Tree::Carve)
        .prop_recursive(5, 40, 6, |tree| {
            prop::collection::vec(tree, 0..6).prop_map(Tree::Frame)
        })
}

fn run<S: Space<Family = Host>>(
    space: &mut S,
    trees: &[Tree],
    pool: &Pool,
    dropped: &mut Vec<usize>,
) {
    let mut mine = Vec::new();
    for tree in trees {
        match tree {
            Tree::Carve(len) => {
                mine.push(pool.made.get());
                drop(space.alloc(bytes(*len)).unwrap());
            }
            Tree::Frame(trees) => space.scratch(|frame| run(frame, trees, pool, dropped)),
        }
        assert_eq!(pool.dropped.borrow().len(), dropped.len());
    }
    dropped.extend(mine.into_iter().rev());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn blocks_are_given_back_in_reverse_order_at_their_level(trees in prop::collection::vec(tree(), 0..8)) {
        let pool = Pool::default();
        let mut expected = Vec::new();
        (&pool).scratch(|frame| run(frame, &trees, &pool, &mut expected));
        prop_assert_eq!(&*pool.dropped.borrow(), &expected);
        prop_assert_eq!(pool.open.get(), 0);
    }
}
