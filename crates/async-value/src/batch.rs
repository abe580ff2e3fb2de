//! Tasks that run as one piece.

use crate::epochs::Epochs;
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::task::TaskInfo;
use crate::{AsyncError, Spawn, Task};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// An executor that keeps its tasks, to be polled in the order in which they were queued, without waiting in between: for what must
/// happen as one piece, such as a capture.
///
/// ```
/// use async_value::{Async, Batch, spawn};
///
/// # fn main() -> Result<(), async_value::AsyncError> {
/// let (batch, x) = (Batch::new(), Async::new(1));
/// for factor in [10, 100] {
///     spawn(&batch, "multiply", || {
///         let x = x.write();
///         async move {
///             let mut x = x.await;
///             *x.get_mut()? *= factor;
///             x.release();
///             Ok(())
///         }
///     })?;
/// }
/// assert_eq!(batch.poll_each()?, 0);
/// assert_eq!(*x.try_read()?, 1000);
/// # Ok(())
/// # }
/// ```
///
/// Tasks that are left when it drops are cancelled.
#[derive(Default)]
pub struct Batch(Mutex<Vec<Task>>);

impl Batch {
    /// Without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Task>> {
        lock(&self.0)
    }

    /// How many tasks have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether all tasks have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Polls each task once, in order; how many have not ended. Nothing wakes them: they go on with the next call.
    ///
    /// # Errors
    /// [`AsyncError::Failed`] with the failure of the first task that fails; those after it are not polled.
    pub fn poll_each(&self) -> Result<usize, AsyncError> {
        let mut context = Context::from_waker(Waker::noop());
        let (mut left, mut failed) = (Vec::new(), None);
        let mut tasks = std::mem::take(&mut *self.lock()).into_iter();
        for mut task in tasks.by_ref() {
            match Pin::new(&mut task).poll(&mut context) {
                Poll::Pending => left.push(task),
                Poll::Ready(()) => failed = task.failed().cloned(),
            }
            if failed.is_some() {
                break;
            }
        }
        left.extend(tasks);
        let mut kept = self.lock();
        // Those that were queued meanwhile come after them.
        left.append(&mut kept);
        let count = left.len();
        *kept = left;
        drop(kept);
        failed.map_or(Ok(count), |failure| Err(AsyncError::Failed(failure)))
    }

    /// Fails when a task was found waiting for an access that is of no task of this batch. To be called after
    /// [`poll_each`](Self::poll_each).
    ///
    /// # Errors
    /// [`AsyncError::Pending`], which names that access.
    pub fn check_alone(&self) -> Result<(), AsyncError> {
        let infos: Vec<_> = self.lock().iter().map(|task| task.info().clone()).collect();
        let own = |owner: &Arc<TaskInfo>| infos.iter().any(|info| Arc::ptr_eq(info, owner));
        for info in &infos {
            let (Some((queue, key)), _) = info.waiting() else {
                continue;
            };
            let epochs = queue.lock();
            let Some(number) = epochs.number_of(key) else {
                continue;
            };
            if let Some((operation, site)) = foreign(&epochs, number, own) {
                return Err(AsyncError::Pending {
                    value: queue.name(),
                    operation,
                    site,
                });
            }
        }
        Ok(())
    }
}

impl Batch {
    /// How many tasks were found waiting for something that is no ticket. To be called after [`poll_each`](Self::poll_each).
    #[must_use]
    pub fn waiting_elsewhere(&self) -> usize {
        let tasks = self.lock();
        let elsewhere = tasks
            .iter()
            .filter(|task| task.info().waiting().0.is_none());
        elsewhere.count()
    }
}

type Access = (Option<&'static str>, &'static std::panic::Location<'static>);

/// The first access before an epoch that is not of `own` tasks.
fn foreign(epochs: &Epochs, number: u64, own: impl Fn(&Arc<TaskInfo>) -> bool) -> Option<Access> {
    let before = epochs.iter().take_while(|(at, ..)| *at < number);
    let mut entries = before.flat_map(|(_, _, entries)| entries);
    let entry = entries.find(|entry| !entry.owner.as_ref().is_some_and(&own))?;
    Some((
        entry.owner.as_ref().map(|owner| owner.operation),
        entry.site,
    ))
}

impl Spawn for Batch {
    fn spawn(&self, task: Task) {
        self.lock().push(task);
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batch").field(&self.len()).finish()
    }
}
