//! The pool of a device's streams: idle -> leased -> pending -> idle.

use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::device::Device;
use crate::slot::{AfterLease, Slot};
use crate::stream::{Lease, Stream};
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::CallSite;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread that waits for a stream sleeps before it looks by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Pool {
    core: Arc<DeviceCore>,
    state: Mutex<PoolState>,
    /// Woken when a waiter may be served or the notifier has something to watch.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Nothing is queued or running on these.
    idle: VecDeque<Arc<Lease>>,
    /// Given back with work behind them, oldest first.
    pending: VecDeque<(Arc<Lease>, Completion)>,
    leased: usize,
    replaced: u64,
    /// Streams that could not be replaced yet.
    missing: usize,
    /// Tickets of threads that wait in `acquire`, first come first served.
    waiting: VecDeque<u64>,
    next_ticket: u64,
    closed: bool,
}

/// How many streams of a pool are in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolCounts {
    /// Ready to be leased.
    pub idle: usize,
    /// Leased.
    pub leased: usize,
    /// Given back, with work still to finish.
    pub pending: usize,
    /// Streams that had to be replaced so far.
    pub replaced: u64,
}

impl PoolState {
    fn size(&self) -> usize {
        self.idle.len() + self.pending.len() + self.leased + self.missing
    }

    fn counts(&self) -> PoolCounts {
        PoolCounts {
            idle: self.idle.len(),
            leased: self.leased,
            pending: self.pending.len(),
            replaced: self.replaced,
        }
    }

    /// Moves streams whose work is known to be done to the idle ones.
    fn harvest_known(&mut self) {
        let (done, busy) = self
            .pending
            .drain(..)
            .partition::<VecDeque<_>, _>(|(_, tail)| tail.is_known_complete());
        self.pending = busy;
        self.idle.extend(done.into_iter().map(|(lease, _)| lease));
    }

    fn take(&mut self) -> Option<Arc<Lease>> {
        let lease = self.idle.pop_front()?;
        self.leased += 1;
        Some(lease)
    }
}

impl Pool {
    pub(crate) fn new(core: &Arc<DeviceCore>, size: usize) -> RuntimeResult<Arc<Self>> {
        let mut idle = VecDeque::with_capacity(size);
        for _ in 0..size {
            match Slot::new(core, 0) {
                Ok(slot) => idle.push_back(Lease::resting(slot)),
                Err(error) => {
                    idle.iter().for_each(|lease| lease.slot().destroy());
                    return Err(error);
                }
            }
        }
        Ok(Arc::new(Self {
            core: core.clone(),
            state: Mutex::new(PoolState {
                idle,
                pending: VecDeque::with_capacity(size),
                ..PoolState::default()
            }),
            changed: Condvar::new(),
        }))
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        self.state.lock().counts()
    }

    /// Asks the driver which pending streams are done.
    fn harvest(&self, state: &mut PoolState) -> RuntimeResult<()> {
        for (_, tail) in &state.pending {
            tail.is_complete()?;
        }
        state.harvest_known();
        Ok(())
    }

    fn try_take(&self, state: &mut PoolState) -> RuntimeResult<Option<Arc<Lease>>> {
        if state.idle.is_empty() {
            self.harvest(state)?;
        }
        while state.idle.is_empty() && state.missing > 0 {
            self.make_up(state)?;
        }
        Ok(state.take())
    }

    /// Makes one of the streams that could not be replaced before.
    fn make_up(&self, state: &mut PoolState) -> RuntimeResult<()> {
        let slot = Slot::new(&self.core, 0)?;
        state.missing -= 1;
        state.idle.push_back(Lease::resting(slot));
        Ok(())
    }

    fn empty(&self, state: &PoolState) -> RuntimeError {
        RuntimeError::PoolEmpty {
            device: self.core.id,
            size: state.size(),
            leased: state.leased,
            pending: state.pending.len(),
        }
    }

    /// Takes back a slot whose lease ended.
    pub(crate) fn give_back(&self, lease: Arc<Lease>) {
        let after = lease.slot().end_lease();
        let lease = match after {
            AfterLease::Replace => self.replacement(&lease),
            AfterLease::Idle | AfterLease::Pending(_) => Some(lease),
        };
        let mut state = self.state.lock();
        state.leased -= 1;
        match (lease, after) {
            (Some(lease), AfterLease::Pending(tail)) => state.pending.push_back((lease, tail)),
            (Some(lease), AfterLease::Replace) => {
                state.replaced += 1;
                state.idle.push_back(lease);
            }
            (Some(lease), AfterLease::Idle) => state.idle.push_back(lease),
            (None, _) => {
                state.replaced += 1;
                state.missing += 1;
            }
        }
        if !state.waiting.is_empty() {
            self.changed.notify_all();
        }
    }

    /// A fresh stream in place of one that can't be handed on. Where there is none now, the next who needs one tries
    /// again.
    fn replacement(&self, old: &Arc<Lease>) -> Option<Arc<Lease>> {
        old.slot().destroy();
        match Slot::new(&self.core, 0) {
            Ok(slot) => Some(Lease::resting(slot)),
            Err(error) => {
                self.core.park(error);
                None
            }
        }
    }

    /// The notifier's work: while threads wait, sleep on the oldest pending stream and hand it on when it is done.
    pub(crate) fn notify_until_closed(&self) {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return;
            }
            let oldest = match state.pending.front() {
                Some((_, tail)) if !state.waiting.is_empty() && state.idle.is_empty() => {
                    tail.clone()
                }
                _ => {
                    self.changed.wait(&mut state);
                    continue;
                }
            };
            drop(state);
            let (result, point) = (oldest.wait_in_cleanup(), oldest.point());
            drop(oldest);
            state = self.state.lock();
            state.harvest_known();
            if let Err(error) = result {
                // What is queued there is unknown: the stream is replaced, if nobody has leased it since. Of a poisoned
                // device waiters hear by themselves.
                let at = state
                    .pending
                    .iter()
                    .position(|(_, tail)| tail.point() == point);
                if let Some((lease, _)) = at.and_then(|at| state.pending.remove(at)) {
                    state.replaced += 1;
                    match self.replacement(&lease) {
                        Some(fresh) => state.idle.push_back(fresh),
                        None => state.missing += 1,
                    }
                }
                self.core.park(error);
            }
            self.changed.notify_all();
        }
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for the work of every stream that is not leased.
    pub(crate) fn drain(&self) -> RuntimeResult<()> {
        let state = self.state.lock();
        let leases = state.pending.iter().map(|(lease, _)| lease);
        leases
            .chain(&state.idle)
            .try_for_each(|lease| lease.slot().synchronize().map(drop))
    }

    /// As [`drain`](Self::drain), for a destructor: also while this thread captures on another device.
    pub(crate) fn settle(&self) {
        let state = self.state.lock();
        let leases = state.pending.iter().map(|(lease, _)| lease);
        leases
            .chain(&state.idle)
            .for_each(|lease| lease.slot().synchronize_or_poison());
    }

    /// Destroys every stream that is not leased. For the device's owner, when nothing is leased any more.
    pub(crate) fn destroy(&self) {
        let mut state = self.state.lock();
        let pending = std::mem::take(&mut state.pending);
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        for lease in pending.into_iter().map(|(lease, _)| lease).chain(idle) {
            lease.slot().destroy();
        }
    }
}

/// The streams of one device, to be leased.
///
/// | | at once | waits |
/// |---|---|---|
/// | one | [`try_acquire`](Self::try_acquire) | [`acquire`](Self::acquire) |
/// | one, after a completion | [`try_acquire_after`](Self::try_acquire_after) | [`acquire_after`](Self::acquire_after) |
/// | several, all or none | [`try_acquire_many`](Self::try_acquire_many) | |
#[derive(Clone, Copy, Debug)]
pub struct StreamPool<'d> {
    device: &'d Device,
}

impl<'d> StreamPool<'d> {
    pub(crate) fn of(device: &'d Device) -> Self {
        Self { device }
    }

    fn pool(&self) -> &'d Pool {
        self.device.pool()
    }

    /// How many streams are in which state.
    #[must_use]
    pub fn counts(&self) -> PoolCounts {
        self.pool().counts()
    }

    /// Leases a stream with nothing queued or running on it.
    ///
    /// # Errors
    /// [`RuntimeError::PoolEmpty`] when there is none, or when others wait for one.
    #[track_caller]
    pub fn try_acquire(&self) -> RuntimeResult<Stream> {
        let _site = CallSite::enter();
        self.pool().core.check()?;
        let mut state = self.pool().state.lock();
        if !state.waiting.is_empty() {
            return Err(self.pool().empty(&state));
        }
        match self.pool().try_take(&mut state)? {
            Some(lease) => Ok(self.lease(lease)),
            None => Err(self.pool().empty(&state)),
        }
    }

    /// Leases a stream with nothing queued or running on it; waits until there is one, first come first served.
    ///
    /// A thread that holds every lease of the pool itself waits for ever.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] when it would have to wait while this thread captures; the driver's own.
    #[track_caller]
    pub fn acquire(&self) -> RuntimeResult<Stream> {
        let _site = CallSite::enter();
        let pool = self.pool();
        pool.core.check()?;
        let mut state = pool.state.lock();
        if state.waiting.is_empty()
            && let Some(lease) = pool.try_take(&mut state)?
        {
            return Ok(self.lease(lease));
        }
        crate::capture::refuse("waiting for a stream")?;
        self.device.start_notifier()?;
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        pool.changed.notify_all();
        loop {
            let mine = state.waiting.front() == Some(&ticket);
            let served = match pool.core.check() {
                Ok(()) if mine => pool.try_take(&mut state),
                Ok(()) => Ok(None),
                Err(error) => Err(error),
            };
            if let Ok(None) = served {
                // Woken when a stream comes back. The time-out is for what nobody tells: a device that was poisoned,
                // a pending stream that is done before the oldest one.
                pool.changed.wait_for(&mut state, LOOK_AGAIN);
                continue;
            }
            state.waiting.retain(|&other| other != ticket);
            pool.changed.notify_all();
            if let Some(lease) = served? {
                return Ok(self.lease(lease));
            }
        }
    }

    /// Leases the stream whose latest work is `completion`, even when that is not done yet: a chain of dependent
    /// work stays on one stream and needs no event. `None` when that stream is not free to be leased.
    ///
    /// # Errors
    /// [`RuntimeError::Poisoned`].
    #[track_caller]
    pub fn try_acquire_after(&self, completion: &Completion) -> RuntimeResult<Option<Stream>> {
        let _site = CallSite::enter();
        let pool = self.pool();
        pool.core.check()?;
        let mut state = pool.state.lock();
        if !state.waiting.is_empty() {
            return Ok(None);
        }
        let point = completion.point();
        let is_tail = |lease: &Arc<Lease>| {
            lease.slot().id == point.stream
                && lease
                    .slot()
                    .clean_tail()
                    .is_some_and(|tail| tail.point() == point)
        };
        let lease = if let Some(i) = state.pending.iter().position(|(lease, _)| is_tail(lease)) {
            state.pending.remove(i).map(|(lease, _)| lease)
        } else if let Some(i) = state.idle.iter().position(is_tail) {
            state.idle.remove(i)
        } else {
            None
        };
        Ok(lease.map(|lease| {
            state.leased += 1;
            self.lease(lease)
        }))
    }

    /// Leases the stream whose latest work is `completion`, or else any idle one, which then waits for it.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire) and [`Stream::wait_for`].
    #[track_caller]
    pub fn acquire_after(&self, completion: &Completion) -> RuntimeResult<Stream> {
        let _site = CallSite::enter();
        if let Some(stream) = self.try_acquire_after(completion)? {
            return Ok(stream);
        }
        let stream = self.acquire()?;
        stream.wait_for(completion)?;
        Ok(stream)
    }

    /// Leases `count` idle streams, or none.
    ///
    /// # Errors
    /// [`RuntimeError::PoolTooSmall`] when there can never be so many; [`RuntimeError::PoolEmpty`].
    #[track_caller]
    pub fn try_acquire_many(&self, count: usize) -> RuntimeResult<Vec<Stream>> {
        let _site = CallSite::enter();
        let pool = self.pool();
        pool.core.check()?;
        let mut state = pool.state.lock();
        if count > state.size() {
            return Err(RuntimeError::PoolTooSmall {
                device: pool.core.id,
                wanted: count,
                size: state.size(),
            });
        }
        if state.idle.len() < count {
            pool.harvest(&mut state)?;
        }
        while state.idle.len() < count && state.missing > 0 {
            pool.make_up(&mut state)?;
        }
        if state.idle.len() < count || !state.waiting.is_empty() {
            return Err(pool.empty(&state));
        }
        let leases: Vec<_> = (0..count).filter_map(|_| state.take()).collect();
        drop(state);
        Ok(leases.into_iter().map(|lease| self.lease(lease)).collect())
    }

    fn lease(&self, lease: Arc<Lease>) -> Stream {
        Stream::of_pool(self.device, lease)
    }
}
