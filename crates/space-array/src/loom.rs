//! The memory core under all interleavings of a few threads.
//!
//! Loom doesn't see the bytes of a buffer, so a cell of its own stands for them: whoever holds the
//! one array that the buffer has room for writes the cell, and loom reports unordered accesses.

use std::alloc::Layout;

use loom::{cell::UnsafeCell, model, thread};

use crate::{
    AllocBuffer, BumperAllocator, ResetError,
    bumper::Shared,
    gate::{Gate, NotAdvanced},
    kind::{Checked, Counted, sealed::Access},
    region::Pin,
    source::{Piece, Want},
    store::Store,
    sync::Arc,
};

/// A buffer with room for one array.
struct One {
    shared: Arc<Shared>,
    bytes: UnsafeCell<u64>,
}

// SAFETY: What the tests check: loom reports accesses to the cell that race.
unsafe impl Send for One {}

// SAFETY: As above.
unsafe impl Sync for One {}

impl One {
    fn new() -> Arc<Self> {
        let bumper = BumperAllocator::new(AllocBuffer::new(64).unwrap());
        Arc::new(Self {
            shared: Arc::clone(&bumper.shared),
            bytes: UnsafeCell::new(0),
        })
    }

    fn allocate(&self, want: Want) -> Option<Piece> {
        let piece = self.shared.piece(want, Layout::new::<[u64; 8]>());
        piece.ok()
    }

    fn write(&self, tag: u64) {
        // SAFETY: The caller holds the one array that there is room for; loom checks that.
        self.bytes.with_mut(|bytes| unsafe { *bytes = tag });
    }

    fn assert_is(&self, tag: u64) {
        // SAFETY: As above.
        self.bytes.with(|bytes| assert_eq!(unsafe { *bytes }, tag));
    }

    fn reset(&self) -> Result<(), ResetError> {
        self.shared.lock().reset()
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
            gate.wait(std::time::Duration::MAX);
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
                    gate.wait(std::time::Duration::MAX);
                }
            })
        };
        gate.unpin();
        while gate.advance().is_err() {
            gate.wait(std::time::Duration::MAX);
        }
        waiter.join().unwrap();
        assert_eq!(gate.generation(), 2);
    });
}

#[test]
fn a_counted_array_keeps_the_memory() {
    model(|| {
        let one = One::new();
        let other = {
            let one = Arc::clone(&one);
            thread::spawn(move || {
                if let Some(piece) = one.allocate(Want::Counted) {
                    one.write(1);
                    let store = Counted::settle(Counted::fresh(piece.grip));
                    one.assert_is(1);
                    drop(store);
                }
            })
        };
        let _ = one.reset();
        if let Some(piece) = one.allocate(Want::Counted) {
            one.write(2);
            one.assert_is(2);
            drop(piece);
        }
        other.join().unwrap();
    });
}

#[test]
fn a_checked_array_is_pinned_until_written_and_while_viewed() {
    model(|| {
        let one = One::new();
        let other = {
            let one = Arc::clone(&one);
            thread::spawn(move || {
                let Some(piece) = one.allocate(Want::Checked) else {
                    return;
                };
                one.write(1);
                let Store::Checked { region, made } = Checked::settle(Checked::fresh(piece.grip))
                else {
                    unreachable!("a bumper's")
                };
                if let Ok(pin) = Pin::take(&region, made) {
                    one.assert_is(1);
                    drop(pin);
                }
            })
        };
        let _ = one.reset();
        if let Some(piece) = one.allocate(Want::Checked) {
            one.write(2);
            one.assert_is(2);
            drop(piece);
        }
        other.join().unwrap();
    });
}

#[test]
fn abandoned_memory_is_not_handed_out() {
    model(|| {
        let one = One::new();
        let piece = one.allocate(Want::Counted);
        let other = {
            let one = Arc::clone(&one);
            thread::spawn(move || drop(one.allocate(Want::Counted)))
        };
        one.shared.lock().abandon().unwrap();
        let next = one.allocate(Want::Counted);
        if let (Some(piece), Some(next)) = (&piece, &next) {
            assert_ne!(piece.address, next.address);
        }
        drop(piece);
        other.join().unwrap();
    });
}
