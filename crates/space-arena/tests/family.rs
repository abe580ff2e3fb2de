//! A family of its own: a device whose carves each take a ledger, of which an arena has few.

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    num::NonZero,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
};

use proptest::prelude::*;
use space_arena::{Arena, Meter};
use space_core::{
    AllocError, Block, CaptureViolation, Dims, Element, Family, Frame, FrameBlock, Parts, Slab,
    Space, Undef,
};

/// Memory that the host can't reach: its addresses are numbers.
enum Device {}

/// The ledgers of an arena.
struct Ledgers {
    capacity: usize,
    /// Addresses of the claims, oldest first.
    live: RefCell<Vec<usize>>,
    retracts: Cell<usize>,
}

/// An address, and whose ledger it is: the arena's, the owned block's, or nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    address: NonNull<u8>,
    ledger: Option<usize>,
}

struct Carve<'s> {
    place: Place,
    bytes: usize,
    frame: PhantomData<&'s ()>,
}

#[derive(Debug)]
struct Array<T, D> {
    place: Place,
    dims: D,
    element: PhantomData<T>,
}

// SAFETY: A carve is a number and gives access to nothing; nothing calls out or unwinds.
unsafe impl Family for Device {
    type Region = Ledgers;
    type Place = Place;
    type Carve<'s> = Carve<'s>;

    fn address(place: Place) -> NonNull<u8> {
        place.address
    }

    unsafe fn claim(
        region: &Ledgers,
        address: NonNull<u8>,
        bytes: usize,
    ) -> Result<Place, AllocError> {
        let mut live = region.live.borrow_mut();
        if bytes == 0 {
            return Ok(Place {
                address,
                ledger: None,
            });
        }
        if live.len() == region.capacity {
            return Err(AllocError::OutOfLedgers {
                capacity: region.capacity,
            });
        }
        live.push(address.addr().get());
        Ok(Place {
            address,
            ledger: Some(live.len() - 1),
        })
    }

    unsafe fn retract(region: &Ledgers, addresses: Range<usize>) {
        region.retracts.set(region.retracts.get() + 1);
        let mut live = region.live.borrow_mut();
        while live.pop_if(|address| addresses.contains(address)).is_some() {}
    }

    unsafe fn carve<'s>(place: Place, bytes: usize) -> Carve<'s> {
        Carve {
            place,
            bytes,
            frame: PhantomData,
        }
    }
}

// SAFETY: The block is a number; its place doesn't depend on where it is.
unsafe impl<'s> Block for Carve<'s> {
    type Family = Device;
    type Array<T: Element, D: Dims> = Array<T, D>;

    fn place(&self) -> Place {
        self.place
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> Array<T, D> {
        Array {
            place: self.place,
            dims,
            element: PhantomData,
        }
    }
}

impl FrameBlock for Carve<'_> {}

/// A block of a device's pool, with a ledger of its own.
struct Owned {
    place: Place,
    bytes: usize,
}

// SAFETY: As above.
unsafe impl Block for Owned {
    type Family = Device;
    type Array<T: Element, D: Dims> = Array<T, D>;

    fn place(&self) -> Place {
        self.place
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> Array<T, D> {
        Array {
            place: self.place,
            dims,
            element: PhantomData,
        }
    }
}

/// A device's pool.
struct Pool {
    next: Cell<usize>,
    capturing: Cell<bool>,
}

impl Space for Pool {
    type Family = Device;
    type Block = Owned;

    fn block(&self, layout: std::alloc::Layout) -> Result<Owned, AllocError> {
        if self.capturing.get() {
            return Err(CaptureViolation::new::<u8>(&[layout.size()], "device 3").into());
        }
        let address = self.next.get();
        self.next
            .set(address + layout.size().next_multiple_of(256).max(256));
        Ok(Owned {
            place: Place {
                address: number(address),
                ledger: Some(address),
            },
            bytes: layout.size(),
        })
    }
}

fn pool() -> Pool {
    Pool {
        next: Cell::new(1 << 20),
        capturing: Cell::new(false),
    }
}

fn number(address: usize) -> NonNull<u8> {
    NonNull::without_provenance(NonZero::new(address).unwrap())
}

struct DeviceSlab {
    base: usize,
    bytes: usize,
    ledgers: usize,
}

// SAFETY: Numbers, which nobody reads or writes through.
unsafe impl Slab for DeviceSlab {
    type Family = Device;
    type Owner = ();

    fn into_parts(self) -> Parts<Device, ()> {
        let region = Ledgers {
            capacity: self.ledgers,
            live: RefCell::default(),
            retracts: Cell::new(0),
        };
        Parts {
            base: number(self.base),
            bytes: self.bytes,
            region,
            owner: (),
        }
    }
}

fn arena(ledgers: usize) -> Arena<DeviceSlab> {
    Arena::over(DeviceSlab {
        base: 0x7f00_0000_0001,
        bytes: 1 << 16,
        ledgers,
    })
    .unwrap()
}

fn live(arena: &Arena<DeviceSlab>) -> Vec<usize> {
    arena.region().live.borrow().clone()
}

fn floats(n: usize) -> Undef<f32, [usize; 1]> {
    Undef::new([n])
}

#[test]
fn device_addresses_are_numbers_and_aligned() {
    let mut arena = arena(8);
    let frame = arena.frame();
    let array = frame.alloc(Undef::<f32, _>::new([3, 5])).unwrap();
    assert_eq!(array.place.address.addr().get() % 256, 0);
    assert_eq!((array.dims, array.place.ledger), ([3, 5], Some(0)));
    let none = frame.alloc(floats(0)).unwrap();
    assert_eq!(none.place.ledger, None);
}

/// More elements than the fast path counts, and a slab beyond what a host could have.
#[test]
fn carves_of_any_length_are_served() {
    let slab = DeviceSlab {
        base: 4096,
        bytes: usize::MAX - 4096,
        ledgers: 8,
    };
    let mut arena = Arena::builder().alignment(1).build(slab).unwrap();
    let frame = arena.frame();
    let mut offset = 0;
    for len in [i32::MAX as usize, 1 << 31, 1 << 40, 3, 1 << 60] {
        let array = frame.alloc(floats(len)).unwrap();
        assert_eq!(array.dims, [len]);
        offset += 4 * len;
        assert_eq!(frame.offset(), offset);
    }
    let refused = frame.alloc(floats(1 << 61)).map(drop);
    assert!(
        matches!(refused, Err(AllocError::SizeOverflow { len, elem_size: 4 }) if len == 1 << 61)
    );
    assert_eq!(frame.offset(), offset);
}

#[test]
fn a_carve_without_a_ledger_changes_nothing() {
    let mut arena = arena(2);
    let mut frame = arena.frame();
    frame.alloc((floats(1), floats(0), floats(1))).unwrap();
    let refused = frame.alloc(floats(1));
    assert!(matches!(
        refused,
        Err(AllocError::OutOfLedgers { capacity: 2 })
    ));
    assert_eq!(frame.offset(), 512);
    let refused = frame.scratch(|inner| inner.alloc((floats(0), floats(1))).map(drop));
    assert!(matches!(refused, Err(AllocError::OutOfLedgers { .. })));
    assert_eq!((arena.offset(), arena.watermark()), (512, 512));
}

#[test]
fn ledgers_come_back_with_the_bytes() {
    let mut arena = arena(3);
    let mark = arena.mark();
    let mut frame = arena.frame();
    let kept = frame.alloc(floats(1)).unwrap().place.address.addr().get();
    for _ in 0..10 {
        frame
            .scratch(|inner| inner.alloc((floats(1), floats(1))).map(drop))
            .unwrap();
    }
    let caught = catch_unwind(AssertUnwindSafe(|| {
        frame.scratch(|inner| {
            inner.alloc((floats(1), floats(1))).unwrap();
            panic!("the user's own");
        })
    }));
    assert!(caught.is_err());
    // A specification that can't be carved in full gives its ledgers back too.
    assert!(frame.alloc((floats(1), floats(1), floats(1))).is_err());
    assert_eq!(live(&arena), [kept]);
    arena.retract(mark).unwrap();
    assert_eq!(live(&arena), []);
    arena.alloc(floats(1)).unwrap();
    arena.reset().unwrap();
    assert_eq!(live(&arena), []);
}

#[test]
fn a_frame_over_a_pool_hands_out_its_ledgers() {
    let mut pool = pool();
    let outer = pool.alloc(floats(1)).unwrap();
    pool.scratch(|frame| {
        let one = frame.alloc(floats(1)).unwrap();
        let two = frame.scratch(|inner| inner.alloc(floats(0)).unwrap().place);
        assert_eq!(one.place.ledger, Some(one.place.address.addr().get()));
        assert_eq!(two.ledger, Some(two.address.addr().get()));
        assert_ne!(one.place, outer.place);
    });
}

#[test]
fn a_capture_violation_names_the_array_that_was_asked_for() {
    let pool = pool();
    pool.capturing.set(true);
    let spec = || Undef::<f32, _>::new([4, 6]);
    let mut meter = Meter::new(&pool);
    for refused in [
        pool.alloc(spec()).map(drop),
        (&pool).scratch(|frame| frame.alloc(spec()).map(drop)),
        meter.alloc((spec(), spec())).map(drop),
        meter.scratch(|frame| frame.scratch(|inner| inner.alloc(spec()).map(drop))),
    ] {
        let Err(AllocError::CaptureViolation(violation)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(violation.element(), "f32");
        assert_eq!(
            (violation.shape(), violation.device()),
            (&[4, 6][..], "device 3")
        );
        assert!(
            violation
                .to_string()
                .contains("pass that arena or a frame of it instead")
        );
    }
}

/// Carves and frames.
#[derive(Debug, Clone)]
enum Step {
    Carve(usize),
    Three(usize),
    Frame(Vec<Step>),
}

fn step() -> impl Strategy<Value = Step> {
    let leaf = prop_oneof![
        (0..300_usize).prop_map(Step::Carve),
        (0..9000_usize).prop_map(Step::Three),
    ];
    leaf.prop_recursive(4, 40, 6, |step| {
        prop::collection::vec(step, 0..6).prop_map(Step::Frame)
    })
}

/// Runs steps, and keeps the addresses that must have ledgers.
fn run(frame: &mut Frame<'_, Device>, steps: &[Step], expected: &mut Vec<usize>) {
    for step in steps {
        match step {
            Step::Carve(n) => {
                if let Ok(array) = frame.alloc(floats(*n))
                    && *n > 0
                {
                    expected.push(array.place.address.addr().get());
                }
            }
            Step::Three(n) => {
                let spec = [1, *n, 2].map(floats);
                if let Ok(arrays) = frame.alloc(spec) {
                    let addresses = arrays.iter().filter(|it| it.dims != [0]);
                    expected.extend(addresses.map(|it| it.place.address.addr().get()));
                }
            }
            Step::Frame(steps) => {
                let before = expected.len();
                frame.scratch(|inner| run(inner, steps, expected));
                expected.truncate(before);
            }
        }
        assert_eq!(*frame.region().unwrap().live.borrow(), *expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn live_carves_have_ledgers_and_others_have_none(
        steps in prop::collection::vec(step(), 0..20),
        ledgers in 0..12_usize,
    ) {
        let mut arena = arena(ledgers);
        run(&mut arena.frame(), &steps, &mut Vec::new());
        arena.reset().unwrap();
        prop_assert_eq!(live(&arena), Vec::<usize>::new());
    }
}
