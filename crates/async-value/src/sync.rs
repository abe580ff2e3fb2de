//! What the crate takes from `std::sync`; from loom where that checks the queue of epochs; and stand-ins where ThreadSanitizer
//! does, which sees nothing of what the standard library does inside.

#[cfg(not(any(loom, carve_tsan)))]
pub(crate) use std::sync::{Arc as Counted, Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::sync::{Arc as Counted, Mutex, MutexGuard};

#[cfg(not(carve_tsan))]
pub(crate) use std::{
    sync::{Arc, OnceLock, Weak},
    task::Wake,
};

#[cfg(not(carve_tsan))]
mod waking {
    use super::{Arc, Wake};
    use std::sync::PoisonError;
    use std::task::Waker;

    /// Locks. No code of a caller runs under a lock of this crate, so a poisoned one is in order.
    #[inline]
    pub(crate) fn lock<T>(mutex: &super::Mutex<T>) -> super::MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in a lock of which nobody else knows.
    pub(crate) fn reach<T>(mutex: &mut super::Mutex<T>) -> &mut T {
        mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waker(wake: Arc<impl Wake + Send + Sync + 'static>) -> Waker {
        Waker::from(wake)
    }
}
#[cfg(not(carve_tsan))]
pub(crate) use waking::{lock, reach, waker};

#[cfg(carve_tsan)]
mod visible;
#[cfg(carve_tsan)]
pub(crate) use visible::{
    Arc, Counted, Mutex, MutexGuard, OnceLock, Wake, Weak, lock, reach, waker,
};
