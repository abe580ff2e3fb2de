//! The timelines of a stream: what was queued, what came first, and where the tail is.

use crate::capture::{self, Session};
use crate::clock::{Clock, StreamId};
use crate::completion::Completion;
use crate::counted::Sole;
use crate::counters::OrderCounts;
use crate::node::{Node, Scope};
use crate::stock::Stock;
use crate::{RuntimeError, RuntimeResult};
use smallvec::SmallVec;
use std::mem;
use std::rc::Rc;
use std::thread::ThreadId;

/// Earlier places that a timeline keeps.
const EARLIER: usize = 4;

#[derive(Debug)]
pub(crate) struct SlotState {
    pub(crate) eager: Timeline,
    pub(crate) captured: Option<Captured>,
    /// The driver's stream is gone, or belongs to the user alone again.
    pub(crate) retired: bool,
    pub(crate) stock: Stock,
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
    pub(crate) earlier: SmallVec<[Completion; EARLIER]>,
    /// Number of operations queued so far, waits included.
    pub(crate) queued: u64,
    /// Number of those that the tail covers.
    pub(crate) covered: u64,
    /// Number of those that are known to be done, where the builder asked to wait after each.
    pub(crate) finished: u64,
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
    pub(crate) fn spare_node(&mut self) -> Option<Sole<Node>> {
        let mut last = self.tail.take()?;
        if self.scope != Scope::Eager {
            return None;
        }
        // Mostly those who shared the latest place still do, and those of the one before have given it up.
        if last.is_sole() {
            return last.into_sole().ok();
        }
        for place in &mut self.earlier {
            if place.is_sole() {
                return mem::replace(place, last).into_sole().ok();
            }
        }
        if self.earlier.len() < EARLIER {
            self.earlier.push(last);
        }
        None
    }

    /// Notes that later work comes after `completion` by itself, and that this made so many waits needless.
    pub(crate) fn comes_after(&mut self, completion: &Completion, needless: u64) {
        self.counts.elided_waited += needless;
        if completion.point().stream != self.id {
            self.clock.merge(completion.clock(), self.id);
            self.clock.advance(completion.point());
        }
    }

    /// Whether anything was queued since the tail.
    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        self.queued != self.covered
    }
}

impl SlotState {
    /// Whether the stream is part of the capture of this number.
    pub(crate) fn is_captured_in(&self, session: u64) -> bool {
        let captured = self.captured.as_ref();
        captured.is_some_and(|captured| captured.timeline.scope == Scope::Capture(session))
    }

    /// The timeline that operations of this thread go to, and the session that it belongs to.
    #[inline]
    pub(crate) fn active(&mut self) -> RuntimeResult<(&mut Timeline, Option<Rc<Session>>)> {
        if self.captured.is_none() {
            return Ok((&mut self.eager, None));
        }
        self.active_captured()
    }

    #[cold]
    fn active_captured(&mut self) -> RuntimeResult<(&mut Timeline, Option<Rc<Session>>)> {
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
