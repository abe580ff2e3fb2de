//! Executors of other crates.

#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
use crate::{Spawn, Task};

#[cfg(feature = "tokio")]
impl Spawn for tokio::runtime::Handle {
    fn spawn(&self, task: Task) {
        // The handle of the task is not needed: its failures go to the values that it writes.
        drop(Self::spawn(self, task));
    }
}

#[cfg(feature = "tokio")]
impl Spawn for tokio::runtime::Runtime {
    fn spawn(&self, task: Task) {
        drop(Self::spawn(self, task));
    }
}

#[cfg(feature = "smol")]
impl Spawn for async_executor::Executor<'_> {
    fn spawn(&self, task: Task) {
        Self::spawn(self, task).detach();
    }
}

#[cfg(feature = "smol")]
impl Spawn for async_executor::LocalExecutor<'_> {
    fn spawn(&self, task: Task) {
        Self::spawn(self, task).detach();
    }
}

#[cfg(feature = "futures")]
impl Spawn for futures_executor::ThreadPool {
    fn spawn(&self, task: Task) {
        self.spawn_ok(task);
    }
}

#[cfg(feature = "futures")]
impl Spawn for futures_executor::LocalSpawner {
    fn spawn(&self, task: Task) {
        use futures_task::{FutureObj, Spawn as _};
        // An error says that the executor is gone, and has dropped the task.
        let _ = self.spawn_obj(FutureObj::new(Box::new(task)));
    }
}
