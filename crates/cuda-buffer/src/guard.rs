//! The untyped guard under every access on a stream: who holds what, on which stream, and how that ends.
//!
//! This is what every operation of a program goes through. Guards are small and their parts are handed on one by one: what is
//! copied as a whole a moment after it was written costs more than the locks.

use crate::ahead::order;
use crate::domain::Domain;
use crate::ending::{Ending, end, session_of};
use crate::ledger::{AccessKind, Holder};
use crate::{BufferError, BufferResult};
use cuda_driver::CallSite;
use cuda_runtime::{RuntimeResult, Stream, StreamId, Streams};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};

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

/// Acquires several accesses on `stream`, all or none. `wanted` is in order of the domains' identity, so that of two
/// threads that want the same ones, one gets all.
#[inline(always)]
pub(crate) fn acquire<'s>(
    wanted: &[(&Domain, AccessKind)],
    stream: &'s Stream,
    since: &'static Location<'static>,
) -> BufferResult<Acquired<'s>> {
    match order_listed(wanted, stream, since) {
        Ok(timeline) => Ok(Acquired::new(stream, timeline, since)),
        Err(error) => Err(*error),
    }
}

#[inline(never)]
fn order_listed(
    wanted: &[(&Domain, AccessKind)],
    stream: &Stream,
    since: &'static Location<'static>,
) -> Result<StreamId, Box<BufferError>> {
    order(wanted.iter().copied(), stream, since)
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

    #[inline]
    pub(crate) fn stream(&self) -> &'s Stream {
        self.stream
    }

    #[inline(always)]
    pub(crate) fn timeline(&self) -> StreamId {
        self.timeline
    }

    #[inline(always)]
    pub(crate) fn holder(&self) -> Holder {
        Holder {
            stream: Some(self.timeline),
            since: self.since,
        }
    }

    /// Gives tokens back under which nothing was exposed.
    #[cold]
    pub(crate) fn call_off<'d>(&self, begun: impl Iterator<Item = (&'d Domain, AccessKind)>) {
        let mut ending = Ending::of(self.stream, self.timeline);
        begun.for_each(|(domain, kind)| {
            end(&mut ending, domain, kind, self.holder(), self.stream);
        });
        ending.finish();
    }

    /// Records a completion of the accesses' one operation and ends them, or ends them after the operation failed. Until `recorded`
    /// is called, or if that unwinds, none has ended.
    pub(crate) fn end(
        &self,
        accesses: &[(&Domain, AccessKind)],
        queued: RuntimeResult<()>,
        recorded: impl FnOnce(),
    ) -> RuntimeResult<()> {
        let mut ending = Ending::of(self.stream, self.timeline);
        let result = match queued {
            Ok(()) => ending.record(self.stream, accesses.len()),
            Err(error) => {
                ending.fail();
                Err(error)
            }
        };
        recorded();
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

    /// As [`release`](Self::release), for destructors: unless the access has ended. When the record unwinds, which a driver may do
    /// before it has had any effect, it is made again, as nobody else could give the token back.
    #[cold]
    pub(crate) fn release_in_drop<'d>(
        &mut self,
        kind: AccessKind,
        domains: impl ExactSizeIterator<Item = &'d Domain> + Clone,
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
        let mut release = || {
            if let Err(error) = self.release(kind, domains.clone()) {
                device.park(error);
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(&mut release)) {
            release();
            // Two at a time would end the process.
            if !std::thread::panicking() {
                resume_unwind(panic);
            }
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
