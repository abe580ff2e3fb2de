//! How accesses on a stream end: with one completion for all that end together.

use crate::capture::AccessSet;
use crate::domain::Domain;
use crate::ledger::{AccessKind, Holder, Token};
use cuda_runtime::{
    Completion, Handles, RuntimeResult, Session, Spent, Standing, Stream, StreamId,
};
use std::rc::Rc;

/// How accesses end that end together, and what that leaves to be given up.
#[derive(Debug)]
pub struct Ending<'s> {
    /// The stream's lock, for accesses outside captures: a ledger that is at home there is at hand. Given back before all else.
    here: Option<Standing<'s>>,
    /// A handle of the completion of their work for each; none when no work was queued under them, or it is over.
    done: Option<Handles>,
    how: How,
    pub(crate) spent: Spent,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Eager,
    Captured,
    /// Outside captures, after the record failed, or the operation. The stream was synchronised then, so there is nothing to
    /// publish; or the device is poisoned, and the tokens are kept for ever, so that the memory is never reused.
    Failed,
}

impl How {
    #[inline]
    fn of(stream: &Stream, timeline: StreamId) -> Self {
        match timeline == stream.id() {
            true => Self::Eager,
            false => Self::Captured,
        }
    }
}

impl<'s> Ending<'s> {
    /// Of accesses on a timeline of `stream`, a capture's, or else the stream's own: under which no work was queued, or it is over.
    #[inline(always)]
    pub(crate) fn of(stream: &'s Stream, timeline: StreamId) -> Self {
        let how = How::of(stream, timeline);
        let here = match how {
            // It fails in a child alone, where nothing ends.
            How::Eager => stream.try_standing_outside(),
            How::Captured | How::Failed => None,
        };
        Self {
            here,
            done: None,
            how,
            spent: Spent::default(),
        }
    }

    /// Records a completion at the timeline's tail for so many accesses. Those of the stream's own end outside captures also when
    /// the stream has begun to capture since: everything queued under them came before.
    #[inline(always)]
    pub(crate) fn record(&mut self, stream: &Stream, accesses: usize) -> RuntimeResult<()> {
        let recorded = match &mut self.here {
            Some(here) => here.record_for(accesses),
            None => self.record_otherwise(stream, accesses),
        };
        match recorded {
            Ok(done) => {
                self.done = done;
                Ok(())
            }
            Err(error) => {
                self.fail();
                Err(error)
            }
        }
    }

    #[cold]
    fn record_otherwise(&self, stream: &Stream, accesses: usize) -> RuntimeResult<Option<Handles>> {
        match self.how {
            How::Captured => stream.record_for(accesses).map(Some),
            // In a child.
            How::Eager | How::Failed => stream.device().check_poison().map(|()| None),
        }
    }

    #[cold]
    pub(crate) fn fail(&mut self) {
        self.here = None;
        if self.how == How::Eager {
            self.how = How::Failed;
        }
    }

    /// Gives the stream's lock back, before what was replaced is given up.
    #[inline(always)]
    pub(crate) fn finish(&mut self) {
        if let Some(mut here) = self.here.take() {
            here.reuse(&mut self.spent);
        }
    }
}

/// Gives a token back, and publishes a completion with it.
#[inline(always)]
pub(crate) fn end(
    ending: &mut Ending<'_>,
    domain: &Domain,
    kind: AccessKind,
    holder: Holder,
    stream: &Stream,
) {
    match kind {
        AccessKind::Read => end_read(ending, domain, holder, stream),
        AccessKind::Write => end_write(ending, domain, holder, stream),
    }
}

fn end_read(ending: &mut Ending<'_>, domain: &Domain, holder: Holder, stream: &Stream) {
    let kind = AccessKind::Read;
    end_token(ending, domain, Token { kind, holder }, stream);
}

fn end_write(ending: &mut Ending<'_>, domain: &Domain, holder: Holder, stream: &Stream) {
    let kind = AccessKind::Write;
    end_token(ending, domain, Token { kind, holder }, stream);
}

#[inline(always)]
fn end_token(ending: &mut Ending<'_>, domain: &Domain, token: Token, stream: &Stream) {
    let done = ending.done.as_mut().map(Handles::take);
    match &mut ending.here {
        Some(here) => domain.end_on(here, token, done, &mut ending.spent),
        None => {
            let how = ending.how;
            end_otherwise(how, domain, token, stream, done, &mut ending.spent);
        }
    }
}

/// Gives the token of a capture back, or that of an access whose record or operation failed.
#[cold]
fn end_otherwise(
    how: How,
    domain: &Domain,
    token: Token,
    stream: &Stream,
    done: Option<Completion>,
    spent: &mut Spent,
) {
    // A child leaves the parent's ledgers, and who may have locked them, alone.
    if stream.device().is_forked() {
        return;
    }
    match (how, token.holder.stream) {
        (How::Captured, Some(timeline)) => {
            // A capture that is over took its access set with it.
            if let Some(session) = session_of(stream, timeline) {
                let token = named(token, stream.id());
                let end = |set: &mut AccessSet| set.end(domain.id(), token, done, spent);
                session.with_attachment(end);
            }
        }
        // What a poisoned device does, that of the stream or of the memory, may go on for ever: then the token is kept.
        (How::Failed, _) if stream.device().is_poisoned() || domain.device().is_poisoned() => {}
        _ => domain.end_with(token, done, spent),
    }
}

/// The token of an access in a capture, which names its stream.
pub(crate) fn named(mut token: Token, stream: StreamId) -> Token {
    token.holder.stream = Some(stream);
    token
}

/// This thread's capture, when the stream is on this timeline in it.
pub(crate) fn session_of(stream: &Stream, timeline: StreamId) -> Option<Rc<Session>> {
    match stream.timeline() == timeline {
        true => stream.session().ok().flatten(),
        false => None,
    }
}
