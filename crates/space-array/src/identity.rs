//! Numbers that are never used again in a process.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// The next one, from 1 on.
pub(crate) fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
