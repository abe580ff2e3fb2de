//! Places of a slot's work, and the events that are recorded for those that somebody needs.

use crate::capture::Session;
use crate::clock::Point;
use crate::completion::Completion;
use crate::counted::Counted;
use crate::handles::Handles;
use crate::node::Scope;
use crate::primitive::{Fault, Ordering, faulty};
use crate::slot::Slot;
use crate::timeline::{SlotState, Timeline};
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::RawEvent;
use std::sync::Arc;

impl Slot {
    /// A completion of everything queued so far.
    pub(crate) fn record(self: &Arc<Self>) -> RuntimeResult<Completion> {
        let mut state = self.lock()?;
        let (timeline, session) = state.active()?;
        self.place(timeline, session.as_deref())
    }

    /// As [`record`](Self::record), in so many handles.
    pub(crate) fn record_for(self: &Arc<Self>, handles: usize) -> RuntimeResult<Handles> {
        let mut state = self.lock()?;
        let (timeline, session) = state.active()?;
        self.place_for(handles, timeline, session.as_deref())
    }

    /// The tail, or a new one when anything was queued since.
    pub(crate) fn place(
        self: &Arc<Self>,
        timeline: &mut Timeline,
        session: Option<&Session>,
    ) -> RuntimeResult<Completion> {
        let place = self.place_for(1, timeline, session);
        place.map(|mut handle| handle.take())
    }

    /// As [`place`](Self::place), in so many handles.
    #[inline(always)]
    pub(crate) fn place_for(
        self: &Arc<Self>,
        handles: usize,
        timeline: &mut Timeline,
        session: Option<&Session>,
    ) -> RuntimeResult<Handles> {
        self.core.check_poison()?;
        let exposed = self.is_exposed();
        if !timeline.is_dirty()
            && !exposed
            && let Some(tail) = &mut timeline.tail
        {
            timeline.counts.completions_shared += 1;
            return Ok(tail.share(handles));
        }
        let point = Point {
            stream: timeline.id,
            position: timeline.position + 1,
        };
        let mut node = match timeline.spare_node() {
            Some(spare) => spare,
            None => self.core.node_for(self, timeline.scope, point),
        };
        node.move_to(self, timeline.scope, point, &timeline.clock);
        timeline.position += 1;
        timeline.covered = timeline.queued;
        timeline.open = timeline.scope == Scope::Eager && !exposed;
        let tail = Completion::from_node(Counted::first(node));
        let place = timeline.tail.insert(tail).share(handles);
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
        let recorded = match event {
            Ok(event) => {
                core.call_in_cleanup(|driver| driver.event_record(core.id, event, self.raw))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = recorded {
            return Err(self.record_failed(timeline, session, error));
        }
        node.set_recorded();
        timeline.counts.completions_recorded += 1;
        Ok(())
    }

    #[cold]
    fn record_failed(
        &self,
        timeline: &Timeline,
        session: Option<&Session>,
        error: RuntimeError,
    ) -> RuntimeError {
        if let Some(tail) = &timeline.tail {
            tail.node().spoil();
        }
        match session {
            None => {
                self.broken.store(true, Ordering::Release);
                self.synchronize_in_repair(timeline.position, &timeline.clock);
            }
            Some(session) => session.doom(&error),
        }
        error
    }

    /// Records an event for a place that has none, wherever it is asked for.
    pub(crate) fn record_late(&self, place: &Completion) -> RuntimeResult<()> {
        let mut state = self.lock()?;
        self.record_late_in(&mut state, place)
    }

    /// As [`record_late`](Self::record_late), unless somebody has the stream: by who has another one, and may not wait for this. The
    /// event, if there is one now.
    pub(crate) fn record_at_once(&self, place: &Completion) -> RuntimeResult<Option<RawEvent>> {
        self.core.origin.check()?;
        let Some(mut state) = self.state.try_lock() else {
            return Ok(None);
        };
        self.record_late_in(&mut state, place)?;
        Ok(place.event())
    }

    fn record_late_in(&self, state: &mut SlotState, place: &Completion) -> RuntimeResult<()> {
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
        // A stream that ends then leaves places without an event.
        self.core.check_poison()?;
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
}

fn is_tail(timeline: &Timeline, place: &Completion) -> bool {
    let tail = timeline.tail.as_ref().map(Completion::point);
    tail == Some(place.point()) && !timeline.is_dirty()
}
