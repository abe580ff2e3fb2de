//! Captured steps: the accesses of a capture, and graphs that launch through the ledger.

use crate::domain::{Domain, DomainId};
use crate::ledger::{AccessKind, Ledger, Predecessors, Token};
use crate::{AccessError, BufferError, BufferResult};
use cuda_driver::{CallSite, CaptureMode};
use cuda_runtime::{Capture, Completion, Device, Stream, StreamId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::panic::Location;

/// What a capture has accessed, with a ledger of its own for each value.
#[derive(Debug, Default)]
pub(crate) struct AccessSet {
    entries: Vec<Entry>,
    by_id: HashMap<DomainId, usize>,
}

#[derive(Debug)]
struct Entry {
    domain: Domain,
    ledger: Ledger,
    kind: AccessKind,
}

impl AccessSet {
    pub(crate) fn begin(
        &mut self,
        domain: &Domain,
        kind: AccessKind,
        stream: StreamId,
        since: &'static Location<'static>,
    ) -> Result<(Token, Predecessors), AccessError> {
        let at = match self.by_id.get(&domain.id()) {
            Some(&at) => at,
            None => {
                let before = self.uses_of_same_bytes(domain)?;
                self.entries.push(Entry {
                    domain: domain.clone(),
                    ledger: Ledger::after(before),
                    kind,
                });
                let at = self.entries.len() - 1;
                self.by_id.insert(domain.id(), at);
                at
            }
        };
        let entry = &mut self.entries[at];
        let begun = entry.ledger.begin(kind, Some(stream), since)?;
        entry.kind = entry.kind.max(kind);
        Ok(begun)
    }

    pub(crate) fn end(&mut self, id: DomainId, token: Token, done: Option<Completion>) {
        if let Some(&at) = self.by_id.get(&id) {
            self.entries[at].ledger.end(token, done);
        }
    }

    /// What earlier carves of the same arena bytes leave to wait for, in this capture.
    fn uses_of_same_bytes(&self, domain: &Domain) -> Result<Vec<Completion>, AccessError> {
        let Domain::Carve(carve) = domain else {
            return Ok(Vec::new());
        };
        let mut before = Vec::new();
        for entry in &self.entries {
            if let Domain::Carve(earlier) = &entry.domain
                && earlier.overlaps(carve)
            {
                entry.ledger.check(AccessKind::Write)?;
                before.extend(entry.ledger.outstanding());
            }
        }
        Ok(before)
    }

    fn guards(&self) -> usize {
        self.entries.iter().map(|entry| entry.ledger.held()).sum()
    }
}

/// Capturing a step on a stream.
pub trait CaptureStep {
    /// Captures what `step` queues on this stream, and on streams that it joins to the [`Capture`], as a [`Graph`].
    ///
    /// Nothing runs. Accesses inside order themselves among each other only; launching the graph orders all of it
    /// with everything else, like any other operation. The step must have run once outside a capture before, so
    /// that its kernels are loaded.
    ///
    /// # Errors
    /// The error of `step`; the first operation that failed inside; [`BufferError::GuardsAlive`]; the driver's own.
    /// The stream is usable in each case.
    fn capture<E: From<BufferError>>(
        &self,
        step: impl FnOnce(&Capture) -> Result<(), E>,
    ) -> Result<Graph, E>;
}

impl CaptureStep for Stream {
    #[track_caller]
    fn capture<E: From<BufferError>>(
        &self,
        step: impl FnOnce(&Capture) -> Result<(), E>,
    ) -> Result<Graph, E> {
        let _site = CallSite::enter();
        let capture =
            Capture::begin(self, CaptureMode::ThreadLocal).map_err(BufferError::Runtime)?;
        // Dropping the capture on an early return discards it.
        step(&capture)?;
        Ok(end(capture)?)
    }
}

fn end(capture: Capture) -> BufferResult<Graph> {
    let guards = capture
        .session()
        .with_attachment(|set: &mut AccessSet| set.guards());
    if guards > 0 {
        return Err(BufferError::GuardsAlive { guards });
    }
    let (graph, set): (_, AccessSet) = capture.end()?.into_parts();
    let mut accesses: Vec<_> = set
        .entries
        .into_iter()
        .map(|entry| GraphAccess {
            domain: entry.domain,
            kind: entry.kind,
        })
        .collect();
    accesses.sort_unstable_by_key(|access| access.domain.id());
    let held = Vec::with_capacity(accesses.len());
    Ok(Graph {
        launching: Mutex::new(held),
        accesses,
        graph,
    })
}

#[derive(Debug)]
struct GraphAccess {
    domain: Domain,
    kind: AccessKind,
}

/// A live access of a replay: the position among the graph's accesses, and the token.
#[derive(Debug)]
enum Held {
    Token(Token),
    /// Bytes of an arena whose carve is over.
    Bytes,
}

/// A captured step. It owns what it accesses: launching it is one more operation in the ledger.
///
/// ```
/// use cuda_buffer::{CaptureStep, CudaBuffer, DeviceData};
/// use cuda_runtime::Runtime;
///
/// # fn main() -> cuda_buffer::BufferResult<()> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let stream = device.streams().acquire()?;
/// let (mut x, mut y) = (CudaBuffer::<u8>::new(device, 4)?, CudaBuffer::new(device, 4)?);
///
/// let graph = stream.capture(|_| y.copy_from(&x, &stream))?;
/// x.copy_from_slice(&[1, 2, 3, 4])?;
/// graph.launch(&stream)?; // ordered after the transfer by x's ledger
/// assert_eq!(y.to_vec()?, [1, 2, 3, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Graph {
    /// Dropped first, before what its nodes touch.
    graph: cuda_runtime::Graph,
    /// In order of identity.
    accesses: Vec<GraphAccess>,
    /// One launch at a time: what it holds, kept to save an allocation per launch.
    launching: Mutex<Vec<(Held, Predecessors)>>,
}

impl Graph {
    /// The device that the graph was captured on.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.graph.device()
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    /// Number of values that a replay accesses.
    #[must_use]
    pub fn accesses(&self) -> usize {
        self.accesses.len()
    }

    /// Queues one replay on `stream`, ordered with every other use of what it accesses.
    ///
    /// # Errors
    /// [`BufferError::Access`] when a guard is alive that excludes the replay, [`BufferError::ArenaInUse`] when an eager
    /// carve is alive where the graph uses arena bytes; the driver's own. Nothing is queued then, and all tokens
    /// are back.
    #[track_caller]
    pub fn launch(&self, stream: &Stream) -> BufferResult<()> {
        let _site = CallSite::enter();
        let since = CallSite::current().unwrap_or_else(Location::caller);
        cuda_runtime::refuse_in_capture("launching a graph")?;
        stream.check_device(self.device())?;
        let mut held = self.launching.lock();
        let begun = self.accesses.iter().try_for_each(|access| {
            held.push(access.begin(stream.id(), since)?);
            Ok(())
        });
        let launched = begun.and_then(|()| {
            for predecessor in held.iter().flat_map(|(_, first)| first) {
                stream.wait_for(predecessor)?;
            }
            // SAFETY: `accesses` are the values that the nodes touch; this graph keeps them alive, the stream is
            // ordered after everything that their ledgers name, and the tokens exclude others until the replay's
            // completion is published.
            unsafe { self.graph.launch_unordered(stream)? };
            Ok(())
        });
        let result = launched.map(|()| stream.record());
        let poisoned = self.device().is_poisoned();
        let (done, result) = match result {
            Ok(Ok(done)) => (Some(done), Ok(())),
            Ok(Err(error)) => (None, Err(error.into())),
            Err(error) => (None, Err(error)),
        };
        for (access, (token, _)) in self.accesses.iter().zip(held.drain(..)) {
            match poisoned {
                false => access.end(token, done.clone()),
                true => access.abandon(&token),
            }
        }
        result
    }
}

impl GraphAccess {
    fn begin(
        &self,
        stream: StreamId,
        since: &'static Location<'static>,
    ) -> BufferResult<(Held, Predecessors)> {
        if let Domain::Carve(carve) = &self.domain
            && let Some(before) = carve.begin_bytes()?
        {
            return Ok((Held::Bytes, before));
        }
        let (token, before) = self.domain.begin(self.kind, Some(stream), since)?;
        Ok((Held::Token(token), before))
    }

    fn end(&self, held: Held, done: Option<Completion>) {
        match (held, &self.domain) {
            (Held::Token(token), domain) => domain.end(token, done),
            (Held::Bytes, Domain::Carve(carve)) => carve.end_bytes(done),
            (Held::Bytes, Domain::Owned(_)) => unreachable!("only arenas have bytes"),
        }
    }

    /// On a poisoned device the replay may go on for ever: its tokens stay, and the memory is never reused.
    fn abandon(&self, held: &Held) {
        if let (Held::Bytes, Domain::Carve(carve)) = (held, &self.domain) {
            carve.abandon_bytes();
        }
    }
}
