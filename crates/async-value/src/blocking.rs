//! Waiting on a thread, outside of tasks.

use crate::dump::Dump;
use crate::entries::Key;
use crate::queue::Queue;
use crate::sync::{Arc, Wake, waker};
use crate::{AsyncError, task};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long a circle of tasks has to stay as it is to be taken for one that does not end.
const CIRCLE: Duration = Duration::from_secs(1);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker for a thread that parks.
pub(crate) fn thread_waker() -> Waker {
    waker(Arc::new(Unpark(std::thread::current())))
}

/// Polls a ticket, of `key` in `queue`, until it is ready.
pub(crate) fn wait<F: Future>(
    ticket: F,
    queue: &Arc<Queue>,
    key: Key,
) -> Result<F::Output, AsyncError> {
    task::refuse_inside()?;
    let waker = thread_waker();
    let mut context = Context::from_waker(&waker);
    let mut ticket = pin!(ticket);
    let mut circle = None;
    loop {
        if let Poll::Ready(output) = ticket.as_mut().poll(&mut context) {
            return Ok(output);
        }
        let parked = Instant::now();
        std::thread::park_timeout(CIRCLE);
        if parked.elapsed() < CIRCLE {
            continue;
        }
        // Tasks that are polled again may find their way out by something else than a ticket.
        let dump = Dump::of_wait(queue, key);
        match dump.circle() {
            [] => circle = None,
            found if circle.as_deref() == Some(found) => {
                return Err(AsyncError::stalled(dump));
            }
            found => circle = Some(found.to_vec()),
        }
    }
}
