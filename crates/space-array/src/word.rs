//! The arithmetic of a gate's word: a generation and how many pins hold it.

#![forbid(unsafe_code)]

const PIN_BITS: u32 = 24;
const PINS: u64 = (1 << PIN_BITS) - 1;
const WAITING: u64 = 1 << PIN_BITS;
const GENERATION_SHIFT: u32 = PIN_BITS + 1;

/// The last generation; a region that has reached it is not used again.
pub(crate) const LAST_GENERATION: u64 = u64::MAX >> GENERATION_SHIFT;

/// Most pins that can be held at a time.
pub(crate) const MAX_PINS: usize = PINS as usize;

/// From the top: 39 bits of generation, one that says that somebody waits for the last pin to
/// go, 24 bits of pins.
///
/// | from | by | to |
/// |---|---|---|
/// | `(g, w, p)` | pin, `p < MAX_PINS` | `(g, w, p + 1)` |
/// | `(g, w, p)` | unpin | `(g, w, p - 1)` |
/// | `(g, w, p)` | wait | `(g, 1, p)` |
/// | `(g, w, 0)` | advance, `g < LAST_GENERATION` | `(g + 1, 0, 0)` |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    /// What `unpin` takes away.
    pub(crate) const ONE_PIN: u64 = 1;
    /// What `wait` sets.
    pub(crate) const WAITING: u64 = WAITING;

    pub(crate) fn new(generation: u64) -> Self {
        debug_assert!(generation <= LAST_GENERATION);
        Self(generation << GENERATION_SHIFT)
    }

    #[inline]
    pub(crate) fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT
    }

    #[inline]
    pub(crate) fn pins(self) -> usize {
        (self.0 & PINS) as usize
    }

    #[inline]
    pub(crate) fn is_waited_for(self) -> bool {
        self.0 & WAITING != 0
    }

    /// With one more pin, unless there are too many.
    #[inline]
    pub(crate) fn pinned(self) -> Option<Self> {
        (self.0 & PINS != PINS).then_some(Self(self.0 + 1))
    }

    /// The next generation, unless this is the last one. There are no pins.
    pub(crate) fn advanced(self) -> Option<Self> {
        debug_assert_eq!(self.pins(), 0);
        (self.generation() < LAST_GENERATION).then(|| Self::new(self.generation() + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_mix() {
        let word = Word(Word::new(7).0 | WAITING | 3);
        assert_eq!((word.generation(), word.pins()), (7, 3));
        assert!(word.is_waited_for());
        let next = Word(word.0 - 3).advanced().unwrap();
        assert_eq!((next.generation(), next.pins()), (8, 0));
        assert!(!next.is_waited_for());
    }

    #[test]
    fn neither_pins_nor_generations_wrap() {
        assert_eq!(Word(Word::new(1).0 | PINS).pinned(), None);
        assert_eq!(Word::new(LAST_GENERATION).advanced(), None);
    }
}
