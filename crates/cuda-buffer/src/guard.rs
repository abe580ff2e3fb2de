//! The untyped guard under every access on a stream: who holds what, on which stream, and how that ends.
//!
//! This is what every operation of a program goes through. Guards are small and their parts are handed on one by one: what is
//! copied as a whole a moment after it was written costs more than the locks.

use crate::arena::CarveDomain;
use crate::capture::AccessSet;
use crate::domain::Domain;
use crate::ledger::{AccessKind, Holder, Ledger, Predecessors, Token};
use crate::primitive::{Fault, faulty};
use crate::{AccessError, BufferError, BufferResult};
use cuda_driver::CallSite;
use cuda_runtime::{
    Completion, Handles, Homed, RuntimeResult, Session, Spent, Standing, Stream, StreamId, Streams,
    current_session,
};
use std::mem::ManuallyDrop;
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
    /// One for each. What would be left of them is never given up, so that nothing but the accesses has to be: those can then be
    /// made where they are going to be.
    streams: ManuallyDrop<Streams<'s>>,
}

/// How accesses end that end together, and what that leaves to be given up.
#[derive(Debug)]
pub struct Ending<'s> {
    /// The stream's lock, for accesses outside captures: a ledger that is at home there is at hand. Given back before all else.
    here: Option<Standing<'s>>,
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

impl<'s> Ending<'s> {
    /// Of accesses on a timeline of `stream`, a capture's, or else the stream's own: under which no work was queued, or it is over.
    #[inline(always)]
    pub(crate) fn of(stream: &'s Stream, timeline: StreamId) -> Self {
        let how = How::of(stream, timeline);
        let here = match how {
            // It fails in a child alone, where nothing ends.
            How::Eager => stream.standing_outside().ok(),
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
    fn fail(&mut self) {
        self.here = None;
        if self.how == How::Eager {
            self.how = How::Failed;
        }
    }

    /// Gives the stream's lock back, before what was replaced is given up.
    #[inline(always)]
    pub(crate) fn finish(&mut self) {
        if let Some(here) = &mut self.here {
            here.reuse(&mut self.spent);
        }
        self.here = None;
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
    'visits: loop {
        // Without a lock: a carve may have to wait here for a launch on another thread, a ledger has to leave another stream.
        for (domain, _) in wanted.clone() {
            domain.expect_visit(stream);
        }
        let standing = match stream.standing() {
            Ok(standing) => standing,
            Err(error) => return Err(boxed(error)),
        };
        let timeline = standing.timeline();
        let captured = timeline != stream.id();
        let mut ahead = Ahead {
            standing,
            timeline,
            own: 0,
            needed: Predecessors::new(),
            failed: None,
        };
        let acquired = Acquired::new(stream, timeline, since);
        for (begun, (domain, kind)) in wanted.clone().enumerate() {
            let holder = acquired.holder();
            let token = Token { kind, holder };
            let granted = match domain {
                _ if captured => ahead.begin_captured(domain, token),
                Domain::Owned(owned) => ahead.begin(&owned.ledger, token),
                Domain::Carve(carve) => ahead.begin_carve(carve, token),
            };
            let Err(refused) = granted else {
                continue;
            };
            drop(ahead);
            acquired.call_off(wanted.clone().take(begun));
            match refused {
                Refused::Excluded(error) => return Err(boxed(*error)),
                Refused::Elsewhere => continue 'visits,
            }
        }
        ahead.standing.count_own(ahead.own);
        if ahead.is_nothing() {
            return Ok(timeline);
        }
        return match ahead.wait() {
            Ok(()) => Ok(timeline),
            Err(error) => {
                acquired.call_off(wanted);
                Err(error)
            }
        };
    }
}

#[cold]
fn boxed(error: impl Into<BufferError>) -> Box<BufferError> {
    Box::new(error.into())
}

/// What comes before accesses on a stream, whose lock is held.
struct Ahead<'s> {
    standing: Standing<'s>,
    timeline: StreamId,
    /// Number of completions of the timeline itself.
    own: u64,
    needed: Predecessors,
    failed: Option<Box<BufferError>>,
}

/// Why an access did not begin.
enum Refused {
    Excluded(Box<AccessError>),
    /// The ledger has become at home on another stream, whose lock can't be taken now.
    Elsewhere,
}

impl Refused {
    #[cold]
    fn excluded(error: AccessError) -> Self {
        Self::Excluded(Box::new(error))
    }
}

#[cold]
fn push(to: &mut Predecessors, completion: &Completion) {
    to.push(completion.clone());
}

impl Ahead<'_> {
    #[inline(always)]
    fn add(&mut self, completion: &Completion) {
        // Mostly it is the stream itself that comes first.
        match completion.point().stream == self.timeline {
            true => self.own += 1,
            false => self.add_other(completion),
        }
    }

    fn add_other(&mut self, completion: &Completion) {
        match self.standing.needs(completion) {
            Ok(false) => {}
            Ok(true) => {
                // Values that were written together share their completion.
                let known = self.needed.last().map(Completion::point);
                if known != Some(completion.point()) {
                    self.needed.push(completion.clone());
                }
            }
            Err(error) => self.failed = Some(boxed(error)),
        }
    }

    /// Takes a token, and notes what must come first.
    #[inline(always)]
    fn begin(&mut self, ledger: &Homed<Ledger>, token: Token) -> Result<(), Refused> {
        let Self {
            standing,
            needed,
            own,
            timeline,
            ..
        } = self;
        let Some(ledger) = standing.at_home(ledger) else {
            return self.visit(ledger, token);
        };
        if ledger.excludes(token.kind) {
            return Err(Refused::excluded(ledger.excluding(token.kind)));
        }
        let known = needed.len();
        ledger.grant(
            token,
            &mut |completion| match completion.point().stream == *timeline {
                true => *own += 1,
                false => push(needed, completion),
            },
        );
        if needed.len() > known {
            self.sift(known);
        }
        Ok(())
    }

    /// Keeps those from a place in the list on that are needed.
    #[cold]
    fn sift(&mut self, known: usize) {
        let new: Predecessors = self.needed.drain(known..).collect();
        new.iter().for_each(|completion| self.add_other(completion));
    }

    /// Takes the token of a ledger that is not at home here.
    fn visit(&mut self, ledger: &Homed<Ledger>, token: Token) -> Result<(), Refused> {
        let Some(mut visited) = self.standing.visit(ledger) else {
            return Err(Refused::Elsewhere);
        };
        if visited.excludes(token.kind) {
            return Err(Refused::excluded(visited.excluding(token.kind)));
        }
        if faulty(Fault::SplitGrant) {
            drop(visited);
            visited = match self.standing.visit(ledger) {
                Some(again) => again,
                None => return Err(Refused::Elsewhere),
            };
        }
        visited.grant(token, &mut |completion| self.add(completion));
        // Who holds an access finds the ledger where it began, or at home on its own stream.
        let split = faulty(Fault::SplitGrant) || faulty(Fault::SplitEnd);
        let alone = visited.held() == 1 && !split;
        self.standing.settle(visited, alone);
        Ok(())
    }

    fn begin_carve(&mut self, carve: &CarveDomain, token: Token) -> Result<(), Refused> {
        carve
            .begin(token.kind, token.holder, &mut |completion| {
                self.add(completion);
            })
            .map_err(Refused::excluded)
    }

    #[cold]
    fn begin_captured(&mut self, domain: &Domain, token: Token) -> Result<(), Refused> {
        let session = current_session().expect("the stream's lock has just named it");
        let token = named(token, self.standing.stream());
        let begun = session.with_attachment(|set: &mut AccessSet| {
            set.begin(domain, token, &mut |completion| self.add(completion))
        });
        begun.map_err(Refused::excluded)
    }

    #[inline(always)]
    fn is_nothing(&self) -> bool {
        self.failed.is_none() && self.needed.is_empty()
    }

    fn wait(self) -> Result<(), Box<BufferError>> {
        match self.failed {
            None => self.standing.wait_for_needed(&self.needed).map_err(boxed),
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
        let mut ending = Ending::of(self.stream, self.timeline);
        begun.for_each(|(domain, kind)| {
            end(&mut ending, domain, kind, self.holder(), self.stream);
        });
        ending.finish();
    }

    /// Records a completion of the accesses' one operation and ends them, or ends them after the operation failed.
    pub(crate) fn end(
        &self,
        accesses: &[(&Domain, AccessKind)],
        queued: RuntimeResult<()>,
    ) -> RuntimeResult<()> {
        let mut ending = Ending::of(self.stream, self.timeline);
        let result = match queued {
            Ok(()) => ending.record(self.stream, accesses.len()),
            Err(error) => {
                ending.fail();
                Err(error)
            }
        };
        for &(domain, kind) in accesses {
            end(&mut ending, domain, kind, self.holder(), self.stream);
        }
        ending.finish();
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
        let streams = ManuallyDrop::new(self.stream.clones(count));
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
#[inline(always)]
fn end(
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
fn named(mut token: Token, stream: StreamId) -> Token {
    token.holder.stream = Some(stream);
    token
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

    #[inline(always)]
    fn holder(&self) -> Holder {
        Holder {
            stream: Some(self.timeline),
            since: self.since,
        }
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
        ending: &mut Ending<'_>,
    ) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        for domain in domains {
            end(ending, domain, kind, self.holder(), &stream);
        }
        ending.spent.stream(stream);
    }

    /// Records a completion at the stream's tail and ends the access of each of `domains` with it.
    pub(crate) fn release<'d>(
        &mut self,
        kind: AccessKind,
        domains: impl ExactSizeIterator<Item = &'d Domain>,
    ) -> RuntimeResult<()> {
        let Some(stream) = &self.stream else {
            return Ok(());
        };
        let mut ending = Ending::of(stream, self.timeline);
        let result = ending.record(stream, domains.len());
        for domain in domains {
            end(&mut ending, domain, kind, self.holder(), stream);
        }
        ending.finish();
        // From here on nothing ends a second time, whatever the end of what is spent does, or that of the lease.
        let spent = std::mem::take(&mut ending.spent);
        drop(ending);
        let stream = self.stream.take();
        drop((spent, stream));
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
        let _site = CallSite::enter();
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
        // The clone outlives the lock.
        let stream = self.hold.stream().clone();
        let mut ending = Ending::of(&stream, self.hold.timeline);
        self.end(&mut ending);
        ending.finish();
    }

    /// Ends the access with what a record returned, which others may share.
    #[inline(always)]
    pub(crate) fn end(&mut self, ending: &mut Ending<'_>) {
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
