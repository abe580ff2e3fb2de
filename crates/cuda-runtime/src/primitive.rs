//! What the state machines of the crate take from `std` and `parking_lot`, and from loom where that checks them.

#[cfg(not(loom))]
pub(crate) use crate::latch::{Latch, LatchGuard};
#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard};
// A latch has a model of its own; to the others it is a lock like any, which leaves them fewer interleavings.
#[cfg(loom)]
pub(crate) use modelled::{Mutex as Latch, MutexGuard as LatchGuard};

/// A fault that the models are run with, to see that they find it. There is none outside loom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The flag that an event was recorded orders nothing.
    WeakRecord,
    /// A stream gets more to do before the place at its end has an event.
    Unsettled,
    /// Others queue between a replay and its place.
    OpenReplay,
    /// A clock runs ahead of its wait.
    EarlyClock,
    /// The end of a lease wakes nobody.
    SilentReturn,
    /// Who leaves the queue lets nobody else look.
    SilentLeave,
    /// The last token of a node is told by a count that others may still change.
    CountedAlone,
    /// The release of a latch orders nothing.
    WeakLatch,
    /// A stream takes handles of the device after its lease has ended.
    OpenStock,
    /// A value leaves its home without that stream's lock.
    UnlockedLeave,
    /// A stream comes to a value by its latch although it is at home on another one.
    BlindVisit,
}

/// Whether the models want this fault now.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn faulty(_: Fault) -> bool {
    false
}

#[cfg(loom)]
pub(crate) fn faulty(fault: Fault) -> bool {
    *modelled::FAULT.lock().unwrap() == Some(fault)
}

#[cfg(loom)]
pub(crate) mod modelled {
    //! Loom's locks with the interface of `parking_lot`'s.

    use std::fmt;
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    /// The fault of the model that runs: one at a time.
    pub(crate) static FAULT: std::sync::Mutex<Option<super::Fault>> = std::sync::Mutex::new(None);

    /// Whether who does not wait for a lock finds it taken. Loom does not come to that by itself: it looks at other threads only where
    /// they take one.
    pub(crate) static BUSY: std::sync::atomic::AtomicBool =
        std::sync::atomic::AtomicBool::new(false);

    #[derive(Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(crate) struct MutexGuard<'m, T>(Option<loom::sync::MutexGuard<'m, T>>, &'m Mutex<T>);

    #[derive(Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap()), self)
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let busy = BUSY.load(std::sync::atomic::Ordering::Relaxed);
            let inner = self.0.try_lock().ok().filter(|_| !busy)?;
            Some(MutexGuard(Some(inner), self))
        }
    }

    impl<T> MutexGuard<'_, T> {
        pub(crate) fn unlocked<R>(&mut self, meanwhile: impl FnOnce() -> R) -> R {
            self.0 = None;
            let result = meanwhile();
            self.0 = Some(self.1.0.lock().unwrap());
            result
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait(inner).unwrap());
        }

        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) {
            let inner = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait_timeout(inner, limit).unwrap().0);
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    macro_rules! opaque {
        ($($name:ident $(<$t:ident>)?),*) => { $(
            impl $(<$t>)? fmt::Debug for $name $(<$t>)? {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(stringify!($name))
                }
            }
        )* };
    }

    opaque!(Mutex<T>, Condvar);
}
