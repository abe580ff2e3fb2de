//! Epochs: a writer, then any number of readers, then the next writer. Bookkeeping alone: no lock and no value.

use crate::Failure;
use crate::entries::{Entries, Entry, Key, State};
use crate::sync::Arc;
use crate::task::TaskInfo;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::panic::Location;
use std::task::Waker;

/// Who is to be woken, after the lock is gone.
pub(crate) type Wakes = SmallVec<[Waker; 2]>;

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
    first: Key,
    last: Key,
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
    entries: Entries,
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
            entries: Entries::new(),
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
        let key = self.entries.insert(Entry {
            epoch,
            previous: last,
            next: Key::NONE,
            state: State::Taken,
            waker: None,
            owner,
            site,
        });
        if last != Key::NONE {
            self.entries.of_mut(last).next = key;
        }
        let epoch = self.queue.back_mut().expect("as above");
        if last == Key::NONE {
            epoch.first = key;
        }
        epoch.last = key;
        epoch.live += 1;
        key
    }

    /// An epoch without entries.
    fn push_back(&mut self, kind: Kind) {
        let number = self.queue.back().map_or(self.base, |back| back.number + 1);
        self.queue.push_back(Epoch {
            number,
            kind,
            first: Key::NONE,
            last: Key::NONE,
            live: 0,
        });
    }

    pub(crate) fn entry(&self, key: Key) -> &Entry {
        self.entries.of(key)
    }

    /// Whether its turn has come; then it is held, and this is what readers get.
    pub(crate) fn turn(
        &mut self,
        key: Key,
        owner: Option<&Arc<TaskInfo>>,
    ) -> Option<Option<Failure>> {
        let base = self.base;
        let entry = self.entries.of_mut(key);
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
        self.entries.of_mut(key).waker.replace(waker)
    }

    /// Ends an entry.
    pub(crate) fn finish(&mut self, key: Key, outcome: Outcome) -> Ended {
        let mut ended = Ended::default();
        let entry = self.entries.remove(key);
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
            Key::NONE => epoch.first = entry.next,
            previous => self.entries.of_mut(previous).next = entry.next,
        }
        match entry.next {
            Key::NONE => self.queue[at].last = entry.previous,
            next => self.entries.of_mut(next).previous = entry.previous,
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
            if self.entries.room() > KEPT {
                self.entries.give_back();
            }
            self.queue.shrink_to(KEPT);
            self.holes = 0;
            return;
        };
        ended.wakes.reserve(front.live as usize);
        let mut key = front.first;
        while key != Key::NONE {
            let entry = self.entries.of_mut(key);
            ended.wakes.extend(entry.waker.take());
            key = entry.next;
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
        (!joins).then(|| self.entry(front.first))
    }

    /// The epochs in order, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Kind, impl Iterator<Item = &Entry>)> {
        self.queue.iter().map(move |epoch| {
            let mut key = epoch.first;
            let entries = std::iter::from_fn(move || {
                let entry = (key != Key::NONE).then(|| self.entry(key))?;
                key = entry.next;
                Some(entry)
            });
            (epoch.number, &epoch.kind, entries)
        })
    }

    pub(crate) fn number_of(&self, key: Key) -> Option<u64> {
        self.entries.get(key).map(|entry| entry.epoch)
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }
}

#[cfg(test)]
mod tests;
