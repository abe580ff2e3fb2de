//! Values whose writer may not have run yet.

use crate::cell::Shared;
use crate::dump::Dump;
use crate::sync::Arc;
use crate::{AsyncError, Read, ReadGuard, Spawn, Write, WriteGuard, spawn};
use std::fmt;
use std::panic::Location;

/// A value whose writer may not have run yet.
///
/// Accesses are asked for in program order, by taking tickets, and happen in that order, whoever awaits them when: a write,
/// then any number of reads at once, then the next write.
///
/// | | later | now, or an error | waits on this thread |
/// |---|---|---|---|
/// | read | [`read`](Self::read)`().await` | [`try_read`](Self::try_read) | [`wait`](Self::wait) or [`Read::wait`] |
/// | write | [`write`](Self::write)`().await` | [`try_write`](Self::try_write) | [`Write::wait`] |
///
/// Tickets outlive the `Async` that they were taken from. It is not `Clone`: [`copy`](Self::copy) queues a copy of the value;
/// put it in an [`Arc`] to share it.
///
/// Where several threads take tickets of the same values, the order of each value is that in which they came. If they take
/// tickets of several values in different orders, they may end up waiting for each other.
pub struct Async<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Async<T> {
    /// A value that can be read at once.
    pub fn new(value: T) -> Self {
        Self {
            shared: Shared::new(Some(value)),
        }
    }

    /// Without a value, until the first write. What is asked to be read before that is [`AsyncError::Empty`].
    #[must_use]
    pub fn empty() -> Self {
        Self {
            shared: Shared::new(None),
        }
    }

    /// Gives it a name for messages, unless it has one.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        self.shared.queue.set_name(name);
        self
    }

    /// The name, or that of the type.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.shared.queue.name()
    }

    /// Takes the ticket of a read: it comes after all writes asked for before, and before all those after.
    #[track_caller]
    pub fn read(&self) -> Read<T> {
        Read::take(&self.shared, Location::caller())
    }

    /// Takes the ticket of a write: it comes after all accesses asked for before, and before all those after.
    #[track_caller]
    pub fn write(&self) -> Write<T> {
        Write::take(&self.shared, Location::caller())
    }

    /// Reads now.
    ///
    /// # Errors
    /// [`AsyncError::Pending`] when a write comes first; [`AsyncError::Failed`] and [`AsyncError::Empty`].
    #[track_caller]
    pub fn try_read(&self) -> Result<ReadGuard<T>, AsyncError> {
        Read::try_now(&self.shared, Location::caller())
    }

    /// Writes now.
    ///
    /// # Errors
    /// [`AsyncError::Pending`] when any access comes first.
    #[track_caller]
    pub fn try_write(&self) -> Result<WriteGuard<T>, AsyncError> {
        Write::try_now(&self.shared, Location::caller())
    }

    /// Reads, and waits on this thread until that is possible.
    ///
    /// Only outside of executors. Inside a task that [`spawn`](crate::spawn()) has made that is an error, and with the feature
    /// `futures` wherever an executor of that crate runs on the thread. What other executors were given in another way would block
    /// them: nothing is known of it here.
    ///
    /// # Errors
    /// [`AsyncError::InsideTask`] and [`AsyncError::InsideExecutor`]; [`AsyncError::Stalled`] when tasks that this access comes after wait for each other in a
    /// circle, and have for a second; [`AsyncError::Failed`] and [`AsyncError::Empty`].
    #[track_caller]
    pub fn wait(&self) -> Result<ReadGuard<T>, AsyncError> {
        crate::task::refuse_inside()?;
        self.read().wait()
    }

    /// Whether two are the same value, of whatever types. An operation that reads and writes one value would wait for itself.
    #[must_use]
    pub fn is_same<U>(&self, other: &Async<U>) -> bool {
        Arc::ptr_eq(&self.shared.queue, &other.shared.queue)
    }

    /// Who accesses the value, who is going to, and whom they wait for.
    #[must_use]
    pub fn dump(&self) -> Dump {
        Dump::of([self.shared.queue.clone()], [])
    }

    /// A new value that gets a copy of this one as it is at this place in the order. Later writes of either don't concern the
    /// other.
    ///
    /// # Errors
    /// [`AsyncError::Full`].
    #[track_caller]
    pub fn copy<S: Spawn + ?Sized>(&self, executor: &S) -> Result<Self, AsyncError>
    where
        T: Clone + Send + Sync + 'static,
    {
        let copy = Self::empty().named(self.name());
        spawn(executor, "copy", || {
            let (from, to) = (self.read(), copy.write());
            async move {
                let from = from.await?;
                to.await.set(T::clone(&from));
                Ok(())
            }
        })?;
        Ok(copy)
    }
}

impl<T> Default for Async<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T> From<T> for Async<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T> fmt::Debug for Async<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Async")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
