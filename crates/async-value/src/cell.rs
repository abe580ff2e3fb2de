//! A value together with the queue of its accesses.

use crate::queue::Queue;
use crate::sync::{Arc, Counted, Mutex, lock};

/// The value, shared by the tickets and guards.
///
/// Read guards hold a count of it. The one write guard takes it out of the place, and is its only holder then: all readers of the
/// epochs before have given their counts back before they ended.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    pub(crate) queue: Arc<Queue>,
    value: Mutex<Option<Counted<T>>>,
}

impl<T> Shared<T> {
    pub(crate) fn new(value: Option<T>) -> Arc<Self> {
        Arc::new(Self {
            queue: Arc::new(Queue::new(std::any::type_name::<T>())),
            value: Mutex::new(value.map(Counted::new)),
        })
    }

    /// For a reader at its turn.
    pub(crate) fn count(&self) -> Option<Counted<T>> {
        lock(&self.value).clone()
    }

    /// For the writer at its turn.
    pub(crate) fn take(&self) -> Option<Counted<T>> {
        lock(&self.value).take()
    }

    /// From the writer, before its turn ends.
    pub(crate) fn put(&self, value: Option<Counted<T>>) {
        let old = std::mem::replace(&mut *lock(&self.value), value);
        debug_assert!(old.is_none(), "the writer had taken it");
    }
}
