//! One driver stream with its timeline: what was queued, what it has waited for, where its tail is.
//!
//! One lock per slot covers {check, wait, advance on success} and {snapshot the clock, record, assign the
//! position}, so that a clock never runs ahead of its wait.

use crate::capture::{self, Session};
use crate::clock::{Clock, Point, StreamId};
use crate::completion::{Completion, Node, Scope};
use crate::core::DeviceCore;
use crate::counters::count;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CudaResult, Driver, RawStream};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) core: Arc<DeviceCore>,
    pub(crate) id: StreamId,
    pub(crate) raw: RawStream,
    /// Identity of the timeline that operations go to now: the eager one's, or that of the open capture.
    active: AtomicU64,
    /// Set once the raw handle was given out: then anything may have been queued at any time.
    exposed: AtomicBool,
    state: Mutex<SlotState>,
}

#[derive(Debug)]
struct SlotState {
    eager: Timeline,
    captured: Option<Captured>,
    /// A record failed: the slot is replaced when it comes back.
    broken: bool,
}

#[derive(Debug)]
struct Timeline {
    scope: Scope,
    id: StreamId,
    /// Position of the latest completion, from 1; 0 before the first.
    position: u64,
    clock: Clock,
    /// The latest completion.
    tail: Option<Completion>,
    /// Number of operations queued so far, waits included.
    queued: u64,
    /// Number of those that the tail covers.
    recorded: u64,
    progress: Arc<AtomicU64>,
}

/// A position of a timeline, and where the timeline notes what is known to be complete.
type Reached = (u64, Arc<AtomicU64>, Clock);

/// Proof that a stream was synchronised on the host, and when.
#[derive(Clone, Copy, Debug)]
pub struct Synchronized {
    timeline: StreamId,
    /// Operations that were queued then.
    queued: u64,
}

/// The timeline that replaces the eager one while the stream captures.
#[derive(Debug)]
struct Captured {
    timeline: Timeline,
    thread: ThreadId,
}

impl Timeline {
    fn new(scope: Scope, id: StreamId) -> Self {
        Self {
            scope,
            id,
            position: 0,
            clock: Clock::default(),
            tail: None,
            queued: 0,
            recorded: 0,
            progress: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Whether anything was queued since the tail was recorded.
    fn is_dirty(&self) -> bool {
        self.queued != self.recorded
    }

    fn reached(&self) -> Reached {
        (self.position, self.progress.clone(), self.clock.clone())
    }
}

impl SlotState {
    /// The timeline that operations of this thread go to, and the session that it belongs to.
    fn active(&mut self) -> RuntimeResult<(&mut Timeline, Option<Rc<Session>>)> {
        match &mut self.captured {
            None => Ok((&mut self.eager, None)),
            Some(captured) if captured.thread == std::thread::current().id() => {
                let session = capture::current().ok_or(RuntimeError::CaptureWrongThread)?;
                Ok((&mut captured.timeline, Some(session)))
            }
            Some(_) => Err(RuntimeError::CaptureWrongThread),
        }
    }
}

/// What to do with a slot whose lease ended.
#[derive(Debug)]
pub(crate) enum AfterLease {
    Idle,
    Pending(Completion),
    Replace,
}

impl Slot {
    pub(crate) fn new(core: &Arc<DeviceCore>, priority: i32) -> RuntimeResult<Arc<Self>> {
        let raw = core.call(|driver| driver.stream_create(core.id, priority))?;
        let id = StreamId::fresh();
        let eager = Timeline::new(Scope::Eager, id);
        core.watch(id, &eager.progress);
        Ok(Arc::new(Self {
            core: core.clone(),
            id,
            raw,
            active: AtomicU64::new(id.number()),
            exposed: AtomicBool::new(false),
            state: Mutex::new(SlotState {
                eager,
                captured: None,
                broken: false,
            }),
        }))
    }

    /// From now on anything may be queued behind Carve's back.
    pub(crate) fn expose(&self) {
        self.exposed.store(true, Ordering::Release);
    }

    /// Queues something by `call`.
    pub(crate) fn enqueue<T>(
        &self,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        let mut state = self.state.lock();
        let (timeline, session) = state.active()?;
        timeline.queued += 1;
        let result = self.core.call(|driver| call(driver, self.raw));
        doom(session.as_deref(), &result);
        result
    }

    /// As [`enqueue`](Self::enqueue), for destructors: errors that another one left stay where they are. For streams
    /// that no capture joins.
    pub(crate) fn enqueue_in_cleanup<T>(
        &self,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        let mut state = self.state.lock();
        state.eager.queued += 1;
        self.core.call_in_cleanup(|driver| call(driver, self.raw))
    }

    /// Those of `completions` that no other one of them comes after.
    pub(crate) fn needed<'c>(
        &self,
        completions: impl IntoIterator<Item = &'c Completion>,
    ) -> SmallVec<[&'c Completion; 8]> {
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
        self.core
            .counters
            .elided_waited
            .fetch_add(implied as u64, Ordering::Relaxed);
        needed
    }

    /// Orders later work of this stream after `completion`, by a wait where one can matter.
    pub(crate) fn wait_for(&self, completion: &Completion) -> RuntimeResult<()> {
        let mut state = self.state.lock();
        let (timeline, session) = state.active()?;
        let result = self.wait_locked(timeline, completion);
        doom(session.as_deref(), &result);
        result
    }

    fn wait_locked(&self, timeline: &mut Timeline, completion: &Completion) -> RuntimeResult<()> {
        let counters = &self.core.counters;
        completion.check_driver(&self.core)?;
        if completion.scope() != timeline.scope {
            return Err(RuntimeError::CaptureIsolation {
                recorded: completion.scope().words(),
                waited: timeline.scope.words(),
            });
        }
        let point = completion.point();
        if point.stream == timeline.id {
            count(&counters.elided_same_stream);
            return Ok(());
        }
        if timeline.clock.covers(point) {
            count(&counters.elided_waited);
            return Ok(());
        }
        if completion.is_known_complete() {
            count(&counters.elided_complete);
        } else {
            self.core.call_in_cleanup(|driver| {
                driver.stream_wait_event(self.core.id, self.raw, completion.event())
            })?;
            count(&counters.waits_issued);
            timeline.queued += 1;
        }
        timeline.clock.merge(completion.clock());
        timeline.clock.advance(point);
        Ok(())
    }

    /// A completion of everything queued so far.
    ///
    /// When the record fails, the stream is synchronised, and when that fails as well, the device is poisoned:
    /// after an error nothing that was queued here before is unfinished on a usable device.
    pub(crate) fn record(&self) -> RuntimeResult<Completion> {
        self.record_in(&mut self.state.lock())
    }

    fn record_in(&self, state: &mut SlotState) -> RuntimeResult<Completion> {
        let (timeline, session) = state.active()?;
        let result = self.record_locked(timeline, session.as_deref());
        doom(session.as_deref(), &result);
        if result.is_err() && session.is_none() {
            state.broken = true;
            self.settle(state.eager.reached());
        }
        result
    }

    fn record_locked(
        &self,
        timeline: &mut Timeline,
        session: Option<&Session>,
    ) -> RuntimeResult<Completion> {
        self.core.check_poison()?;
        if !timeline.is_dirty()
            && !self.exposed.load(Ordering::Acquire)
            && let Some(tail) = &timeline.tail
        {
            count(&self.core.counters.completions_shared);
            return Ok(tail.clone());
        }
        let mut node = match session {
            None => self.core.take_node()?,
            Some(session) => Arc::new(Node::captured(
                self.core.clone(),
                session.new_event()?,
                timeline.scope,
            )),
        };
        let recorded = self
            .core
            .call_in_cleanup(|driver| driver.event_record(self.core.id, node.event(), self.raw));
        let unique = Arc::get_mut(&mut node).expect("a node that was handed out is unique");
        if let Err(error) = recorded {
            unique.discard();
            return Err(error);
        }
        timeline.position += 1;
        let point = Point {
            stream: timeline.id,
            position: timeline.position,
        };
        unique.set(point, &timeline.clock, &timeline.progress);
        count(&self.core.counters.completions_recorded);
        let completion = Completion::from_node(node);
        timeline.tail = Some(completion.clone());
        timeline.recorded = timeline.queued;
        Ok(completion)
    }

    /// A completion of everything queued outside captures so far, also while the stream captures; `None` when that
    /// is nothing.
    pub(crate) fn record_eager(&self) -> RuntimeResult<Option<Completion>> {
        let mut state = self.state.lock();
        if state.captured.is_some() {
            // The capture's begin has recorded the tail, and nothing eager was queued since.
            return Ok(state.eager.tail.clone());
        }
        self.record_in(&mut state).map(Some)
    }

    /// Waits on the host for everything queued here; poisons the device when the driver can't say.
    pub(crate) fn synchronize_or_poison(&self) {
        let reached = self.state.lock().eager.reached();
        self.settle(reached);
    }

    fn settle(&self, reached: Reached) {
        let result = self.wait_on_host(reached, |driver| {
            capture::relaxed(driver, |driver| {
                driver.stream_synchronize(self.core.id, self.raw)
            })
        });
        if let Err(RuntimeError::Driver(error)) = result {
            self.core.poison(error);
        }
    }

    /// Waits on the host for everything queued here. An error means that the wait itself failed: nothing that a
    /// destructor left is mistaken for one.
    pub(crate) fn synchronize(&self) -> RuntimeResult<Synchronized> {
        capture::refuse("waiting on the host")?;
        let (reached, queued) = {
            let eager = &self.state.lock().eager;
            (eager.reached(), eager.queued)
        };
        self.wait_on_host(reached, |driver| {
            driver.stream_synchronize(self.core.id, self.raw)
        })?;
        Ok(Synchronized {
            timeline: self.id,
            queued,
        })
    }

    /// Whether nothing was queued since `synchronized`, so that everything on the stream is done.
    pub(crate) fn is_done(&self, synchronized: &Synchronized) -> bool {
        let state = self.state.lock();
        state.captured.is_none()
            && !self.exposed.load(Ordering::Acquire)
            && synchronized.timeline == self.id
            && synchronized.queued == state.eager.queued
    }

    /// After the wait every completion recorded before it is known to be complete.
    fn wait_on_host(
        &self,
        reached: Reached,
        wait: impl FnOnce(&dyn Driver) -> CudaResult<()>,
    ) -> RuntimeResult<()> {
        self.core.call_in_cleanup(wait)?;
        let (position, progress, clock) = reached;
        progress.fetch_max(position, Ordering::AcqRel);
        self.core.reached(&clock);
        Ok(())
    }

    /// Decides what becomes of the slot when its lease ends. Whatever may be queued gets a completion.
    pub(crate) fn end_lease(&self) -> AfterLease {
        if self.core.is_poisoned() || self.is_capturing() || self.state.lock().broken {
            return AfterLease::Replace;
        }
        let untouched = {
            let state = self.state.lock();
            let eager = &state.eager;
            !self.exposed.load(Ordering::Acquire) && !eager.is_dirty() && eager.tail.is_none()
        };
        if untouched {
            return AfterLease::Idle;
        }
        match self.record() {
            Ok(tail) if tail.is_known_complete() => AfterLease::Idle,
            Ok(tail) => AfterLease::Pending(tail),
            Err(error) => {
                self.core.park(error);
                AfterLease::Replace
            }
        }
    }

    /// The latest completion, if nothing was queued since.
    pub(crate) fn clean_tail(&self) -> Option<Completion> {
        let state = self.state.lock();
        if state.eager.is_dirty() || self.exposed.load(Ordering::Acquire) {
            return None;
        }
        state.eager.tail.clone()
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.state.lock().captured.is_some()
    }

    /// The session, when this thread's open capture includes the stream.
    pub(crate) fn session(&self) -> RuntimeResult<Option<Rc<Session>>> {
        self.state.lock().active().map(|(_, session)| session)
    }

    /// Identity of the timeline that operations go to now.
    pub(crate) fn timeline(&self) -> StreamId {
        StreamId::from_number(self.active.load(Ordering::Acquire))
    }

    /// Makes the stream the first one of a capture of this thread, by `begin`.
    ///
    /// Accesses begun before the capture may end in it, so what they queued gets its completion here, under the lock
    /// that keeps other threads from queuing more before the capture is known.
    pub(crate) fn begin_capture(
        &self,
        session: u64,
        begin: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<()>,
    ) -> RuntimeResult<()> {
        let mut state = self.state.lock();
        self.prepare_capture(&mut state)?;
        self.core.call(|driver| begin(driver, self.raw))?;
        self.enter_capture(&mut state, session);
        Ok(())
    }

    /// Makes the stream part of a capture of this thread, after `fork`, a completion of the capture.
    pub(crate) fn join_capture(&self, session: &Session, fork: &Completion) -> RuntimeResult<()> {
        let mut state = self.state.lock();
        self.prepare_capture(&mut state)?;
        let timeline = self.enter_capture(&mut state, session.number());
        // This wait is what makes the driver capture the stream.
        let joined = self.wait_locked(timeline, fork);
        if joined.is_err() {
            self.leave_capture_in(&mut state);
        }
        doom(Some(session), &joined);
        joined
    }

    fn prepare_capture(&self, state: &mut SlotState) -> RuntimeResult<()> {
        if state.captured.is_some() {
            return Err(RuntimeError::CaptureWrongThread);
        }
        self.record_in(state).map(drop)
    }

    /// Puts a fresh timeline in front of the eager one.
    fn enter_capture<'s>(&self, state: &'s mut SlotState, session: u64) -> &'s mut Timeline {
        let timeline = Timeline::new(Scope::Capture(session), StreamId::fresh());
        self.active.store(timeline.id.number(), Ordering::Release);
        let thread = std::thread::current().id();
        let captured = state.captured.insert(Captured { timeline, thread });
        &mut captured.timeline
    }

    fn leave_capture_in(&self, state: &mut SlotState) {
        self.active.store(self.id.number(), Ordering::Release);
        state.captured = None;
    }

    pub(crate) fn leave_capture(&self) {
        self.leave_capture_in(&mut self.state.lock());
    }

    /// Destroys the driver's stream. Queued work finishes. Called once, by the pool or the device's owner.
    pub(crate) fn destroy(&self) {
        self.core.unwatch(self.id);
        // SAFETY: the slot has left its pool or its owner goes away, so nobody uses the handle again.
        let result = self
            .core
            .call_in_cleanup(|driver| unsafe { driver.stream_destroy(self.core.id, self.raw) });
        if let Err(error) = result {
            self.core.park(error);
        }
    }
}

fn doom<T>(session: Option<&Session>, result: &RuntimeResult<T>) {
    if let (Some(session), Err(error)) = (session, result) {
        session.doom(error);
    }
}
