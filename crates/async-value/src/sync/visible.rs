//! Stand-ins for what `std` has, for runs under ThreadSanitizer.
//!
//! The standard library that comes with the compiler is not instrumented: ThreadSanitizer doesn't see that a lock of it was
//! contended, nor the fence before a [`std::sync::Arc`] drops its value, and reports races that there aren't. These are of crates
//! that are compiled along with this one, so that it sees their atomics.

use std::task::Waker;

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use portable_atomic_util::{Arc, Arc as Counted, Weak};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

pub(crate) fn reach<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut()
}

/// As [`std::task::Wake`], of these counts.
pub(crate) trait Wake {
    fn wake(self: Arc<Self>);

    fn wake_by_ref(self: &Arc<Self>) {
        self.clone().wake();
    }
}

struct Woken<W>(Arc<W>);

impl<W: Wake + Send + Sync + 'static> portable_atomic_util::task::Wake for Woken<W> {
    fn wake(this: Arc<Self>) {
        this.0.wake_by_ref();
    }

    fn wake_by_ref(this: &Arc<Self>) {
        this.0.wake_by_ref();
    }
}

pub(crate) fn waker(wake: Arc<impl Wake + Send + Sync + 'static>) -> Waker {
    Waker::from(Arc::new(Woken(wake)))
}

/// A value that is set once, and never dropped.
pub(crate) struct OnceLock<T: 'static>(Mutex<Option<&'static T>>);

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn get(&self) -> Option<&T> {
        *self.0.lock()
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let mut place = self.0.lock();
        if place.is_some() {
            return Err(value);
        }
        *place = Some(Box::leak(Box::new(value)));
        Ok(())
    }
}
