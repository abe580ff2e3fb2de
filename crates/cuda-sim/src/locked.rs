//! The simulation's lock, and what is dropped only after it is released.
//!
//! Host functions belong to the program: what they hold may call the driver when it is dropped. So work that may hold
//! the last reference to one is laid aside and dropped without the lock.

use crate::sim::Sim;
use parking_lot::MutexGuard;
use std::any::Any;
use std::ops::{Deref, DerefMut};

/// Things to drop without the lock.
#[derive(Debug, Default)]
pub(crate) struct Discarded(Vec<Box<dyn Any + Send>>);

impl Discarded {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, thing: impl Any + Send) {
        self.0.push(Box::new(thing));
    }
}

/// The locked simulation. When it ends, what was discarded meanwhile is dropped first, unlocked.
#[derive(Debug)]
pub(crate) struct Locked<'a>(pub(crate) MutexGuard<'a, Sim>);

impl Deref for Locked<'_> {
    type Target = Sim;

    fn deref(&self) -> &Sim {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Sim {
        &mut self.0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let discarded = std::mem::take(&mut self.0.discarded);
        if !discarded.is_empty() {
            MutexGuard::unlocked(&mut self.0, || drop(discarded));
        }
    }
}
