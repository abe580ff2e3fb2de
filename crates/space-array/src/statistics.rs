//! What an allocator has done.

use std::time::Duration;

/// What an allocator holds and has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Bytes handed out since the last reset, padding included; on the heap, bytes of arrays that
    /// are alive.
    pub in_use_bytes: usize,
    /// The most that were ever in use at a time.
    pub peak_bytes: usize,
    /// Bytes that the allocator has.
    pub capacity_bytes: usize,
    /// Arrays alive that a reset would have to spare: those that don't check their memory.
    pub arrays: usize,
    /// Views of checked arrays that are held, those that are being initialised among them.
    pub views: usize,
    /// Chunks that the capacity is made of.
    pub chunks: usize,
    /// How many resets succeeded.
    pub resets: u64,
    /// How often the memory was abandoned.
    pub abandoned: u64,
    /// Time spent on getting chunks from the heap after the first one.
    pub growing: Duration,
}
