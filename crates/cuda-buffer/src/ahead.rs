//! How accesses on a stream begin: their tokens, and what the stream has to come after.

use crate::arena::CarveDomain;
use crate::capture::AccessSet;
use crate::domain::Domain;
use crate::ending::named;
use crate::guard::Acquired;
use crate::ledger::{AccessKind, Holder, Ledger, Predecessors, Token};
use crate::lent::Lent;
use crate::primitive::{Fault, faulty};
use crate::{AccessError, BufferError};
use cuda_runtime::{
    Ahead as Later, Completion, Homed, OnUnwind, Standing, Stream, StreamId, current_session,
};
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::cell::Cell;
use std::mem;
use std::panic::Location;

/// Takes the tokens and orders the stream; the timeline that the accesses are ordered on.
#[inline(always)]
pub(crate) fn order<'d>(
    wanted: impl Iterator<Item = (&'d Domain, AccessKind)> + Clone,
    stream: &Stream,
    since: &'static Location<'static>,
) -> Result<StreamId, Box<BufferError>> {
    let call_off = |acquired: Acquired<'_>| acquired.call_off(wanted.clone());
    ordered(wanted.clone(), stream, since, call_off, |_, acquired| {
        acquired.timeline()
    })
}

/// Takes the tokens, orders the stream, and does something more under its lock. When that, or a wait, unwinds, the tokens are called off by
/// `call_off`; a wait that fails calls them off as well.
///
/// In a capture the tokens are of the capture's own ledgers: the domains' are untouched. Errors are large, and are rarely
/// there to be handed on.
#[inline(always)]
pub(crate) fn ordered<'d, 's, R>(
    wanted: impl Iterator<Item = (&'d Domain, AccessKind)> + Clone,
    stream: &'s Stream,
    since: &'static Location<'static>,
    call_off: impl Fn(Acquired<'s>),
    then: impl FnOnce(&mut Standing<'_>, Acquired<'s>) -> R,
) -> Result<R, Box<BufferError>> {
    // Before any token, which a poisoned device would keep: then the first error is what every call returns.
    stream.device().check_poison().map_err(boxed)?;
    // All tokens, once they are there. This comes before whatever holds a lock, to drop after it.
    let granted = Cell::new(None::<Acquired<'s>>);
    let called_off = OnUnwind::new(|| {
        if let Some(acquired) = granted.take() {
            call_off(acquired);
        }
    });
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
            found: Found {
                own: 0,
                needed: SmallVec::new(),
                failed: None,
            },
            kept: Predecessors::new(),
        };
        let acquired = Acquired::new(stream, timeline, since);
        for (begun, (domain, kind)) in wanted.clone().enumerate() {
            let holder = acquired.holder();
            let token = Token { kind, holder };
            let begin = match domain {
                _ if captured => ahead.begin_captured(domain, token),
                Domain::Owned(owned) => ahead.begin(&owned.ledger, token),
                Domain::Carve(carve) => ahead.begin_carve(carve, token),
            };
            let Err(refused) = begin else {
                continue;
            };
            drop(ahead);
            acquired.call_off(wanted.clone().take(begun));
            match refused {
                Refused::Excluded(error) => return Err(boxed(*error)),
                Refused::Elsewhere => continue 'visits,
            }
        }
        ahead.standing.count_own(ahead.found.own);
        granted.set(Some(acquired));
        if !ahead.found.is_nothing() {
            ahead.wait()?;
            // What the tokens keep may go with them from here on.
            ahead.found.needed.clear();
        }
        let done = then(&mut ahead.standing, acquired);
        ahead.leave();
        called_off.disarm();
        return Ok(done);
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
    found: Found,
    /// Completions whose ledgers may go before the accesses end.
    kept: Predecessors,
}

/// What ledgers say.
struct Found {
    /// Number of completions of the timeline itself.
    own: u64,
    /// What has to be waited for, while the tokens are held: the ledgers keep it until then.
    needed: SmallVec<[Lent; 4]>,
    failed: Option<Box<BufferError>>,
}

impl Found {
    #[inline(always)]
    fn is_nothing(&self) -> bool {
        self.failed.is_none() && self.needed.is_empty()
    }

    /// Notes a completion of another timeline.
    ///
    /// # Safety
    /// A counted handle of it is kept until this goes.
    #[inline(never)]
    unsafe fn add(&mut self, completion: &Completion, mut ahead: Later<'_>) {
        match ahead.needs(completion) {
            Ok(false) => {}
            Ok(true) => {
                // Values that were written together share their completion.
                let last = self.needed.last().map(Borrow::borrow);
                if last.is_none_or(|last: &Completion| last.point() != completion.point()) {
                    // SAFETY: the caller's promise.
                    self.needed.push(unsafe { Lent::of(completion) });
                }
            }
            Err(error) => self.failed = Some(boxed(error)),
        }
    }
}

/// Why an access did not begin.
enum Refused {
    Excluded(Box<AccessError>),
    /// The ledger has become at home on another stream, whose lock can't be taken now.
    Elsewhere,
}

/// Hands out a token of a ledger, whose lock is held, and notes what must come first.
#[inline(always)]
fn grant(
    ledger: &mut Ledger,
    token: Token,
    timeline: StreamId,
    found: &mut Found,
    mut ahead: Later<'_>,
) -> Result<(), Refused> {
    if ledger.excludes(token.kind) {
        return Err(Refused::excluded(ledger.excluding(token.kind)));
    }
    let mut note = |completion: &Completion| match completion.point().stream == timeline {
        true => found.own += 1,
        // SAFETY: with the token out, the ledger keeps what is shown here: while it is read, nobody replaces the latest write, and while
        // it is written, nothing is replaced at all. The list goes before the token does.
        false => unsafe { found.add(completion, ahead.reborrow()) },
    };
    ledger.grant(token, &mut note);
    Ok(())
}

impl Refused {
    #[cold]
    fn excluded(error: AccessError) -> Self {
        Self::Excluded(Box::new(error))
    }
}

impl Ahead<'_> {
    /// Notes a completion of a ledger that may go before the accesses end.
    fn keep(&mut self, completion: &Completion) {
        // Mostly it is the stream itself that comes first.
        if completion.point().stream == self.timeline {
            self.found.own += 1;
            return;
        }
        let known = self.found.needed.len();
        // SAFETY: it is the ledger's now, and if it is noted a clone is kept from then on, for as long as the list.
        unsafe { self.found.add(completion, self.standing.ahead()) };
        if self.found.needed.len() > known {
            self.kept.push(completion.clone());
        }
    }

    /// Takes a token, and notes what must come first.
    #[inline(always)]
    fn begin(&mut self, ledger: &Homed<Ledger>, token: Token) -> Result<(), Refused> {
        let (found, timeline) = (&mut self.found, self.timeline);
        match self.standing.at_home(ledger) {
            Some((ledger, ahead)) => grant(ledger, token, timeline, found, ahead),
            None => self.visit(ledger, token.kind, token.holder.since),
        }
    }

    /// Takes the token of a ledger that is not at home here.
    ///
    /// The token comes in parts: as a whole it would be read right after it was written, which takes longer than the lock.
    #[inline(never)]
    fn visit(
        &mut self,
        ledger: &Homed<Ledger>,
        kind: AccessKind,
        since: &'static Location<'static>,
    ) -> Result<(), Refused> {
        let Self {
            standing,
            timeline,
            found,
            ..
        } = self;
        let stream = Some(*timeline);
        let holder = Holder { stream, since };
        let token = Token { kind, holder };
        let Some(mut visited) = standing.visit(ledger) else {
            return Err(Refused::Elsewhere);
        };
        if faulty(Fault::SplitGrant) {
            if visited.excludes(kind) {
                return Err(Refused::excluded(visited.excluding(kind)));
            }
            drop(visited);
            visited = standing
                .visit(ledger)
                .expect("nothing settles with this fault");
            visited.grant(token, &mut |_| ());
            return Ok(());
        }
        grant(&mut visited, token, *timeline, found, standing.ahead())?;
        // Who holds an access finds the ledger where it began, or at home on its own stream.
        let alone = visited.held() == 1 && !faulty(Fault::SplitEnd);
        standing.settle(visited, alone);
        Ok(())
    }

    fn begin_carve(&mut self, carve: &CarveDomain, token: Token) -> Result<(), Refused> {
        carve
            .begin(token.kind, token.holder, &mut |completion| {
                self.keep(completion);
            })
            .map_err(Refused::excluded)
    }

    #[cold]
    fn begin_captured(&mut self, domain: &Domain, token: Token) -> Result<(), Refused> {
        let session = current_session().expect("the stream's lock has just named it");
        let token = named(token, self.standing.stream());
        let begun = session.with_attachment(|set: &mut AccessSet| {
            set.begin(domain, token, &mut |completion| self.keep(completion))
        });
        begun.map_err(Refused::excluded)
    }

    /// Gives the stream's lock back.
    #[inline(always)]
    fn leave(self) {
        let Self {
            standing,
            found,
            kept,
            ..
        } = self;
        // Before what is kept goes: that may be the last handle of a completion.
        drop(standing);
        match found.needed.spilled() || !kept.is_empty() {
            true => drop((found, kept)),
            // Nearly always there is nothing to give up, and looking for it takes a while.
            false => mem::forget((found, kept)),
        }
    }

    #[inline]
    fn wait(&mut self) -> Result<(), Box<BufferError>> {
        match self.found.failed.take() {
            None => match self.standing.come_after(&self.found.needed) {
                Ok(()) => Ok(()),
                Err(error) => Err(boxed(error)),
            },
            Some(error) => Err(error),
        }
    }
}
