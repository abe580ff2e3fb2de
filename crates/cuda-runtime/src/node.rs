//! A place on a stream's timeline, and its event once somebody needed one.

use crate::clock::{Clock, Point};
use crate::core::DeviceCore;
use crate::counted::{Last, Sole};
use crate::primitive::{AtomicBool, Fault, Ordering, faulty};
use crate::slot::Slot;
use cuda_driver::RawEvent;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Where a place is. Places of one scope mean nothing in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    Eager,
    /// Within the capture of this number.
    Capture(u64),
}

impl Scope {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Eager => "outside captures",
            Self::Capture(_) => "in a capture",
        }
    }
}

/// A place on a timeline. What it stands for is written only while a single reference exists.
///
/// | `recorded` | known complete | |
/// |---|---|---|
/// | no | no | it is its timeline's tail, and nothing was queued behind it: an event can be recorded for it now |
/// | yes | | its event stands for it, until the last reference goes |
/// | no | yes | nobody will need an event for it |
pub(crate) struct Node {
    pub(crate) slot: Arc<Slot>,
    pub(crate) scope: Scope,
    pub(crate) point: Point,
    /// What the stream had waited for at that place.
    pub(crate) clock: Clock,
    /// Made when it is needed first, and kept through the lives of the node.
    event: OnceLock<RawEvent>,
    /// Whether the event was recorded for this place.
    recorded: AtomicBool,
    /// A record failed, so what the event stands for is unknown: it is destroyed instead of recycled.
    spoiled: AtomicBool,
    /// For loom: written with what the flag `recorded` publishes, read by who relies on it.
    #[cfg(loom)]
    witness: loom::cell::UnsafeCell<()>,
}

// SAFETY: the witness holds nothing; loom reports accesses to it that race.
#[cfg(loom)]
unsafe impl Sync for Node {}

impl Node {
    pub(crate) fn new(slot: &Arc<Slot>, scope: Scope, point: Point) -> Self {
        Self {
            slot: slot.clone(),
            scope,
            point,
            clock: Clock::default(),
            event: OnceLock::new(),
            recorded: AtomicBool::new(false),
            spoiled: AtomicBool::new(false),
            #[cfg(loom)]
            witness: loom::cell::UnsafeCell::new(()),
        }
    }

    /// Makes the node stand for another place. Its event, if any, stands for nothing yet.
    #[inline]
    pub(crate) fn move_to(&mut self, slot: &Arc<Slot>, scope: Scope, point: Point, clock: &Clock) {
        if !Arc::ptr_eq(&self.slot, slot) {
            self.slot = slot.clone();
        }
        (self.scope, self.point) = (scope, point);
        self.clock.copy_from(clock);
        self.recorded = AtomicBool::new(false);
        #[cfg(loom)]
        self.witness.with_mut(|_| ());
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.slot.core
    }

    /// The event, if it stands for this place.
    #[inline]
    pub(crate) fn recorded_event(&self) -> Option<RawEvent> {
        // Pairs with `set_recorded`: who sees the flag comes after the record.
        let recorded = self.recorded.load(self.order(Ordering::Acquire));
        #[cfg(loom)]
        if recorded {
            self.witness.with(|_| ());
        }
        recorded.then(|| *self.event.get().expect("made before it was recorded"))
    }

    /// The order of accesses to `recorded`.
    #[inline]
    fn order(&self, order: Ordering) -> Ordering {
        match faulty(Fault::WeakRecord) {
            true => Ordering::Relaxed,
            false => order,
        }
    }

    /// The event, to be recorded; made by `make` when there is none. Called under the slot's lock.
    pub(crate) fn event_or<E>(
        &self,
        make: impl FnOnce() -> Result<RawEvent, E>,
    ) -> Result<RawEvent, E> {
        if let Some(&event) = self.event.get() {
            return Ok(event);
        }
        let event = make()?;
        Ok(*self.event.get_or_init(|| event))
    }

    /// Gives the event up. For a node that stands for nothing.
    pub(crate) fn take_event(&mut self) -> Option<RawEvent> {
        self.event.take()
    }

    /// The event stands for this place. Called under the slot's lock, after the record.
    pub(crate) fn set_recorded(&self) {
        #[cfg(loom)]
        self.witness.with_mut(|_| ());
        self.recorded.store(true, self.order(Ordering::Release));
    }

    /// The event must not be used again: its record failed.
    pub(crate) fn spoil(&self) {
        self.spoiled.store(true, Ordering::Relaxed);
    }

    /// Whether the node may stand for another place later.
    #[inline]
    pub(crate) fn is_reusable(&self) -> bool {
        self.scope == Scope::Eager && !self.spoiled.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_known_complete(&self) -> bool {
        self.scope == Scope::Eager
            && self.slot.progress.load(Ordering::Acquire) >= self.point.position
    }
}

impl Last for Node {
    /// The node goes back as it is, or else its event alone does.
    fn last(node: Sole<Self>) {
        if node.is_reusable() {
            let core = node.core().clone();
            core.return_node(node);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The session of a capture destroys its events itself.
        let event = self.event.take();
        if let (Scope::Eager, Some(event)) = (self.scope, event) {
            match self.spoiled.load(Ordering::Relaxed) {
                true => self.slot.core.destroy_event(event),
                false => self.slot.core.return_event(event),
            }
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("point", &self.point)
            .field("event", &self.event.get())
            .finish_non_exhaustive()
    }
}
