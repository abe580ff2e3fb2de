//! Handing operations to an executor.

use crate::permits::{Permit, Permits};
use crate::sync::{Arc, Mutex, lock};
use crate::task::{TaskInfo, TaskResult};
use crate::{Async, AsyncError, Task};
use std::fmt;
use std::panic::Location;

/// What runs tasks. It is implemented for closures, so that any executor is one line away:
///
/// ```
/// use async_value::{Async, spawn};
///
/// # fn main() -> Result<(), async_value::AsyncError> {
/// let executor = |task| {
///     std::thread::spawn(|| futures::executor::block_on(task)); // a thread for each: just an example
/// };
/// let value = Async::empty();
/// spawn(&executor, "set", || {
///     let value = value.write();
///     async move {
///         value.await.set(1);
///         Ok(())
///     }
/// })?;
/// assert_eq!(*value.wait()?, 1);
/// # Ok(())
/// # }
/// ```
///
/// Features `tokio`, `smol` and `futures` implement it for the executors of these crates.
pub trait Spawn {
    /// Takes a task, to be polled like any future until it ends. One that can't be taken is dropped.
    fn spawn(&self, task: Task);

    /// Asked before an operation takes its tickets: whether another one may be queued.
    ///
    /// # Errors
    /// [`AsyncError::Full`].
    fn admit(&self) -> Result<Admission, AsyncError> {
        Ok(Admission::unlimited())
    }
}

impl<F: Fn(Task)> Spawn for F {
    fn spawn(&self, task: Task) {
        self(task);
    }
}

/// The leave to queue one operation. It ends with the task.
pub struct Admission(Permit);

impl Admission {
    /// Where nothing limits the number of queued operations.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self(Permit::free())
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").finish_non_exhaustive()
    }
}

/// Queues an operation.
///
/// `prepare` runs now and takes the tickets, in program order; the future that it returns runs later. Writes that the
/// future holds and has not released when it ends fail with its error, with its panic, or with the fact that it was dropped.
///
/// # Errors
/// [`AsyncError::Full`]; `prepare` has not run then.
#[track_caller]
pub fn spawn<S, P, F>(executor: &S, operation: &'static str, prepare: P) -> Result<(), AsyncError>
where
    S: Spawn + ?Sized,
    P: FnOnce() -> F,
    F: Future<Output = TaskResult> + Send + 'static,
{
    let Admission(permit) = executor.admit()?;
    let info = TaskInfo::new(operation, Location::caller());
    executor.spawn(Task::prepare(info, permit, prepare));
    Ok(())
}

/// Queues an operation whose result is a new value.
///
/// ```
/// use async_value::{Async, SeededExecutor, compute};
///
/// # fn main() -> Result<(), async_value::AsyncError> {
/// let executor = SeededExecutor::new(0);
/// let (a, b) = (Async::new(2_u32), Async::new(3_u32));
/// let product = compute(&executor, "product", || {
///     let (a, b) = (a.read(), b.read());
///     async move { Ok(*a.await? * *b.await?) }
/// })?;
/// let cube = compute(&executor, "cube", || {
///     let root = product.read();
///     async move { Ok(root.await?.pow(3)) }
/// })?;
/// executor.run()?;
/// assert_eq!(*cube.try_read()?, 216);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As for [`spawn`].
#[track_caller]
pub fn compute<S, P, F, R>(
    executor: &S,
    operation: &'static str,
    prepare: P,
) -> Result<Async<R>, AsyncError>
where
    S: Spawn + ?Sized,
    P: FnOnce() -> F,
    F: Future<Output = TaskResult<R>> + Send + 'static,
    R: Send + Sync + 'static,
{
    let result = Async::empty().named(operation);
    spawn(executor, operation, || {
        let ticket = result.write();
        let future = prepare();
        async move {
            let value = future.await?;
            ticket.await.set(value);
            Ok(())
        }
    })?;
    Ok(result)
}

/// An executor with a limit on the operations that are queued and have not ended.
///
/// ```
/// use async_value::{Async, AsyncError, Limited, SeededExecutor, spawn};
///
/// # fn main() -> Result<(), AsyncError> {
/// let executor = SeededExecutor::new(0);
/// let limited = Limited::new(executor.clone(), 1);
/// let nothing = || async { Ok(()) };
/// spawn(&limited, "first", nothing)?;
/// assert!(matches!(spawn(&limited, "second", nothing), Err(AsyncError::Full { limit: 1 })));
/// executor.run_until(async {
///     let place = limited.place().await; // waits for the first to end
///     spawn(&place, "second", nothing)
/// })??;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Limited<S> {
    executor: S,
    permits: Arc<Permits>,
    limit: usize,
}

impl<S: Spawn> Limited<S> {
    /// At most `limit` operations at once.
    pub fn new(executor: S, limit: usize) -> Self {
        Self {
            executor,
            permits: Permits::new(limit),
            limit,
        }
    }

    /// Waits until one more operation may be queued, and keeps the place for it. First come, first served.
    pub async fn place(&self) -> Admitted<'_, S> {
        let permit = self.permits.take().await;
        Admitted {
            limited: self,
            permit: Mutex::new(Some(permit)),
        }
    }

    /// How many operations may be queued.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl<S: Spawn> Spawn for Limited<S> {
    fn spawn(&self, task: Task) {
        self.executor.spawn(task);
    }

    fn admit(&self) -> Result<Admission, AsyncError> {
        let permit = self.permits.try_take();
        let full = AsyncError::Full { limit: self.limit };
        permit.map(Admission).ok_or(full)
    }
}

/// A place for one operation on a [`Limited`] executor. It goes back when it drops unused.
#[must_use = "a place that is not spawned on goes back at once"]
pub struct Admitted<'l, S> {
    limited: &'l Limited<S>,
    permit: Mutex<Option<Permit>>,
}

impl<S: Spawn> Spawn for Admitted<'_, S> {
    fn spawn(&self, task: Task) {
        self.limited.spawn(task);
    }

    /// The place that was kept, the first time.
    fn admit(&self) -> Result<Admission, AsyncError> {
        let kept = lock(&self.permit).take();
        kept.map_or_else(|| self.limited.admit(), |permit| Ok(Admission(permit)))
    }
}

impl<S> fmt::Debug for Admitted<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted")
            .field("limit", &self.limited.limit)
            .finish_non_exhaustive()
    }
}
