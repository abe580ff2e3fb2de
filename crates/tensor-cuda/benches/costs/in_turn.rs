//! The plainest executor: one thread, and tasks in the order in which they were woken.

use async_value::{Spawn, Task};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

type Ready = Arc<Mutex<VecDeque<Arc<Parked>>>>;

/// The executor.
#[derive(Default)]
pub(crate) struct InTurn(Ready);

struct Parked {
    /// `None` once it has ended.
    task: Mutex<Option<Task>>,
    ready: Ready,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap().push_back(self.clone());
    }
}

impl Spawn for InTurn {
    fn spawn(&self, task: Task) {
        let (task, ready) = (Mutex::new(Some(task)), self.0.clone());
        self.0
            .lock()
            .unwrap()
            .push_back(Arc::new(Parked { task, ready }));
    }
}

impl InTurn {
    /// Runs what can go on.
    pub(crate) fn run(&self) {
        loop {
            let next = self.0.lock().unwrap().pop_front();
            let Some(parked) = next else { return };
            let waker = Waker::from(parked.clone());
            let mut place = parked.task.lock().unwrap();
            let Some(task) = place.as_mut() else { continue };
            if let Poll::Ready(()) = Pin::new(task).poll(&mut Context::from_waker(&waker)) {
                *place = None;
            }
        }
    }
}
