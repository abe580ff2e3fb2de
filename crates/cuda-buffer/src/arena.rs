//! Device arenas: carves with ledgers of their own over one buffer.
//!
//! The bookkeeping is in offsets from the slab's base. A retired carve folds what may still use its bytes into the
//! arena, and the next carve over those bytes starts from there: ordered after it on any stream, with no host wait.

use crate::domain::DomainId;
use crate::folds::Folds;
use crate::ledger::{Ledger, Predecessors, Replaced, Token};
use crate::{BufferError, BufferResult};
use cuda_driver::DevicePtr;
use cuda_runtime::{Allocation, Completion, Device};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;

/// What all carves of one arena share, also with graphs that outlive them.
#[derive(Debug)]
pub(crate) struct ArenaShared {
    device: Device,
    base: DevicePtr,
    state: Mutex<ArenaState>,
    /// Woken when a graph's launch has published its use of arena bytes.
    launched: Condvar,
    /// Held while a graph is launched that uses the arena: launches over the same bytes order themselves after one
    /// another, so they take turns. Graphs of several arenas lock them in order of address.
    pub(crate) turn: Mutex<()>,
    allocation: Mutex<Option<Allocation>>,
}

#[derive(Debug)]
struct ArenaState {
    /// Live carves, latest last. Never longer than `capacity`.
    carves: Vec<LiveCarve>,
    capacity: usize,
    /// What may still use bytes that no live carve covers.
    folds: Folds,
    /// Bytes that a launch uses right now.
    launching: Vec<Range<usize>>,
    /// Bytes under guards that were forgotten. Never given out again.
    quarantined: Vec<Range<usize>>,
}

#[derive(Debug)]
struct LiveCarve {
    id: DomainId,
    bytes: Range<usize>,
    ledger: Ledger,
}

/// One carve, alive or retired.
#[derive(Clone, Debug)]
pub struct CarveDomain {
    shared: Arc<ArenaShared>,
    id: DomainId,
    /// Position among the live carves, as long as the carve is one.
    at: usize,
    start: usize,
    bytes: usize,
}

/// A claim of bytes that can't be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("all {capacity} ledgers of the arena are in use")]
    OutOfLedgers { capacity: usize },
    #[error(
        "bytes {wanted:?} of the arena overlap {quarantined:?}, which a forgotten guard holds for ever"
    )]
    Quarantined {
        wanted: Range<usize>,
        quarantined: Range<usize>,
    },
}

pub(crate) fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl ArenaState {
    fn stop_launching(&mut self, range: &Range<usize>) {
        if let Some(at) = self.launching.iter().position(|used| used == range) {
            self.launching.swap_remove(at);
        }
    }
}

impl ArenaShared {
    pub(crate) fn new(
        device: Device,
        allocation: Option<Allocation>,
        outstanding: Vec<Completion>,
        ledgers: usize,
    ) -> Arc<Self> {
        let base = allocation
            .as_ref()
            .map_or(DevicePtr::NULL, Allocation::address);
        let bytes = allocation.as_ref().map_or(0, Allocation::bytes);
        let mut folds = Folds::default();
        folds.insert(0..bytes, outstanding);
        Arc::new(Self {
            device,
            base,
            state: Mutex::new(ArenaState {
                carves: Vec::with_capacity(ledgers),
                capacity: ledgers,
                folds,
                launching: Vec::new(),
                quarantined: Vec::new(),
            }),
            launched: Condvar::new(),
            turn: Mutex::new(()),
            allocation: Mutex::new(allocation),
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn base(&self) -> DevicePtr {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.allocation.lock().as_ref().map_or(0, Allocation::bytes)
    }

    pub(crate) fn quarantined_bytes(&self) -> usize {
        let state = self.state.lock();
        state.quarantined.iter().map(Range::len).sum()
    }

    /// A ledger for the bytes, which no live carve covers, starting from what may still use them.
    pub(crate) fn claim(&self, bytes: Range<usize>) -> Result<(DomainId, usize), ClaimError> {
        let mut state = self.between_launches(&bytes);
        if state.carves.len() == state.capacity {
            return Err(ClaimError::OutOfLedgers {
                capacity: state.capacity,
            });
        }
        if let Some(lost) = state.quarantined.iter().find(|lost| overlap(lost, &bytes)) {
            return Err(ClaimError::Quarantined {
                wanted: bytes,
                quarantined: lost.clone(),
            });
        }
        let before = state.folds.take(&bytes);
        let id = DomainId::fresh();
        let at = state.carves.len();
        state.carves.push(LiveCarve {
            id,
            bytes,
            ledger: Ledger::after(before),
        });
        Ok((id, at))
    }

    /// The state while no launch uses the bytes. One on another thread is between its waits and its completion, which
    /// takes microseconds.
    fn between_launches(&self, bytes: &Range<usize>) -> MutexGuard<'_, ArenaState> {
        let mut state = self.state.lock();
        while state.launching.iter().any(|used| overlap(used, bytes)) {
            self.launched.wait(&mut state);
        }
        state
    }

    /// Ends the latest carves, those whose first byte lies in `bytes`.
    pub(crate) fn retract(&self, bytes: Range<usize>) {
        let mut state = self.between_launches(&bytes);
        while let Some(carve) = state
            .carves
            .pop_if(|carve| bytes.contains(&carve.bytes.start))
        {
            let LiveCarve {
                bytes, mut ledger, ..
            } = carve;
            if ledger.held() > 0 {
                state.quarantined.push(bytes.clone());
            }
            state.folds.insert(bytes, ledger.take_outstanding());
        }
    }
}

impl Drop for ArenaShared {
    /// Nobody refers to the arena, a carve or a graph on it: the slab goes back after its last use.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let mut outstanding = state.folds.take_all();
        let mut forgotten = !state.quarantined.is_empty();
        for carve in &mut state.carves {
            forgotten |= carve.ledger.held() > 0;
            outstanding.extend(carve.ledger.take_outstanding());
        }
        match self.allocation.get_mut().take() {
            Some(allocation) if !forgotten => allocation.reclaim(outstanding),
            // An allocation that merely drops is leaked and counted.
            other => drop(other),
        }
    }
}

impl CarveDomain {
    pub(crate) fn new(
        shared: Arc<ArenaShared>,
        id: DomainId,
        at: usize,
        start: usize,
        bytes: usize,
    ) -> Self {
        Self {
            shared,
            id,
            at,
            start,
            bytes,
        }
    }

    pub(crate) fn id(&self) -> DomainId {
        self.id
    }

    pub(crate) fn device(&self) -> &Device {
        &self.shared.device
    }

    pub(crate) fn address(&self) -> DevicePtr {
        DevicePtr(self.shared.base.0 + self.start as u64)
    }

    fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) && overlap(&self.range(), &other.range())
    }

    /// Works on the carve's ledger. A retired carve has none: its accesses are over, and a stray one changes nothing.
    pub(crate) fn with_ledger<R>(&self, f: impl FnOnce(&mut Ledger) -> R) -> R {
        let mut state = self.shared.state.lock();
        match self.live(&mut state) {
            Some(carve) => f(&mut carve.ledger),
            None => f(&mut Ledger::default()),
        }
    }

    fn live<'s>(&self, state: &'s mut ArenaState) -> Option<&'s mut LiveCarve> {
        state
            .carves
            .get_mut(self.at)
            .filter(|carve| carve.id == self.id)
    }

    pub(crate) fn shared(&self) -> &Arc<ArenaShared> {
        &self.shared
    }

    /// Begins a graph's use: under a token while the carve is alive, or else of its bytes, which counts as a write.
    ///
    /// `own` tells the carves that the same graph holds for writing: their tokens cover the bytes below them.
    pub(crate) fn begin_launch(
        &self,
        token: Token,
        before: &mut Predecessors,
        own: impl Fn(DomainId) -> bool,
    ) -> BufferResult<Option<Token>> {
        let mut state = self.shared.state.lock();
        let range = self.range();
        let begun = match self.live(&mut state) {
            Some(carve) => {
                carve.ledger.begin(token, before)?;
                Some(token)
            }
            None => {
                let in_use = |carve: &&LiveCarve| overlap(&carve.bytes, &range) && !own(carve.id);
                if let Some(alive) = state.carves.iter().find(in_use) {
                    return Err(BufferError::ArenaInUse {
                        graph: range,
                        carve: alive.bytes.clone(),
                    });
                }
                before.extend(state.folds.of(&range));
                None
            }
        };
        state.launching.push(range);
        Ok(begun)
    }

    /// Ends a graph's use; `done` replaces what the bytes were waiting for.
    pub(crate) fn end_launch(
        &self,
        token: Option<Token>,
        done: Option<Completion>,
        replaced: &mut Replaced,
    ) {
        let mut state = self.shared.state.lock();
        let range = self.range();
        state.stop_launching(&range);
        match token {
            // Alive until now: its end waits for launches.
            Some(token) => {
                if let Some(carve) = self.live(&mut state) {
                    carve.ledger.end(token, done, replaced);
                }
            }
            None => {
                if let Some(done) = done {
                    replaced.extend(state.folds.take(&range));
                    state.folds.insert(range, [done]);
                }
            }
        }
        self.shared.launched.notify_all();
    }

    /// Ends a graph's use that may never complete: the bytes are not given out again.
    pub(crate) fn abandon_launch(&self, token: Option<Token>) {
        let mut state = self.shared.state.lock();
        let range = self.range();
        state.stop_launching(&range);
        if token.is_none() {
            state.quarantined.push(range);
        }
        self.shared.launched.notify_all();
    }
}
