//! Tasks: a future with a name, which settles the writes that it gives up.

use crate::entries::Key;
use crate::epochs::Outcome;
use crate::permits::Permit;
use crate::queue::Queue;
use crate::sync::{Arc, Mutex, MutexGuard, Weak, lock};
use crate::{AsyncError, Cause, Failure};
use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// What the future of a task returns. `?` turns every error into a [`TaskError`].
pub type TaskResult<T = ()> = Result<T, TaskError>;

/// The error that ends a task. If it is, or comes from, the failure of a value that the task has read, the values that the
/// task should have written fail with that one; else with a new [`Failure`] of this task.
pub struct TaskError(Box<dyn Error + Send + Sync>);

impl TaskError {
    fn into_failure(self, task: &TaskInfo) -> Failure {
        let mut source: Option<&(dyn Error + 'static)> = Some(&*self.0);
        while let Some(error) = source {
            if let Some(failure) = error.downcast_ref::<Failure>() {
                return failure.clone();
            }
            source = error.source();
        }
        task.failure(Cause::Error(self.0))
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What is known of a task, shared with the tickets that it holds.
#[derive(Debug)]
pub(crate) struct TaskInfo {
    pub(crate) number: u64,
    pub(crate) operation: &'static str,
    pub(crate) site: &'static Location<'static>,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    /// The ticket that the latest poll found not ready, the last one if there are several.
    ticket: Option<(Weak<Queue>, Key)>,
    /// How often the task was polled.
    polls: u64,
}

impl TaskInfo {
    pub(crate) fn new(operation: &'static str, site: &'static Location<'static>) -> Arc<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            operation,
            site,
            waits: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        lock(&self.waits)
    }

    pub(crate) fn begin_poll(&self) {
        let mut waits = self.lock();
        waits.polls += 1;
        let old = waits.ticket.take();
        drop(waits);
        drop(old);
    }

    pub(crate) fn waits_for(&self, queue: &Arc<Queue>, key: Key) {
        let ticket = Some((Arc::downgrade(queue), key));
        let old = std::mem::replace(&mut self.lock().ticket, ticket);
        drop(old);
    }

    /// The ticket that it waits for, and how often it was polled.
    pub(crate) fn waiting(&self) -> (Option<(Arc<Queue>, Key)>, u64) {
        let waits = self.lock();
        let ticket = waits.ticket.as_ref();
        let ticket = ticket.and_then(|(queue, key)| Some((queue.upgrade()?, *key)));
        (ticket, waits.polls)
    }

    fn failure(&self, cause: Cause) -> Failure {
        Failure::new(self.operation, self.site, cause)
    }
}

thread_local! {
    /// The task whose code runs on this thread.
    static CURRENT: RefCell<Option<Running>> = const { RefCell::new(None) };
}

struct Running {
    task: Arc<TaskInfo>,
    /// Writes that the running code has given up.
    abandoned: Vec<(Arc<Queue>, Key)>,
    /// Whether a task runs, and not code outside of tasks that prepares one.
    polled: bool,
}

fn with_current<R>(f: impl FnOnce(&mut Running) -> R) -> Option<R> {
    // Tickets may be dropped when the thread's own values are.
    let result = CURRENT.try_with(|current| current.borrow_mut().as_mut().map(f));
    result.ok().flatten()
}

/// The task that runs or is prepared on this thread. Tickets that are taken or polled belong to it, as far as is known: one
/// that is handed on belongs to whoever polls it next.
pub(crate) fn current() -> Option<Arc<TaskInfo>> {
    with_current(|running| running.task.clone())
}

/// Keeps a write that is given up until the end of the poll; false outside of tasks.
pub(crate) fn postpone(queue: &Arc<Queue>, key: Key) -> bool {
    with_current(|running| running.abandoned.push((queue.clone(), key))).is_some()
}

/// Fails inside a task, where blocking the thread would block others, and where an executor is known to run on the thread.
pub(crate) fn refuse_inside() -> Result<(), AsyncError> {
    #[cfg(feature = "futures")]
    if futures_executor::enter().is_err() && current().is_none() {
        return Err(AsyncError::InsideExecutor);
    }
    let polled = |running: &mut Running| running.polled.then(|| running.task.clone());
    match with_current(polled).flatten() {
        None => Ok(()),
        Some(task) => Err(AsyncError::InsideTask {
            operation: task.operation,
            site: task.site,
        }),
    }
}

/// A stretch of running code of a task on this thread.
struct Scope {
    /// What ran before.
    outer: Option<Running>,
}

impl Scope {
    fn enter(task: &Arc<TaskInfo>, polled: bool) -> Self {
        let enter = |current: &RefCell<Option<Running>>| {
            let mut current = current.borrow_mut();
            let inside = current.as_ref().is_some_and(|outer| outer.polled);
            current.replace(Running {
                task: task.clone(),
                abandoned: Vec::new(),
                polled: polled || inside,
            })
        };
        Self {
            outer: CURRENT.try_with(enter).ok().flatten(),
        }
    }

    /// Ends it: the writes that were given up.
    fn leave(mut self) -> Vec<(Arc<Queue>, Key)> {
        self.restore().map_or_else(Vec::new, |own| own.abandoned)
    }

    fn restore(&mut self) -> Option<Running> {
        let outer = self.outer.take();
        let own = CURRENT.try_with(|current| std::mem::replace(&mut *current.borrow_mut(), outer));
        own.ok().flatten()
    }
}

/// Ends `abandoned` with a failure, if there are any; whether there were.
fn settle(abandoned: Vec<(Arc<Queue>, Key)>, failure: impl FnOnce() -> Failure) -> bool {
    if abandoned.is_empty() {
        return false;
    }
    let failure = failure();
    for (queue, key) in abandoned {
        queue.finish(key, Outcome::Failed(failure.clone()));
    }
    true
}

type TaskFuture = Pin<Box<dyn Future<Output = TaskResult> + Send>>;

/// A queued operation, to be polled by an executor. Made by [`spawn`](crate::spawn()); executors get it through
/// [`Spawn`](crate::Spawn).
///
/// When it ends, panics or is dropped, each write that it holds and has not released ends with a [`Failure`].
#[must_use = "a task does nothing unless an executor polls it"]
pub struct Task {
    /// `None` once ended.
    future: Option<TaskFuture>,
    info: Arc<TaskInfo>,
    permit: Permit,
    /// With what it has ended, unless well.
    failed: Option<Failure>,
}

impl Task {
    /// Prepares a task: `prepare` runs now, and takes the tickets that the future will use.
    pub(crate) fn prepare<P, F>(info: Arc<TaskInfo>, permit: Permit, prepare: P) -> Self
    where
        P: FnOnce() -> F,
        F: Future<Output = TaskResult> + Send + 'static,
    {
        let scope = Scope::enter(&info, false);
        let prepared = catch_unwind(AssertUnwindSafe(|| Box::pin(prepare())));
        let abandoned = scope.leave();
        match prepared {
            Ok(future) => {
                settle(abandoned, || info.failure(Cause::Dropped));
                let future: TaskFuture = future;
                Self {
                    future: Some(future),
                    info,
                    permit,
                    failed: None,
                }
            }
            Err(payload) => {
                settle(abandoned, || info.failure(Cause::of_panic(&*payload)));
                resume_unwind(payload)
            }
        }
    }

    /// The name of its operation.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.info.operation
    }

    /// Where it was asked for.
    #[must_use]
    pub fn site(&self) -> &'static Location<'static> {
        self.info.site
    }

    pub(crate) fn info(&self) -> &Arc<TaskInfo> {
        &self.info
    }

    /// The failure with which it has ended.
    pub(crate) fn failed(&self) -> Option<&Failure> {
        self.failed.as_ref()
    }
}

impl Future for Task {
    type Output = ();

    /// # Panics
    /// When the task panicked and held no write through which that would be known; when it is polled after its end.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self {
            future,
            info,
            permit,
            failed,
        } = &mut *self;
        let running = future.as_mut().expect("a task is not polled after its end");
        info.begin_poll();
        let scope = Scope::enter(info, true);
        let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)));
        if matches!(polled, Ok(Poll::Pending)) {
            settle(scope.leave(), || info.failure(Cause::Dropped));
            return Poll::Pending;
        }
        // What it still holds goes now, so that its failure is known.
        let dropped = catch_unwind(AssertUnwindSafe(|| *future = None));
        let abandoned = scope.leave();
        let panic = match polled {
            Ok(Poll::Ready(Ok(()))) => None,
            Ok(Poll::Ready(Err(error))) => {
                let failure = error.into_failure(info);
                *failed = Some(failure.clone());
                settle(abandoned, || failure);
                *permit = Permit::free();
                return Poll::Ready(());
            }
            Ok(Poll::Pending) => unreachable!("returned above"),
            Err(payload) => Some(payload),
        };
        match panic.or(dropped.err()) {
            None => {
                settle(abandoned, || info.failure(Cause::Dropped));
            }
            Some(payload) => {
                let failure = info.failure(Cause::of_panic(&*payload));
                *failed = Some(failure.clone());
                let told = settle(abandoned, || failure);
                *permit = Permit::free();
                if !told {
                    resume_unwind(payload);
                }
            }
        }
        *permit = Permit::free();
        Poll::Ready(())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else {
            return;
        };
        self.info.begin_poll();
        let scope = Scope::enter(&self.info, true);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(future)));
        settle(scope.leave(), || self.info.failure(Cause::Cancelled));
        if let Err(payload) = dropped
            && !std::thread::panicking()
        {
            resume_unwind(payload);
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("operation", &self.info.operation)
            .field("site", &format_args!("{}", self.info.site))
            .field("ended", &self.future.is_none())
            .finish_non_exhaustive()
    }
}

/// Polls a future that is no [`Task`] as one of `task`: its tickets belong to that.
pub(crate) fn scoped<R>(task: &Arc<TaskInfo>, poll: impl FnOnce() -> R) -> R {
    let scope = Scope::enter(task, true);
    let polled = catch_unwind(AssertUnwindSafe(poll));
    settle(scope.leave(), || task.failure(Cause::Dropped));
    polled.unwrap_or_else(|payload| resume_unwind(payload))
}
