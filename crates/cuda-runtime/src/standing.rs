//! What a stream is ordered after already, and the waits for what it is not.

use crate::capture::Session;
use crate::clock::StreamId;
use crate::completion::{Completion, needed};
use crate::handles::{Handles, Spent};
use crate::primitive::{Fault, LatchGuard, faulty};
use crate::slot::{Slot, doom};
use crate::timeline::{SlotState, Timeline};
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CudaResult, Driver, RawStream};
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// How a stream stands: what later work on it comes after already. It holds the stream's lock, so it is short-lived, and the
/// thread that has it does nothing else with the stream. One that is forgotten keeps the lock: every use of the stream waits for ever
/// then, the end of its lease included.
///
/// For a layer that has many completions to look at and few to wait for. Locks of its own are taken after this one, and
/// none of them is held when it is given up for waiting. Values that are at home on the stream are at hand
/// ([`at_home`](Self::at_home)).
///
/// ```
/// use cuda_runtime::Runtime;
///
/// # fn main() -> cuda_runtime::RuntimeResult<()> {
/// let runtime = Runtime::builder().build()?;
/// let streams = runtime.default_device().streams();
/// let (a, b) = (streams.acquire()?, streams.acquire()?);
/// let done = a.record()?;
/// assert!(!a.standing()?.needs(&done)?, "it is the stream's own");
/// let mut standing = b.standing()?;
/// if standing.needs(&done)? {
///     standing.wait_for_needed(&[done.clone()])?;
/// }
/// assert!(!b.standing()?.needs(&done)?, "it has waited");
/// # Ok(())
/// # }
/// ```
pub struct Standing<'s> {
    slot: &'s Arc<Slot>,
    state: LatchGuard<'s, SlotState>,
    /// The thread's capture, when the stream is part of it; none for a standing outside captures.
    session: Option<Rc<Session>>,
}

impl<'s> Standing<'s> {
    #[inline(always)]
    pub(crate) fn of(slot: &'s Arc<Slot>) -> RuntimeResult<Self> {
        let mut state = slot.lock()?;
        let session = match state.captured.is_none() {
            true => None,
            false => state.active()?.1,
        };
        Ok(Self {
            slot,
            state,
            session,
        })
    }

    /// How the stream stands outside captures, also while it captures.
    #[inline]
    pub(crate) fn outside(slot: &'s Arc<Slot>) -> RuntimeResult<Self> {
        let (state, session) = (slot.lock()?, None);
        Ok(Self {
            slot,
            state,
            session,
        })
    }

    /// As [`outside`](Self::outside), without an error to be moved.
    #[inline]
    pub(crate) fn try_outside(slot: &'s Arc<Slot>) -> Option<Self> {
        if slot.core.is_elsewhere() {
            return None;
        }
        let (state, session) = (slot.state.lock(), None);
        Some(Self {
            slot,
            state,
            session,
        })
    }

    #[inline]
    pub(crate) fn slot(&self) -> &Arc<Slot> {
        self.slot
    }

    /// This thread's capture, when the stream is part of it.
    #[inline]
    pub(crate) fn capture(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// The number of this thread's capture, when the stream is part of it.
    #[inline]
    #[must_use]
    pub fn session(&self) -> Option<u64> {
        self.session.as_deref().map(Session::number)
    }

    /// Identity of the stream.
    #[inline]
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.slot.id
    }

    /// Identity of the timeline that operations go to.
    #[inline]
    #[must_use]
    pub fn timeline(&self) -> StreamId {
        match (&self.session, &self.state.captured) {
            (Some(_), Some(captured)) => captured.timeline.id,
            _ => self.slot.id,
        }
    }

    /// Counts completions of this timeline itself: [`needs`](Self::needs) says so of each that later work has not to wait for it.
    #[inline]
    pub fn count_own(&mut self, completions: u64) {
        let own = timeline(&mut self.state, self.session.is_some());
        own.counts.elided_same_stream += completions;
    }

    /// Whether later work has to wait to come after `completion`. When it has not, the reason is counted.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureIsolation`] across the border of a capture, [`RuntimeError::WrongDriver`].
    #[inline]
    pub fn needs(&mut self, completion: &Completion) -> RuntimeResult<bool> {
        self.ahead().needs(completion)
    }

    /// What later work comes after already.
    #[inline]
    pub fn ahead(&mut self) -> Ahead<'_> {
        Ahead {
            timeline: timeline(&mut self.state, self.session.is_some()),
            slot: self.slot,
            session: self.session.as_deref(),
        }
    }

    /// As [`ahead`](Self::ahead), of work outside captures.
    #[inline]
    pub(crate) fn ahead_outside(&mut self) -> Ahead<'_> {
        Ahead {
            timeline: &mut self.state.eager,
            slot: self.slot,
            session: None,
        }
    }

    /// Orders later work after all of `completions`, by as few waits as can be.
    ///
    /// # Errors
    /// As for [`needs`](Self::needs); the driver's own. The first one ends it.
    pub fn wait_for_all<'c>(
        mut self,
        completions: impl IntoIterator<Item = &'c Completion>,
    ) -> RuntimeResult<()> {
        let mut open = SmallVec::<[&Completion; 8]>::new();
        for completion in completions {
            if self.needs(completion)? {
                open.push(completion);
            }
        }
        self.wait_for_needed(&open)
    }

    /// Orders later work after `needed`, of which [`needs`](Self::needs) has said so, by as few waits as can be.
    ///
    /// # Errors
    /// As for [`wait_for_all`](Self::wait_for_all).
    pub fn wait_for_needed<C: Borrow<Completion>>(mut self, needed: &[C]) -> RuntimeResult<()> {
        self.come_after(needed)
    }

    /// As [`wait_for_needed`](Self::wait_for_needed), and the stream's lock is held afterwards, for who has more to do under it. Meanwhile it may
    /// have been given up.
    ///
    /// # Errors
    /// As for [`wait_for_all`](Self::wait_for_all).
    pub fn come_after<C: Borrow<Completion>>(&mut self, needed: &[C]) -> RuntimeResult<()> {
        if self.session.is_none() && self.state.captured.is_some() {
            return Err(RuntimeError::CaptureWrongThread);
        }
        match needed {
            [] => Ok(()),
            // One stream's work nearly always comes before.
            [one] => {
                let one = one.borrow();
                while !self.issue(one)? {
                    self.once_recorded(&[one])?;
                }
                Ok(())
            }
            several => self.wait_for_several(several.iter().map(Borrow::borrow)),
        }
    }

    fn wait_for_several<'c>(
        &mut self,
        open: impl Iterator<Item = &'c Completion>,
    ) -> RuntimeResult<()> {
        let (mut open, implied) = needed(open);
        timeline(&mut self.state, self.session.is_some())
            .counts
            .elided_waited += implied;
        loop {
            let mut failed = Ok(());
            open.retain(|completion| {
                failed.is_ok()
                    && match self.issue(completion) {
                        Ok(issued) => !issued,
                        Err(error) => {
                            failed = Err(error);
                            true
                        }
                    }
            });
            failed?;
            if open.is_empty() {
                return Ok(());
            }
            self.once_recorded(&open)?;
        }
    }

    /// Looks again how the stream stands, once each of `open` has an event, or is known to be complete.
    #[cold]
    fn once_recorded(&mut self, open: &[&Completion]) -> RuntimeResult<()> {
        if faulty(Fault::EarlyClock) {
            let ahead = timeline(&mut self.state, self.session.is_some());
            open.iter()
                .for_each(|completion| ahead.clock.advance(completion.point()));
        }
        // Under the lock of those streams alone: two that wait for each other can't hold both.
        let mut all = open.iter();
        self.state
            .unlocked(|| all.try_for_each(|completion| completion.ensure_event()))?;
        self.session = match self.state.captured.is_none() {
            true => None,
            false => self.state.active()?.1,
        };
        Ok(())
    }

    /// Waits for `completion`, unless that became needless; whether that is settled, or it has to have an event first.
    #[inline]
    fn issue(&mut self, completion: &Completion) -> RuntimeResult<bool> {
        let Ahead {
            slot,
            timeline,
            session,
        } = self.ahead();
        let issued = slot.wait_in(timeline, session, completion);
        doom(session, &issued);
        issued
    }

    /// Queues something by a driver call, as [`Stream::enqueue`](crate::Stream::enqueue) does.
    ///
    /// # Errors
    /// As there; [`RuntimeError::CaptureWrongThread`] for a standing outside captures while the stream captures.
    ///
    /// # Safety
    /// As for [`Stream::enqueue`](crate::Stream::enqueue).
    #[inline]
    pub unsafe fn enqueue<T>(
        &mut self,
        call: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<T>,
    ) -> RuntimeResult<T> {
        if self.session.is_none() && self.state.captured.is_some() {
            return Err(RuntimeError::CaptureWrongThread);
        }
        self.slot.core.check()?;
        let Ahead {
            slot,
            timeline,
            session,
        } = self.ahead();
        let result = slot.enqueue_in(timeline, session, call);
        doom(session, &result);
        result
    }

    /// A completion of everything queued so far, in so many handles. Of a standing outside captures it is a completion of what was
    /// queued outside, and `None` while the stream captures if that is nothing.
    ///
    /// # Errors
    /// As for [`Stream::record`](crate::Stream::record).
    #[inline]
    pub fn record_for(&mut self, handles: usize) -> RuntimeResult<Option<Handles>> {
        let Self {
            slot,
            state,
            session,
            ..
        } = self;
        if session.is_none() && state.captured.is_some() {
            // The capture's begin has recorded the tail, and nothing eager was queued since.
            let tail = state.eager.tail.as_mut();
            return Ok(tail.map(|tail| tail.share(handles)));
        }
        let timeline = timeline(state, session.is_some());
        match slot.place_for(handles, timeline, session.as_deref()) {
            Ok(handles) => Ok(Some(handles)),
            Err(error) => Err(error),
        }
    }

    /// Gives up what the stream can use again without a locked operation; the rest of `spent` stays there.
    #[inline]
    pub fn reuse(&mut self, spent: &mut Spent) {
        spent.reuse_node(&mut self.state.eager.earlier);
    }
}

/// What later work on a timeline comes after already, for who looks at something else of the same [`Standing`].
pub struct Ahead<'s> {
    timeline: &'s mut Timeline,
    slot: &'s Slot,
    session: Option<&'s Session>,
}

impl Ahead<'_> {
    /// The same for a while.
    #[inline]
    pub fn reborrow(&mut self) -> Ahead<'_> {
        Ahead {
            timeline: self.timeline,
            slot: self.slot,
            session: self.session,
        }
    }

    /// As [`Standing::needs`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn needs(&mut self, completion: &Completion) -> RuntimeResult<bool> {
        let point = completion.point();
        let timeline = &mut *self.timeline;
        // No other timeline is of that identity, whatever its driver.
        if point.stream == timeline.id {
            timeline.counts.elided_same_stream += 1;
            return Ok(false);
        }
        // A clock knows timelines of its own kind and driver only.
        if timeline.clock.covers(point) {
            timeline.counts.elided_waited += 1;
            return Ok(false);
        }
        self.needs_more(completion)
    }

    #[inline(never)]
    fn needs_more(&mut self, completion: &Completion) -> RuntimeResult<bool> {
        let Self {
            timeline,
            slot,
            session,
        } = self;
        let result = check(slot, timeline, completion);
        doom(*session, &result);
        result?;
        let complete = completion.is_known_complete();
        timeline.counts.elided_complete += u64::from(complete);
        Ok(!complete)
    }
}

impl fmt::Debug for Ahead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead")
            .field("timeline", &self.timeline.id)
            .finish_non_exhaustive()
    }
}

#[inline]
fn timeline(state: &mut SlotState, captured: bool) -> &mut Timeline {
    match &mut state.captured {
        Some(capture) if captured => &mut capture.timeline,
        _ => &mut state.eager,
    }
}

/// Fails unless the completion's event means something on the timeline.
#[inline]
fn check(slot: &Slot, timeline: &Timeline, completion: &Completion) -> RuntimeResult<()> {
    if completion.scope() != timeline.scope {
        return Err(isolated(timeline, completion));
    }
    completion.check_driver(&slot.core)
}

#[cold]
fn isolated(timeline: &Timeline, completion: &Completion) -> RuntimeError {
    RuntimeError::CaptureIsolation {
        recorded: completion.scope().words(),
        waited: timeline.scope.words(),
    }
}

impl Slot {
    /// Orders later work of this stream after `completion`, by a wait where one can matter.
    pub(crate) fn wait_for(self: &Arc<Self>, completion: &Completion) -> RuntimeResult<()> {
        Standing::of(self)?.wait_for_all([completion])
    }

    /// Waits on a timeline whose lock is held, unless that is needless. Whether it is settled: if not, the completion has to
    /// have an event first, and its stream is in use.
    pub(crate) fn wait_in(
        &self,
        timeline: &mut Timeline,
        session: Option<&Session>,
        completion: &Completion,
    ) -> RuntimeResult<bool> {
        let point = completion.point();
        // What changed while the lock was not held; and what an earlier wait of the same call brought.
        if timeline.clock.covers(point) {
            timeline.counts.elided_waited += 1;
            return Ok(true);
        }
        check(self, timeline, completion)?;
        let event = match completion.event() {
            Some(event) => event,
            None if completion.is_known_complete() => {
                timeline.counts.elided_complete += 1;
                return Ok(true);
            }
            None => match completion.slot().record_at_once(completion)? {
                Some(event) => event,
                None => return Ok(false),
            },
        };
        self.settle(timeline, session)?;
        timeline.queued += 1;
        self.core
            .call_in_cleanup(|driver| driver.stream_wait_event(self.core.id, self.raw, event))?;
        timeline.counts.waits_issued += 1;
        timeline.clock.merge(completion.clock(), timeline.id);
        timeline.clock.advance(point);
        Ok(true)
    }
}

impl fmt::Debug for Standing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing")
            .field("timeline", &self.timeline())
            .finish_non_exhaustive()
    }
}
