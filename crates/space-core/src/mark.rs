//! Snapshots of an arena.

use std::fmt;

/// How often an arena was reset. Marks of an earlier epoch are stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub(crate) u64);

impl Epoch {
    /// The number of resets.
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
    pub(crate) arena: u64,
    pub(crate) epoch: Epoch,
    pub(crate) left: usize,
    pub(crate) capacity: usize,
}

impl Mark {
    /// The arena's offset when the mark was taken, in bytes.
    pub fn offset(&self) -> usize {
        self.capacity - self.left
    }

    /// The arena's epoch when the mark was taken.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}
