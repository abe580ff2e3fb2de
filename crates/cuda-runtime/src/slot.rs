//! One driver stream, from its making to its end.
//!
//! One lock per slot covers {check, wait, advance on success}, {snapshot the clock, assign the position} and {settle
//! the tail, queue}. So a clock never runs ahead of its wait, and a place without an event is its timeline's tail.

use crate::RuntimeResult;
use crate::capture::Session;
use crate::clock::{Point, StreamId};
use crate::completion::Completion;
use crate::core::{DeviceCore, Held};
use crate::counters::OrderCounts;
use crate::node::Scope;
use crate::primitive::{AtomicBool, AtomicU64, Latch, LatchGuard, Ordering};
use crate::stock::Stock;
use crate::timeline::{SlotState, Timeline};
use cuda_driver::RawStream;
use parking_lot::RwLock;
use std::sync::Arc;

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
    pub(crate) broken: AtomicBool,
    /// What was allocated here, less what was freed here. Written under the state's lock.
    pub(crate) memory: Held,
    /// Memory was freed here since the last host wait for the stream.
    pub(crate) frees: AtomicBool,
    /// Held shared while the host waits for the stream: it does not go meanwhile. Taken before the state.
    pub(crate) host_waits: RwLock<()>,
    pub(crate) state: Latch<SlotState>,
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
            memory: Held::default(),
            frees: AtomicBool::new(false),
            host_waits: RwLock::new(()),
            state: Latch::new(SlotState {
                eager: Timeline::new(Scope::Eager, id),
                captured: None,
                retired: false,
                stock: Stock::default(),
            }),
        });
        core.watch(&slot);
        slot
    }

    /// The state. Fails in a forked child, where whoever held the lock may be gone.
    #[inline]
    pub(crate) fn lock(&self) -> RuntimeResult<LatchGuard<'_, SlotState>> {
        self.core.origin.check()?;
        Ok(self.state.lock())
    }

    #[inline]
    pub(crate) fn is_exposed(&self) -> bool {
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

pub(crate) fn doom<T>(session: Option<&Session>, result: &RuntimeResult<T>) {
    if let (Some(session), Err(error)) = (session, result) {
        session.doom(error);
    }
}
