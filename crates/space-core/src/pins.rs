//! Which bytes of an arena arrays without a lifetime still hold.
//!
//! An array that is made ambiently borrows nothing. It holds a token instead, one for all arrays
//! that are made in the same level of frames, and the token keeps the slab's memory. When a level
//! ends, its bytes are given back down to the lowest byte of a token that somebody still holds;
//! what is above that stays *pinned* and belongs to the parent level from then on.
//!
//! Positions are bytes left below the cursor, as in [`Cursor`](crate::Cursor): they get smaller
//! with each carve.

#![forbid(unsafe_code)]

use std::{any::Any, fmt, ops::Range, sync::Arc};

/// What keeps the memory of a slab, shared between the arena and its ambient arrays.
pub type Keeper = Arc<dyn Any + Send + Sync>;

/// Held by each array of one level.
pub(crate) struct Token {
    /// Keeps the memory; never read.
    _slab: Keeper,
}

/// What an ambient array holds.
pub(crate) enum Held {
    /// The token of its level.
    Level(Arc<Token>),
    /// The slab, by an array that has no bytes and so isn't counted.
    Slab(Keeper),
}

impl Held {
    /// The same without its kind.
    pub(crate) fn keeper(self) -> Keeper {
        match self {
            Self::Level(token) => token,
            Self::Slab(keeper) => keeper,
        }
    }
}

/// The ambient arrays of an arena.
#[derive(Default)]
pub(crate) struct Pins {
    /// `None` if the slab's memory can't be kept beyond the arena.
    keeper: Option<Keeper>,
    /// One for each level in which arrays were made, the innermost last. A level's arrays lie at
    /// or above `bottom`, and those of the levels after it below.
    levels: Vec<PinnedLevel>,
    /// The level that the next array belongs to, if it has made one already.
    current: Option<usize>,
    /// Bytes that ended levels left behind, disjoint, the latest last.
    pinned: Vec<Range<usize>>,
    /// Tokens that nobody else holds, to be used again: a warm arena allocates nothing.
    free: Vec<Arc<Token>>,
}

struct PinnedLevel {
    token: Arc<Token>,
    /// Position after the level's first array.
    first: usize,
    /// Position after the level's latest array.
    bottom: usize,
}

impl Pins {
    pub(crate) fn keep(&mut self, keeper: Keeper) {
        self.keeper = Some(keeper);
    }

    pub(crate) fn can_keep(&self) -> bool {
        self.keeper.is_some()
    }

    /// What keeps the slab; `None` if it can't be kept.
    pub(crate) fn slab(&self) -> Option<Keeper> {
        self.keeper.clone()
    }

    /// Whether ends of levels have nothing to do here.
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty() && self.pinned.is_empty()
    }

    /// Begins a level: what is made next gets a token of its own. Returns what to pass to
    /// [`leave`](Pins::leave) at the level's end.
    #[inline]
    pub(crate) fn enter(&mut self) -> Option<usize> {
        self.current.take()
    }

    /// Goes on with the level that was current before the matching [`enter`](Pins::enter).
    #[inline]
    pub(crate) fn leave(&mut self, before: Option<usize>) {
        self.current = before.filter(|&level| level < self.levels.len());
    }

    /// The token of an array that was just carved down to `left`; `None` if the slab can't be
    /// kept.
    #[inline]
    pub(crate) fn hold(&mut self, left: usize) -> Option<Arc<Token>> {
        let level = match self.current {
            Some(level) => level,
            None => self.begin(left)?,
        };
        let level = &mut self.levels[level];
        level.bottom = left;
        Some(Arc::clone(&level.token))
    }

    /// Begins a level with an array that was just carved down to `left`.
    #[cold]
    fn begin(&mut self, left: usize) -> Option<usize> {
        let slab = self.keeper.as_ref()?;
        let fresh = || {
            Arc::new(Token {
                _slab: Arc::clone(slab),
            })
        };
        let token = self.free.pop().unwrap_or_else(fresh);
        self.levels.push(PinnedLevel {
            token,
            first: left,
            bottom: left,
        });
        Some(*self.current.insert(self.levels.len() - 1))
    }

    /// The arrays made since position `to`, all in the current level, were dropped and their bytes
    /// given back.
    pub(crate) fn roll_back(&mut self, to: usize) {
        for level in &mut self.levels {
            level.bottom = level.bottom.max(to);
        }
        // A level that had nothing else is as if it had not begun.
        let begun =
            |level: &mut PinnedLevel| level.first < to && Arc::get_mut(&mut level.token).is_some();
        if let Some(level) = self.levels.pop_if(begun) {
            self.free.push(level.token);
            self.current = None;
        }
    }

    /// Ends a level that began at position `to`, and says how far bytes can be given back.
    pub(crate) fn settle(&mut self, to: usize) -> usize {
        let mut lowest = to;
        let free = &mut self.free;
        self.levels.retain_mut(|level| {
            if level.bottom >= to {
                return true;
            }
            // Exact, and ordered after the last use by whichever thread dropped the last array.
            if Arc::get_mut(&mut level.token).is_some() {
                free.push(Arc::clone(&level.token));
                return false;
            }
            lowest = lowest.min(level.bottom);
            true
        });
        self.current = None;
        self.pinned.retain_mut(|bytes| {
            // A mark of the level that left them behind may lie in their midst.
            bytes.start = bytes.start.max(to);
            bytes.start < bytes.end
        });
        if lowest < to {
            self.pinned.push(lowest..to);
        }
        lowest
    }

    /// How many arrays are alive in the levels that reach below position `to`.
    pub(crate) fn alive_below(&self, to: usize) -> usize {
        let levels = self.levels.iter().filter(|level| level.bottom < to);
        levels
            .map(|level| Arc::strong_count(&level.token) - 1)
            .sum()
    }

    /// Bytes that ended levels could not give back.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.pinned.iter().map(Range::len).sum()
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pins")
            .field("alive", &self.alive_below(usize::MAX))
            .field("pinned_bytes", &self.pinned_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins() -> Pins {
        let mut pins = Pins::default();
        pins.keep(Arc::new(()));
        pins
    }

    #[test]
    fn a_level_is_given_back_down_to_its_lowest_live_array() {
        let mut pins = pins();
        let outer = pins.hold(900).unwrap();
        let before = pins.enter();
        let inner = pins.hold(700).unwrap();
        let _other = pins.hold(600).unwrap();
        drop(inner);
        assert_eq!(pins.settle(900), 600);
        pins.leave(before);
        assert_eq!((pins.pinned_bytes(), pins.alive_below(1000)), (300, 2));

        // The outer level goes on with its own token, below what is pinned.
        let later = pins.hold(500).unwrap();
        assert!(Arc::ptr_eq(&outer, &later));
        assert_eq!(pins.settle(1000), 500);
        assert_eq!(pins.pinned_bytes(), 500);
    }

    #[test]
    fn arrays_of_another_level_do_not_count() {
        // As many arrays alive as when the inner level began, but others.
        let mut pins = pins();
        let first = pins.hold(900).unwrap();
        let before = pins.enter();
        let inner = pins.hold(800).unwrap();
        drop(first);
        assert_eq!(pins.settle(900), 800);
        drop(inner);
        pins.leave(before);
        assert_eq!(pins.settle(1000), 1000);
        assert!(pins.is_empty());
        assert_eq!((pins.pinned_bytes(), pins.free.len()), (0, 2));
    }

    #[test]
    fn a_roll_back_ends_a_level_that_it_undoes_and_no_other() {
        let mut pins = pins();
        // A level whose array is gone stays the one that goes on.
        drop(pins.hold(900));
        pins.roll_back(900);
        assert_eq!((pins.levels.len(), pins.current), (1, Some(0)));
        let before = pins.enter();
        drop(pins.hold(800));
        pins.roll_back(900);
        assert_eq!((pins.levels.len(), pins.current), (1, None));
        pins.leave(before);
        let array = pins.hold(800).unwrap();
        assert_eq!((pins.levels.len(), pins.levels[0].bottom), (1, 800));
        drop(array);
        assert_eq!(pins.settle(1000), 1000);
        assert!(pins.is_empty());
    }

    #[test]
    fn what_is_pinned_is_given_back_from_below() {
        let mut pins = pins();
        let array = pins.hold(700).unwrap();
        assert_eq!(pins.settle(1000), 700);
        drop(array);
        assert_eq!(pins.settle(800), 800);
        assert_eq!((pins.pinned_bytes(), pins.is_empty()), (200, false));
        assert_eq!(pins.settle(1000), 1000);
        assert_eq!((pins.pinned_bytes(), pins.is_empty()), (0, true));
    }

    #[test]
    fn a_slab_that_cannot_be_kept_backs_no_array() {
        assert!(Pins::default().hold(10).is_none());
    }
}
