//! The one thread of a device that watches completions and wakes who waits for them.
//!
//! The driver can't wait for any one of several events with a time-out, so the thread asks for each in turn, and sleeps
//! longer the longer nothing happens. It starts with the first watch and sleeps while there is none.

use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::primitive::{Condvar, Mutex};
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::CaptureMode;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

/// Shortest and longest sleep between two rounds of questions. The longest is what a wake-up may come late by; questions cost about a
/// microsecond each.
const SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(200));

#[derive(Debug, Default)]
pub(crate) struct Notifier {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    watches: Vec<Watch>,
    next: u64,
    closed: bool,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Watch {
    id: WatchId,
    /// `None` to be woken by a poisoned device alone.
    completion: Option<Completion>,
    waker: Waker,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WatchId(u64);

impl Notifier {
    /// Wakes `waker` once `completion` is complete or can't be asked about any more, at the latest when the device's
    /// resources go. The watch then is over. Starts the thread when there is none.
    pub(crate) fn watch(
        core: &Arc<DeviceCore>,
        completion: Option<&Completion>,
        waker: &Waker,
    ) -> RuntimeResult<WatchId> {
        core.origin.check()?;
        let notifier = &core.notifier;
        // Outside the lock: a waker may be anything.
        let watch = (completion.cloned(), waker.clone());
        let mut state = notifier.state.lock();
        let id = WatchId(state.next);
        state.next += 1;
        if state.closed {
            drop(state);
            // All work of the device is over; who waits finds out by asking.
            waker.wake_by_ref();
            return Ok(id);
        }
        // Under loom nothing may run but the model's own threads, which need no completion to be asked about.
        if state.thread.is_none() && !cfg!(loom) {
            match start(core) {
                Ok(thread) => state.thread = Some(thread),
                Err(error) => {
                    drop(state);
                    return Err(error);
                }
            }
        }
        let (completion, waker) = watch;
        state.watches.push(Watch {
            id,
            completion,
            waker,
        });
        notifier.changed.notify_all();
        Ok(id)
    }

    /// Ends a watch, if it is not over.
    pub(crate) fn forget(&self, id: WatchId) {
        let mut state = self.state.lock();
        let at = state.watches.iter().position(|watch| watch.id == id);
        let watch = at.map(|at| state.watches.swap_remove(at));
        drop(state);
        // Outside the lock: a completion's drop may hand back an event, a waker's drop may be anything.
        drop(watch);
    }

    /// The thread's work.
    fn run(&self, core: &DeviceCore) {
        let mut sleep = SLEEP.0;
        let mut state = self.state.lock();
        loop {
            if state.closed {
                let over = std::mem::take(&mut state.watches);
                drop(state);
                over.into_iter().for_each(wake);
                return;
            }
            if state.watches.is_empty() {
                self.changed.wait(&mut state);
                sleep = SLEEP.0;
                continue;
            }
            let watched: Vec<_> = state
                .watches
                .iter()
                .map(|watch| (watch.id, watch.completion.clone()))
                .collect();
            drop(state);
            let mut over = Vec::new();
            for (id, completion) in watched {
                let ask = || match completion {
                    Some(completion) => completion.is_complete_in_cleanup(),
                    None => Ok(core.is_poisoned()),
                };
                // Whoever is woken hears of what went wrong, as it is the next to ask. A panic of the driver must not end the thread that
                // others rely on.
                let over_now = match catch_unwind(AssertUnwindSafe(ask)) {
                    Ok(Ok(over)) => over,
                    Ok(Err(error)) => {
                        core.park(error);
                        true
                    }
                    Err(_) => true,
                };
                if over_now {
                    over.push(id);
                }
            }
            state = self.state.lock();
            if over.is_empty() {
                self.changed.wait_for(&mut state, sleep);
                sleep = (2 * sleep).min(SLEEP.1);
                continue;
            }
            sleep = SLEEP.0;
            let (woken, kept) = std::mem::take(&mut state.watches)
                .into_iter()
                .partition(|watch| over.contains(&watch.id));
            state.watches = kept;
            drop(state);
            let woken: Vec<Watch> = woken;
            woken.into_iter().for_each(wake);
            state = self.state.lock();
        }
    }

    /// Ends the thread. Every watch is over.
    pub(crate) fn close(&self) {
        let thread = {
            let mut state = self.state.lock();
            state.closed = true;
            state.thread.take()
        };
        self.changed.notify_all();
        // A waker that runs on the thread may drop the last handle of the device: then the thread ends by itself.
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// Wakes who waits. A waker that panics has told so, and must not end the thread that others rely on.
fn wake(watch: Watch) {
    let _ = catch_unwind(AssertUnwindSafe(|| watch.waker.wake()));
}

fn start(core: &Arc<DeviceCore>) -> RuntimeResult<JoinHandle<()>> {
    let core = core.clone();
    std::thread::Builder::new()
        .name(format!("carve-notify-{}", core.id.0))
        .spawn(move || {
            // Its questions concern no capture of its own, and must not disturb one.
            let relax = || core.driver.exchange_capture_mode(CaptureMode::Relaxed);
            let _ = catch_unwind(AssertUnwindSafe(relax));
            core.notifier.run(&core);
        })
        .map_err(|error| RuntimeError::no_thread("wakes who waits for work", &error))
}
