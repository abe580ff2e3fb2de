//! Captured steps: the accesses of a capture, and graphs that launch through the ledger.

use crate::arena::ArenaShared;
use crate::captured_launch::Noted;
use crate::domain::{Domain, DomainId};
use crate::ledger::{AccessKind, Holder, Ledger, Predecessors, Token};
use crate::primitive::{Fault, Mutex, MutexGuard, faulty};
use crate::{AccessError, BufferError, BufferResult, OperandName};
use cuda_driver::{CallSite, CaptureMode, GraphUpdate};
use cuda_runtime::{Capture, Completion, Device, Handles, Spent, Stream};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

/// What a capture has accessed, with a ledger of its own for each value.
#[derive(Debug, Default)]
pub(crate) struct AccessSet {
    entries: Vec<Entry>,
    by_id: HashMap<DomainId, usize>,
    /// Launches whose values can be changed.
    pub(crate) launches: Vec<Noted>,
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
        token: Token,
        before: &mut impl FnMut(&Completion),
    ) -> Result<(), AccessError> {
        let at = match self.by_id.get(&domain.id()) {
            Some(&at) => at,
            None => {
                let earlier = self.uses_of_same_bytes(domain)?;
                self.entries.push(Entry {
                    domain: domain.clone(),
                    ledger: Ledger::after(earlier),
                    kind: token.kind,
                });
                let at = self.entries.len() - 1;
                self.by_id.insert(domain.id(), at);
                at
            }
        };
        let entry = &mut self.entries[at];
        entry.ledger.begin(token, before)?;
        entry.kind = entry.kind.max(token.kind);
        Ok(())
    }

    pub(crate) fn end(
        &mut self,
        id: DomainId,
        token: Token,
        done: Option<Completion>,
        spent: &mut Spent,
    ) {
        if let Some(&at) = self.by_id.get(&id) {
            self.entries[at].ledger.end(token, done, spent);
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

    /// What a replay accesses, in order of identity, and the arenas it lies in, in order of address.
    fn into_accesses(self) -> (Vec<GraphAccess>, Vec<Arc<ArenaShared>>) {
        let mut accesses: Vec<_> = self
            .entries
            .into_iter()
            .map(|entry| GraphAccess {
                domain: entry.domain,
                kind: entry.kind,
            })
            .collect();
        accesses.sort_unstable_by_key(|access| access.domain.id());
        let arena_of = |access: &GraphAccess| match &access.domain {
            Domain::Owned(_) => None,
            Domain::Carve(carve) => Some(carve.shared().clone()),
        };
        let mut arenas: Vec<_> = accesses.iter().filter_map(arena_of).collect();
        arenas.sort_unstable_by_key(|arena| Arc::as_ptr(arena).addr());
        arenas.dedup_by(|a, b| Arc::ptr_eq(a, b));
        (accesses, arenas)
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
    /// that its modules are loaded.
    ///
    /// # Errors
    /// The error of `step`; the first operation that failed inside; [`BufferError::GuardsAlive`]; the driver's own.
    /// The stream is usable in each case.
    #[track_caller]
    fn capture<E: From<BufferError>>(
        &self,
        step: impl FnOnce(&Capture) -> Result<(), E>,
    ) -> Result<Graph, E> {
        self.capture_in(CaptureMode::ThreadLocal, step)
    }

    /// As [`capture`](Self::capture), in the given mode: with [`Global`](CaptureMode::Global), a call of other code that a capture
    /// forbids invalidates this one from any thread; with [`Relaxed`](CaptureMode::Relaxed), from none. What Carve refuses in a
    /// capture, it refuses in each mode.
    ///
    /// # Errors
    /// As there.
    fn capture_in<E: From<BufferError>>(
        &self,
        mode: CaptureMode,
        step: impl FnOnce(&Capture) -> Result<(), E>,
    ) -> Result<Graph, E>;

    /// Captures `step` and makes `graph` do that from its next launch on, in place of what it did. A
    /// step that differs in parameters only (other buffers, sizes, values) updates the executable graph, which is
    /// cheaper than a new one; where the driver can't, and for a step with a [`launch_captured`](crate::Launch::launch_captured), it is made anew, and
    /// the answer is `false`. Launches under way go on as they were.
    ///
    /// ```
    /// use cuda_buffer::{CaptureStep, CudaBuffer, DeviceData};
    /// use cuda_runtime::Runtime;
    ///
    /// # fn main() -> cuda_buffer::BufferResult<()> {
    /// let runtime = Runtime::builder().build()?;
    /// let device = runtime.default_device();
    /// let stream = device.streams().acquire()?;
    /// let (mut x, mut y) = (CudaBuffer::<u8>::new(device, 4)?, CudaBuffer::<u8>::new(device, 4)?);
    ///
    /// let mut graph = stream.capture(|_| x.fill(&stream, 1))?;
    /// graph.launch(&stream)?;
    /// let updated = stream.recapture(&mut graph, |_| y.fill(&stream, 2))?;
    /// assert!(updated);
    /// graph.launch(&stream)?;
    /// assert_eq!((x.to_vec()?, y.to_vec()?), (vec![1; 4], vec![2; 4]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`capture`](Self::capture); [`RuntimeError::WrongDevice`](cuda_runtime::RuntimeError::WrongDevice). Then the graph
    /// is as it was.
    fn recapture<E: From<BufferError>>(
        &self,
        graph: &mut Graph,
        step: impl FnOnce(&Capture) -> Result<(), E>,
    ) -> Result<bool, E>;
}

impl CaptureStep for Stream {
    #[track_caller]
    fn capture_in<E: From<BufferError>>(
        &self,
        mode: CaptureMode,
        step: impl FnOnce(&Capture) -> Result<(), E>,
    ) -> Result<Graph, E> {
        let site = Location::caller();
        let capture = captured(self, mode, step, site)?;
        let _site = CallSite::at(site);
        Ok(end(capture)?)
    }

    #[track_caller]
    fn recapture<E: From<BufferError>>(
        &self,
        graph: &mut Graph,
        step: impl FnOnce(&Capture) -> Result<(), E>,
    ) -> Result<bool, E> {
        let site = Location::caller();
        let capture = captured(self, CaptureMode::ThreadLocal, step, site)?;
        let _site = CallSite::at(site);
        Ok(end_into(capture, graph)?)
    }
}

/// A capture that has the step, still open.
fn captured<E: From<BufferError>>(
    stream: &Stream,
    mode: CaptureMode,
    step: impl FnOnce(&Capture) -> Result<(), E>,
    site: &'static Location<'static>,
) -> Result<Capture, E> {
    let begun = {
        let _site = CallSite::at(site);
        Capture::begin(stream, mode)
    };
    let capture = begun.map_err(BufferError::Runtime)?;
    // The step's operations have sites of their own. Dropping the capture on an early return discards it.
    step(&capture)?;
    Ok(capture)
}

/// Fails when a guard of the capture is alive.
fn check_guards(capture: &Capture) -> BufferResult<()> {
    let guards = capture
        .session()
        .with_attachment(|set: &mut AccessSet| set.guards());
    match guards {
        0 => Ok(()),
        guards => Err(BufferError::GuardsAlive { guards }),
    }
}

fn end(capture: Capture) -> BufferResult<Graph> {
    check_guards(&capture)?;
    let number = capture.session().number();
    let (graph, mut set): (_, AccessSet) = capture.end()?.into_parts();
    let launches = std::mem::take(&mut set.launches);
    let (accesses, arenas) = set.into_accesses();
    let launching = Launching {
        held: Vec::with_capacity(accesses.len()),
        before: Predecessors::with_capacity(2 * accesses.len()),
    };
    Ok(Graph {
        launching: Mutex::new(launching),
        arenas,
        accesses,
        graph,
        number,
        launches,
    })
}

fn end_into(capture: Capture, graph: &mut Graph) -> BufferResult<bool> {
    check_guards(&capture)?;
    let number = capture.session().number();
    let (update, mut set): (_, AccessSet) = capture.end_into(&mut graph.graph)?.into_parts();
    (graph.number, graph.launches) = (number, std::mem::take(&mut set.launches));
    // What replays under way touch is in the ledgers, which keep it until they are over.
    (graph.accesses, graph.arenas) = set.into_accesses();
    Ok(update == GraphUpdate::Updated)
}

#[derive(Debug)]
struct GraphAccess {
    domain: Domain,
    kind: AccessKind,
}

/// What a launch holds, kept to save allocations.
#[derive(Debug)]
struct Launching {
    /// The token of each access begun, or none for bytes of an arena whose carve is over.
    held: Vec<Option<Token>>,
    /// What the replay comes after.
    before: Predecessors,
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
    /// One launch at a time.
    launching: Mutex<Launching>,
    /// The arenas that the accesses lie in, in order of address.
    arenas: Vec<Arc<ArenaShared>>,
    /// The number of its capture, and the launches that this noted.
    number: u64,
    launches: Vec<Noted>,
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

    /// The number of the graph's capture, what the driver has of it, and the launches that were noted.
    pub(crate) fn launches(&mut self) -> (u64, &mut cuda_runtime::Graph, &mut [Noted]) {
        (self.number, &mut self.graph, &mut self.launches)
    }

    /// Queues one replay on `stream`, ordered with every other use of what it accesses.
    ///
    /// # Errors
    /// [`BufferError::Access`] when a guard is alive that excludes the replay, [`BufferError::ArenaInUse`] when an eager
    /// carve is alive where the graph uses arena bytes, [`BufferError::ArenaLost`] when a forgotten guard holds some of these; the driver's own. Nothing is queued then, and all tokens
    /// are back.
    #[track_caller]
    pub fn launch(&self, stream: &Stream) -> BufferResult<()> {
        let _site = CallSite::enter();
        let since = CallSite::current().unwrap_or_else(Location::caller);
        cuda_runtime::refuse_in_capture("launching a graph")?;
        stream
            .check_device(self.device())
            .map_err(BufferError::of_operand(OperandName::Graph))?;
        self.device().check_poison()?;
        let arenas = self.arenas.iter().filter(|_| !faulty(Fault::NoTurns));
        let mut launching = self.launching.lock();
        let _turns: SmallVec<[MutexGuard<'_, ()>; 2]> =
            arenas.map(|arena| arena.turn.lock()).collect();
        let mut replay = Replay {
            graph: self,
            stream,
            launching: &mut launching,
        };
        let (done, result) = match replay.queue(since) {
            Ok(done) => (Some(done), Ok(())),
            Err(error) => (None, Err(error)),
        };
        replay.end(done);
        std::mem::forget(replay);
        result
    }
}

/// A replay on its way. Its tokens are back at its end.
struct Replay<'l> {
    graph: &'l Graph,
    stream: &'l Stream,
    launching: &'l mut Launching,
}

impl Replay<'_> {
    /// Takes the tokens, and queues it.
    #[inline(always)]
    fn queue(&mut self, since: &'static Location<'static>) -> BufferResult<Handles> {
        let Launching { held, before } = &mut *self.launching;
        let accesses = &self.graph.accesses;
        let holder = Holder {
            stream: Some(self.stream.id()),
            since,
        };
        for access in accesses {
            let kind = access.kind;
            let token = Token { kind, holder };
            held.push(access.begin(accesses, token, before)?);
        }
        let graph = &self.graph.graph;
        // SAFETY: `accesses` are the values that the nodes touch; the graph keeps them alive, `before` has everything
        // that their ledgers name, and the tokens exclude others until the replay's completion is published.
        let done = unsafe { graph.launch_for(accesses.len(), self.stream, before.iter()) };
        Ok(done?)
    }

    #[inline(always)]
    fn end(&mut self, mut done: Option<Handles>) {
        let poisoned = self.graph.device().is_poisoned();
        let Launching { held, before } = &mut *self.launching;
        let mut spent = Spent::default();
        before
            .drain(..)
            .for_each(|earlier| spent.completion(earlier));
        for (access, token) in self.graph.accesses.iter().zip(held.drain(..)) {
            match poisoned {
                false => access.end(token, done.as_mut().map(Handles::take), &mut spent),
                true => access.abandon(token),
            }
        }
    }
}

impl Drop for Replay<'_> {
    /// A call has unwound. Something may have been queued by then.
    #[cold]
    fn drop(&mut self) {
        let done = self.stream.record_for(self.graph.accesses.len());
        if let Err(error) = &done {
            self.stream.device().park(error.clone());
        }
        self.end(done.ok());
    }
}

impl GraphAccess {
    fn begin(
        &self,
        all: &[Self],
        token: Token,
        before: &mut Predecessors,
    ) -> BufferResult<Option<Token>> {
        match &self.domain {
            Domain::Owned(_) => {
                let mut add = |completion: &Completion| before.push(completion.clone());
                self.domain.begin(token, &mut add)?;
                Ok(Some(token))
            }
            Domain::Carve(carve) => carve.begin_launch(token, before, |id| {
                let at = all.binary_search_by_key(&id, |access| access.domain.id());
                at.is_ok_and(|at| all[at].kind == AccessKind::Write)
            }),
        }
    }

    fn end(&self, token: Option<Token>, done: Option<Completion>, spent: &mut Spent) {
        match (&self.domain, token) {
            (Domain::Carve(carve), token) => carve.end_launch(token, done, spent),
            (domain @ Domain::Owned(_), Some(token)) => domain.end_with(token, done, spent),
            (Domain::Owned(_), None) => unreachable!("only arenas have bytes"),
        }
    }

    /// On a poisoned device the replay may go on for ever: its tokens stay, and the memory is never reused.
    fn abandon(&self, token: Option<Token>) {
        if let Domain::Carve(carve) = &self.domain {
            carve.abandon_launch(token);
        }
    }
}
