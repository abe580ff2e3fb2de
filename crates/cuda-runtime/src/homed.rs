//! A value that one stream mostly uses, such as a ledger.
//!
//! While it is *at home* on a stream, it is guarded by that stream's lock, which an operation on the stream takes anyway: so it costs
//! no lock of its own. Otherwise a latch guards it. Whoever comes to it another way than by its home first makes it leave,
//! under both locks; a stream that came to it several times in a row, alone, becomes its home; more times the more often it has left.
//!
//! | `home` | who gets at the value | changed by |
//! |---|---|---|
//! | no stream | who holds the latch | who holds the latch and that stream's lock |
//! | a stream | who holds that stream's lock | who holds both |
//!
//! Locks are taken in the order stream, latch.

use crate::clock::StreamId;
use crate::primitive::{AtomicU64, Fault, Latch, LatchGuard, Ordering, faulty};
use crate::slot::Slot;
use crate::standing::{Ahead, Standing};
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Visits in a row, by one stream alone, after which it becomes the home: at first, and of a value that leaves again and again.
const SETTLES: (u32, u32) = if cfg!(loom) { (1, 1) } else { (4, 256) };

/// A value that is guarded by a latch, or by the lock of the stream that it is at home on.
///
/// ```
/// use cuda_runtime::{Homed, Runtime};
///
/// # fn main() -> cuda_runtime::RuntimeResult<()> {
/// let runtime = Runtime::builder().build()?;
/// let stream = runtime.default_device().streams().acquire()?;
/// let uses = Homed::new(0);
/// for _ in 0..10 {
///     let mut standing = stream.standing()?;
///     match standing.at_home(&uses) {
///         Some((uses, _)) => *uses += 1,
///         None => {
///             let mut visited = standing.visit(&uses).expect("no other stream uses it");
///             *visited += 1;
///             standing.settle(visited, true);
///         }
///     }
/// }
/// assert!(uses.is_home_of(stream.id()));
/// assert_eq!(*uses.lock(), 10); // from anywhere: it has left its home
/// assert!(!uses.is_home_of(stream.id()));
/// # Ok(())
/// # }
/// ```
pub struct Homed<T> {
    /// Number of the stream that the value is at home on; 0 for none.
    ///
    /// Relaxed accesses are enough: who relies on what it says holds a lock under which it was written, and to the others it is a
    /// hint.
    home: AtomicU64,
    latch: Latch<Visits>,
    /// For loom: touched with the value, whose accesses it can't see.
    #[cfg(loom)]
    witness: loom::cell::UnsafeCell<()>,
    value: UnsafeCell<T>,
}

#[derive(Debug)]
struct Visits {
    /// The stream that `home` names.
    home: Option<Arc<Slot>>,
    /// Number of the stream that came last; 0 for none.
    last: u64,
    /// How often it came in a row, and how often it has to, to become the home.
    times: u32,
    settles: u32,
}

/// Access to a value that is not at home, which is held until this drops.
#[must_use = "the latch is given back when this drops"]
pub struct HomedGuard<'h, T> {
    /// Nobody has made a stream its home since the latch was taken.
    homed: &'h Homed<T>,
    visits: LatchGuard<'h, Visits>,
    /// It may be sent and shared as the value may be.
    value: PhantomData<&'h mut T>,
}

// SAFETY: one thread at a time gets at the value, so that it goes from thread to thread and is never shared.
unsafe impl<T: Send> Sync for Homed<T> {}

impl<T> Homed<T> {
    /// A value that is not at home anywhere.
    #[inline]
    pub fn new(value: T) -> Self {
        Self {
            home: AtomicU64::new(0),
            latch: Latch::new(Visits {
                home: None,
                last: 0,
                times: 0,
                settles: SETTLES.0,
            }),
            #[cfg(loom)]
            witness: loom::cell::UnsafeCell::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, which nobody else can get at.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Access from anywhere; the value leaves its home. The calling thread holds no stream's lock: it has no [`Standing`].
    #[inline]
    pub fn lock(&self) -> HomedGuard<'_, T> {
        let visits = self.latch.lock();
        match visits.home.is_none() {
            true => self.guard(visits),
            false => self.lock_away(visits),
        }
    }

    #[cold]
    fn lock_away<'h>(&'h self, mut visits: LatchGuard<'h, Visits>) -> HomedGuard<'h, T> {
        while let Some(slot) = visits.home.clone() {
            drop(visits);
            self.leave(&slot);
            visits = self.latch.lock();
        }
        self.guard(visits)
    }

    /// Whether the value is at home on that stream, unless that changes meanwhile.
    #[inline]
    #[must_use]
    pub fn is_home_of(&self, stream: StreamId) -> bool {
        self.home.load(Ordering::Relaxed) == stream.number()
    }

    /// Makes the value leave its home unless that is `stream`, which is going to visit it. As for [`lock`](Self::lock), no stream's lock
    /// is held.
    #[inline]
    pub fn expect_visit(&self, stream: StreamId) {
        let home = self.home.load(Ordering::Relaxed);
        if home != 0 && home != stream.number() {
            drop(self.lock());
        }
    }

    #[cold]
    fn leave(&self, slot: &Arc<Slot>) {
        let state = (!faulty(Fault::UnlockedLeave)).then(|| slot.state.lock());
        let mut visits = self.latch.lock();
        // Another thread may have been faster, and the value may be at home elsewhere again.
        if visits
            .home
            .as_ref()
            .is_some_and(|home| Arc::ptr_eq(home, slot))
        {
            self.home.store(0, Ordering::Relaxed);
            (visits.home, visits.last, visits.times) = (None, 0, 0);
            visits.settles = SETTLES.1.min(4 * visits.settles);
        }
        drop((visits, state));
    }

    #[inline]
    fn guard<'h>(&'h self, visits: LatchGuard<'h, Visits>) -> HomedGuard<'h, T> {
        self.touch();
        HomedGuard {
            homed: self,
            visits,
            value: PhantomData,
        }
    }

    /// Tells loom that somebody is at the value.
    #[inline(always)]
    fn touch(&self) {
        #[cfg(loom)]
        self.witness.with_mut(|_| ());
    }
}

impl Standing<'_> {
    /// The value, when it is at home on this stream; and what the stream comes after outside captures.
    #[inline]
    pub fn at_home<'a, T>(&'a mut self, homed: &'a Homed<T>) -> Option<(&'a mut T, Ahead<'a>)> {
        if !homed.is_home_of(self.slot().id) {
            return None;
        }
        homed.touch();
        // SAFETY: this stream's lock is held as long as the standing is borrowed. The value was at home here when `home` was read, and
        // it leaves, and somebody else gets at it, under this lock only. A standing is of one stream at a time, and the exclusive
        // borrow lets nobody come to the value by the same standing twice.
        let value = unsafe { &mut *homed.value.get() };
        Some((value, self.ahead_outside()))
    }

    /// Access to a value that is not at home on this stream; `None` when it is at home on another one, which
    /// [`expect_visit`](Homed::expect_visit) changes.
    #[inline]
    pub fn visit<'h, T>(&self, homed: &'h Homed<T>) -> Option<HomedGuard<'h, T>> {
        let visits = homed.latch.lock();
        match visits.home.is_none() || faulty(Fault::BlindVisit) {
            true => Some(homed.guard(visits)),
            false => None,
        }
    }

    /// Ends a visit. After several in a row, if each was `alone`, this stream becomes the value's home.
    #[inline]
    pub fn settle<T>(&self, visited: HomedGuard<'_, T>, alone: bool) {
        let HomedGuard {
            homed, mut visits, ..
        } = visited;
        let number = self.slot().id.number();
        if !alone || visits.last != number {
            (visits.last, visits.times) = (number, 0);
        }
        visits.times += u32::from(alone);
        if visits.times >= visits.settles {
            visits.home = Some(self.slot().clone());
            homed.home.store(number, Ordering::Relaxed);
        }
    }
}

impl<T> Deref for HomedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the latch, and the value is at home nowhere, so nobody else gets at it.
        unsafe { &*self.homed.value.get() }
    }
}

impl<T> DerefMut for HomedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.homed.value.get() }
    }
}

impl<T> fmt::Debug for Homed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Homed")
    }
}

impl<T: fmt::Debug> fmt::Debug for HomedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
