//! The gate between those who use memory and those who would give it back.

use std::time::Duration;

use crate::{
    sync::{AtomicU64, Condvar, Mutex, Ordering, PoisonError, lock},
    word::Word,
};

/// A generation, and how many pins keep it from ending.
///
/// Memory of a generation may be used while a pin of that generation is held. Taking one is one
/// compare-and-swap; so is going on to the next generation, which needs that no pin is held. What
/// was done under a pin happens before the next generation begins: `unpin` releases what `advance`
/// acquires, and nothing but changes of the one word lies between.
///
/// The other two halves, that `pin` acquires what `advance` releases, are more than the bytes need:
/// whoever has an array of the new generation got it through the allocator's lock. They cost
/// nothing, and a pin needs no look at the rest of the crate then.
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU64,
    /// Held by waiters from their look at the word until they sleep.
    queue: Mutex<()>,
    /// Told when the last pin went or a generation began, if the word says that somebody waits.
    changed: Condvar,
}

/// Why there is no pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotPinned {
    /// The generation is over.
    Over { now: u64 },
    /// As many pins as can be counted are held.
    TooMany,
}

/// Why the generation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAdvanced {
    /// Pins are held.
    Pinned { pins: usize },
    /// There are no more generations.
    Last,
}

impl Gate {
    pub(crate) fn new(generation: u64) -> Self {
        Self {
            word: AtomicU64::new(Word::new(generation).0),
            queue: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        Word(self.word.load(Ordering::Relaxed)).generation()
    }

    pub(crate) fn pins(&self) -> usize {
        Word(self.word.load(Ordering::Relaxed)).pins()
    }

    /// Takes a pin of `generation`.
    #[inline]
    pub(crate) fn pin(&self, generation: u64) -> Result<(), NotPinned> {
        let mut word = Word(self.word.load(Ordering::Relaxed));
        loop {
            if word.generation() != generation {
                return Err(NotPinned::Over {
                    now: word.generation(),
                });
            }
            let pinned = word.pinned().ok_or(NotPinned::TooMany)?;
            match self.word.compare_exchange_weak(
                word.0,
                pinned.0,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => word = Word(now),
            }
        }
    }

    /// Lets a pin go.
    #[inline]
    pub(crate) fn unpin(&self) {
        let before = Word(self.word.fetch_sub(Word::ONE_PIN, Ordering::Release));
        debug_assert!(before.pins() > 0);
        if before.is_waited_for() && before.pins() == 1 {
            self.tell();
        }
    }

    /// Ends the generation.
    pub(crate) fn advance(&self) -> Result<(), NotAdvanced> {
        let mut word = Word(self.word.load(Ordering::Relaxed));
        loop {
            if word.pins() > 0 {
                return Err(NotAdvanced::Pinned { pins: word.pins() });
            }
            let next = word.advanced().ok_or(NotAdvanced::Last)?;
            match self.word.compare_exchange_weak(
                word.0,
                next.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) if word.is_waited_for() => {
                    self.tell();
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                Err(now) => word = Word(now),
            }
        }
    }

    /// Sleeps until no pin is held, at most for `patience`. It may return early.
    pub(crate) fn wait(&self, patience: Duration) {
        let queue = lock(&self.queue);
        let word = Word(self.word.fetch_or(Word::WAITING, Ordering::Relaxed));
        if word.pins() > 0 {
            let woken = self.changed.wait_timeout(queue, patience);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
    }

    #[cold]
    fn tell(&self) {
        // Whoever saw a pin and has not yet slept holds the queue.
        drop(lock(&self.queue));
        self.changed.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{
        AllocBuffer, ArrayError, BumperAllocator, CheckedAllocArray, InvalidMemory, sync::Arc,
        with_allocator, word::MAX_PINS,
    };

    #[test]
    fn more_views_than_can_be_counted_are_refused() {
        let bumper = BumperAllocator::new(AllocBuffer::new(4096).unwrap());
        let x = with_allocator(&bumper, || CheckedAllocArray::filled([8], 7_u32));
        let region = Arc::clone(&lock(&bumper.shared.state.0).region);
        region
            .gate
            .word
            .fetch_add(MAX_PINS as u64, Ordering::Relaxed);
        let refused = InvalidMemory::TooManyViews {
            allocator: bumper.id(),
            views: MAX_PINS,
        };
        assert_eq!(x.try_view().err(), Some(refused.clone()));
        let fresh = with_allocator(&bumper, || CheckedAllocArray::<u8, _>::try_uninit([1]));
        let error = fresh.err();
        assert!(
            matches!(&error, Some(ArrayError::Invalid(e)) if *e == refused),
            "{error:?}"
        );
        region
            .gate
            .word
            .fetch_sub(MAX_PINS as u64, Ordering::Relaxed);
        assert_eq!(x.sum(), 56);
        assert_eq!(bumper.reset(), Ok(()));
    }
}
