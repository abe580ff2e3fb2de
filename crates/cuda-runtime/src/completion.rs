//! Completions: immutable, shared tokens for one place of a stream's work.

use crate::capture;
use crate::clock::{Clock, Point};
use crate::core::DeviceCore;
use crate::counted::{Counted, Shares, Sole};
use crate::handles::Handles;
use crate::node::{Node, Scope};
use crate::slot::Slot;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CallSite, DeviceId, RawEvent};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// A place of a stream's work: it is complete once everything queued before it is done.
///
/// Cheap to clone. Its event is recorded when another stream or the host needs it first, or else just before the stream
/// gets more to do, so it never stands for more than it says; a completion that nobody holds by then needs none at
/// all. The event returns to the device's free list when the last clone drops.
///
/// A record that fails makes the call fail that needed it, after the stream was synchronised: then the completion is known to
/// be complete, and the call can be repeated. When that fails too, the device is poisoned.
///
/// | | asks | waits on the host | awaited |
/// |---|---|---|---|
/// | one | [`is_complete`](Self::is_complete) | [`wait`](Self::wait), [`wait_within`](Self::wait_within) a time | `.await` |
/// | several | | [`wait_all`](Self::wait_all), [`wait_any`](Self::wait_any) | |
#[derive(Clone)]
pub struct Completion {
    node: Counted<Node>,
}

impl Completion {
    #[inline]
    pub(crate) fn from_node(node: Counted<Node>) -> Self {
        Self { node }
    }

    #[inline]
    pub(crate) fn into_node(self) -> Counted<Node> {
        self.node
    }

    #[inline]
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// So many handles more.
    #[inline]
    pub(crate) fn share(&mut self, handles: usize) -> Handles {
        Handles::of(self.node.share(handles))
    }

    /// Takes back `handles`, if they are of this node and nobody else refers to it; whether it did.
    #[inline]
    pub(crate) fn take_back(&mut self, handles: &mut Shares<Node>) -> bool {
        self.node.take_back(handles)
    }

    /// The node, when nobody else refers to it: to stand for another place.
    pub(crate) fn into_sole(self) -> Result<Sole<Node>, Self> {
        match self.node.is_reusable() {
            true => self.node.into_sole().map_err(Self::from_node),
            false => Err(self),
        }
    }

    /// Whether nobody else refers to it.
    #[inline]
    pub(crate) fn is_sole(&mut self) -> bool {
        self.node.is_alone()
    }

    /// Its event, if one was recorded.
    #[inline]
    pub(crate) fn event(&self) -> Option<RawEvent> {
        self.node().recorded_event()
    }

    /// Records an event for it, unless it has one or is known to be complete.
    pub(crate) fn ensure_event(&self) -> RuntimeResult<()> {
        match self.event() {
            Some(_) => Ok(()),
            None => self.slot().record_late(self),
        }
    }

    /// The slot of its stream.
    #[inline]
    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.node().slot
    }

    #[inline]
    pub(crate) fn scope(&self) -> Scope {
        self.node().scope
    }

    /// Fails unless the completion is of the same driver: another one's events mean nothing here.
    #[inline]
    pub(crate) fn check_driver(&self, core: &Arc<DeviceCore>) -> RuntimeResult<()> {
        let own = self.core();
        if Arc::ptr_eq(own, core) || Arc::ptr_eq(&own.driver, &core.driver) {
            return Ok(());
        }
        Err(self.of_another_driver(core))
    }

    #[cold]
    fn of_another_driver(&self, core: &DeviceCore) -> RuntimeError {
        RuntimeError::WrongDriver {
            device: core.id,
            given: self.core().id,
        }
    }

    #[inline]
    pub(crate) fn clock(&self) -> &Clock {
        &self.node().clock
    }

    /// The point that the completion stands for.
    #[inline]
    #[must_use]
    pub fn point(&self) -> Point {
        self.node().point
    }

    /// Whether waiting for this completion makes a wait for `other` needless.
    pub(crate) fn implies(&self, other: &Self) -> bool {
        let (this, that) = (self.point(), other.point());
        let same_stream = this.stream == that.stream && this.position >= that.position;
        self.scope() == other.scope() && (same_stream || self.clock().covers(that))
    }

    /// The device of the stream.
    #[must_use]
    pub fn device(&self) -> DeviceId {
        self.core().id
    }

    /// Whether the completion was recorded inside a capture, where it orders nodes and never completes.
    #[must_use]
    pub fn is_captured(&self) -> bool {
        self.scope() != Scope::Eager
    }

    /// Whether it is known to be complete, without asking the driver.
    #[inline]
    #[must_use]
    pub fn is_known_complete(&self) -> bool {
        self.node().is_known_complete()
    }

    /// Whether the work is done; asks the driver unless the answer is known.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureIsolation`] for a completion of a capture; errors of the work asked about.
    #[track_caller]
    pub fn is_complete(&self) -> RuntimeResult<bool> {
        self.core().origin.check()?;
        if self.is_known_complete() {
            return Ok(true);
        }
        self.refuse_captured("on the host")?;
        let _site = CallSite::enter();
        self.core().check()?;
        self.is_complete_in_cleanup()
    }

    /// As [`is_complete`](Self::is_complete), for threads of the runtime: errors that a destructor left stay where they are.
    pub(crate) fn is_complete_in_cleanup(&self) -> RuntimeResult<bool> {
        if self.is_known_complete() {
            return Ok(true);
        }
        if self.event().is_none()
            && let Some(done) = self.slot().query_tail(self)?
        {
            return Ok(done);
        }
        // It has an event now, or else it is known to be complete.
        let Some(event) = self.event() else {
            return Ok(true);
        };
        let core = self.core();
        let done =
            core.call_in_cleanup(|_| core.relaxed(|driver| driver.event_query(core.id, event)))?;
        if done {
            self.mark_complete();
        }
        Ok(done)
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        self.node().core()
    }

    /// Waits on the host until the work is done.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] while this thread captures, [`RuntimeError::CaptureIsolation`] for a
    /// completion of a capture, errors of the work waited for.
    #[track_caller]
    pub fn wait(&self) -> RuntimeResult<()> {
        self.core().origin.check()?;
        if self.is_known_complete() {
            return Ok(());
        }
        self.refuse_captured("on the host")?;
        capture::refuse("waiting on the host")?;
        let _site = CallSite::enter();
        self.wait_in_cleanup()
    }

    /// Waits for all of them.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait); the first one ends the waiting.
    #[track_caller]
    pub fn wait_all<'a>(
        completions: impl IntoIterator<Item = &'a Completion>,
    ) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        completions.into_iter().try_for_each(Self::wait)
    }

    pub(crate) fn wait_in_cleanup(&self) -> RuntimeResult<()> {
        self.ensure_event()?;
        let core = self.core();
        core.check_poison()?;
        let Some(event) = self.event() else {
            // Without an event it is known to be complete.
            return Ok(());
        };
        core.call_in_cleanup(|_| {
            core.relaxed_for_long(|driver| driver.event_synchronize(core.id, event))
        })?;
        self.mark_complete();
        Ok(())
    }

    /// A stream's points complete in order, so all earlier ones are known complete as well, and so is whatever the
    /// stream had waited for.
    pub(crate) fn mark_complete(&self) {
        let node = self.node();
        node.slot.reached(node.point.position, &node.clock);
    }

    fn refuse_captured(&self, waited: &'static str) -> RuntimeResult<()> {
        match self.scope() {
            Scope::Eager => Ok(()),
            scope @ Scope::Capture(_) => Err(RuntimeError::CaptureIsolation {
                recorded: scope.words(),
                waited,
            }),
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("point", &self.point())
            .field("device", &self.device())
            .field("known_complete", &self.is_known_complete())
            .finish_non_exhaustive()
    }
}

/// Those of `completions` that no other one of them comes after, and how many are not.
pub(crate) fn needed<'c>(
    completions: impl IntoIterator<Item = &'c Completion>,
) -> (SmallVec<[&'c Completion; 8]>, u64) {
    let mut needed = SmallVec::<[&Completion; 8]>::new();
    let mut implied = 0;
    for completion in completions {
        if needed.iter().any(|other| other.implies(completion)) {
            implied += 1;
            continue;
        }
        let before = needed.len();
        needed.retain(|other| !completion.implies(other));
        implied += before - needed.len();
        needed.push(completion);
    }
    (needed, implied as u64)
}
