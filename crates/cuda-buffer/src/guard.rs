//! The untyped guard under every access on a stream: who holds what, on which stream, and how that ends.
//!
//! This is what every operation of a program goes through. Guards are small and their parts are handed on one by one: what is
//! copied as a whole a moment after it was written costs more than the locks.

use crate::capture::AccessSet;
use crate::domain::Domain;
use crate::ledger::{AccessKind, Holder, Predecessors, Token};
use crate::{AccessError, BufferError, BufferResult};
use cuda_runtime::{
    Completion, Handles, RuntimeResult, Session, Spent, Standing, Stream, StreamId, Streams,
    current_session,
};
use std::panic::Location;
use std::rc::Rc;

/// A live access of some value on a stream: all that its end needs to know, but for the value. It must be ended.
#[derive(Debug)]
pub struct Hold {
    /// `None` once the access has ended.
    stream: Option<Stream>,
    /// That of the stream, or that of the capture that the access belongs to.
    timeline: StreamId,
    since: &'static Location<'static>,
}

/// A live access of a domain, that writes or only reads. Its drop publishes the completion of the stream's tail.
#[derive(Debug)]
pub(crate) struct Guard<'a, const WRITES: bool> {
    domain: &'a Domain,
    hold: Hold,
}

/// What accesses that are acquired together have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquired<'s> {
    stream: &'s Stream,
    timeline: StreamId,
    since: &'static Location<'static>,
}

/// Accesses that were acquired together and are handed out one by one.
#[derive(Debug)]
pub struct Grants<'s> {
    acquired: Acquired<'s>,
    /// One for each.
    streams: Streams<'s>,
}

/// How accesses end that end together, and what that leaves to be given up.
#[derive(Debug)]
pub struct Ending {
    /// A handle of the completion of their work for each; none when no work was queued under them, or it is over.
    done: Option<Handles>,
    how: How,
    spent: Spent,
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

impl Ending {
    #[inline]
    fn new(done: Option<Handles>, how: How) -> Self {
        let spent = Spent::default();
        Self { done, how, spent }
    }

    /// With a completion at the tail of a timeline of `stream`, recorded for so many accesses: a capture's, or else the stream's own.
    /// Those end outside captures also when the stream has begun to capture since: everything queued under them came
    /// before.
    #[inline]
    pub(crate) fn record(
        stream: &Stream,
        timeline: StreamId,
        accesses: usize,
    ) -> (Self, RuntimeResult<()>) {
        let how = How::of(stream, timeline);
        let recorded = match how {
            How::Eager => stream.record_eager_for(accesses),
            _ => stream.record_for(accesses).map(Some),
        };
        match recorded {
            Ok(done) => (Self::new(done, how), Ok(())),
            Err(error) => (Self::failed(how), Err(error)),
        }
    }

    #[cold]
    fn failed(how: How) -> Self {
        let how = match how {
            How::Captured => How::Captured,
            How::Eager | How::Failed => How::Failed,
        };
        Self::new(None, how)
    }
}

/// Acquires several accesses on `stream`, all or none. `wanted` is in order of the domains' identity, so that of two
/// threads that want the same ones, one gets all.
#[inline]
pub(crate) fn acquire<'s>(
    wanted: &[(&Domain, AccessKind)],
    stream: &'s Stream,
    since: &'static Location<'static>,
) -> BufferResult<Acquired<'s>> {
    match order(wanted.iter().copied(), stream, since) {
        Ok(timeline) => Ok(Acquired::new(stream, timeline, since)),
        Err(error) => Err(*error),
    }
}

/// As [`acquire`], of accesses that are nowhere together.
pub(crate) fn acquire_each<'d, 's>(
    wanted: impl Iterator<Item = (&'d Domain, AccessKind)> + Clone,
    stream: &'s Stream,
    since: &'static Location<'static>,
) -> BufferResult<Acquired<'s>> {
    let timeline = order(wanted, stream, since).map_err(|error| *error)?;
    Ok(Acquired::new(stream, timeline, since))
}

/// Takes the tokens and orders the stream; the timeline that the accesses are ordered on.
///
/// In a capture the tokens are of the capture's own ledgers: the domains' are untouched. Errors are large, and are rarely
/// there to be handed on.
#[inline(never)]
pub(crate) fn order<'d>(
    wanted: impl Iterator<Item = (&'d Domain, AccessKind)> + Clone,
    stream: &Stream,
    since: &'static Location<'static>,
) -> Result<StreamId, Box<BufferError>> {
    // Before any token, which a poisoned device would keep: then the first error is what every call returns.
    stream.device().check_poison().map_err(boxed)?;
    // Without a lock: a carve may have to wait here for a launch on another thread.
    wanted.clone().for_each(|(domain, _)| domain.open());
    let standing = stream.standing().map_err(boxed)?;
    let timeline = standing.timeline();
    let acquired = Acquired::new(stream, timeline, since);
    let captured = timeline != stream.id();
    let mut ahead = Ahead {
        standing,
        needed: Predecessors::new(),
        failed: None,
    };
    let mut own = 0;
    // Mostly it is the stream itself that comes first.
    let mut before = |completion: &Completion| match completion.point().stream == timeline {
        true => own += 1,
        false => ahead.add(completion),
    };
    for (begun, (domain, kind)) in wanted.clone().enumerate() {
        let holder = acquired.holder();
        let token = Token { kind, holder };
        let granted = match captured {
            false => domain.begin(token, &mut before),
            true => begin_captured(domain, token, stream, &mut before),
        };
        if let Err(error) = granted {
            drop(ahead);
            acquired.call_off(wanted.take(begun));
            return Err(boxed(error));
        }
    }
    ahead.standing.count_own(own);
    match ahead.wait() {
        Ok(()) => Ok(timeline),
        Err(error) => {
            acquired.call_off(wanted);
            Err(error)
        }
    }
}

#[cold]
fn boxed(error: impl Into<BufferError>) -> Box<BufferError> {
    Box::new(error.into())
}

/// What a stream has to wait for.
struct Ahead<'s> {
    standing: Standing<'s>,
    needed: Predecessors,
    failed: Option<Box<BufferError>>,
}

impl Ahead<'_> {
    fn add(&mut self, completion: &Completion) {
        match self.standing.needs(completion) {
            Ok(false) => {}
            // Values that were written together share their completion.
            Ok(true)
                if self
                    .needed
                    .last()
                    .is_some_and(|last| last.point() == completion.point()) => {}
            Ok(true) => self.needed.push(completion.clone()),
            Err(error) => self.failed = Some(boxed(error)),
        }
    }

    #[inline]
    fn wait(self) -> Result<(), Box<BufferError>> {
        match self.failed {
            None if self.needed.is_empty() => Ok(()),
            None => self.standing.wait_for_all(&self.needed).map_err(boxed),
            Some(error) => Err(error),
        }
    }
}

impl<'s> Acquired<'s> {
    #[inline]
    pub(crate) fn new(
        stream: &'s Stream,
        timeline: StreamId,
        since: &'static Location<'static>,
    ) -> Self {
        Self {
            stream,
            timeline,
            since,
        }
    }

    #[inline(always)]
    fn holder(&self) -> Holder {
        Holder {
            stream: Some(self.timeline),
            since: self.since,
        }
    }

    /// Gives tokens back under which nothing was exposed.
    #[cold]
    fn call_off<'d>(&self, begun: impl Iterator<Item = (&'d Domain, AccessKind)>) {
        let mut ending = Ending::new(None, How::of(self.stream, self.timeline));
        begun.for_each(|(domain, kind)| {
            end(&mut ending, domain, kind, self.holder(), self.stream);
        });
    }

    /// Records a completion of the accesses' one operation and ends them, or ends them after the operation failed.
    pub(crate) fn end(
        &self,
        accesses: &[(&Domain, AccessKind)],
        queued: RuntimeResult<()>,
    ) -> RuntimeResult<()> {
        let (mut ending, result) = match queued {
            Ok(()) => Ending::record(self.stream, self.timeline, accesses.len()),
            Err(error) => {
                let how = How::of(self.stream, self.timeline);
                (Ending::failed(how), Err(error))
            }
        };
        for &(domain, kind) in accesses {
            end(&mut ending, domain, kind, self.holder(), self.stream);
        }
        result
    }

    /// One of the accesses as a value that outlives the acquisition.
    #[inline]
    pub(crate) fn hold(&self) -> Hold {
        self.hold_with(self.stream.clone())
    }

    #[inline]
    fn hold_with(&self, stream: Stream) -> Hold {
        Hold {
            stream: Some(stream),
            timeline: self.timeline,
            since: self.since,
        }
    }

    /// All of them as such values: so many.
    #[inline]
    pub(crate) fn guards(self, count: usize) -> Grants<'s> {
        let streams = self.stream.clones(count);
        let acquired = self;
        Grants { acquired, streams }
    }
}

impl Grants<'_> {
    #[inline]
    pub(crate) fn guard<'a, const WRITES: bool>(
        &mut self,
        domain: &'a Domain,
    ) -> Guard<'a, WRITES> {
        let hold = self.acquired.hold_with(self.streams.take());
        Guard { domain, hold }
    }
}

/// Gives a token back, and publishes a completion with it.
fn end(ending: &mut Ending, domain: &Domain, kind: AccessKind, holder: Holder, stream: &Stream) {
    let done = ending.done.as_mut().map(Handles::take);
    let token = Token { kind, holder };
    match ending.how {
        How::Eager => domain.end_with(token, done, &mut ending.spent),
        how => end_otherwise(how, domain, (kind, holder), stream, done, &mut ending.spent),
    }
}

/// Gives the token of a capture back, or that of an access whose record or operation failed.
#[cold]
fn end_otherwise(
    how: How,
    domain: &Domain,
    (kind, holder): (AccessKind, Holder),
    stream: &Stream,
    done: Option<Completion>,
    spent: &mut Spent,
) {
    let token = Token { kind, holder };
    // A child leaves the parent's ledgers, and who may have locked them, alone.
    if stream.device().is_forked() {
        return;
    }
    match (how, token.holder.stream) {
        (How::Captured, Some(timeline)) => {
            // A capture that is over took its access set with it.
            if let Some(session) = session_of(stream, timeline) {
                let token = named(token, stream);
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
fn named(mut token: Token, stream: &Stream) -> Token {
    token.holder.stream = Some(stream.id());
    token
}

#[cold]
fn begin_captured(
    domain: &Domain,
    token: Token,
    stream: &Stream,
    before: &mut impl FnMut(&Completion),
) -> Result<(), AccessError> {
    let session = current_session().expect("the stream's lock has just named it");
    session.with_attachment(|set: &mut AccessSet| set.begin(domain, named(token, stream), before))
}

/// This thread's capture, when the stream is on this timeline in it.
fn session_of(stream: &Stream, timeline: StreamId) -> Option<Rc<Session>> {
    match stream.timeline() == timeline {
        true => stream.session().ok().flatten(),
        false => None,
    }
}

impl Hold {
    #[inline]
    pub(crate) fn stream(&self) -> &Stream {
        self.stream.as_ref().expect("set until the access ends")
    }

    /// The timeline that the access is ordered on.
    #[inline]
    pub(crate) fn timeline(&self) -> StreamId {
        self.timeline
    }

    /// Whether the access belongs to a capture.
    pub(crate) fn is_captured(&self) -> bool {
        self.timeline != self.stream().id()
    }

    /// Whether the access has not ended.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.stream.is_some()
    }

    /// Ends the access of each of `domains`, unless that was done before.
    #[inline(always)]
    pub(crate) fn end<'d>(
        &mut self,
        kind: AccessKind,
        domains: impl Iterator<Item = &'d Domain>,
        ending: &mut Ending,
    ) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        let holder = Holder {
            stream: Some(self.timeline),
            since: self.since,
        };
        for domain in domains {
            end(ending, domain, kind, holder, &stream);
        }
        ending.spent.stream(stream);
    }

    /// Records a completion at the stream's tail and ends the access of each of `domains` with it.
    pub(crate) fn release<'d>(
        &mut self,
        kind: AccessKind,
        domains: impl ExactSizeIterator<Item = &'d Domain>,
    ) -> RuntimeResult<()> {
        let (mut ending, result) = Ending::record(self.stream(), self.timeline, domains.len());
        self.end(kind, domains, &mut ending);
        result
    }

    /// As [`release`](Self::release), for destructors: unless the access has ended.
    #[cold]
    pub(crate) fn release_in_drop<'d>(
        &mut self,
        kind: AccessKind,
        domains: impl ExactSizeIterator<Item = &'d Domain>,
    ) {
        let Some(stream) = &self.stream else {
            return;
        };
        let device = stream.device().clone();
        // A child leaves the parent's ledgers, and who may have locked them, alone.
        if device.is_forked() {
            return;
        }
        if self.is_captured() && session_of(stream, self.timeline).is_none() {
            return;
        }
        if let Err(error) = self.release(kind, domains) {
            device.park(error);
        }
    }
}

impl<'a, const WRITES: bool> Guard<'a, WRITES> {
    const KIND: AccessKind = match WRITES {
        true => AccessKind::Write,
        false => AccessKind::Read,
    };

    /// One access. When a wait fails, the token is back and nothing was exposed.
    pub(crate) fn acquire(
        domain: &'a Domain,
        stream: &Stream,
        since: &'static Location<'static>,
    ) -> BufferResult<Self> {
        let hold = acquire(&[(domain, Self::KIND)], stream, since)?.hold();
        Ok(Self { domain, hold })
    }

    #[inline]
    pub(crate) fn domain(&self) -> &'a Domain {
        self.domain
    }

    #[inline]
    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Gives the token back without a completion: no work was queued under it, or it is over.
    pub(crate) fn cancel(mut self) {
        let (stream, timeline) = (self.hold.stream(), self.hold.timeline);
        let mut ending = Ending::new(None, How::of(stream, timeline));
        self.end(&mut ending);
    }

    /// Ends the access with what a record returned, which others may share.
    #[inline(always)]
    pub(crate) fn end(&mut self, ending: &mut Ending) {
        self.hold.end(Self::KIND, [self.domain].into_iter(), ending);
    }

    /// Records a completion at the stream's tail, publishes it and gives the token back.
    pub(crate) fn release(mut self) -> RuntimeResult<()> {
        self.hold.release(Self::KIND, [self.domain].into_iter())
    }
}

impl<const WRITES: bool> Drop for Guard<'_, WRITES> {
    #[inline]
    fn drop(&mut self) {
        if self.hold.is_live() {
            self.hold
                .release_in_drop(Self::KIND, [self.domain].into_iter());
        }
    }
}
