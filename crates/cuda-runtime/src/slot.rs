//! One driver stream with its timeline: what was queued, what it has waited for, where its tail is.
//!
//! One lock per slot covers {check, wait, advance on success}, {snapshot the clock, assign the position} and {settle
//! the tail, queue}. So a clock never runs ahead of its wait, and a place without an event is its timeline's tail.

use crate::capture::{self, Session};
use crate::clock::{Clock, Point, StreamId};
use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::counters::OrderCounts;
use crate::node::{Node, Scope};
use crate::primitive::{
    AtomicBool, AtomicU64, Counted, Fault, Mutex, MutexGuard, Ordering, faulty,
};
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CudaResult, Driver, RawStream};
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::ThreadId;

/// Earlier places that a timeline keeps.
const EARLIER: usize = 4;

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) core: Arc<DeviceCore>,
    pub(crate) id: StreamId,
    pub(crate) raw: RawStream,
    /// The highest position of the eager timeline that is known to be complete.
    pub(crate) progress: AtomicU64,
    /// Identity of the timeline that operations go to now: the eager one's, or that of the open capture.
    pub(crate) active: AtomicU64,
    /// Set once the raw handle was given out: then anything may have been queued at any time.
    pub(crate) exposed: AtomicBool,
    /// A record failed: the slot is replaced when it comes back.
    broken: AtomicBool,
    /// Memory was freed here since the last host wait for the stream.
    frees: AtomicBool,
    /// Held shared while the host waits for the stream: it does not go meanwhile. Taken before the state.
    pub(crate) host_waits: RwLock<()>,
    pub(crate) state: Mutex<SlotState>,
}

#[derive(Debug)]
pub(crate) struct SlotState {
    pub(crate) eager: Timeline,
    pub(crate) captured: Option<Captured>,
    /// The driver's stream is gone, or belongs to the user alone again.
    pub(crate) retired: bool,
}

#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) scope: Scope,
    pub(crate) id: StreamId,
    /// Position of the latest place, from 1; 0 before the first.
    pub(crate) position: u64,
    pub(crate) clock: Clock,
    /// The latest place.
    pub(crate) tail: Option<Completion>,
    /// Some places before it, to be used again once nobody else refers to them.
    earlier: SmallVec<[Completion; EARLIER]>,
    /// Number of operations queued so far, waits included.
    pub(crate) queued: u64,
    /// Number of those that the tail covers.
    covered: u64,
    /// Number of those that are known to be done, where the builder asked to wait after each.
    finished: u64,
    /// Whether an allocation may still join the tail: it has no event, and nobody has begun to wait for it on the host.
    pub(crate) open: bool,
    pub(crate) counts: OrderCounts,
}

/// The timeline that replaces the eager one while the stream captures.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) timeline: Timeline,
    pub(crate) thread: ThreadId,
}

impl Timeline {
    pub(crate) fn new(scope: Scope, id: StreamId) -> Self {
        Self {
            scope,
            id,
            position: 0,
            clock: Clock::default(),
            tail: None,
            earlier: SmallVec::new(),
            queued: 0,
            covered: 0,
            finished: 0,
            open: false,
            counts: OrderCounts::default(),
        }
    }

    /// Makes room for a new tail; the node of an earlier place that nobody refers to any more, if there is one.
    ///
    /// With it a stream whose results stay few takes and gives back no node of the device.
    fn spare_node(&mut self) -> Option<Counted<Node>> {
        let last = self.tail.take()?;
        if self.scope != Scope::Eager {
            return None;
        }
        let last = match last.into_sole() {
            Ok(node) => return Some(node),
            Err(last) => last,
        };
        let sole = self.earlier.iter_mut().position(Completion::is_sole);
        let Some(at) = sole else {
            if self.earlier.len() < EARLIER {
                self.earlier.push(last);
            }
            return None;
        };
        std::mem::replace(&mut self.earlier[at], last)
            .into_sole()
            .ok()
    }

    /// Notes that later work comes after `completion` by itself, and that this made so many waits needless.
    fn comes_after(&mut self, completion: &Completion, needless: u64) {
        self.counts.elided_waited += needless;
        if completion.point().stream != self.id {
            self.clock.merge(completion.clock());
            self.clock.advance(completion.point());
        }
    }

    /// Whether anything was queued since the tail.
    pub(crate) fn is_dirty(&self) -> bool {
        self.queued != self.covered
    }
}

impl SlotState {
    /// The timeline that operations of this thread go to, and the session that it belongs to.
    pub(crate) fn active(&mut self) -> RuntimeResult<(&mut Timeline, Option<Rc<Session>>)> {
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
        // Also made to repair or to free, where errors that a destructor left stay where they are.
        let raw = core.call_in_cleanup(|driver| driver.stream_create(core.id, priority))?;
        Ok(Self::of(core, raw, false))
    }

    /// The slot of a stream that the user made, and may use behind Carve's back.
    pub(crate) fn adopted(core: &Arc<DeviceCore>, raw: RawStream) -> Arc<Self> {
        Self::of(core, raw, true)
    }

    fn of(core: &Arc<DeviceCore>, raw: RawStream, exposed: bool) -> Arc<Self> {
        let id = StreamId::fresh();
        let slot = Arc::new(Self {
            core: core.clone(),
            id,
            raw,
            progress: AtomicU64::new(0),
            active: AtomicU64::new(id.number()),
            exposed: AtomicBool::new(exposed),
            broken: AtomicBool::new(false),
            frees: AtomicBool::new(false),
            host_waits: RwLock::new(()),
            state: Mutex::new(SlotState {
                eager: Timeline::new(Scope::Eager, id),
                captured: None,
                retired: false,
            }),
        });
        core.watch(&slot);
        slot
    }

    /// The state. Fails in a forked child, where whoever held the lock may be gone.
    #[inline]
    pub(crate) fn lock(&self) -> RuntimeResult<MutexGuard<'_, SlotState>> {
        self.core.origin.check()?;
        Ok(self.state.lock())
    }

    fn is_exposed(&self) -> bool {
        self.exposed.load(Ordering::Acquire)
    }

    /// From now on anything may be queued behind Carve's back, so every place gets its event at once.
    pub(crate) fn expose(&self) {
        let Ok(mut state) = self.lock() else {
            return;
        };
        if let Ok((timeline, session)) = state.active()
            && let Err(error) = self.settle(timeline, session.as_deref())
        {
            self.core.park(error);
        }
        self.exposed.store(true, Ordering::Release);
    }

    /// Queues something by `call`.
    pub(crate) fn enqueue<T>(
        &self,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        self.core.check()?;
        self.enqueue_in_cleanup(call)
    }

    /// As [`enqueue`](Self::enqueue), for destructors: errors that another one left stay where they are.
    pub(crate) fn enqueue_in_cleanup<T>(
        &self,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        let mut state = self.lock()?;
        let (timeline, session) = state.active()?;
        let session = session.as_deref();
        let result = self.settle(timeline, session).and_then(|()| {
            timeline.queued += 1;
            let made = self.core.call_in_cleanup(|driver| call(driver, self.raw))?;
            self.finish_operation(timeline)?;
            Ok(made)
        });
        doom(session, &result);
        result
    }

    /// Where the builder asked for it, waits on the host for what was just queued.
    fn finish_operation(&self, timeline: &mut Timeline) -> RuntimeResult<()> {
        if !self.core.behaviour.synchronize || timeline.scope != Scope::Eager {
            return Ok(());
        }
        timeline.open = false;
        let core = &self.core;
        let waited = core.call_in_cleanup(|_| {
            core.relaxed_for_long(|driver| driver.stream_synchronize(core.id, self.raw))
        });
        if waited.is_err() {
            // The caller takes its work for not queued.
            self.synchronize_in_repair(timeline.position, &timeline.clock);
            return waited;
        }
        self.reached(timeline.position, &timeline.clock);
        timeline.finished = timeline.queued;
        Ok(())
    }

    /// Queues an allocation by `call`; a completion after it. It waits for nothing but earlier work of the stream, so it
    /// may join the tail as it is, which costs no event.
    ///
    /// Without the completion, which fails by itself, the memory is allocated all the same: the stream was synchronised then, or
    /// the device is poisoned.
    pub(crate) fn allocate<T>(
        self: &Arc<Self>,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<(T, RuntimeResult<Completion>)> {
        self.core.check()?;
        let mut state = self.lock()?;
        let (timeline, None) = state.active()? else {
            return Err(RuntimeError::CaptureActive {
                what: "allocating device memory",
            });
        };
        let joins = timeline.open && !timeline.is_dirty();
        if !joins {
            self.settle(timeline, None)?;
            timeline.queued += 1;
        }
        let made = self.core.call_in_cleanup(|driver| call(driver, self.raw))?;
        let finished = self.finish_operation(timeline);
        let place = finished.and_then(|()| match (&timeline.tail, joins) {
            (Some(tail), true) => {
                timeline.counts.completions_shared += 1;
                Ok(tail.clone())
            }
            _ => self.place(timeline, None),
        });
        Ok((made, place))
    }

    /// Queues a replay of a graph by `call`, which comes after `last`, the replay before it, by itself: that made so many waits
    /// `needless`. The completion stands for nothing but what is queued here by then: others come after it without waiting for its
    /// event, so nothing is queued between the two, and no allocation joins it.
    pub(crate) fn replay(
        self: &Arc<Self>,
        last: Option<&Completion>,
        needless: u64,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<()>,
    ) -> RuntimeResult<Completion> {
        self.core.check()?;
        let mut state = self.lock()?;
        let (timeline, None) = state.active()? else {
            return Err(RuntimeError::CaptureActive {
                what: "launching a graph",
            });
        };
        self.settle(timeline, None)?;
        timeline.queued += 1;
        self.core.call_in_cleanup(|driver| call(driver, self.raw))?;
        self.finish_operation(timeline)?;
        if faulty(Fault::OpenReplay) {
            drop(state);
            state = self.lock()?;
        }
        let timeline = &mut state.eager;
        if let Some(last) = last {
            timeline.comes_after(last, needless);
        }
        let place = self.place(timeline, None)?;
        timeline.open = false;
        Ok(place)
    }

    /// Queues a free by `call`, when nothing but this stream's own work up to here has to come before it. `None` when the
    /// stream can't take it: it captures, or may do so behind Carve's back, or is gone.
    ///
    /// A free is nothing that anybody waits for: it does not count as work of the stream.
    pub(crate) fn free(
        &self,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<()>,
    ) -> Option<RuntimeResult<()>> {
        let state = match self.lock() {
            Ok(state) => state,
            Err(error) => return Some(Err(error)),
        };
        if state.captured.is_some() || state.retired || self.is_exposed() {
            return None;
        }
        self.frees.store(true, Ordering::Release);
        Some(self.core.call_in_cleanup(|driver| call(driver, self.raw)))
    }

    /// A completion of everything queued so far.
    pub(crate) fn record(self: &Arc<Self>) -> RuntimeResult<Completion> {
        let mut state = self.lock()?;
        let (timeline, session) = state.active()?;
        self.place(timeline, session.as_deref())
    }

    /// The tail, or a new one when anything was queued since.
    pub(crate) fn place(
        self: &Arc<Self>,
        timeline: &mut Timeline,
        session: Option<&Session>,
    ) -> RuntimeResult<Completion> {
        self.core.check_poison()?;
        let exposed = self.is_exposed();
        if !timeline.is_dirty()
            && !exposed
            && let Some(tail) = &timeline.tail
        {
            timeline.counts.completions_shared += 1;
            return Ok(tail.clone());
        }
        let point = Point {
            stream: timeline.id,
            position: timeline.position + 1,
        };
        let spare = timeline.spare_node();
        let node = self
            .core
            .node_at(spare, self, timeline.scope, point, &timeline.clock);
        timeline.position += 1;
        timeline.covered = timeline.queued;
        timeline.open = timeline.scope == Scope::Eager && !exposed;
        let place = Completion::from_node(node);
        timeline.tail = Some(place.clone());
        timeline.counts.completions += 1;
        let done = self.core.behaviour.synchronize && timeline.finished == timeline.queued;
        if done && timeline.scope == Scope::Eager && !exposed {
            self.progress.fetch_max(point.position, Ordering::AcqRel);
        }
        if exposed {
            self.record_tail(timeline, session)?;
        }
        Ok(place)
    }

    /// Before more is queued: whoever holds the tail gets its event now, so that it never stands for more than it said.
    pub(crate) fn settle(
        &self,
        timeline: &mut Timeline,
        session: Option<&Session>,
    ) -> RuntimeResult<()> {
        let Some(tail) = &mut timeline.tail else {
            return Ok(());
        };
        timeline.open = false;
        if tail.event().is_some()
            || tail.is_known_complete()
            || tail.is_sole()
            || faulty(Fault::Unsettled)
        {
            return Ok(());
        }
        self.record_tail(timeline, session)
    }

    /// Records the tail's event.
    ///
    /// When that fails, the stream is synchronised, and when that fails as well, the device is poisoned: after an error
    /// nothing that was queued here before is unfinished on a usable device.
    pub(crate) fn record_tail(
        &self,
        timeline: &mut Timeline,
        session: Option<&Session>,
    ) -> RuntimeResult<()> {
        let Some(tail) = &timeline.tail else {
            return Ok(());
        };
        timeline.open = false;
        let (core, node) = (&self.core, tail.node());
        let event = node.event_or(|| match session {
            None => core.take_event(),
            Some(session) => session.new_event(),
        });
        let recorded = event.and_then(|event| {
            core.call_in_cleanup(|driver| driver.event_record(core.id, event, self.raw))
        });
        match recorded {
            Ok(()) => {
                node.set_recorded();
                timeline.counts.completions_recorded += 1;
            }
            Err(_) => {
                node.spoil();
                if session.is_none() {
                    self.broken.store(true, Ordering::Release);
                    let (position, clock) = (timeline.position, &timeline.clock);
                    self.synchronize_in_repair(position, clock);
                }
            }
        }
        doom(session, &recorded);
        recorded
    }

    /// Records an event for a place that has none, wherever it is asked for.
    pub(crate) fn record_late(&self, place: &Completion) -> RuntimeResult<()> {
        let mut state = self.lock()?;
        // Somebody may have been faster.
        if place.event().is_some() || place.is_known_complete() {
            return Ok(());
        }
        self.core.check_poison()?;
        let (timeline, session) = match place.scope() {
            Scope::Eager => (&mut state.eager, None),
            Scope::Capture(_) => state.active()?,
        };
        debug_assert!(
            is_tail(timeline, place),
            "only a tail can be without an event"
        );
        self.record_tail(timeline, session.as_deref())
    }

    /// Whether a place without an event is complete; `None` when it has got one, or is known to be complete.
    pub(crate) fn query_tail(&self, place: &Completion) -> RuntimeResult<Option<bool>> {
        let mut state = self.lock()?;
        if place.event().is_some() || place.is_known_complete() {
            return Ok(None);
        }
        debug_assert!(
            is_tail(&state.eager, place),
            "only a tail can be without an event"
        );
        state.eager.open = false;
        let done = self.core.call_in_cleanup(|_| {
            self.core
                .relaxed(|driver| driver.stream_query(self.core.id, self.raw))
        })?;
        if done {
            place.mark_complete();
        }
        Ok(Some(done))
    }

    /// A completion of everything queued outside captures so far, also while the stream captures; `None` when that
    /// is nothing.
    pub(crate) fn record_eager(self: &Arc<Self>) -> RuntimeResult<Option<Completion>> {
        let mut state = self.lock()?;
        if state.captured.is_some() {
            // The capture's begin has recorded the tail, and nothing eager was queued since.
            return Ok(state.eager.tail.clone());
        }
        self.place(&mut state.eager, None).map(Some)
    }

    /// Decides what becomes of the slot when its lease ends. Whatever may be queued gets a completion.
    pub(crate) fn end_lease(self: &Arc<Self>) -> AfterLease {
        let mut state = self.state.lock();
        let broken = self.broken.load(Ordering::Acquire);
        if self.core.is_poisoned() || state.captured.is_some() || broken {
            return AfterLease::Replace;
        }
        let eager = &mut state.eager;
        if !self.is_exposed() && !eager.is_dirty() && eager.tail.is_none() {
            return AfterLease::Idle;
        }
        match self.place(eager, None) {
            Ok(tail) if tail.is_known_complete() => AfterLease::Idle,
            Ok(tail) => AfterLease::Pending(tail),
            Err(error) => {
                self.core.park(error);
                AfterLease::Replace
            }
        }
    }

    /// Whether everything queued here comes before `point`, its latest place.
    pub(crate) fn ends_at(&self, point: Point) -> bool {
        let state = self.state.lock();
        let eager = &state.eager;
        let tail = eager.tail.as_ref().map(Completion::point);
        tail == Some(point) && !eager.is_dirty() && !self.is_exposed()
    }

    /// Whether memory was freed here since the last host wait for the stream.
    pub(crate) fn has_frees(&self) -> bool {
        self.frees.load(Ordering::Acquire)
    }

    pub(crate) fn take_frees(&self) -> bool {
        self.frees.swap(false, Ordering::AcqRel)
    }

    /// Destroys the driver's stream. Queued work finishes. Called once, by the pool or the device's owner.
    pub(crate) fn destroy(&self) {
        self.retire();
        // SAFETY: the slot has left its pool or its owner goes away, so nobody uses the handle again.
        let result = self
            .core
            .call_in_cleanup(|driver| unsafe { driver.stream_destroy(self.core.id, self.raw) });
        if let Err(error) = result {
            self.core.park(error);
        }
    }

    /// Uses the stream for the last time: whoever holds its tail gets an event, and whoever waits on the host is waited for.
    pub(crate) fn retire(&self) {
        let Ok(mut state) = self.lock() else {
            return;
        };
        state.retired = true;
        if let Err(error) = self.settle(&mut state.eager, None) {
            self.core.park(error);
        }
        // The places refer to the slot.
        let eager = &mut state.eager;
        let places = (eager.tail.take(), std::mem::take(&mut eager.earlier));
        let counts = std::mem::take(&mut eager.counts);
        drop(state);
        drop(places);
        self.core.unwatch(self.id, counts);
        // Another thread may be waiting for everything that the device has to do.
        drop(self.host_waits.write());
    }

    /// What ordering cost here so far.
    pub(crate) fn order_counts(&self) -> OrderCounts {
        let state = self.state.lock();
        let captured = state.captured.as_ref();
        let captured = captured.map_or(OrderCounts::default(), |it| it.timeline.counts);
        state.eager.counts + captured
    }
}

fn is_tail(timeline: &Timeline, place: &Completion) -> bool {
    let tail = timeline.tail.as_ref().map(Completion::point);
    tail == Some(place.point()) && !timeline.is_dirty()
}

pub(crate) fn doom<T>(session: Option<&Session>, result: &RuntimeResult<T>) {
    if let (Some(session), Err(error)) = (session, result) {
        session.doom(error);
    }
}
