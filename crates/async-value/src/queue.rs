//! The queue of accesses of one value: its epochs under a lock, without the value.

use crate::entries::Key;
use crate::epochs::{Ended, Epochs, Outcome};
use crate::sync::{Arc, Mutex, MutexGuard, OnceLock, lock};
use crate::task;
use crate::{AsyncError, Cause, Failure};
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::task::{Context, Poll};

pub(crate) struct Queue {
    name: OnceLock<&'static str>,
    /// The name while none was given.
    kind: &'static str,
    epochs: Mutex<Epochs>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Queue {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self {
            name: OnceLock::new(),
            kind,
            epochs: Mutex::new(Epochs::new()),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name.get().copied().unwrap_or(self.kind)
    }

    /// The first name stays.
    pub(crate) fn set_name(&self, name: &'static str) {
        // An error says that there is a name.
        let _ = self.name.set(name);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Epochs> {
        lock(&self.epochs)
    }

    pub(crate) fn take(&self, write: bool, site: &'static Location<'static>) -> Key {
        let owner = task::current();
        self.lock().take(write, owner, site)
    }

    /// Whether the turn has come; ready with what readers get.
    pub(crate) fn poll(
        self: &Arc<Self>,
        key: Key,
        context: &mut Context<'_>,
    ) -> Poll<Option<Failure>> {
        let task = task::current();
        let mut epochs = self.lock();
        if let Some(failure) = epochs.turn(key, task.as_ref()) {
            return Poll::Ready(failure);
        }
        if !epochs.will_wake(key, context.waker()) {
            // Code of an executor does not run under the lock.
            drop(epochs);
            let waker = context.waker().clone();
            epochs = self.lock();
            if let Some(failure) = epochs.turn(key, task.as_ref()) {
                return Poll::Ready(failure);
            }
            let old = epochs.register(key, waker);
            drop(epochs);
            drop(old);
        } else {
            drop(epochs);
        }
        if let Some(task) = task {
            task.waits_for(self, key);
        }
        Poll::Pending
    }

    /// A place whose turn is now, and what readers get.
    pub(crate) fn try_take(
        &self,
        write: bool,
        site: &'static Location<'static>,
    ) -> Result<(Key, Option<Failure>), AsyncError> {
        let task = task::current();
        let mut epochs = self.lock();
        if let Some(first) = epochs.before(write) {
            return Err(AsyncError::Pending {
                value: self.name(),
                operation: first.owner.as_ref().map(|owner| owner.operation),
                site: first.site,
            });
        }
        let key = epochs.take(write, task.clone(), site);
        let failure = epochs.turn(key, task.as_ref());
        Ok((key, failure.expect("nobody comes first")))
    }

    pub(crate) fn finish(&self, key: Key, outcome: Outcome) {
        let Ended {
            wakes,
            waker,
            forgotten,
        } = self.lock().finish(key, outcome);
        // Code of an executor or of a user's error. One that panics has told so, and must not keep the others from being
        // woken, nor who ends several accesses from ending the rest.
        for waker in wakes {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        let _ = catch_unwind(AssertUnwindSafe(|| drop(waker)));
        for failure in forgotten {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(failure)));
        }
    }

    /// Gives up a write. In a task it ends with the poll that gave it up, which then knows why.
    pub(crate) fn abandon(self: &Arc<Self>, key: Key, site: &'static Location<'static>) {
        if !task::postpone(self, key) {
            let failure = Failure::new("write", site, Cause::of_drop());
            self.finish(key, Outcome::Failed(failure));
        }
    }
}
