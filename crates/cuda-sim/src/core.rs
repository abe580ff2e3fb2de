//! The simulation behind its lock, and the steps that drive it, whichever thread takes them.

use crate::builder::Schedule;
use crate::clock::{Clock, Epoch};
use crate::explore::panic_message;
use crate::handles::Site;
use crate::locked::Locked;
use crate::report::Finding;
use crate::scheduler::Step;
use crate::sim::{Caller, Sim};
use crate::time::Picos;
use cuda_driver::{CallCounters, DeviceId, ErrorCode};
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

thread_local! {
    /// Whether this thread runs a host function for a stream.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread runs a kernel's model, under the simulation's lock.
    static IN_MODEL: Cell<bool> = const { Cell::new(false) };
}

/// Runs a kernel's model, which must not come back to the simulation.
pub(crate) fn as_model<T>(model: impl FnOnce() -> T) -> std::thread::Result<T> {
    IN_MODEL.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(model));
    IN_MODEL.set(false);
    outcome
}

/// Whether this thread runs a host function for a stream.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// What a blocking call waits for, and what the host knows afterwards.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    pub(crate) entries: SmallVec<[Epoch; 4]>,
    pub(crate) clock: Clock,
    pub(crate) end: Picos,
}

pub(crate) struct Core {
    pub(crate) counters: CallCounters,
    pub(crate) schedule: Schedule,
    pub(crate) wait_limit: Duration,
    state: Mutex<Sim>,
    /// Woken by what a waiting host thread may wait for.
    pub(crate) changed: Condvar,
    /// Woken when there may be something to do for workers.
    pub(crate) work: Condvar,
    /// Executable graphs that a thread is in a call with, and where.
    pub(crate) in_use: Mutex<Vec<(u64, Site)>>,
}

impl Core {
    pub(crate) fn new(sim: Sim) -> Self {
        Self {
            counters: CallCounters::default(),
            schedule: sim.config.schedule,
            wait_limit: sim.config.wait_limit,
            state: Mutex::new(sim),
            changed: Condvar::new(),
            work: Condvar::new(),
            in_use: Mutex::new(Vec::new()),
        }
    }

    /// # Panics
    /// When this thread runs a kernel's model, for which it holds the lock.
    pub(crate) fn lock(&self) -> Locked<'_> {
        assert!(
            !IN_MODEL.get(),
            "the model of a kernel calls the simulated device that runs it"
        );
        Locked(self.state.lock())
    }

    /// Before a driver call: the device may get on, and with it host functions if the call asks whether something is
    /// done, as one that waits would.
    pub(crate) fn before_call(&self, sim: &mut Locked<'_>, asks: bool) {
        match self.schedule {
            Schedule::Stepped { .. } => while sim.wants_step() && self.step(sim, asks) {},
            Schedule::Eager => while asks && !sim.active.is_empty() && self.step(sim, true) {},
            Schedule::Threaded => {}
        }
    }

    /// After a driver call: what it queued runs if the schedule is eager, and workers hear of it.
    pub(crate) fn after_call(&self, sim: &mut Locked<'_>) {
        match self.schedule {
            Schedule::Stepped { .. } => {}
            Schedule::Eager => while !sim.active.is_empty() && self.step(sim, false) {},
            Schedule::Threaded => {
                if sim.workers.idle > 0 && !sim.active.is_empty() {
                    self.work.notify_all();
                }
            }
        }
    }

    /// Runs one operation, host functions only if `may_call`; false when none can run.
    pub(crate) fn step(&self, sim: &mut Locked<'_>, may_call: bool) -> bool {
        let step = match self.schedule {
            Schedule::Stepped { .. } | Schedule::Threaded => sim.step_randomly(may_call),
            Schedule::Eager => sim.step_in_order(may_call),
        };
        match step {
            Step::Idle => return false,
            Step::Ran => {}
            Step::Call { lane, function } => {
                let outcome = MutexGuard::unlocked(&mut sim.0, || {
                    IN_HOST_FUNCTION.set(true);
                    let outcome = catch_unwind(AssertUnwindSafe(|| function()));
                    IN_HOST_FUNCTION.set(false);
                    outcome
                });
                if let Err(panic) = outcome {
                    sim.host_function_panicked(lane, panic_message(panic));
                }
                sim.host_function_returned(lane);
                sim.discarded.add(function);
            }
        }
        sim.steps += 1;
        if sim.waiting > 0 {
            self.changed.notify_all();
        }
        true
    }

    /// Lets one operation run: here, or on a worker for which this waits. False when none can run, or when none has run
    /// for the wait limit, which ends at `deadline`.
    fn progress(&self, sim: &mut Locked<'_>, deadline: &mut Option<Instant>) -> bool {
        let mut may_come = sim.is_held() || sim.running_host_functions > 0;
        if self.schedule == Schedule::Threaded {
            may_come |= sim.can_step();
        } else if self.step(sim, true) {
            *deadline = None;
            return true;
        }
        if !may_come {
            return false;
        }
        let limit = *deadline.get_or_insert_with(|| Instant::now() + self.wait_limit);
        let steps = sim.steps;
        sim.waiting += 1;
        self.work.notify_all();
        let timed_out = self.changed.wait_until(&mut sim.0, limit).timed_out();
        sim.waiting -= 1;
        // Workers that have something to do and did not come to it are no deadlock.
        if sim.steps != steps || sim.is_worked_on() {
            *deadline = None;
            return true;
        }
        !timed_out
    }

    /// Waits until what is waited for has happened.
    pub(crate) fn run_until(
        &self,
        sim: &mut Locked<'_>,
        device: DeviceId,
        caller: Caller,
        wait: &Wait,
    ) -> Result<(), ErrorCode> {
        let mut deadline = None;
        loop {
            if let Some(code) = sim.devices[device.0 as usize].fault {
                return Err(code);
            }
            if wait.entries.iter().all(|&entry| sim.is_done(entry)) {
                return Ok(());
            }
            if self.progress(sim, &mut deadline) {
                continue;
            }
            let reason = if sim.is_held() {
                "a stream it needs is held"
            } else if sim.running_host_functions > 0 {
                "a host function has not returned within the wait limit"
            } else if sim.can_step() {
                "the threads of the device are gone"
            } else {
                "a host function before it never returned"
            };
            let reason = reason.to_owned();
            sim.reports.add(Finding::Deadlock {
                call: caller.call,
                site: caller.site,
                reason,
            });
            return Err(ErrorCode::UNKNOWN);
        }
    }

    /// Runs everything that can run, on all devices. Workers do it if there are any, and are waited for.
    pub(crate) fn run_all(&self) {
        let mut sim = self.lock();
        let mut deadline = None;
        let workers = self.schedule == Schedule::Threaded && !in_host_function();
        while sim.can_step() || (workers && sim.running_host_functions > 0) {
            if !self.progress(&mut sim, &mut deadline) {
                return;
            }
        }
    }
}
