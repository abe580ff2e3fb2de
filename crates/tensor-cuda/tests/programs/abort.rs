//! Dropping one task after a number of polls.

use async_value::{Admission, AsyncError, SeededExecutor, Spawn, Task, TaskResult, spawn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// An executor for one operation.
pub(crate) struct Aborting<'e> {
    pub(crate) executor: &'e SeededExecutor,
    /// Who admits it.
    pub(crate) admits: &'e dyn Spawn,
    pub(crate) polls: u64,
    /// Whether the task was dropped before it ended.
    pub(crate) aborted: Arc<AtomicBool>,
}

impl Spawn for Aborting<'_> {
    fn spawn(&self, task: Task) {
        let after = AbortAfter {
            task: Some(task),
            polls: self.polls,
            aborted: self.aborted.clone(),
        };
        spawn(self.executor, "abort", || after).unwrap();
    }

    fn admit(&self) -> Result<Admission, AsyncError> {
        self.admits.admit()
    }
}

struct AbortAfter {
    task: Option<Task>,
    polls: u64,
    aborted: Arc<AtomicBool>,
}

impl Future for AbortAfter {
    type Output = TaskResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TaskResult> {
        if self.polls > 0 {
            self.polls -= 1;
            let task = self.task.as_mut().expect("it has not ended");
            if Pin::new(task).poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if self.polls > 0 {
                return Poll::Pending;
            }
        }
        self.aborted.store(true, Ordering::Relaxed);
        self.task = None;
        Poll::Ready(Ok(()))
    }
}
