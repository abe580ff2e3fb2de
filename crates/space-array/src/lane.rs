//! A part of a bumper's memory for some of its threads, so that they don't wait for each other.

use std::{alloc::Layout, cell::Cell, ptr::NonNull};

use crate::{
    cursor::Cursor,
    region::{Hold, Region},
    sync::{Arc, AtomicUsize, Ordering::Relaxed, per_thread},
};

/// How many lanes a bumper has. Two threads are what loom gets through.
pub(crate) const LANES: usize = if cfg!(loom) { 2 } else { 4 };

/// What a lane takes from the bumper at a time.
pub(crate) const STRETCH_BYTES: usize = if cfg!(loom) { 64 } else { 16 << 10 };

/// Smallest buffer with lanes: what they may leave unused is little of it.
pub(crate) const FROM_BYTES: usize = if cfg!(loom) { 128 } else { 1 << 20 };

/// Largest array that a lane serves.
const LARGEST_BYTES: usize = 2 << 10;

/// Largest alignment that a lane serves.
const LARGEST_ALIGN: usize = 64;

/// What is left of the stretch that a lane took, and what its arrays hold.
pub(crate) struct Stretch {
    pub(crate) region: Arc<Region>,
    /// One more than arrays of this lane are alive.
    pub(crate) hold: Arc<Hold>,
    pub(crate) cursor: Cursor,
}

impl Stretch {
    /// An empty one.
    pub(crate) fn new(region: &Arc<Region>) -> Self {
        Self {
            hold: Hold::new(region),
            region: Arc::clone(region),
            cursor: Cursor::empty(),
        }
    }

    #[inline]
    pub(crate) fn carve(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.cursor.carve(layout)
    }
}

/// Whether a lane serves such arrays.
#[inline]
pub(crate) fn serves(layout: Layout) -> bool {
    layout.size() <= LARGEST_BYTES && layout.align() <= LARGEST_ALIGN
}

/// The lane of this thread.
#[inline]
pub(crate) fn of_this_thread() -> usize {
    per_thread!(static LANE: Cell<usize> = Cell::new(usize::MAX));
    LANE.with(|lane| {
        if lane.get() == usize::MAX {
            lane.set(next());
        }
        lane.get()
    })
}

/// Lanes in turn.
#[cold]
fn next() -> usize {
    #[cfg(not(loom))]
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    #[cfg(loom)]
    crate::sync::lazy_static!(static ref NEXT: AtomicUsize = AtomicUsize::new(0););
    NEXT.fetch_add(1, Relaxed) % LANES
}
