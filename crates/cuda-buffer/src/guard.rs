//! The untyped guard under every access on a stream: who holds what, on which stream, and how that ends.

use crate::capture::AccessSet;
use crate::domain::Domain;
use crate::ledger::{AccessKind, Predecessors, Token};
use crate::{AccessError, BufferResult};
use cuda_runtime::{
    Completion, Handles, RuntimeError, RuntimeResult, Spent, Stream, StreamId, Streams,
    current_session,
};
use std::panic::Location;

/// A live access of some value on a stream: all that its end needs to know, but for the value. It must be ended.
#[derive(Debug)]
pub struct Hold {
    stream: Stream,
    timeline: StreamId,
    /// The capture that the access belongs to.
    session: Option<u64>,
    kind: AccessKind,
    since: &'static Location<'static>,
}

/// A live access of a domain. Its drop publishes the completion of the stream's tail.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    domain: &'a Domain,
    /// `None` once it has ended.
    hold: Option<Hold>,
}

/// How accesses end that end together, and what that leaves to be given up.
#[derive(Debug)]
pub struct Ending {
    /// A handle of the completion of their work for each; none when no work was queued under them, or it is over.
    done: Option<Handles>,
    /// The record failed. The stream was synchronised then, so there is nothing to publish; when that failed too, the
    /// device is poisoned and the tokens are kept for ever, so that the memory is never reused.
    failed: bool,
    spent: Spent,
}

impl Ending {
    /// With what a record returned, in a handle for each access.
    #[inline]
    pub(crate) fn of<E>(recorded: Result<Option<Handles>, E>) -> (Self, Result<(), E>) {
        let (done, failed, result) = match recorded {
            Ok(done) => (done, false, Ok(())),
            Err(error) => (None, true, Err(error)),
        };
        let spent = Spent::default();
        let ending = Self {
            done,
            failed,
            spent,
        };
        (ending, result)
    }
}

/// What accesses that are acquired together have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquired<'s> {
    stream: &'s Stream,
    timeline: StreamId,
    session: Option<u64>,
    since: &'static Location<'static>,
}

/// A completion at the stream's tail, in so many handles, for accesses of the capture of this number, or of none: these end
/// outside captures also when the stream has begun to capture since, and everything queued under them came before.
#[inline]
pub(crate) fn record(
    stream: &Stream,
    session: Option<u64>,
    handles: usize,
) -> RuntimeResult<Option<Handles>> {
    match session {
        None => stream.record_eager_for(handles),
        Some(_) => stream.record_for(handles).map(Some),
    }
}

/// Acquires several accesses on `stream`, all or none. `wanted` is in order of the domains' identity, so that of two
/// threads that want the same ones, one gets all.
///
/// In a capture the tokens are of the capture's own ledgers: the domains' are untouched.
pub(crate) fn acquire<'d, 's>(
    wanted: impl Iterator<Item = (&'d Domain, AccessKind)> + Clone,
    stream: &'s Stream,
    since: &'static Location<'static>,
) -> BufferResult<Acquired<'s>> {
    // Before any token, which a poisoned device would keep: then the first error is what every call returns.
    stream.device().check_poison()?;
    // Without a lock: a carve may have to wait here for a launch on another thread.
    wanted.clone().for_each(|(domain, _)| domain.open());
    let mut standing = stream.standing()?;
    let acquired = Acquired {
        stream,
        timeline: standing.timeline(),
        session: standing.session(),
        since,
    };
    let mut needed = Predecessors::new();
    let mut failed = None;
    let mut add = |completion: &Completion| match standing.needs(completion) {
        Ok(false) => {}
        // Values that were written together share their completion.
        Ok(true)
            if needed
                .last()
                .is_some_and(|last| last.point() == completion.point()) => {}
        Ok(true) => needed.push(completion.clone()),
        Err(error) => failed = Some(error),
    };
    let mut begun = 0;
    let tokens = wanted.clone().try_for_each(|(domain, kind)| {
        acquired.begin(domain, kind, &mut add)?;
        begun += 1;
        Ok::<_, AccessError>(())
    });
    let waited: BufferResult<()> = match (tokens, failed) {
        (Err(error), _) => Err(error.into()),
        (Ok(()), Some(error)) => Err(error.into()),
        (Ok(()), None) if needed.is_empty() => Ok(()),
        (Ok(()), None) => standing.wait_for_all(&needed).map_err(Into::into),
    };
    match waited {
        Ok(()) => Ok(acquired),
        Err(error) => {
            // Nothing was exposed: the tokens go back.
            let mut spent = Spent::default();
            for (domain, kind) in wanted.take(begun) {
                acquired.end(domain, kind, None, &mut spent);
            }
            Err(error)
        }
    }
}

impl<'s> Acquired<'s> {
    pub(crate) fn session(&self) -> Option<u64> {
        self.session
    }

    fn token(&self, kind: AccessKind) -> Token {
        Token {
            kind,
            stream: Some(self.stream.id()),
            since: self.since,
        }
    }

    /// Takes the token of one access, and shows what must come first.
    #[inline]
    fn begin(
        &self,
        domain: &Domain,
        kind: AccessKind,
        before: &mut impl FnMut(&Completion),
    ) -> Result<(), AccessError> {
        let token = self.token(kind);
        match self.session {
            None => domain.begin(token, before),
            Some(_) => begin_captured(domain, token, before),
        }
    }

    /// Gives the token back, and publishes `done` with it.
    #[inline]
    pub(crate) fn end(
        &self,
        domain: &Domain,
        kind: AccessKind,
        done: Option<Completion>,
        spent: &mut Spent,
    ) {
        let token = self.token(kind);
        match self.session {
            None => domain.end_with(token, done, spent),
            Some(number) => end_captured(number, domain, token, done, spent),
        }
    }

    /// Ends an access after its record or its operation failed. What a poisoned device does, that of the stream or of
    /// the memory, may go on for ever: then the token is kept.
    #[cold]
    pub(crate) fn fail(&self, domain: &Domain, kind: AccessKind) {
        // A child leaves the parent's ledgers, and who may have locked them, alone.
        if self.stream.device().is_forked() {
            return;
        }
        let poisoned = self.stream.device().is_poisoned() || domain.device().is_poisoned();
        if self.session.is_some() || !poisoned {
            self.end(domain, kind, None, &mut Spent::default());
        }
    }

    /// One of the accesses as a value that outlives the acquisition.
    #[inline]
    pub(crate) fn hold(&self, kind: AccessKind) -> Hold {
        self.hold_with(self.stream.clone(), kind)
    }

    #[inline]
    fn hold_with(&self, stream: Stream, kind: AccessKind) -> Hold {
        Hold {
            stream,
            timeline: self.timeline,
            session: self.session,
            kind,
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

/// Accesses that were acquired together and are handed out one by one.
#[derive(Debug)]
pub struct Grants<'s> {
    acquired: Acquired<'s>,
    /// One for each.
    streams: Streams,
}

impl Grants<'_> {
    #[inline]
    pub(crate) fn guard<'a>(&mut self, domain: &'a Domain, kind: AccessKind) -> Guard<'a> {
        let hold = self.acquired.hold_with(self.streams.take(), kind);
        Guard {
            domain,
            hold: Some(hold),
        }
    }
}

#[cold]
fn begin_captured(
    domain: &Domain,
    token: Token,
    before: &mut impl FnMut(&Completion),
) -> Result<(), AccessError> {
    let session = current_session().expect("the stream's lock has just named it");
    session.with_attachment(|set: &mut AccessSet| set.begin(domain, token, before))
}

#[cold]
fn end_captured(
    number: u64,
    domain: &Domain,
    token: Token,
    done: Option<Completion>,
    spent: &mut Spent,
) {
    // A capture that is over took its access set with it.
    if let Some(session) = current_session()
        && session.number() == number
    {
        session.with_attachment(|set: &mut AccessSet| set.end(domain.id(), token, done, spent));
    }
}

impl Hold {
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The timeline that the access is ordered on.
    pub(crate) fn timeline(&self) -> StreamId {
        self.timeline
    }

    /// The capture that the access belongs to.
    pub(crate) fn session(&self) -> Option<u64> {
        self.session
    }

    fn acquired(&self) -> Acquired<'_> {
        Acquired {
            stream: &self.stream,
            timeline: self.timeline,
            session: self.session,
            since: self.since,
        }
    }

    /// Ends the access of each of `domains`.
    #[inline]
    pub(crate) fn end<'d>(self, domains: impl Iterator<Item = &'d Domain>, ending: &mut Ending) {
        let acquired = self.acquired();
        for domain in domains {
            match ending.failed {
                false => {
                    let done = ending.done.as_mut().map(Handles::take);
                    acquired.end(domain, self.kind, done, &mut ending.spent);
                }
                true => acquired.fail(domain, self.kind),
            }
        }
        ending.spent.stream(self.stream);
    }

    /// Records a completion at the stream's tail and ends the access of each of `domains` with it.
    pub(crate) fn release<'d>(
        self,
        domains: impl ExactSizeIterator<Item = &'d Domain>,
    ) -> RuntimeResult<()> {
        let recorded = record(&self.stream, self.session, domains.len());
        let (mut ending, result) = Ending::of(recorded);
        self.end(domains, &mut ending);
        result
    }

    /// As [`release`](Self::release), for destructors.
    pub(crate) fn release_in_drop<'d>(self, domains: impl ExactSizeIterator<Item = &'d Domain>) {
        // A child leaves the parent's ledgers, and who may have locked them, alone.
        if self.stream.device().is_forked() {
            return;
        }
        let ended_capture = self.session.is_some()
            && current_session().map(|session| session.number()) != self.session;
        if ended_capture {
            return;
        }
        let device = self.stream.device().clone();
        if let Err(error) = self.release(domains) {
            device.park(error);
        }
    }
}

impl<'a> Guard<'a> {
    /// One access. When a wait fails, the token is back and nothing was exposed.
    pub(crate) fn acquire(
        domain: &'a Domain,
        kind: AccessKind,
        stream: &Stream,
        since: &'static Location<'static>,
    ) -> BufferResult<Self> {
        let wanted = std::iter::once((domain, kind));
        let hold = acquire(wanted, stream, since)?.hold(kind);
        Ok(Self {
            domain,
            hold: Some(hold),
        })
    }

    pub(crate) fn domain(&self) -> &'a Domain {
        self.domain
    }

    #[inline]
    pub(crate) fn hold(&self) -> &Hold {
        self.hold.as_ref().expect("set until the access ends")
    }

    /// Gives the token back without a completion: no work was queued under it, or it is over.
    pub(crate) fn cancel(self) {
        let (mut ending, _) = Ending::of(Ok::<_, RuntimeError>(None));
        self.end(&mut ending);
    }

    /// Ends the access with what a record returned, which others may share.
    #[inline]
    pub(crate) fn end(mut self, ending: &mut Ending) {
        if let Some(hold) = self.hold.take() {
            hold.end([self.domain].into_iter(), ending);
        }
    }

    /// Records a completion at the stream's tail, publishes it and gives the token back.
    pub(crate) fn release(mut self) -> RuntimeResult<()> {
        match self.hold.take() {
            Some(hold) => hold.release([self.domain].into_iter()),
            None => Ok(()),
        }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.release_in_drop([self.domain].into_iter());
        }
    }
}
