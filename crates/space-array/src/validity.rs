//! Why memory can't be used, had or given back.

use std::time::Duration;

/// The memory of a checked array can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidMemory {
    /// It was given back: the allocator was reset since the array was made.
    #[error(
        "this array was made in generation {made} of allocator {allocator}, which is in generation \
         {now}: it was reset since"
    )]
    GivenBack {
        /// Identity of the allocator.
        allocator: u64,
        /// Generation in which the array was made.
        made: u64,
        /// Generation that the allocator is in now.
        now: u64,
    },

    /// It is valid, but no more views can be counted.
    #[error(
        "{views} views of arrays of allocator {allocator} are held, and no more can be counted"
    )]
    TooManyViews {
        /// Identity of the allocator.
        allocator: u64,
        /// How many are held.
        views: usize,
    },
}

/// A fixed buffer has no room for an array.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wanted_bytes} bytes at alignment {align} do not fit: {left_bytes} of {capacity_bytes} bytes \
     are left; this run needs a buffer of at least {peak_bytes} bytes"
)]
#[non_exhaustive]
pub struct Exhausted {
    /// Size of the request, without the padding that its alignment costs.
    pub wanted_bytes: usize,
    /// Alignment of the request, in bytes.
    pub align: usize,
    /// What the buffer had left.
    pub left_bytes: usize,
    /// Size of the buffer.
    pub capacity_bytes: usize,
    /// Size of a buffer that would have served every request up to this one.
    pub peak_bytes: usize,
}

/// Why an allocator was not reset. All of its arrays are as valid as they were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResetError {
    /// Arrays that don't check their memory are alive.
    #[error(
        "{arrays} arrays of this allocator are alive; drop them first, or `abandon` the memory if \
         they were forgotten"
    )]
    ArraysAlive {
        /// How many.
        arrays: usize,
    },

    /// Views of checked arrays are held, or checked arrays are being initialised.
    #[error(
        "{views} views of arrays of this allocator are held, {own} of them by this thread; drop \
         them first, wait with `reset_within`, or `abandon` the memory if they were forgotten"
    )]
    ViewsAlive {
        /// How many.
        views: usize,
        /// How many of them this thread holds.
        own: usize,
    },

    /// This thread holds views itself, so that waiting for them would never end.
    #[error("this thread itself holds {own} of {views} views of arrays of this allocator")]
    OwnViews {
        /// How many views there are.
        views: usize,
        /// How many of them this thread holds.
        own: usize,
    },

    /// Other threads held views for all of the time.
    #[error("{views} views of arrays of this allocator are still held after {waited:?}")]
    TimedOut {
        /// How many, at last.
        views: usize,
        /// For how long.
        waited: Duration,
    },

    /// The last generation is over, and there was no memory for a fresh region.
    #[error("the last generation is over, and the system has no {bytes} bytes for a fresh chunk")]
    OutOfMemory {
        /// Size of the chunk.
        bytes: usize,
    },
}
