//! A slot's part in captures: a timeline of its own in front of the eager one.

use crate::capture::{self, Session};
use crate::clock::StreamId;
use crate::completion::Completion;
use crate::node::Scope;
use crate::primitive::Ordering;
use crate::slot::{Slot, doom};
use crate::timeline::{Captured, SlotState, Timeline};
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CudaResult, Driver, RawStream};
use parking_lot::RwLockWriteGuard;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;

impl Slot {
    pub(crate) fn is_capturing(&self) -> bool {
        self.lock().is_ok_and(|state| state.captured.is_some())
    }

    /// Whether the stream is part of the capture of this number.
    pub(crate) fn is_captured_in(&self, session: u64) -> bool {
        self.lock().is_ok_and(|state| state.is_captured_in(session))
    }

    /// The session, when this thread's open capture includes the stream.
    pub(crate) fn session(&self) -> RuntimeResult<Option<Rc<Session>>> {
        // Another thread may begin to capture it at any moment, as it may after the lock was given up.
        if !capture::is_open() && self.timeline() == self.id {
            return Ok(None);
        }
        self.lock()?.active().map(|(_, session)| session)
    }

    /// Identity of the timeline that operations go to now.
    #[inline]
    pub(crate) fn timeline(&self) -> StreamId {
        StreamId::from_number(self.active.load(Ordering::Acquire))
    }

    /// Makes the stream the first one of a capture of this thread, by `begin`.
    ///
    /// Accesses begun before the capture may end in it, so what they queued gets its event here, under the lock
    /// that keeps other threads from queuing more before the capture is known.
    pub(crate) fn begin_capture(
        self: &Arc<Self>,
        session: u64,
        begin: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<()>,
    ) -> RuntimeResult<()> {
        let _nobody_waits = self.no_host_waits()?;
        let mut state = self.lock()?;
        self.prepare_capture(&mut state)?;
        self.core.call(|driver| begin(driver, self.raw))?;
        self.enter_capture(&mut state, session);
        Ok(())
    }

    /// Makes the stream part of a capture of this thread, after `fork`, a completion of the capture.
    pub(crate) fn join_capture(
        self: &Arc<Self>,
        session: &Session,
        fork: &Completion,
    ) -> RuntimeResult<()> {
        fork.ensure_event()?;
        let _nobody_waits = self.no_host_waits()?;
        let mut state = self.lock()?;
        self.prepare_capture(&mut state)?;
        let timeline = self.enter_capture(&mut state, session.number());
        // This wait is what makes the driver capture the stream.
        let wait = || self.wait_in(timeline, Some(session), fork).map(drop);
        let joined = catch_unwind(AssertUnwindSafe(wait));
        if !matches!(joined, Ok(Ok(()))) {
            self.leave_capture_in(&mut state);
        }
        let joined = joined.unwrap_or_else(|panic| {
            drop(state);
            resume_unwind(panic)
        });
        doom(Some(session), &joined);
        joined
    }

    /// Waits until no thread waits on the host for the stream, which would break a capture of it, and keeps others from beginning
    /// to. Taken before the state.
    fn no_host_waits(&self) -> RuntimeResult<RwLockWriteGuard<'_, ()>> {
        self.core.origin.check()?;
        Ok(self.host_waits.write())
    }

    fn prepare_capture(self: &Arc<Self>, state: &mut SlotState) -> RuntimeResult<()> {
        if state.captured.is_some() {
            return Err(RuntimeError::CaptureWrongThread);
        }
        let eager = &mut state.eager;
        if eager.tail.is_none() && !eager.is_dirty() {
            return Ok(());
        }
        let tail = self.place(eager, None)?;
        match tail.event().is_some() || tail.is_known_complete() {
            true => Ok(()),
            false => self.record_tail(eager, None),
        }
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
        if let Some(captured) = state.captured.take() {
            state.eager.counts = state.eager.counts + captured.timeline.counts;
        }
    }

    /// Leaves the capture of this number, unless that was done before: by then another thread may capture the stream.
    pub(crate) fn leave_capture(&self, session: u64) {
        let mut state = self.state.lock();
        if state.is_captured_in(session) {
            self.leave_capture_in(&mut state);
        }
    }
}
