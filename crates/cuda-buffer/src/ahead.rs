//! How accesses on a stream begin: their tokens, and what the stream has to come after.

use crate::arena::CarveDomain;
use crate::capture::AccessSet;
use crate::domain::Domain;
use crate::ending::named;
use crate::guard::Acquired;
use crate::ledger::{AccessKind, Holder, Ledger, Predecessors, Token};
use crate::primitive::{Fault, faulty};
use crate::{AccessError, BufferError};
use cuda_runtime::{Completion, Homed, OnUnwind, Standing, Stream, StreamId, current_session};
use std::mem;
use std::panic::Location;

/// Takes the tokens and orders the stream; the timeline that the accesses are ordered on.
///
/// In a capture the tokens are of the capture's own ledgers: the domains' are untouched. Errors are large, and are rarely
/// there to be handed on.
#[inline(always)]
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
            ahead.leave();
            return Ok(timeline);
        }
        let called_off = OnUnwind::new(|| acquired.call_off(wanted.clone()));
        let waited = ahead.wait();
        called_off.disarm();
        return match waited {
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
            return self.visit(ledger, token.kind, token.holder.since);
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
    ///
    /// The token comes in parts: as a whole it would be read right after it was written, which takes longer than the lock.
    fn visit(
        &mut self,
        ledger: &Homed<Ledger>,
        kind: AccessKind,
        since: &'static Location<'static>,
    ) -> Result<(), Refused> {
        let stream = Some(self.timeline);
        let holder = Holder { stream, since };
        let token = Token { kind, holder };
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

    /// Gives the stream's lock back, when there is nothing to wait for.
    #[inline(always)]
    fn leave(self) {
        let Self {
            standing, needed, ..
        } = self;
        // Empty lists need no end.
        mem::forget(needed);
        drop(standing);
    }

    fn wait(self) -> Result<(), Box<BufferError>> {
        match self.failed {
            None => self.standing.wait_for_needed(&self.needed).map_err(boxed),
            Some(error) => Err(error),
        }
    }
}
