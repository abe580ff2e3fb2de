//! What the state machines of the crate take from `std` and `parking_lot`, and from loom where that checks them.

#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc as Counted,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
