//! The threads of a threaded schedule.
//!
//! One stands for the device: it runs operations, never host functions. The other is the thread of the driver's
//! callbacks: it runs host functions one after the other, and operations in between. Both run operations under the
//! simulation's lock, host functions without it.

use crate::core::Core;
use parking_lot::MutexGuard;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, ThreadId};
use std::time::Instant;

/// What the simulation knows of its workers.
#[derive(Debug, Default)]
pub(crate) struct WorkerState {
    /// Workers that wait for something to do.
    pub(crate) idle: u32,
    /// Workers that have not ended.
    alive: Vec<ThreadId>,
    /// Set when they are to end after what they are at.
    stopping: bool,
}

impl WorkerState {
    /// Whether there are workers, all of which go on.
    pub(crate) fn is_alive(&self) -> bool {
        !self.alive.is_empty() && !self.stopping
    }
}

/// The workers of a simulation; they end when this is dropped.
pub(crate) struct Workers {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// No workers.
    pub(crate) fn none(core: Arc<Core>) -> Self {
        Self {
            core,
            threads: Vec::new(),
        }
    }

    /// Starts the workers: both or, where the system gives no thread, none.
    pub(crate) fn start(core: Arc<Core>) -> io::Result<Self> {
        let mut workers = Self::none(core);
        for (name, may_call) in [("device", false), ("callbacks", true)] {
            let worker = Arc::clone(&workers.core);
            // Named among the living before it can end.
            let mut sim = workers.core.lock();
            let thread = Builder::new()
                .name(format!("cuda-sim {name}"))
                .spawn(move || work(&worker, may_call))?;
            sim.workers.alive.push(thread.thread().id());
            drop(sim);
            workers.threads.push(thread);
        }
        Ok(workers)
    }
}

impl Drop for Workers {
    /// Operations that are queued never run. A host function that runs is waited for, up to the wait limit.
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        let here = std::thread::current().id();
        let limit = Instant::now() + self.core.wait_limit;
        let mut sim = self.core.lock();
        sim.workers.stopping = true;
        self.core.work.notify_all();
        // The last handle may be dropped by a worker, with a host function that held it.
        let others = |alive: &[ThreadId]| alive.iter().any(|&thread| thread != here);
        while others(&sim.workers.alive) {
            if self.core.changed.wait_until(&mut sim.0, limit).timed_out() {
                break;
            }
        }
        let alive = sim.workers.alive.clone();
        drop(sim);
        for thread in self.threads.drain(..) {
            if !alive.contains(&thread.thread().id()) {
                // Nothing is left to do for it; that it has panicked was its end, too.
                let _ = thread.join();
            }
        }
    }
}

/// Says that a worker has ended, whichever way.
struct Alive<'a>(&'a Core);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        let here = std::thread::current().id();
        let mut sim = self.0.lock();
        sim.workers.alive.retain(|&thread| thread != here);
        // One that panics, which is a fault of the simulation, ends the others: who waits is told.
        sim.workers.stopping |= std::thread::panicking();
        self.0.changed.notify_all();
        self.0.work.notify_all();
    }
}

fn work(core: &Core, may_call: bool) {
    let _alive = Alive(core);
    let mut sim = core.lock();
    while !sim.workers.stopping {
        if core.step(&mut sim, may_call) {
            sim.breathe();
            continue;
        }
        sim.workers.idle += 1;
        core.work.wait(&mut sim.0);
        sim.workers.idle -= 1;
    }
}

impl crate::locked::Locked<'_> {
    /// Drops what was discarded, and lets others have the lock that wait for it.
    fn breathe(&mut self) {
        let discarded = std::mem::take(&mut self.0.discarded);
        if discarded.is_empty() {
            MutexGuard::bump(&mut self.0);
        } else {
            MutexGuard::unlocked_fair(&mut self.0, || drop(discarded));
        }
    }
}
