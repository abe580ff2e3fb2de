//! Waiting for completions: awaited, for one of several, for a limited time.

use crate::capture;
use crate::completion::Completion;
use crate::notifier::{Notifier, WatchId};
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::CallSite;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A future that is ready once a completion is complete. Made by awaiting a [`Completion`].
///
/// It works under any executor: the device's notifier thread wakes it. Dropping it leaves no trace.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Finished {
    completion: Completion,
    watch: Option<WatchId>,
}

impl Finished {
    fn end_watch(&mut self) {
        if let Some(watch) = self.watch.take() {
            forget(&self.completion, watch);
        }
    }
}

fn forget(completion: &Completion, watch: WatchId) {
    let core = completion.core();
    if !core.is_elsewhere() {
        core.notifier.forget(watch);
    }
}

impl Future for Finished {
    type Output = RuntimeResult<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RuntimeResult<()>> {
        self.end_watch();
        if let Err(error) = capture::refuse("waiting for work") {
            return Poll::Ready(Err(error));
        }
        match self.completion.is_complete() {
            Ok(true) => return Poll::Ready(Ok(())),
            Ok(false) => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        let core = self.completion.core().clone();
        match Notifier::watch(&core, Some(&self.completion), context.waker()) {
            Ok(watch) => {
                self.watch = Some(watch);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        self.end_watch();
    }
}

impl IntoFuture for Completion {
    type Output = RuntimeResult<()>;
    type IntoFuture = Finished;

    fn into_future(self) -> Finished {
        Finished {
            completion: self,
            watch: None,
        }
    }
}

impl IntoFuture for &Completion {
    type Output = RuntimeResult<()>;
    type IntoFuture = Finished;

    fn into_future(self) -> Finished {
        self.clone().into_future()
    }
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker of the calling thread, for use with [`std::thread::park`].
pub(crate) fn thread_waker() -> Waker {
    Waker::from(Arc::new(Unpark(std::thread::current())))
}

impl Completion {
    /// Waits on the host until one of `completions` is complete; its position.
    ///
    /// # Errors
    /// [`RuntimeError::NothingToWaitFor`] for none; as for [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_any<'a>(
        completions: impl IntoIterator<Item = &'a Completion>,
    ) -> RuntimeResult<usize> {
        let _site = CallSite::enter();
        let completions: Vec<_> = completions.into_iter().collect();
        if completions.is_empty() {
            return Err(RuntimeError::NothingToWaitFor);
        }
        let done = wait_until(&completions, None)?;
        Ok(done.expect("it waits for ever"))
    }

    /// Waits on the host until the work is done, at most for `limit`; whether it is done.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_within(&self, limit: Duration) -> RuntimeResult<bool> {
        let _site = CallSite::enter();
        let until = Instant::now().checked_add(limit);
        wait_until(&[self], until).map(|done| done.is_some())
    }
}

/// Watches that end with the wait.
struct Watches<'c>(Vec<(&'c Completion, WatchId)>);

impl Drop for Watches<'_> {
    fn drop(&mut self) {
        for (completion, watch) in self.0.drain(..) {
            forget(completion, watch);
        }
    }
}

fn wait_until(completions: &[&Completion], until: Option<Instant>) -> RuntimeResult<Option<usize>> {
    capture::refuse("waiting on the host")?;
    let waker = thread_waker();
    loop {
        for (at, completion) in completions.iter().enumerate() {
            if completion.is_complete()? {
                return Ok(Some(at));
            }
        }
        let left = match until {
            None => None,
            Some(until) => match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(None),
                left => Some(left),
            },
        };
        let mut watches = Watches(Vec::with_capacity(completions.len()));
        for &completion in completions {
            let watch = Notifier::watch(completion.core(), Some(completion), &waker)?;
            watches.0.push((completion, watch));
        }
        // A wake between the watch and here is kept for the next park; one without a reason leads to another round.
        match left {
            Some(left) => std::thread::park_timeout(left),
            None => std::thread::park(),
        }
    }
}
