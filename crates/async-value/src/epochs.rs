//! Epochs: a writer, then any number of readers, then the next writer. Bookkeeping alone: no lock and no value.

use crate::Failure;
use crate::task::TaskInfo;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;

/// Who is to be woken, after the lock is gone.
pub(crate) type Wakes = SmallVec<[Waker; 2]>;

/// A ticket's entry. It is the ticket's alone until [`Epochs::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u32);

const NONE: u32 = u32::MAX;

/// An entry's way: taken -> (waiting ->) held -> finished; each of them may be finished early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody has polled the ticket.
    Taken,
    /// Polled before its turn.
    Waiting,
    /// Its turn has come, and a guard may exist.
    Held,
}

#[derive(Debug)]
pub(crate) struct Entry {
    epoch: u64,
    /// Neighbours within the epoch.
    previous: u32,
    next: u32,
    pub(crate) state: State,
    waker: Option<Waker>,
    /// The task that the ticket belongs to, as far as it is known.
    pub(crate) owner: Option<Arc<TaskInfo>>,
    pub(crate) site: &'static Location<'static>,
}

#[derive(Debug)]
enum Slot {
    Free { next: u32 },
    Used(Entry),
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    /// A write that was given up before its turn; it takes effect when its turn comes.
    Abandoned(Failure),
}

#[derive(Debug)]
struct Epoch {
    /// Larger than those before it; some may be left out.
    number: u64,
    kind: Kind,
    first: u32,
    last: u32,
    live: u32,
}

/// How an entry ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    Read,
    Written,
    /// A write that did not happen.
    Failed(Failure),
}

/// The epochs of one value.
///
/// The first one is at its turn: its entries may be held, and it has at least one. No two neighbours are both reads.
#[derive(Debug)]
pub(crate) struct Epochs {
    slots: Vec<Slot>,
    free: u32,
    queue: VecDeque<Epoch>,
    /// The number of the first epoch in the queue, or of the next one.
    base: u64,
    /// How many epochs within the queue have lost their last entry since it was looked through for them.
    holes: usize,
    /// What readers at the first epoch get, set by the latest write that ended.
    failure: Option<Failure>,
}

/// What an end leaves to be done without the lock, since it may run code of an executor or of a user's error.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Who is to be woken.
    pub(crate) wakes: Wakes,
    /// The ticket's own waker.
    pub(crate) waker: Option<Waker>,
    /// Failures that nobody will be told any more.
    pub(crate) forgotten: SmallVec<[Failure; 1]>,
}

/// Room that is kept when nothing is queued.
const KEPT: usize = 64;

impl Epochs {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            queue: VecDeque::new(),
            base: 0,
            holes: 0,
            failure: None,
        }
    }

    /// Takes a place after everybody who is there.
    ///
    /// # Panics
    /// When four billion are.
    pub(crate) fn take(
        &mut self,
        write: bool,
        owner: Option<Arc<TaskInfo>>,
        site: &'static Location<'static>,
    ) -> Key {
        let joins =
            !write && matches!(self.queue.back(), Some(epoch) if matches!(epoch.kind, Kind::Read));
        if !joins {
            self.push_back(if write { Kind::Write } else { Kind::Read });
        }
        let back = self.queue.back().expect("there is one now");
        let (epoch, last) = (back.number, back.last);
        let index = self.insert(Entry {
            epoch,
            previous: last,
            next: NONE,
            state: State::Taken,
            waker: None,
            owner,
            site,
        });
        match last {
            NONE => {}
            last => self.entry_mut(last).next = index,
        }
        let epoch = self.queue.back_mut().expect("as above");
        if last == NONE {
            epoch.first = index;
        }
        epoch.last = index;
        epoch.live += 1;
        Key(index)
    }

    /// An epoch without entries.
    fn push_back(&mut self, kind: Kind) {
        let number = self.queue.back().map_or(self.base, |back| back.number + 1);
        self.queue.push_back(Epoch {
            number,
            kind,
            first: NONE,
            last: NONE,
            live: 0,
        });
    }

    fn insert(&mut self, entry: Entry) -> u32 {
        if self.free == NONE {
            let index = u32::try_from(self.slots.len())
                .ok()
                .filter(|&index| index != NONE);
            self.slots.push(Slot::Used(entry));
            return index.expect("fewer than 2^32 - 1 tickets of a value");
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        let Slot::Free { next } = *slot else {
            unreachable!("the list of free slots holds free ones")
        };
        self.free = next;
        *slot = Slot::Used(entry);
        index
    }

    pub(crate) fn entry(&self, key: Key) -> &Entry {
        match &self.slots[key.0 as usize] {
            Slot::Used(entry) => entry,
            Slot::Free { .. } => unreachable!("a ticket's entry is there until it ends"),
        }
    }

    fn entry_mut(&mut self, index: u32) -> &mut Entry {
        match &mut self.slots[index as usize] {
            Slot::Used(entry) => entry,
            Slot::Free { .. } => unreachable!("a ticket's entry is there until it ends"),
        }
    }

    /// Whether its turn has come; then it is held, and this is what readers get.
    pub(crate) fn turn(
        &mut self,
        key: Key,
        owner: Option<&Arc<TaskInfo>>,
    ) -> Option<Option<Failure>> {
        let base = self.base;
        let entry = self.entry_mut(key.0);
        let known = |have: &Arc<TaskInfo>| owner.is_some_and(|new| Arc::ptr_eq(have, new));
        if !entry.owner.as_ref().is_some_and(known) && owner.is_some() {
            entry.owner = owner.cloned();
        }
        if entry.epoch != base {
            entry.state = State::Waiting;
            return None;
        }
        entry.state = State::Held;
        Some(self.failure.clone())
    }

    pub(crate) fn will_wake(&self, key: Key, waker: &Waker) -> bool {
        let registered = &self.entry(key).waker;
        registered
            .as_ref()
            .is_some_and(|have| have.will_wake(waker))
    }

    /// Sets who is woken when the turn comes; who was to be woken before.
    pub(crate) fn register(&mut self, key: Key, waker: Waker) -> Option<Waker> {
        self.entry_mut(key.0).waker.replace(waker)
    }

    /// Ends an entry.
    pub(crate) fn finish(&mut self, key: Key, outcome: Outcome) -> Ended {
        let mut ended = Ended::default();
        let entry = self.remove(key);
        let at = match entry.epoch == self.base {
            true => 0,
            false => self
                .queue
                .binary_search_by_key(&entry.epoch, |epoch| epoch.number)
                .expect("an epoch with entries is there"),
        };
        let epoch = &mut self.queue[at];
        epoch.live -= 1;
        match entry.previous {
            NONE => epoch.first = entry.next,
            previous => self.entry_mut(previous).next = entry.next,
        }
        match entry.next {
            NONE => self.queue[at].last = entry.previous,
            next => self.entry_mut(next).previous = entry.previous,
        }
        match outcome {
            Outcome::Read => {}
            Outcome::Written => {
                debug_assert!(at == 0, "written at its turn");
                ended.forgotten.extend(self.failure.take());
            }
            Outcome::Failed(failure) => self.queue[at].kind = Kind::Abandoned(failure),
        }
        match at {
            0 => self.advance(&mut ended),
            _ => self.holes += usize::from(self.queue[at].live == 0),
        }
        self.compress(&mut ended);
        if self.holes > KEPT + self.queue.len() / 2 {
            self.close_holes(&mut ended);
        }
        ended.waker = entry.waker;
        ended
    }

    fn remove(&mut self, key: Key) -> Entry {
        let free = Slot::Free { next: self.free };
        let slot = std::mem::replace(&mut self.slots[key.0 as usize], free);
        self.free = key.0;
        match slot {
            Slot::Used(entry) => entry,
            Slot::Free { .. } => unreachable!("a ticket ends once"),
        }
    }

    /// Goes on to the first epoch that has entries.
    fn advance(&mut self, ended: &mut Ended) {
        let before = self.base;
        let mut next = before;
        while let Some(front) = self.queue.front_mut() {
            if front.live > 0 {
                break;
            }
            if let Kind::Abandoned(failure) = &front.kind {
                ended
                    .forgotten
                    .extend(self.failure.replace(failure.clone()));
            }
            next = front.number + 1;
            self.queue.pop_front();
        }
        self.base = self.queue.front().map_or(next, |front| front.number);
        if self.base == before {
            return;
        }
        let Some(front) = self.queue.front() else {
            if self.slots.len() > KEPT {
                (self.slots, self.free) = (Vec::new(), NONE);
            }
            self.queue.shrink_to(KEPT);
            self.holes = 0;
            return;
        };
        ended.wakes.reserve(front.live as usize);
        let mut index = front.first;
        while index != NONE {
            let entry = self.entry_mut(index);
            ended.wakes.extend(entry.waker.take());
            index = entry.next;
        }
    }

    /// Takes back places at the end that nobody can notice, so that tickets which come and go leave none.
    fn compress(&mut self, ended: &mut Ended) {
        let mut given_up = None;
        while self.queue.len() > 1
            && let Some(back) = self.queue.back()
        {
            match &back.kind {
                Kind::Read if back.live == 0 => {}
                Kind::Abandoned(failure) => {
                    // The later of two failures is the one that is noticed.
                    if given_up.is_none() {
                        given_up = Some(failure.clone());
                    } else {
                        ended.forgotten.push(failure.clone());
                    }
                }
                _ => break,
            }
            self.queue.pop_back();
        }
        if let Some(failure) = given_up {
            self.push_back(Kind::Abandoned(failure));
        }
    }

    /// As [`compress`](Self::compress) between epochs that have entries. Called once for as many holes as it finds, so that
    /// each costs the same.
    fn close_holes(&mut self, ended: &mut Ended) {
        let mut kept = VecDeque::with_capacity(self.queue.len() - self.holes.min(self.queue.len()));
        for epoch in self.queue.drain(..) {
            let before = kept.back_mut().map(|before: &mut Epoch| &mut before.kind);
            match (&epoch.kind, before) {
                (Kind::Read, _) if epoch.live == 0 => continue,
                (Kind::Abandoned(later), Some(Kind::Abandoned(failure))) => {
                    ended
                        .forgotten
                        .push(std::mem::replace(failure, later.clone()));
                    continue;
                }
                _ => kept.push_back(epoch),
            }
        }
        self.queue = kept;
        self.holes = 0;
    }

    /// Who keeps an access that is asked for now from its turn.
    pub(crate) fn before(&self, write: bool) -> Option<&Entry> {
        let front = self.queue.front()?;
        let joins = !write && self.queue.len() == 1 && matches!(front.kind, Kind::Read);
        (!joins).then(|| self.entry(Key(front.first)))
    }

    /// The epochs in order, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Kind, impl Iterator<Item = &Entry>)> {
        self.queue.iter().map(move |epoch| {
            let mut index = epoch.first;
            let entries = std::iter::from_fn(move || {
                let entry = (index != NONE).then(|| self.entry(Key(index)))?;
                index = entry.next;
                Some(entry)
            });
            (epoch.number, &epoch.kind, entries)
        })
    }

    pub(crate) fn number_of(&self, key: Key) -> Option<u64> {
        match self.slots.get(key.0 as usize)? {
            Slot::Used(entry) => Some(entry.epoch),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cause;

    fn take(epochs: &mut Epochs, write: bool) -> Key {
        epochs.take(write, None, Location::caller())
    }

    fn failed() -> Outcome {
        Outcome::Failed(Failure::new("test", Location::caller(), Cause::Dropped))
    }

    fn sizes(epochs: &Epochs) -> (usize, usize) {
        (epochs.slots.len(), epochs.queue.len())
    }

    #[test]
    fn tickets_that_come_and_go_leave_no_hole() {
        let mut epochs = Epochs::new();
        let front = take(&mut epochs, true);
        for round in 0..10_000 {
            let (read, write, last) = (
                take(&mut epochs, false),
                take(&mut epochs, true),
                take(&mut epochs, false),
            );
            // In every order that three can have.
            let mut ends = [(read, 0), (write, 1), (last, 2)];
            ends.rotate_left(round % 3);
            if round % 2 == 0 {
                ends.swap(0, 1);
            }
            for (key, which) in ends {
                epochs.finish(key, if which == 1 { failed() } else { Outcome::Read });
            }
            // The place of a write that was given up, which readers still have to learn of.
            assert!(sizes(&epochs).1 <= 3, "{epochs:?}");
        }
        assert!(sizes(&epochs).0 <= 4);
        epochs.turn(front, None).unwrap();
        epochs.finish(front, Outcome::Written);
        assert_eq!(sizes(&epochs).1, 0);
        assert!(epochs.failure().is_some());
    }

    /// Of tickets that overlap, the last one is always there.
    #[test]
    fn tickets_that_overlap_leave_no_hole() {
        for kinds in [&[true][..], &[true, false], &[false, true, true]] {
            let mut epochs = Epochs::new();
            let front = take(&mut epochs, true);
            let mut kinds = kinds.iter().copied().cycle();
            let mut next = |epochs: &mut Epochs| {
                let write = kinds.next().unwrap();
                (take(epochs, write), write)
            };
            let mut last = next(&mut epochs);
            for _ in 0..10_000 {
                let (key, write) = std::mem::replace(&mut last, next(&mut epochs));
                epochs.finish(key, if write { failed() } else { Outcome::Read });
                assert!(sizes(&epochs).1 <= 4 * KEPT, "{:?}", sizes(&epochs));
            }
            assert!(sizes(&epochs).0 <= 4);
            let (key, write) = last;
            assert!(epochs.turn(key, None).is_none());
            epochs.finish(front, Outcome::Written);
            // The writes that were given up before it.
            assert!(epochs.turn(key, None).unwrap().is_some());
            epochs.finish(
                key,
                if write {
                    Outcome::Written
                } else {
                    Outcome::Read
                },
            );
            assert_eq!(sizes(&epochs).1, 0);
            assert!(epochs.queue.capacity() <= 2 * KEPT);
        }
    }

    /// What tickets find at their turn does not depend on whether holes were closed before.
    #[test]
    fn holes_are_closed_unnoticed() {
        fn number(failure: Option<Failure>) -> Option<u32> {
            failure.map(|failure| failure.site().line())
        }
        fn at_line(line: usize) -> Outcome {
            let at = SITES[line % SITES.len()]();
            Outcome::Failed(Failure::new("test", at, Cause::Dropped))
        }
        const SITES: [fn() -> &'static Location<'static>; 3] = [
            || Location::caller(),
            || Location::caller(),
            || Location::caller(),
        ];
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..50 {
            let [mut lazy, mut eager] = [Epochs::new(), Epochs::new()];
            let mut tickets = Vec::new();
            for _ in 0..60 {
                let write = random(2) == 0;
                tickets.push((write, [take(&mut lazy, write), take(&mut eager, write)]));
            }
            for at in 0..40 {
                let (write, [one, other]) =
                    tickets.remove(1 + random(tickets.len() as u64 - 1) as usize);
                let outcome = || if write { at_line(at) } else { Outcome::Read };
                lazy.finish(one, outcome());
                eager.finish(other, outcome());
                eager.close_holes(&mut Ended::default());
            }
            assert!(sizes(&eager).1 <= 2 * tickets.len());
            for (write, [one, other]) in tickets {
                let of = |epochs: &mut Epochs, key| epochs.turn(key, None).map(number);
                let found = of(&mut lazy, one);
                assert!(found.is_some());
                assert_eq!(found, of(&mut eager, other));
                let outcome = || {
                    if write {
                        Outcome::Written
                    } else {
                        Outcome::Read
                    }
                };
                lazy.finish(one, outcome());
                eager.finish(other, outcome());
            }
            assert_eq!(lazy.failure().is_some(), eager.failure().is_some());
            assert_eq!((sizes(&lazy).1, sizes(&eager).1), (0, 0));
        }
    }

    #[test]
    fn a_long_queue_gives_its_room_back() {
        let mut epochs = Epochs::new();
        let keys: Vec<_> = (0..10_000)
            .map(|at| take(&mut epochs, at % 2 == 0))
            .collect();
        assert_eq!(sizes(&epochs), (10_000, 10_000));
        for (at, key) in keys.into_iter().enumerate() {
            assert!(epochs.turn(key, None).is_some());
            epochs.finish(
                key,
                if at % 2 == 0 {
                    Outcome::Written
                } else {
                    Outcome::Read
                },
            );
        }
        assert_eq!(sizes(&epochs), (0, 0));
        assert!(epochs.slots.capacity() == 0 && epochs.queue.capacity() <= 2 * KEPT);
    }

    #[test]
    fn all_readers_of_an_epoch_are_woken_once() {
        let mut epochs = Epochs::new();
        let write = take(&mut epochs, true);
        let readers: Vec<_> = (0..10).map(|_| take(&mut epochs, false)).collect();
        let next = take(&mut epochs, true);
        for &key in &readers {
            assert!(epochs.turn(key, None).is_none());
            epochs.register(key, Waker::noop().clone());
        }
        epochs.register(next, Waker::noop().clone());
        let ended = epochs.finish(write, Outcome::Written);
        assert!(ended.wakes.len() == 10 && ended.waker.is_none());
        for (at, key) in readers.into_iter().enumerate() {
            epochs.turn(key, None).unwrap();
            let ended = epochs.finish(key, Outcome::Read);
            assert_eq!(ended.wakes.len(), usize::from(at == 9));
        }
    }
}
