//! Completions: immutable, shared tokens for one recorded point of a stream.

use crate::capture;
use crate::clock::{Clock, Point};
use crate::core::DeviceCore;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CallSite, DeviceId, RawEvent};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a point was recorded. Points of one scope mean nothing in another.
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

/// An event and what it was last recorded for. Written only while a single reference exists.
pub(crate) struct Node {
    core: Arc<DeviceCore>,
    event: RawEvent,
    scope: Scope,
    point: Point,
    /// What the stream had waited for at that point.
    clock: Clock,
    /// The highest position of the stream that is known to be complete.
    progress: Arc<AtomicU64>,
    /// What becomes of the event when the node goes.
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Back to the free list.
    Recycle,
    /// Destroyed: a record failed, so what it stands for is unknown.
    Destroy,
    /// The capture session that made it destroys it.
    Foreign,
}

impl Node {
    pub(crate) fn new(core: Arc<DeviceCore>, event: RawEvent) -> Self {
        Self::with_fate(core, event, Scope::Eager, Fate::Recycle)
    }

    /// A node of an event that a capture session owns.
    pub(crate) fn captured(core: Arc<DeviceCore>, event: RawEvent, scope: Scope) -> Self {
        Self::with_fate(core, event, scope, Fate::Foreign)
    }

    fn with_fate(core: Arc<DeviceCore>, event: RawEvent, scope: Scope, fate: Fate) -> Self {
        Self {
            core,
            event,
            scope,
            fate,
            point: Point {
                stream: crate::clock::StreamId::fresh(),
                position: 0,
            },
            clock: Clock::default(),
            progress: Arc::new(AtomicU64::new(0)),
        }
    }

    pub(crate) fn event(&self) -> RawEvent {
        self.event
    }

    /// The event must not be used again: its record failed.
    pub(crate) fn discard(&mut self) {
        if self.fate == Fate::Recycle {
            self.fate = Fate::Destroy;
        }
    }

    pub(crate) fn set(&mut self, point: Point, clock: &Clock, progress: &Arc<AtomicU64>) {
        self.point = point;
        self.clock.copy_from(clock);
        self.progress.clone_from(progress);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        match self.fate {
            Fate::Recycle => self.core.return_event(self.event),
            Fate::Destroy => self.core.destroy_event(self.event),
            Fate::Foreign => {}
        }
    }
}

/// A point of a stream's work: it is complete once everything queued before it is done.
///
/// Cheap to clone. The event behind it returns to the device's free list when the last clone drops.
///
/// | | asks | waits on the host | awaited |
/// |---|---|---|---|
/// | one | [`is_complete`](Self::is_complete) | [`wait`](Self::wait), [`wait_within`](Self::wait_within) a time | `.await` |
/// | several | | [`wait_all`](Self::wait_all), [`wait_any`](Self::wait_any) | |
#[derive(Clone)]
pub struct Completion {
    /// `None` only while dropping.
    node: Option<Arc<Node>>,
}

impl Completion {
    pub(crate) fn from_node(node: Arc<Node>) -> Self {
        Self { node: Some(node) }
    }

    fn node(&self) -> &Node {
        self.node.as_deref().expect("taken by drop alone")
    }

    pub(crate) fn event(&self) -> RawEvent {
        self.node().event
    }

    pub(crate) fn scope(&self) -> Scope {
        self.node().scope
    }

    /// Fails unless the completion is of the same driver: another one's events mean nothing here.
    pub(crate) fn check_driver(&self, core: &Arc<DeviceCore>) -> RuntimeResult<()> {
        let own = &self.node().core;
        if Arc::ptr_eq(own, core) || Arc::ptr_eq(&own.driver, &core.driver) {
            return Ok(());
        }
        Err(RuntimeError::WrongDriver {
            device: core.id,
            given: own.id,
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.node().clock
    }

    /// The point that the completion stands for.
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
        self.node().core.id
    }

    /// Whether the completion was recorded inside a capture, where it orders nodes and never completes.
    #[must_use]
    pub fn is_captured(&self) -> bool {
        self.scope() != Scope::Eager
    }

    /// Whether it is known to be complete, without asking the driver.
    #[must_use]
    pub fn is_known_complete(&self) -> bool {
        let node = self.node();
        node.scope == Scope::Eager && node.progress.load(Ordering::Acquire) >= node.point.position
    }

    /// Whether the work is done; asks the driver unless the answer is known.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureIsolation`] for a completion of a capture; errors of the work asked about.
    #[track_caller]
    pub fn is_complete(&self) -> RuntimeResult<bool> {
        if self.is_known_complete() {
            return Ok(true);
        }
        self.refuse_captured("on the host")?;
        let _site = CallSite::enter();
        self.node().core.check()?;
        self.is_complete_in_cleanup()
    }

    /// As [`is_complete`](Self::is_complete), for threads of the runtime: errors that a destructor left stay where they are.
    pub(crate) fn is_complete_in_cleanup(&self) -> RuntimeResult<bool> {
        if self.is_known_complete() {
            return Ok(true);
        }
        let node = self.node();
        let done = node.core.call_in_cleanup(|driver| {
            capture::relaxed(driver, |driver| {
                driver.event_query(node.core.id, node.event)
            })
        })?;
        if done {
            self.mark_complete();
        }
        Ok(done)
    }

    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.node().core
    }

    /// Waits on the host until the work is done.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] while this thread captures, [`RuntimeError::CaptureIsolation`] for a
    /// completion of a capture, errors of the work waited for.
    #[track_caller]
    pub fn wait(&self) -> RuntimeResult<()> {
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
        let node = self.node();
        node.core.call_in_cleanup(|driver| {
            capture::relaxed(driver, |driver| {
                driver.event_synchronize(node.core.id, node.event)
            })
        })?;
        self.mark_complete();
        Ok(())
    }

    /// A stream's points complete in order, so all earlier ones are known complete as well, and so is whatever the
    /// stream had waited for.
    fn mark_complete(&self) {
        let node = self.node();
        node.progress
            .fetch_max(node.point.position, Ordering::AcqRel);
        node.core.reached(&node.clock);
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

impl Drop for Completion {
    fn drop(&mut self) {
        let Some(mut node) = self.node.take() else {
            return;
        };
        // The last token hands the whole node back. Two that drop at the same moment may both see the other one:
        // then the node goes away and its drop hands back the event alone.
        if node.fate == Fate::Recycle && Arc::get_mut(&mut node).is_some() {
            let core = node.core.clone();
            core.return_node(node);
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

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("event", &self.event)
            .field("point", &self.point)
            .finish_non_exhaustive()
    }
}
