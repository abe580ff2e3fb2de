//! Tables of objects by raw handle. A freed handle is handed out again at once, as drivers do.

use std::panic::Location;

/// Where in the source something was asked for.
pub(crate) type Site = &'static Location<'static>;

/// Objects of one kind by raw handle.
#[derive(Debug)]
pub(crate) struct Table<T> {
    /// Distinguishes the kinds, so that no handle of one kind names an object of another.
    kind: u64,
    entries: Vec<Entry<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
enum Entry<T> {
    Live(T),
    /// Destroyed, where.
    Dead(Site),
}

impl<T> Table<T> {
    pub(crate) fn new(kind: u32) -> Self {
        Self {
            kind: u64::from(kind & 15),
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index] = Entry::Live(value);
                index
            }
            None => {
                self.entries.push(Entry::Live(value));
                self.entries.len() - 1
            }
        };
        self.raw(index)
    }

    /// The number of the entry from 1, and the kind in the low four bits.
    fn raw(&self, index: usize) -> u64 {
        ((index as u64 + 1) << 4) | self.kind
    }

    fn index(&self, raw: u64) -> Option<usize> {
        let index = usize::try_from(raw >> 4).ok()?.checked_sub(1)?;
        (raw & 15 == self.kind).then_some(index)
    }

    pub(crate) fn get(&self, raw: u64) -> Option<&T> {
        match self.entries.get(self.index(raw)?)? {
            Entry::Live(value) => Some(value),
            Entry::Dead(_) => None,
        }
    }

    pub(crate) fn get_mut(&mut self, raw: u64) -> Option<&mut T> {
        let index = self.index(raw)?;
        match self.entries.get_mut(index)? {
            Entry::Live(value) => Some(value),
            Entry::Dead(_) => None,
        }
    }

    /// Where the object of this handle was destroyed, when no other has taken its place.
    pub(crate) fn destroyed_at(&self, raw: u64) -> Option<Site> {
        match self.entries.get(self.index(raw)?)? {
            Entry::Live(_) => None,
            Entry::Dead(site) => Some(site),
        }
    }

    pub(crate) fn remove(&mut self, raw: u64, site: Site) -> Option<T> {
        let index = self.index(raw)?;
        let entry = self.entries.get_mut(index)?;
        if matches!(entry, Entry::Dead(_)) {
            return None;
        }
        let Entry::Live(value) = std::mem::replace(entry, Entry::Dead(site)) else {
            return None;
        };
        self.free.push(index);
        Some(value)
    }

    /// The live objects, by ascending handle.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> + '_ {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| match entry {
                Entry::Live(value) => Some((self.raw(index), value)),
                Entry::Dead(_) => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_reused_at_once_and_kinds_do_not_mix() {
        let (mut streams, mut events) = (Table::new(1), Table::new(2));
        let (a, b) = (streams.insert('a'), streams.insert('b'));
        let e = events.insert('e');
        assert!(a != b && streams.get(e).is_none() && events.get(a).is_none());
        let here = Location::caller();
        assert_eq!(streams.remove(a, here), Some('a'));
        assert_eq!(streams.remove(a, here), None);
        assert_eq!(streams.destroyed_at(a), Some(here));
        assert_eq!(streams.insert('c'), a);
        assert_eq!(streams.iter().collect::<Vec<_>>(), [(a, &'c'), (b, &'b')]);
        assert!(
            streams.get(0).is_none()
                && streams.get(u64::MAX).is_none()
                && streams.get(a + 1).is_none()
        );
    }
}
