//! Snapshots of an arena.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// How often an arena was reset. Marks of an earlier epoch are stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub(crate) u64);

impl Epoch {
    /// The number of resets.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.0)
    }
}

/// A snapshot of an arena's offset, to be retracted to later.
///
/// It carries the arena's identity and epoch, so that a mark of another arena, a mark from before
/// a reset and a mark above the offset are told apart. It borrows nothing: what keeps a carve from
/// being used after a retract is the carve's own lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub(crate) stamp: Stamp,
    pub(crate) left: usize,
    pub(crate) capacity: usize,
}

impl Mark {
    /// The arena's offset when the mark was taken, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.capacity - self.left
    }
}

/// The identity and the epoch of an arena in one word, so that a mark is checked by one compare.
///
/// The epoch is modulo 2^24. An arena takes a new identity when it comes round, so that no stamp
/// is ever used twice; a mark from before that counts as one of another arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// Bits of a [`Stamp`] that are the epoch's.
const EPOCH_BITS: u32 = 24;

impl Stamp {
    /// The stamp of no arena.
    pub(crate) const NONE: Self = Self(u64::MAX);

    /// A new identity, in its first epoch.
    pub(crate) fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed) << EPOCH_BITS)
    }

    /// The stamp of the next epoch.
    pub(crate) fn next(self) -> Self {
        let next = Self(self.0 + 1);
        if next.arena() == self.arena() {
            next
        } else {
            Self::fresh()
        }
    }

    /// The identity.
    pub(crate) fn arena(self) -> u64 {
        self.0 >> EPOCH_BITS
    }

    /// The epoch, as one that is not later than `now` of the same identity.
    pub(crate) fn epoch(self, now: Epoch) -> Epoch {
        let low = (1 << EPOCH_BITS) - 1;
        Epoch((now.0 & !low) | (self.0 & low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_never_used_twice() {
        let first = Stamp::fresh();
        let other = Stamp::fresh();
        assert_ne!(first.arena(), other.arena());
        let second = first.next();
        assert_eq!(second.arena(), first.arena());
        assert_eq!(first.epoch(Epoch(1)), Epoch(0));
        assert_eq!(second.epoch(Epoch(1)), Epoch(1));

        let last = Stamp(first.0 | ((1 << EPOCH_BITS) - 1));
        assert_eq!(
            last.epoch(Epoch((1 << EPOCH_BITS) - 1)).number(),
            (1 << EPOCH_BITS) - 1
        );
        let renewed = last.next();
        assert_ne!(renewed.arena(), first.arena());
        assert_eq!(
            renewed.epoch(Epoch(1 << EPOCH_BITS)),
            Epoch(1 << EPOCH_BITS)
        );
    }
}
