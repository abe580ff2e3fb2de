//! The memory core under all interleavings of a few threads.
//!
//! Loom doesn't see the bytes of a buffer, so a cell of its own stands for each array that there is
//! room for: whoever holds the array writes the cell, and loom reports unordered accesses.

use std::{alloc::Layout, time::Duration};

use loom::{cell::UnsafeCell, model, thread};

use crate::{
    AllocBuffer, AutoscalingAllocBuffer, Buffer, BumperAllocator, ResetError,
    bumper::Shared,
    gate::{Gate, NotAdvanced},
    kind::{Checked, Counted, sealed::Access},
    region::{Pin, Region},
    source::{Piece, Want},
    store::Store,
    sync::{Arc, lock},
};

/// A bumper whose arrays are of [`EACH`] bytes, and a cell for each that its first chunk has room for.
struct Watched {
    shared: Arc<Shared>,
    base: usize,
    cells: Vec<UnsafeCell<u64>>,
}

const EACH: usize = 64;

/// A checked array: its address, its region and its generation.
type Array = (usize, Arc<Region>, u64);

// SAFETY: What the tests check: loom reports accesses to a cell that race.
unsafe impl Send for Watched {}

// SAFETY: As above.
unsafe impl Sync for Watched {}

impl Watched {
    /// With room for so many arrays. From two on there are lanes, of one array each.
    fn new(arrays: usize) -> Arc<Self> {
        Self::over(AllocBuffer::new(arrays * EACH).unwrap(), arrays)
    }

    /// With room for one array, and chunks for more.
    fn growing() -> Arc<Self> {
        Self::over(AutoscalingAllocBuffer::new(EACH).unwrap(), 1)
    }

    fn over(buffer: impl Buffer, arrays: usize) -> Arc<Self> {
        let bumper = BumperAllocator::new(buffer);
        let base = lock(&bumper.shared.state.0).cursor.bump.base;
        Arc::new(Self {
            shared: Arc::clone(&bumper.shared),
            base,
            cells: (0..arrays).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn allocate(&self, want: Want) -> Option<Piece> {
        let piece = self.shared.piece(want, Layout::new::<[u8; EACH]>());
        piece.ok()
    }

    /// The cell that stands for an array, unless it is of another chunk.
    fn cell(&self, address: usize) -> Option<&UnsafeCell<u64>> {
        let offset = address.wrapping_sub(self.base);
        self.cells.get(offset / EACH)
    }

    fn write(&self, address: usize, tag: u64) {
        if let Some(cell) = self.cell(address) {
            // SAFETY: The caller holds the array; loom checks that nobody else does.
            cell.with_mut(|bytes| unsafe { *bytes = tag });
        }
    }

    fn assert_is(&self, address: usize, tag: u64) {
        if let Some(cell) = self.cell(address) {
            // SAFETY: As above.
            cell.with(|bytes| assert_eq!(unsafe { *bytes }, tag));
        }
    }

    fn reset(&self) -> Result<(), ResetError> {
        self.shared.lock().reset()
    }

    /// Allocates a counted array, writes it and drops it, if there is room.
    fn use_counted(&self, tag: u64) {
        if let Some(piece) = self.allocate(Want::Counted) {
            let address = piece.address.addr().get();
            self.write(address, tag);
            let store = Counted::settle(Counted::fresh(piece.grip));
            self.assert_is(address, tag);
            drop(store);
        }
    }

    /// Allocates a checked array and writes it, if there is room.
    fn checked(&self, tag: u64) -> Option<Array> {
        let piece = self.allocate(Want::Checked)?;
        let address = piece.address.addr().get();
        self.write(address, tag);
        match Checked::settle(Checked::fresh(piece.grip)) {
            Store::Checked { region, made } => Some((address, region, made)),
            _ => unreachable!("a bumper's"),
        }
    }

    /// Looks at a checked array, if it is still there.
    fn look(&self, (address, region, made): &Array, tag: u64) -> bool {
        let Ok(pin) = Pin::take(region, *made) else {
            return false;
        };
        self.assert_is(*address, tag);
        drop(pin);
        true
    }
}

#[test]
fn a_pin_keeps_a_generation() {
    model(|| {
        let gate = Arc::new((Gate::new(0), UnsafeCell::new(0)));
        let pinners: Vec<_> = (0..2)
            .map(|_| {
                let gate = Arc::clone(&gate);
                thread::spawn(move || {
                    if gate.0.pin(0).is_ok() {
                        // SAFETY: Generation 0 isn't over; loom checks that.
                        gate.1.with(|cell| assert_eq!(unsafe { *cell }, 0));
                        gate.0.unpin();
                    }
                })
            })
            .collect();
        if gate.0.advance().is_ok() {
            // SAFETY: Nobody holds a pin of generation 0; loom checks that.
            gate.1.with_mut(|cell| unsafe { *cell = 1 });
        }
        for pinner in pinners {
            pinner.join().unwrap();
        }
    });
}

#[test]
fn a_waiter_is_told_of_the_last_pin() {
    model(|| {
        let gate = Arc::new(Gate::new(0));
        gate.pin(0).unwrap();
        let pinner = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.unpin())
        };
        // Loom's time never runs out: a lost wake-up is a deadlock.
        while let Err(NotAdvanced::Pinned { .. }) = gate.advance() {
            gate.wait(Duration::MAX);
        }
        pinner.join().unwrap();
        assert_eq!(gate.generation(), 1);
    });
}

#[test]
fn two_waiters_are_told() {
    model(|| {
        let gate = Arc::new(Gate::new(0));
        gate.pin(0).unwrap();
        let waiter = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                while gate.advance().is_err() {
                    gate.wait(Duration::MAX);
                }
            })
        };
        gate.unpin();
        while gate.advance().is_err() {
            gate.wait(Duration::MAX);
        }
        waiter.join().unwrap();
        assert_eq!(gate.generation(), 2);
    });
}

/// Runs `other` on a thread of its own beside `this`.
fn beside(
    watched: &Arc<Watched>,
    other: impl FnOnce(&Watched) + Send + 'static,
    this: impl FnOnce(&Watched),
) {
    let for_other = Arc::clone(watched);
    let other = thread::spawn(move || other(&for_other));
    this(watched);
    other.join().unwrap();
}

#[test]
fn a_counted_array_keeps_the_memory() {
    model(|| {
        beside(
            &Watched::new(1),
            |watched| watched.use_counted(1),
            |watched| {
                let _ = watched.reset();
                watched.use_counted(2);
            },
        );
    });
}

#[test]
fn a_checked_array_is_pinned_until_written_and_while_viewed() {
    model(|| {
        beside(
            &Watched::new(1),
            |watched| {
                if let Some(array) = watched.checked(1) {
                    watched.look(&array, 1);
                }
            },
            |watched| {
                let _ = watched.reset();
                drop(watched.checked(2));
            },
        );
    });
}

#[test]
fn lanes_hand_out_memory_of_their_own() {
    model(|| {
        beside(
            &Watched::new(2),
            |watched| watched.use_counted(1),
            |watched| {
                let array = watched.checked(2);
                let reset = watched.reset().is_ok();
                watched.use_counted(3);
                if let Some(array) = array {
                    assert_ne!(watched.look(&array, 2), reset);
                }
            },
        );
    });
}

#[test]
fn a_reset_that_waits_ends_after_the_last_view() {
    model(|| {
        let watched = Watched::new(1);
        let array = watched.checked(1).unwrap();
        beside(
            &watched,
            move |watched| {
                watched.look(&array, 1);
            },
            |watched| {
                // Loom's time never runs out: a lost wake-up is a deadlock.
                watched.shared.reset_within(Duration::MAX).unwrap();
                watched.checked(2).unwrap();
            },
        );
    });
}

#[test]
fn a_chunk_is_replaced_when_nobody_looks_at_it() {
    model(|| {
        let watched = Watched::growing();
        let array = watched.checked(1).unwrap();
        assert!(watched.checked(1).is_some(), "in a second chunk");
        beside(
            &watched,
            move |watched| {
                watched.look(&array, 1);
            },
            |watched| {
                if watched.reset().is_ok() {
                    assert_eq!(watched.shared.lock().statistics().chunks, 1);
                    // What the heap may do with the first chunk now.
                    watched.write(watched.base, 2);
                }
            },
        );
    });
}

#[test]
fn abandoned_memory_is_not_handed_out_and_stays_valid() {
    model(|| {
        let watched = Watched::new(1);
        let array = watched.checked(1).unwrap();
        beside(
            &watched,
            move |watched| assert!(watched.look(&array, 1)),
            |watched| {
                watched.shared.lock().abandon().unwrap();
                watched.use_counted(2);
                watched.reset().unwrap();
            },
        );
    });
}
