//! The tickets of one value, at numbers that stay theirs until they end.

use crate::sync::Arc;
use crate::task::TaskInfo;
use std::panic::Location;
use std::task::Waker;

/// A ticket's entry. It is the ticket's alone until the ticket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u32);

impl Key {
    /// Of no entry.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

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
    /// The number of its epoch.
    pub(crate) epoch: u64,
    /// Neighbours within the epoch.
    pub(crate) previous: Key,
    pub(crate) next: Key,
    pub(crate) state: State,
    pub(crate) waker: Option<Waker>,
    /// The task that the ticket belongs to, as far as it is known.
    pub(crate) owner: Option<Arc<TaskInfo>>,
    pub(crate) site: &'static Location<'static>,
}

#[derive(Debug)]
enum Slot {
    Free { next: u32 },
    Used(Entry),
}

#[derive(Debug)]
pub(crate) struct Entries {
    slots: Vec<Slot>,
    /// The first of the free ones.
    free: u32,
}

impl Entries {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Key::NONE.0,
        }
    }

    /// # Panics
    /// For more than four billion.
    pub(crate) fn insert(&mut self, entry: Entry) -> Key {
        if self.free == Key::NONE.0 {
            let index = u32::try_from(self.slots.len())
                .ok()
                .filter(|&index| index != Key::NONE.0);
            let index = index.expect("fewer than 2^32 - 1 tickets of a value");
            self.slots.push(Slot::Used(entry));
            return Key(index);
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        let Slot::Free { next } = *slot else {
            unreachable!("the list of free slots holds free ones")
        };
        self.free = next;
        *slot = Slot::Used(entry);
        Key(index)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Entry {
        let free = Slot::Free { next: self.free };
        let slot = std::mem::replace(&mut self.slots[key.0 as usize], free);
        self.free = key.0;
        match slot {
            Slot::Used(entry) => entry,
            Slot::Free { .. } => unreachable!("a ticket ends once"),
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Entry> {
        match self.slots.get(key.0 as usize)? {
            Slot::Used(entry) => Some(entry),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn of(&self, key: Key) -> &Entry {
        self.get(key)
            .expect("a ticket's entry is there until it ends")
    }

    pub(crate) fn of_mut(&mut self, key: Key) -> &mut Entry {
        match &mut self.slots[key.0 as usize] {
            Slot::Used(entry) => entry,
            Slot::Free { .. } => unreachable!("a ticket's entry is there until it ends"),
        }
    }

    /// How many there is room for.
    pub(crate) fn room(&self) -> usize {
        self.slots.len()
    }

    /// Gives the room of the entries back, of which none is used.
    pub(crate) fn give_back(&mut self) {
        *self = Self::new();
    }
}
