//! The pool of a device's streams: idle -> leased -> pending -> idle.

use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::counted::Sole;
use crate::notifier::{Notifier, WatchId};
use crate::primitive::{Fault, Mutex, MutexGuard, faulty};
use crate::slot::{AfterLease, Slot};
use crate::stream::Lease;
use crate::unwound::OnUnwind;
use crate::{RuntimeError, RuntimeResult};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

#[derive(Debug)]
pub(crate) struct Pool {
    core: Arc<DeviceCore>,
    /// Of its streams; smaller is more urgent.
    pub(crate) priority: i32,
    /// Place among the device's pools.
    number: usize,
    state: Mutex<PoolState>,
    /// What the notifier wakes.
    waker: Waker,
    /// Streams that were replaced, whose work may go on. They are destroyed when it is known to be over.
    ending: Mutex<Vec<Arc<Slot>>>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Nothing is queued or running on these.
    idle: VecDeque<Sole<Lease>>,
    /// Given back with work behind them, oldest first.
    pending: VecDeque<(Sole<Lease>, Completion)>,
    leased: usize,
    replaced: u64,
    /// Streams that could not be replaced yet.
    missing: usize,
    /// Who waits, first come first served: by number.
    waiting: VecDeque<Ticket>,
    next_ticket: u64,
    /// What the notifier watches for those who wait.
    watches: Vec<WatchId>,
}

/// A place in the queue of those who wait for streams.
#[derive(Debug)]
struct Ticket {
    number: u64,
    waker: Waker,
}

/// Wakes who is first in a pool's queue.
struct FirstInQueue(Weak<Pool>);

impl Wake for FirstInQueue {
    fn wake(self: Arc<Self>) {
        if let Some(pool) = self.0.upgrade() {
            pool.announce(pool.state.lock());
        }
    }
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

    /// Where in the queue a ticket is.
    fn place_of(&self, ticket: u64) -> Option<usize> {
        let number = |place: &Ticket| place.number;
        self.waiting.binary_search_by_key(&ticket, number).ok()
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

    /// Takes `count` idle streams, or none.
    fn take_many(&mut self, count: usize) -> Option<Vec<Sole<Lease>>> {
        if self.idle.len() < count {
            return None;
        }
        self.leased += count;
        Some(self.idle.drain(..count).collect())
    }
}

impl Pool {
    pub(crate) fn new(
        core: &Arc<DeviceCore>,
        number: usize,
        priority: i32,
        size: usize,
    ) -> RuntimeResult<Arc<Self>> {
        let mut idle = VecDeque::with_capacity(size);
        for _ in 0..size {
            match Slot::new(core, priority) {
                Ok(slot) => idle.push_back(Lease::resting(slot, number)),
                Err(error) => {
                    idle.iter().for_each(|lease| lease.slot().destroy());
                    return Err(error);
                }
            }
        }
        Ok(Arc::new_cyclic(|pool| Self {
            core: core.clone(),
            priority,
            number,
            waker: Waker::from(Arc::new(FirstInQueue(pool.clone()))),
            ending: Mutex::default(),
            state: Mutex::new(PoolState {
                idle,
                pending: VecDeque::with_capacity(size),
                ..PoolState::default()
            }),
        }))
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        if self.core.is_elsewhere() {
            return PoolState::default().counts();
        }
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

    /// Takes `count` streams with nothing queued or running on them, or none. Nobody is overtaken.
    pub(crate) fn take(&self, count: usize) -> RuntimeResult<Vec<Sole<Lease>>> {
        self.core.check()?;
        let mut state = self.state.lock();
        self.check_size(&state, count)?;
        if state.idle.len() < count {
            self.harvest(&mut state)?;
        }
        while state.idle.len() < count && state.missing > 0 {
            self.make_up(&mut state)?;
        }
        let free = state.waiting.is_empty();
        let taken = if free { state.take_many(count) } else { None };
        taken.ok_or_else(|| self.empty(&state))
    }

    /// Fails when there can never be so many.
    pub(crate) fn check_can_hold(&self, count: usize) -> RuntimeResult<()> {
        self.core.check_poison()?;
        self.check_size(&self.state.lock(), count)
    }

    fn check_size(&self, state: &PoolState, wanted: usize) -> RuntimeResult<()> {
        let size = state.size();
        if wanted <= size {
            return Ok(());
        }
        Err(RuntimeError::PoolTooSmall {
            device: self.core.id,
            wanted,
            size,
        })
    }

    /// What somebody hears whose time is over.
    pub(crate) fn nothing_free(&self) -> RuntimeError {
        self.empty(&self.state.lock())
    }

    /// Takes the stream whose latest work is `completion`, if it is not leased and nobody waits.
    pub(crate) fn take_after(&self, completion: &Completion) -> RuntimeResult<Option<Sole<Lease>>> {
        self.core.check()?;
        let mut state = self.state.lock();
        if !state.waiting.is_empty() {
            return Ok(None);
        }
        let point = completion.point();
        let is_tail = |lease: &Sole<Lease>| {
            let slot = lease.slot();
            slot.id == point.stream && slot.ends_at(point)
        };
        let lease = if let Some(i) = state.pending.iter().position(|(lease, _)| is_tail(lease)) {
            state.pending.remove(i).map(|(lease, _)| lease)
        } else if let Some(i) = state.idle.iter().position(is_tail) {
            state.idle.remove(i)
        } else {
            None
        };
        state.leased += usize::from(lease.is_some());
        Ok(lease)
    }

    /// Makes one of the streams that could not be replaced before.
    fn make_up(&self, state: &mut PoolState) -> RuntimeResult<()> {
        let slot = Slot::new(&self.core, self.priority)?;
        state.missing -= 1;
        state.idle.push_back(Lease::resting(slot, self.number));
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

    /// Takes back a slot whose lease ended. When a call unwinds, the slot is replaced, so that nobody waits for it.
    pub(crate) fn give_back(&self, lease: Sole<Lease>) {
        let ended = catch_unwind(AssertUnwindSafe(|| lease.slot().end_lease()));
        let (after, panic) = match ended {
            Ok(after) => (after, None),
            Err(panic) => (AfterLease::Replace, Some(panic)),
        };
        let missing = OnUnwind::new(|| self.take_back(None, AfterLease::Replace));
        let lease = match after {
            AfterLease::Replace => self.replacement(&lease),
            AfterLease::Idle | AfterLease::Pending(_) => Some(lease),
        };
        missing.disarm();
        self.take_back(lease, after);
        if let Some(panic) = panic
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }

    fn take_back(&self, lease: Option<Sole<Lease>>, after: AfterLease) {
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
        if !faulty(Fault::SilentReturn) {
            self.announce(state);
        }
    }

    /// Wakes who is first in the queue, if anybody: a stream may have become free.
    fn announce(&self, state: MutexGuard<'_, PoolState>) {
        let first = state.waiting.front().map(|ticket| ticket.waker.clone());
        // Outside the lock: a waker may be anything.
        drop(state);
        if let Some(waker) = first {
            waker.wake();
        }
    }

    /// Leaves the queue, and lets the next one look.
    pub(crate) fn leave(&self, ticket: u64) {
        if self.core.is_elsewhere() {
            return;
        }
        let mut state = self.state.lock();
        let at = state.place_of(ticket);
        let place = at.and_then(|at| state.waiting.remove(at));
        if state.waiting.is_empty() {
            self.end_watches(&mut state);
        }
        if !faulty(Fault::SilentLeave) {
            self.announce(state);
        }
        drop(place);
    }

    /// Makes the notifier look at what is pending, and at the device itself, for whoever is first in the queue.
    fn watch(&self, state: &mut PoolState) -> RuntimeResult<()> {
        self.end_watches(state);
        let tails = state.pending.iter().map(|(_, tail)| Some(tail));
        for tail in tails.chain([None]) {
            let watch = Notifier::watch(&self.core, tail, &self.waker)?;
            state.watches.push(watch);
        }
        Ok(())
    }

    fn end_watches(&self, state: &mut PoolState) {
        for watch in state.watches.drain(..) {
            self.core.notifier.forget(watch);
        }
    }

    /// One look of somebody who waits: `count` streams when it is their turn and there are so many, or else a place in
    /// the queue, which is theirs until they leave.
    pub(crate) fn poll_take(
        &self,
        ticket: &mut Option<u64>,
        count: usize,
        waker: &Waker,
    ) -> RuntimeResult<Option<Vec<Sole<Lease>>>> {
        // Wakers are cloned and dropped outside the lock: they may be anything.
        let mut waker = Some(waker.clone());
        self.core.check()?;
        let mut state = self.state.lock();
        let first = state.waiting.front().map(|place| place.number);
        if first.is_none() || first == *ticket {
            if state.idle.len() < count {
                self.look(&mut state);
            }
            if let Some(leases) = state.take_many(count) {
                drop(state);
                if let Some(ticket) = ticket.take() {
                    self.leave(ticket);
                }
                return Ok(Some(leases));
            }
        }
        let known = ticket.and_then(|ticket| state.place_of(ticket));
        match (known.map(|at| &mut state.waiting[at]), waker.take()) {
            (Some(place), Some(new)) => waker = Some(std::mem::replace(&mut place.waker, new)),
            (None, Some(waker)) => {
                let number = state.next_ticket;
                state.next_ticket += 1;
                state.waiting.push_back(Ticket { number, waker });
                *ticket = Some(number);
            }
            (_, None) => {}
        }
        let front = state.waiting.front().map(|place| place.number);
        if front == *ticket {
            self.watch(&mut state)?;
        }
        drop(state);
        drop(waker);
        Ok(None)
    }

    /// Asks which pending streams are done, and replaces those of which the driver can't tell. What it costs is parked.
    fn look(&self, state: &mut PoolState) {
        let mut at = 0;
        while at < state.pending.len() {
            let Err(error) = state.pending[at].1.is_complete_in_cleanup() else {
                at += 1;
                continue;
            };
            if let Some((lease, _)) = state.pending.remove(at) {
                state.replaced += 1;
                match self.replacement(&lease) {
                    Some(fresh) => state.idle.push_back(fresh),
                    None => state.missing += 1,
                }
            }
            self.core.park(error);
        }
        state.harvest_known();
        while state.missing > 0 {
            if let Err(error) = self.make_up(state) {
                self.core.park(error);
                break;
            }
        }
    }

    /// A fresh stream in place of one that can't be handed on. Where there is none now, the next who needs one tries
    /// again.
    fn replacement(&self, old: &Lease) -> Option<Sole<Lease>> {
        self.end_later(old.slot());
        match Slot::new(&self.core, self.priority) {
            Ok(slot) => Some(Lease::resting(slot, self.number)),
            Err(error) => {
                self.core.park(error);
                None
            }
        }
    }

    /// Destroys a stream that was replaced once its work is over, and those of earlier ones whose work is: what they run may need
    /// what goes with the device.
    fn end_later(&self, old: &Arc<Slot>) {
        let mut ending = std::mem::take(&mut *self.ending.lock());
        ending.push(old.clone());
        ending.retain(|slot| {
            // A panic of the driver has told so where it happened; the stream is asked again.
            let idle = catch_unwind(AssertUnwindSafe(|| slot.is_idle().is_ok_and(|idle| idle)));
            let over = self.core.is_poisoned() || idle.unwrap_or(false);
            if over {
                slot.destroy();
            }
            !over
        });
        self.ending.lock().append(&mut ending);
    }

    /// Waits for the work of every stream that is not leased. For a destructor: also while this thread captures on another
    /// device.
    pub(crate) fn settle(&self) {
        let (state, ending) = (self.state.lock(), self.ending.lock());
        let leases = state.pending.iter().map(|(lease, _)| lease);
        let slots = leases.chain(&state.idle).map(|lease| lease.slot());
        slots
            .chain(&*ending)
            .for_each(|slot| slot.synchronize_or_poison());
    }

    /// Destroys every stream that is not leased. For the device's owner, when nothing is leased any more.
    pub(crate) fn destroy(&self) {
        let mut state = self.state.lock();
        let pending = std::mem::take(&mut state.pending);
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        let ending = std::mem::take(&mut *self.ending.lock());
        let pending = pending.into_iter().map(|(lease, _)| lease);
        for lease in pending.chain(idle) {
            lease.slot().destroy();
        }
        ending.iter().for_each(|slot| slot.destroy());
    }
}
