//! What a stream is ordered after already, and the waits for what it is not.

use crate::capture::Session;
use crate::clock::StreamId;
use crate::completion::{Completion, needed};
use crate::handles::{Handles, Spent};
use crate::primitive::{Fault, LatchGuard, faulty};
use crate::slot::{Slot, doom};
use crate::timeline::{SlotState, Timeline};
use crate::{RuntimeError, RuntimeResult};
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
    #[inline]
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
        let captured = self.session.is_some();
        let own = timeline(&mut self.state, captured);
        // No other timeline is of that identity, whatever its driver.
        if completion.point().stream == own.id {
            own.counts.elided_same_stream += 1;
            return Ok(false);
        }
        self.needs_from_afar(completion)
    }

    fn needs_from_afar(&mut self, completion: &Completion) -> RuntimeResult<bool> {
        let Self {
            slot,
            state,
            session,
            ..
        } = self;
        let result = needs(slot, timeline(state, session.is_some()), completion);
        doom(session.as_deref(), &result);
        result
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
        if self.session.is_none() && self.state.captured.is_some() {
            return Err(RuntimeError::CaptureWrongThread);
        }
        match needed {
            [] => Ok(()),
            // One stream's work nearly always comes before.
            [one] => loop {
                let one = one.borrow();
                if self.issue(one)? {
                    return Ok(());
                }
                self = self.once_recorded(&[one])?;
            },
            several => self.wait_for_several(several.iter().map(Borrow::borrow)),
        }
    }

    fn wait_for_several<'c>(
        mut self,
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
            self = self.once_recorded(&open)?;
        }
    }

    /// How the stream stands once each of `open` has an event, or is known to be complete.
    fn once_recorded(mut self, open: &[&Completion]) -> RuntimeResult<Self> {
        if faulty(Fault::EarlyClock) {
            let ahead = timeline(&mut self.state, self.session.is_some());
            open.iter()
                .for_each(|completion| ahead.clock.advance(completion.point()));
        }
        // Under the lock of those streams alone: two that wait for each other can't hold both.
        let Self { slot, state, .. } = self;
        drop(state);
        for completion in open {
            completion.ensure_event()?;
        }
        Self::of(slot)
    }

    /// Waits for `completion`, unless that became needless; whether that is settled, or it has to have an event first.
    fn issue(&mut self, completion: &Completion) -> RuntimeResult<bool> {
        let Self {
            slot,
            state,
            session,
            ..
        } = self;
        let session = session.as_deref();
        let issued = slot.wait_in(timeline(state, session.is_some()), session, completion);
        doom(session, &issued);
        issued
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

#[inline]
fn timeline(state: &mut SlotState, captured: bool) -> &mut Timeline {
    match &mut state.captured {
        Some(capture) if captured => &mut capture.timeline,
        _ => &mut state.eager,
    }
}

fn needs(slot: &Slot, timeline: &mut Timeline, completion: &Completion) -> RuntimeResult<bool> {
    check(slot, timeline, completion)?;
    let point = completion.point();
    if timeline.clock.covers(point) {
        timeline.counts.elided_waited += 1;
    } else if completion.is_known_complete() {
        timeline.counts.elided_complete += 1;
    } else {
        return Ok(true);
    }
    Ok(false)
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
        check(self, timeline, completion)?;
        let point = completion.point();
        // What changed while the lock was not held; and what an earlier wait of the same call brought.
        if timeline.clock.covers(point) {
            timeline.counts.elided_waited += 1;
            return Ok(true);
        }
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
