//! A lock for what is held for nanoseconds and taken many times per operation.
//!
//! Taking it is one locked operation, and giving it back is a plain store: half of what other locks cost. The price is paid by
//! those who wait: the store does not tell whether somebody went to sleep at that very moment, so a sleeper looks again by
//! itself after a millisecond. Nearly always it is woken before.
//!
//! Whoever comes at the right moment gets it before those who were woken. So that nobody is passed over for ever, it is handed on to who
//! has waited for a millisecond.

use crate::primitive::{AtomicBool, AtomicUsize, Fault, Ordering, faulty};
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A lock for short sections. Panics don't poison it, and those who wait get it in no particular order.
pub(crate) struct Latch<T> {
    held: AtomicBool,
    /// Number of threads that sleep, or are about to.
    asleep: AtomicUsize,
    bed: bed::Bed,
    value: UnsafeCell<T>,
}

/// Access to the value of a [`Latch`], which is held until this drops.
#[must_use = "the latch is given back when this drops"]
pub(crate) struct LatchGuard<'l, T> {
    latch: &'l Latch<T>,
    /// It may be sent and shared as the value may be.
    value: PhantomData<&'l mut T>,
}

// SAFETY: one thread at a time gets at the value, so that it goes from thread to thread and is never shared.
unsafe impl<T: Send> Sync for Latch<T> {}

impl<T> Latch<T> {
    /// A latch that nobody holds.
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self {
            held: AtomicBool::new(false),
            asleep: AtomicUsize::new(0),
            bed: bed::Bed::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until nobody else holds it. A thread that holds it already waits for ever.
    #[inline]
    pub(crate) fn lock(&self) -> LatchGuard<'_, T> {
        if !self.try_hold() {
            self.wait();
        }
        LatchGuard {
            latch: self,
            value: PhantomData,
        }
    }

    /// As [`lock`](Self::lock), unless it would have to wait.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        self.try_hold().then(|| LatchGuard {
            latch: self,
            value: PhantomData,
        })
    }

    #[inline]
    fn try_hold(&self) -> bool {
        // Pairs with the store that gave it back.
        let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let held = self.held.compare_exchange(false, true, order, failed);
        held.is_ok()
    }

    #[cold]
    fn wait(&self) {
        // A look does not take the line from the owner's processor.
        let looks_free = || !self.held.load(Ordering::Relaxed);
        if bed::doze(|| looks_free() && self.try_hold()) {
            return;
        }
        self.asleep.fetch_add(1, Ordering::SeqCst);
        self.bed.sleep_until(|| self.try_hold());
        self.asleep.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T> LatchGuard<'_, T> {
    /// Gives the latch back while it does something.
    pub(crate) fn unlocked<R>(&mut self, meanwhile: impl FnOnce() -> R) -> R {
        /// The guard has the latch again however that ends.
        struct Again<'l, T>(&'l Latch<T>);
        impl<T> Drop for Again<'_, T> {
            fn drop(&mut self) {
                std::mem::forget(self.0.lock());
            }
        }
        self.give_back();
        let _again = Again(self.latch);
        meanwhile()
    }

    #[inline]
    fn give_back(&mut self) {
        let order = match faulty(Fault::WeakLatch) {
            true => Ordering::Relaxed,
            false => Ordering::Release,
        };
        let give_back = || self.latch.held.store(false, order);
        match cfg!(loom) || self.latch.asleep.load(Ordering::Relaxed) > 0 {
            true => self.latch.bed.hand_on(give_back),
            false => give_back(),
        }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the latch, so nobody else gets at the value.
        unsafe { &*self.latch.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the latch, so nobody else gets at the value, and it is borrowed exclusively.
        unsafe { &mut *self.latch.value.get() }
    }
}

impl<T: Default> Default for Latch<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Latch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Latch")
    }
}

impl<T: fmt::Debug> fmt::Debug for LatchGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

mod bed {
    //! Waiting, awake and asleep.

    use crate::primitive::{Condvar, Mutex};
    use std::mem;
    use std::time::{Duration, Instant};

    /// Looks while the owner may run on another processor.
    const SPINS: usize = 100;
    /// Further looks, each after others had the processor: the owner may have lost it.
    const YIELDS: usize = 10;
    /// After which a sleeper looks by itself, and is passed over no more.
    const LOOK: Duration = Duration::from_millis(1);

    #[derive(Default)]
    pub(super) struct Bed {
        sleepers: Mutex<Sleepers>,
        woken: Condvar,
    }

    #[derive(Default)]
    struct Sleepers {
        /// Number of those who have waited for long.
        patient: usize,
        /// Whether the latch stays held, for whichever of those looks first.
        handed: bool,
    }

    /// Looks for a while; whether that was enough.
    pub(super) fn doze(mut hold: impl FnMut() -> bool) -> bool {
        if cfg!(loom) {
            // To loom a thread that looks again and again never comes to an end.
            return hold();
        }
        (0..SPINS + YIELDS).any(|turn| {
            match turn {
                ..SPINS => std::hint::spin_loop(),
                _ => std::thread::yield_now(),
            }
            hold()
        })
    }

    impl Bed {
        /// Sleeps until the latch is handed on, or the caller gets hold of it.
        pub(super) fn sleep_until(&self, mut hold: impl FnMut() -> bool) {
            let (begun, mut patient) = (Instant::now(), false);
            let mut sleepers = self.sleepers.lock();
            while !(hold() || patient && mem::take(&mut sleepers.handed)) {
                // In models, which know no time, at once.
                if !patient && (cfg!(loom) || begun.elapsed() >= LOOK) {
                    patient = true;
                    sleepers.patient += 1;
                }
                self.woken.wait_for(&mut sleepers, LOOK);
            }
            sleepers.patient -= usize::from(patient);
        }

        /// Gives the latch back, or leaves it to one who has waited for long, who is asleep here until then.
        #[cold]
        pub(super) fn hand_on(&self, give_back: impl FnOnce()) {
            // Whoever is about to sleep does so first.
            let mut sleepers = self.sleepers.lock();
            if sleepers.patient > 0 {
                sleepers.handed = true;
                self.woken.notify_all();
            } else {
                give_back();
                self.woken.notify_one();
            }
        }

        #[cfg(all(test, not(loom)))]
        pub(super) fn patient(&self) -> usize {
            self.sleepers.lock().patient
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// More threads than processors, with owners that lose theirs: nobody is let in twice, and everybody gets there.
    #[test]
    fn one_at_a_time_and_everybody_in_the_end() {
        const EACH: usize = 2_000;
        let latch = Arc::new(Latch::new((0_usize, false)));
        let threads: Vec<_> = (0..6)
            .map(|thread| {
                let latch = latch.clone();
                std::thread::spawn(move || {
                    for i in 0..EACH {
                        let mut held = latch.lock();
                        assert!(!std::mem::replace(&mut held.1, true), "somebody is in");
                        if i % 100 == thread {
                            std::thread::yield_now();
                        }
                        (held.0, held.1) = (held.0 + 1, false);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(latch.lock().0, 6 * EACH);
    }

    /// Who sleeps is woken when a long section ends, and also one that ends in a panic.
    #[test]
    fn a_sleeper_is_woken() {
        let latch = Arc::new(Latch::new(()));
        let held = latch.lock();
        let sleepers: Vec<_> = (0..3)
            .map(|_| {
                let latch = latch.clone();
                std::thread::spawn(move || drop(latch.lock()))
            })
            .collect();
        while latch.asleep.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = held;
            panic!("the section fails");
        }));
        assert!(unwound.is_err());
        sleepers.into_iter().for_each(|it| it.join().unwrap());
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(latch.asleep.load(Ordering::Relaxed), 0);
    }

    /// An owner who takes it again at once does not keep it from who has waited for long.
    #[test]
    fn a_sleeper_is_not_passed_over_for_ever() {
        let latch = Arc::new(Latch::new(0));
        for turn in 0..10 {
            let held = latch.lock();
            let sleeper = std::thread::spawn({
                let latch = latch.clone();
                move || *latch.lock() += 1
            });
            while latch.bed.patient() == 0 {
                std::thread::yield_now();
            }
            assert_eq!(*held, turn);
            drop(held);
            assert_eq!(*latch.lock(), turn + 1, "passed over");
            sleeper.join().unwrap();
        }
        assert_eq!(latch.bed.patient(), 0);
    }

    /// Others come in while it is given back for a while, and it is held again after, also when that ended in a panic.
    #[test]
    fn a_latch_that_was_given_back_for_a_while_is_held_again() {
        let latch = Arc::new(Latch::new(0));
        let mut held = latch.lock();
        let other = |latch: &Arc<Latch<i32>>| {
            let latch = latch.clone();
            let add = move || *latch.lock() += 1;
            std::thread::spawn(add).join().unwrap();
        };
        held.unlocked(|| other(&latch));
        assert_eq!(*held, 1);
        assert!(latch.try_lock().is_none());
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            held.unlocked(|| {
                other(&latch);
                panic!("meanwhile");
            });
        }));
        assert!(unwound.is_err() && latch.try_lock().is_none());
        assert_eq!(*held, 2);
        drop(held);
        assert_eq!(latch.try_lock().map(|held| *held), Some(2));
    }
}
