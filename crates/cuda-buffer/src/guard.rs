//! The untyped guard under every access on a stream: token, stream, and where its completion goes.

use crate::capture::AccessSet;
use crate::domain::Domain;
use crate::ledger::{AccessKind, Predecessors, Token};
use crate::{AccessError, BufferResult};
use cuda_runtime::{Completion, RuntimeResult, Stream, StreamId, current_session};
use std::panic::Location;

/// A live access of a domain, ordered on a stream. Its drop publishes the completion of the stream's tail.
#[derive(Debug)]
pub struct Guard {
    domain: Domain,
    stream: Stream,
    timeline: StreamId,
    token: Token,
    /// The capture that the access belongs to.
    session: Option<u64>,
    released: bool,
}

/// Takes the token of an access; what must come first is the second part.
///
/// In a capture the token is of the capture's own ledger: the domain's is untouched.
fn begin(
    domain: &Domain,
    kind: AccessKind,
    stream: &Stream,
    since: &'static Location<'static>,
) -> BufferResult<(Guard, Predecessors)> {
    // Before the token, which a poisoned device would keep: then the first error is what every call returns.
    stream.device().check_poison()?;
    let (session, timeline, (token, predecessors)) = match stream.session()? {
        // The stream's own timeline, whatever another thread may have begun to capture on it since.
        None => (
            None,
            stream.id(),
            domain.begin(kind, Some(stream.id()), since)?,
        ),
        Some(session) => {
            let begun: Result<_, AccessError> = session
                .with_attachment(|set: &mut AccessSet| set.begin(domain, kind, stream.id(), since));
            (Some(session.number()), stream.timeline(), begun?)
        }
    };
    let guard = Guard {
        domain: domain.clone(),
        stream: stream.clone(),
        timeline,
        token,
        session,
        released: false,
    };
    Ok((guard, predecessors))
}

/// A completion at the stream's tail, for accesses of the capture of this number, or of none: these end outside
/// captures also when the stream has begun to capture since, and everything queued under them came before.
pub(crate) fn record(stream: &Stream, session: Option<u64>) -> RuntimeResult<Option<Completion>> {
    match session {
        None => stream.record_eager(),
        Some(_) => stream.record().map(Some),
    }
}

impl Guard {
    /// One access. When a wait fails, the token is back and nothing was exposed.
    pub(crate) fn acquire(
        domain: &Domain,
        kind: AccessKind,
        stream: &Stream,
        since: &'static Location<'static>,
    ) -> BufferResult<Self> {
        let (guard, predecessors) = begin(domain, kind, stream, since)?;
        if let Err(error) = stream.wait_for_all(&predecessors) {
            guard.cancel();
            return Err(error.into());
        }
        Ok(guard)
    }

    /// Several accesses, all or none. Tokens are taken in order of the domains' identity, so that of two threads
    /// that want the same ones, one gets all.
    pub(crate) fn acquire_all<const N: usize>(
        wanted: [(&Domain, AccessKind); N],
        stream: &Stream,
        since: &'static Location<'static>,
    ) -> BufferResult<[Self; N]> {
        let mut order: [usize; N] = std::array::from_fn(|i| i);
        order.sort_unstable_by_key(|&i| wanted[i].0.id());
        let mut begun: [Option<(Self, Predecessors)>; N] = [const { None }; N];
        let result = order.into_iter().try_for_each(|i| {
            let (domain, kind) = wanted[i];
            begun[i] = Some(begin(domain, kind, stream, since)?);
            Ok(())
        });
        let result = result.and_then(|()| {
            stream.wait_for_all(begun.iter().flatten().flat_map(|(_, first)| first))?;
            Ok(())
        });
        if let Err(error) = result {
            for (guard, _) in begun.into_iter().flatten() {
                guard.cancel();
            }
            return Err(error);
        }
        Ok(begun.map(|guard| guard.expect("each was begun").0))
    }

    /// As [`acquire_all`](Self::acquire_all), for any number of accesses.
    pub(crate) fn acquire_each<'d>(
        wanted: impl IntoIterator<Item = (&'d Domain, AccessKind)>,
        stream: &Stream,
        since: &'static Location<'static>,
    ) -> BufferResult<Vec<Self>> {
        let mut wanted: Vec<_> = wanted.into_iter().enumerate().collect();
        wanted.sort_by_key(|(_, (domain, _))| domain.id());
        let mut begun = Vec::with_capacity(wanted.len());
        let result = wanted.into_iter().try_for_each(|(at, (domain, kind))| {
            let (guard, predecessors) = begin(domain, kind, stream, since)?;
            begun.push((at, guard, predecessors));
            Ok(())
        });
        let result = result.and_then(|()| {
            stream.wait_for_all(begun.iter().flat_map(|(_, _, first)| first))?;
            Ok(())
        });
        if let Err(error) = result {
            for (_, guard, _) in begun {
                guard.cancel();
            }
            return Err(error);
        }
        begun.sort_unstable_by_key(|(at, ..)| *at);
        Ok(begun.into_iter().map(|(_, guard, _)| guard).collect())
    }

    /// Ends accesses on `stream` with one completion for all of them.
    pub(crate) fn release_all(mut guards: Vec<Self>, stream: &Stream) -> RuntimeResult<()> {
        let Some(first) = guards.first() else {
            return Ok(());
        };
        match record(stream, first.session) {
            Ok(done) => {
                for guard in guards {
                    guard.publish(done.clone());
                }
                Ok(())
            }
            Err(error) => {
                guards.iter_mut().for_each(Self::fail);
                Err(error)
            }
        }
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

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

    /// Gives the token back without a completion: no work was queued under it.
    pub(crate) fn cancel(mut self) {
        self.end(None);
    }

    /// Publishes `done` and gives the token back, in one step.
    pub(crate) fn publish(mut self, done: Option<Completion>) {
        self.end(done);
    }

    /// Records a completion at the stream's tail, publishes it and gives the token back.
    ///
    /// When the record fails, the stream was synchronised, so there is nothing to publish; when that failed too, the
    /// device is poisoned and the token is kept for ever, so that the memory is never reused.
    pub(crate) fn release(mut self) -> RuntimeResult<()> {
        self.release_in_place()
    }

    fn release_in_place(&mut self) -> RuntimeResult<()> {
        match record(&self.stream, self.session) {
            Ok(done) => {
                self.end(done);
                Ok(())
            }
            Err(error) => {
                self.fail();
                Err(error)
            }
        }
    }

    /// Ends the access after its record failed. What a poisoned device does, that of the stream or of the memory, may go
    /// on for ever: then the token is kept.
    pub(crate) fn fail(&mut self) {
        let poisoned = self.stream.device().is_poisoned() || self.domain.device().is_poisoned();
        if self.session.is_none() && poisoned {
            self.released = true;
        } else {
            self.end(None);
        }
    }

    fn end(&mut self, done: Option<Completion>) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        match self.session {
            None => self.domain.end(self.token, done),
            Some(number) => {
                // A capture that is over took its access set with it.
                if let Some(session) = current_session()
                    && session.number() == number
                {
                    let id = self.domain.id();
                    session.with_attachment(|set: &mut AccessSet| set.end(id, self.token, done));
                }
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        let ended_capture = self.session.is_some()
            && current_session().map(|session| session.number()) != self.session;
        if ended_capture {
            return;
        }
        if let Err(error) = self.release_in_place() {
            self.domain.device().park(error);
        }
    }
}
