//! What the memory core takes from `std::sync`; from loom where that checks it; and our own where
//! ThreadSanitizer does, which sees nothing of what the standard library does inside.

#[cfg(not(any(loom, carve_tsan)))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::lazy_static;
#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// A static of each thread.
#[cfg(loom)]
macro_rules! per_thread {
    (static $name:ident: $type:ty = $init:expr) => {
        loom::thread_local! { static $name: $type = $init }
    };
}
#[cfg(not(loom))]
macro_rules! per_thread {
    (static $name:ident: $type:ty = $init:expr) => {
        std::thread_local! { static $name: $type = const { $init } }
    };
}
pub(crate) use per_thread;

#[cfg(carve_tsan)]
mod visible;
#[cfg(carve_tsan)]
pub(crate) use visible::{Arc, Condvar, Mutex, MutexGuard};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(crate) use std::sync::PoisonError;

/// Locks. No code of a caller runs under a lock of this crate, so a poisoned one is in order.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
