//! What ledgers and arenas take from `std` and `parking_lot`, and from loom where that checks them.

#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard};

/// A fault that the models are run with, to see that they find it. There is none outside loom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A token is granted some time after it was found that it can be.
    SplitGrant,
    /// A token is back some time before its completion is published.
    SplitEnd,
    /// Memory goes back although a guard on it was forgotten.
    ForgottenFreed,
    /// A carve ends under a launch that holds its token.
    EndUnderLaunch,
    /// A ledger opens under a launch over its bytes.
    OpenUnderLaunch,
    /// Nobody hears that a launch has given its token back.
    SilentToken,
    /// Nobody hears that a launch over bytes has ended.
    SilentLaunch,
    /// A carve is gone some time before what it leaves is folded into its bytes.
    GoneUnfolded,
    /// Launches over the same bytes take no turns.
    NoTurns,
    /// Bytes under a forgotten guard are used again.
    ForgottenReused,
    /// What two parts leave when they end at once is not added up.
    LostRetirement,
    /// A block of a pool is there some time before what may still use it is noted.
    BareBlock,
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

    /// The fault of the model that runs: one at a time.
    pub(crate) static FAULT: std::sync::Mutex<Option<super::Fault>> = std::sync::Mutex::new(None);

    #[derive(Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(crate) struct MutexGuard<'m, T>(Option<loom::sync::MutexGuard<'m, T>>);

    #[derive(Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap()))
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap()
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
