//! Device arenas: carves with ledgers of their own over one buffer.
//!
//! The bookkeeping is in offsets from the slab's base. A retired carve folds what may still use its bytes into the
//! arena, and the next carve over those bytes starts from there: ordered after it on any stream, with no host wait.
//!
//! Carving takes no lock and allocates nothing: the ledgers are there, and the arena's thread, which alone carves and
//! retracts, notes identity and bytes in the next one. A ledger *opens* when its carve is accessed first: then it takes over
//! what is folded into its bytes. Locks are taken in the order ledger, state.

use crate::domain::DomainId;
use crate::folds::Folds;
use crate::ledger::{AccessKind, Holder, Ledger, Predecessors, Token};
use crate::primitive::{
    AtomicBool, AtomicU64, AtomicUsize, Condvar, Fault, Mutex, MutexGuard, Ordering, faulty,
};
use crate::{AccessError, BufferError, BufferResult};
use cuda_driver::DevicePtr;
use cuda_runtime::{Allocation, Completion, Device, Spent};
use space_core::AllocError;
use std::ops::Range;
use std::sync::Arc;

/// What all carves of one arena share, also with graphs that outlive them.
#[derive(Debug)]
pub(crate) struct ArenaShared {
    device: Device,
    base: DevicePtr,
    /// A ledger for each carve that can be alive.
    carves: Box<[Carve]>,
    /// So many of `carves` are alive, the latest last. Written by the arena's thread alone.
    live: AtomicUsize,
    state: Mutex<ArenaState>,
    /// Whether `state.quarantined` has anything.
    quarantine: AtomicBool,
    /// Woken when a graph's launch has published its use of arena bytes.
    launched: Condvar,
    /// Held while a graph is launched that uses the arena: launches over the same bytes order themselves after one
    /// another, so they take turns. Graphs of several arenas lock them in order of address.
    pub(crate) turn: Mutex<()>,
    allocation: Mutex<Option<Allocation>>,
}

#[derive(Debug, Default)]
struct ArenaState {
    /// What may still use bytes that no open ledger covers.
    folds: Folds,
    /// Bytes that a launch uses right now, whose carve is over.
    launching: Vec<Range<usize>>,
    /// Bytes under guards that were forgotten. Never given out again.
    quarantined: Vec<Range<usize>>,
}

/// A carve that is alive, or room for one. Identity and bytes are written by the arena's thread while nobody knows the
/// carve; whoever reads them otherwise heeds that they may be half written, unless the ledger has opened.
#[derive(Debug, Default)]
struct Carve {
    /// [`DomainId::number`], or 0.
    id: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    ledger: Mutex<CarveLedger>,
    /// As [`CarveLedger::open`], for those who know that the carve is alive.
    open: AtomicBool,
    /// Woken when a launch ends that held a token here.
    launched: Condvar,
}

#[derive(Debug, Default)]
struct CarveLedger {
    ledger: Ledger,
    /// Whether the ledger has taken over what was folded into its bytes.
    open: bool,
    /// Number of launches under way that hold a token.
    launches: usize,
}

impl Carve {
    fn bytes(&self) -> Range<usize> {
        self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }
}

/// Ledgers of an arena that is yet to be.
pub(crate) struct Carves(Box<[Carve]>);

impl Carves {
    /// So many ledgers, or how they don't fit.
    pub(crate) fn new(ledgers: usize) -> BufferResult<Self> {
        let mut carves = Vec::new();
        if carves.try_reserve_exact(ledgers).is_err() {
            let (len, elem_size) = (ledgers, size_of::<Carve>());
            return Err(BufferError::Space(match len.checked_mul(elem_size) {
                Some(bytes) if isize::try_from(bytes).is_ok() => AllocError::OutOfMemory {
                    bytes,
                    align: align_of::<Carve>(),
                },
                _ => AllocError::SizeOverflow { len, elem_size },
            }));
        }
        carves.resize_with(ledgers, Carve::default);
        Ok(Self(carves.into_boxed_slice()))
    }
}

/// One carve, alive or retired.
#[derive(Clone, Debug)]
pub(crate) struct CarveDomain {
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
    /// Bytes under a forgotten guard that overlap these.
    fn lost(&self, bytes: &Range<usize>) -> Option<Range<usize>> {
        let mut quarantined = self.quarantined.iter();
        quarantined.find(|lost| overlap(lost, bytes)).cloned()
    }

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
        carves: Carves,
    ) -> Arc<Self> {
        let base = allocation
            .as_ref()
            .map_or(DevicePtr::NULL, Allocation::address);
        let bytes = allocation.as_ref().map_or(0, Allocation::bytes);
        let mut state = ArenaState::default();
        state.folds.insert(0..bytes, outstanding);
        Arc::new(Self {
            device,
            base,
            carves: carves.0,
            live: AtomicUsize::new(0),
            state: Mutex::new(state),
            quarantine: AtomicBool::new(false),
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
        if self.device.is_forked() {
            return 0;
        }
        let state = self.state.lock();
        state.quarantined.iter().map(Range::len).sum()
    }

    /// A ledger for the bytes, which no live carve covers. By the arena's thread.
    pub(crate) fn claim(&self, bytes: Range<usize>) -> Result<(DomainId, usize), ClaimError> {
        let at = self.live.load(Ordering::Relaxed);
        let Some(carve) = self.carves.get(at) else {
            return Err(ClaimError::OutOfLedgers { capacity: at });
        };
        if self.quarantine.load(Ordering::Acquire) {
            self.check_quarantine(&bytes)?;
        }
        let id = DomainId::fresh();
        carve.start.store(bytes.start, Ordering::Relaxed);
        carve.end.store(bytes.end, Ordering::Relaxed);
        carve.id.store(id.number(), Ordering::Release);
        self.live.store(at + 1, Ordering::Release);
        Ok((id, at))
    }

    #[cold]
    fn check_quarantine(&self, bytes: &Range<usize>) -> Result<(), ClaimError> {
        if self.device.is_forked() {
            return Ok(()); // Whatever is carved there, no work can use.
        }
        let state = self.state.lock();
        match state.lost(bytes) {
            None => Ok(()),
            Some(quarantined) => Err(ClaimError::Quarantined {
                wanted: bytes.clone(),
                quarantined,
            }),
        }
    }

    fn lose(&self, state: &mut ArenaState, bytes: Range<usize>) {
        state.quarantined.push(bytes);
        self.quarantine.store(true, Ordering::Release);
    }

    /// Takes over what may still use the bytes of a carve that is accessed for the first time.
    fn open_locked(&self, carve: &Carve, ledger: &mut CarveLedger, state: &mut ArenaState) {
        ledger.open = true;
        ledger.ledger.restart(state.folds.take(&carve.bytes()));
        carve.open.store(true, Ordering::Release);
    }

    /// Ends the latest carves, those whose first byte lies in `bytes`. By the arena's thread.
    pub(crate) fn retract(&self, bytes: Range<usize>) {
        // A child leaves the parent's ledgers, and who may have locked them, alone.
        if self.device.is_forked() {
            return;
        }
        while let Some(at) = self.live.load(Ordering::Relaxed).checked_sub(1) {
            let carve = &self.carves[at];
            if !bytes.contains(&carve.start.load(Ordering::Relaxed)) {
                break;
            }
            let mut ledger = carve.ledger.lock();
            while ledger.launches > 0 && !faulty(Fault::EndUnderLaunch) {
                carve.launched.wait(&mut ledger);
            }
            if faulty(Fault::GoneUnfolded) {
                carve.id.store(0, Ordering::Release);
                self.live.store(at, Ordering::Release);
            }
            // Under the state's lock, so that a launch finds the carve alive or what it has left.
            let mut state = self.state.lock();
            if std::mem::take(&mut ledger.open) {
                carve.open.store(false, Ordering::Relaxed);
                let forgotten = ledger.ledger.forget_holders() > 0;
                if forgotten && !faulty(Fault::ForgottenReused) {
                    self.lose(&mut state, carve.bytes());
                }
                let outstanding = ledger.ledger.take_outstanding();
                state.folds.insert(carve.bytes(), outstanding);
            }
            carve.id.store(0, Ordering::Release);
            self.live.store(at, Ordering::Release);
        }
    }
}

impl Drop for ArenaShared {
    /// Nobody refers to the arena, a carve or a graph on it: the slab goes back after its last use.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let mut outstanding = state.folds.take_all();
        let mut forgotten = !state.quarantined.is_empty();
        for carve in &mut self.carves {
            let CarveLedger { ledger, .. } = carve.ledger.get_mut();
            forgotten |= ledger.held() > 0;
            outstanding.extend(ledger.take_outstanding());
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

    fn carve(&self) -> &Carve {
        &self.shared.carves[self.at]
    }

    /// The carve's ledger, as long as the carve is alive. The lock of another carve is not even asked for.
    fn live(&self) -> Option<MutexGuard<'_, CarveLedger>> {
        let carve = self.carve();
        let alive = || carve.id.load(Ordering::Acquire) == self.id.number();
        if !alive() {
            return None;
        }
        Some(carve.ledger.lock()).filter(|_| alive())
    }

    /// Opens the ledger of a carve that is alive. A launch on another thread may be between its waits and its completion,
    /// which takes microseconds; no lock is held meanwhile that it could want.
    #[inline]
    pub(crate) fn open(&self) {
        if !self.carve().open.load(Ordering::Acquire) {
            self.open_after_launches();
        }
    }

    #[cold]
    fn open_after_launches(&self) {
        let (shared, carve) = (&*self.shared, self.carve());
        while let Some(mut ledger) = self.live().filter(|ledger| !ledger.open) {
            let mut state = shared.state.lock();
            let bytes = carve.bytes();
            let used = state.launching.iter().any(|used| overlap(used, &bytes));
            if !used || faulty(Fault::OpenUnderLaunch) {
                shared.open_locked(carve, &mut ledger, &mut state);
                return;
            }
            drop(ledger);
            shared.launched.wait(&mut state);
        }
    }

    /// Works on the carve's ledger, which is open. A retired carve has none: its accesses are over, and a stray one changes
    /// nothing.
    pub(crate) fn with_ledger<R>(&self, f: impl FnOnce(&mut Ledger) -> R) -> R {
        match self.live() {
            Some(mut ledger) => f(&mut ledger.ledger),
            None => f(&mut Ledger::default()),
        }
    }

    pub(crate) fn begin(
        &self,
        kind: AccessKind,
        holder: Holder,
        before: &mut impl FnMut(&Completion),
    ) -> Result<(), AccessError> {
        self.with_ledger(|ledger| ledger.begin(Token { kind, holder }, before))
    }

    pub(crate) fn end(
        &self,
        kind: AccessKind,
        holder: Holder,
        done: Option<Completion>,
        spent: &mut Spent,
    ) {
        self.with_ledger(|ledger| ledger.end(Token { kind, holder }, done, spent));
    }

    pub(crate) fn shared(&self) -> &Arc<ArenaShared> {
        &self.shared
    }

    /// Begins a graph's use, in its turn: under a token while the carve is alive, or else of its bytes, which counts as a
    /// write.
    ///
    /// `own` tells the carves that the same graph holds for writing: their tokens cover the bytes below them.
    pub(crate) fn begin_launch(
        &self,
        token: Token,
        before: &mut Predecessors,
        own: impl Fn(DomainId) -> bool,
    ) -> BufferResult<Option<Token>> {
        if let Some(mut ledger) = self.live() {
            if !ledger.open {
                // Launches that use the arena take turns, so that none of another thread is under way.
                let mut state = self.shared.state.lock();
                self.shared
                    .open_locked(self.carve(), &mut ledger, &mut state);
            }
            let mut add = |completion: &Completion| before.push(completion.clone());
            ledger.ledger.begin(token, &mut add)?;
            ledger.launches += 1;
            return Ok(Some(token));
        }
        let range = self.range();
        let mut state = self.shared.state.lock();
        if let Some(lost) = state.lost(&range) {
            return Err(BufferError::ArenaLost { graph: range, lost });
        }
        // One that is not noticed, because it is being carved right now, opens after this launch.
        let live = self.shared.live.load(Ordering::Acquire);
        for carve in &self.shared.carves[..live] {
            let Some(id) = DomainId::from_number(carve.id.load(Ordering::Acquire)) else {
                continue;
            };
            if overlap(&carve.bytes(), &range) && !own(id) {
                return Err(BufferError::ArenaInUse {
                    graph: range,
                    carve: carve.bytes(),
                });
            }
        }
        before.extend(state.folds.of(&range));
        state.launching.push(range);
        Ok(None)
    }

    /// Ends a graph's use; `done` replaces what the bytes were waiting for.
    pub(crate) fn end_launch(
        &self,
        token: Option<Token>,
        done: Option<Completion>,
        spent: &mut Spent,
    ) {
        let Some(token) = token else {
            let mut state = self.shared.state.lock();
            let range = self.range();
            state.stop_launching(&range);
            if let Some(done) = done {
                state.folds.take(&range);
                state.folds.insert(range, [done]);
            }
            if !faulty(Fault::SilentLaunch) {
                self.shared.launched.notify_all();
            }
            return;
        };
        // Alive until now: its end waits for launches.
        if let Some(mut ledger) = self.live() {
            ledger.ledger.end(token, done, spent);
            self.end_token(&mut ledger);
        }
    }

    fn end_token(&self, ledger: &mut CarveLedger) {
        ledger.launches -= 1;
        if !faulty(Fault::SilentToken) {
            self.carve().launched.notify_all();
        }
    }

    /// Ends a graph's use that may never complete: the bytes are not given out again.
    pub(crate) fn abandon_launch(&self, token: Option<Token>) {
        if token.is_some() {
            // The token stays, so that the carve's end loses its bytes.
            if let Some(mut ledger) = self.live() {
                self.end_token(&mut ledger);
            }
            return;
        }
        let mut state = self.shared.state.lock();
        let range = self.range();
        state.stop_launching(&range);
        self.shared.lose(&mut state, range);
        self.shared.launched.notify_all();
    }
}

#[cfg(test)]
impl CarveDomain {
    /// Does something while somebody has the carve's ledger.
    pub(crate) fn locked(&self, meanwhile: impl FnOnce()) {
        let _ledger = self.carve().ledger.lock();
        meanwhile();
    }
}
