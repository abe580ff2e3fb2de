//! Stand-ins for what `std::sync` has, for runs under ThreadSanitizer.
//!
//! The standard library that comes with the compiler is not instrumented: ThreadSanitizer doesn't
//! see that a lock of it was contended, nor the fence before an [`std::sync::Arc`] drops its value,
//! and reports races that there aren't. These are compiled with this crate, so that it sees their
//! atomics. They are for tests: a lock spins.

use std::{
    cell::UnsafeCell,
    fmt,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::{
        LockResult,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

/// A lock that spins.
pub(crate) struct Mutex<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: The value is reached by one thread at a time, under the lock.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// The lock, held.
pub(crate) struct MutexGuard<'a, T>(&'a Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            locked: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        while self.locked.swap(true, Acquire) {
            thread::yield_now();
        }
        Ok(MutexGuard(self))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: The guard is the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: As above, and the guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.0.locked.store(false, Release);
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// Tells those who wait, by a count that they watch.
#[derive(Debug)]
pub(crate) struct Condvar(AtomicUsize);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub(crate) fn notify_all(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        patience: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, bool)> {
        let (mutex, told, start) = (guard.0, self.0.load(Relaxed), Instant::now());
        drop(guard);
        let mut in_time = true;
        while in_time && self.0.load(Relaxed) == told {
            thread::yield_now();
            in_time = start.elapsed() < patience;
        }
        match mutex.lock() {
            Ok(guard) => Ok((guard, !in_time)),
            Err(_) => unreachable!("this lock is never poisoned"),
        }
    }
}

/// A value with owners that are counted.
pub(crate) struct Arc<T>(NonNull<Counted<T>>);

struct Counted<T> {
    owners: AtomicUsize,
    value: T,
}

// SAFETY: As `std::sync::Arc`: any owner may reach the value shared, and the last one drops it.
unsafe impl<T: Send + Sync> Send for Arc<T> {}

// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    pub(crate) fn new(value: T) -> Self {
        let owners = AtomicUsize::new(1);
        Self(NonNull::from(Box::leak(Box::new(Counted {
            owners,
            value,
        }))))
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: An owner keeps it.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn strong_count(this: &Self) -> usize {
        this.counted().owners.load(Relaxed)
    }

    pub(crate) fn get_mut(this: &mut Self) -> Option<&mut T> {
        if this.counted().owners.load(Acquire) != 1 {
            return None;
        }
        // SAFETY: There is one owner, who is borrowed exclusively; others were before.
        Some(unsafe { &mut this.0.as_mut().value })
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        self.counted().owners.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.counted().owners.fetch_sub(1, Release) == 1 {
            // A load and no fence: the sanitizer doesn't know of those.
            self.counted().owners.load(Acquire);
            // SAFETY: This was the last owner; `new` leaked the box.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
