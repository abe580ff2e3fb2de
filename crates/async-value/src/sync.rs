//! What the queue of epochs takes from `std::sync`, and from loom where that checks it.

#[cfg(not(loom))]
pub(crate) use std::sync::{Arc as Counted, Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::sync::{Arc as Counted, Mutex, MutexGuard};

pub(crate) use std::sync::PoisonError;

/// Locks. No code of a caller runs under a lock of this crate, so a poisoned one is in order.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
