//! The simulated driver: one lock around the simulation, and the loops that drive it.

use crate::builder::{Config, Schedule, SimBuilder};
use crate::clock::{Clock, Epoch};
use crate::explore::panic_message;
use crate::faults::Faults;
use crate::locked::Locked;
use crate::report::{Finding, Report};
use crate::scheduler::Step;
use crate::sim::{Caller, Sim};
use crate::time::{Picos, duration};
use crate::timeline::Timeline;
use cuda_driver::{
    Call, CallCounters, CallSite, CudaError, CudaResult, DeviceId, Driver, ErrorCode, RawStream,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    /// Whether this thread runs a host function for a stream.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// A simulated CUDA driver. Clones share one simulation: keep one to ask for reports, pass another on as a
/// [`Driver`].
#[derive(Clone)]
pub struct SimDriver {
    shared: Arc<Shared>,
}

struct Shared {
    counters: CallCounters,
    schedule: Schedule,
    wait_limit: Duration,
    state: Mutex<Sim>,
    /// Woken when a host function returns or a stream is released.
    changed: Condvar,
}

/// What a blocking call waits for, and what the host knows afterwards.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    pub(crate) entries: SmallVec<[Epoch; 4]>,
    pub(crate) clock: Clock,
    pub(crate) end: Picos,
}

impl fmt::Debug for SimDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDriver")
            .field("schedule", &self.shared.schedule)
            .finish_non_exhaustive()
    }
}

impl SimDriver {
    /// Says what to simulate.
    pub fn builder() -> SimBuilder {
        SimBuilder::new()
    }

    pub(crate) fn from_config(config: Config) -> Self {
        let (schedule, wait_limit) = (config.schedule, config.wait_limit);
        Self {
            shared: Arc::new(Shared {
                counters: CallCounters::default(),
                schedule,
                wait_limit,
                state: Mutex::new(Sim::new(Arc::new(config))),
                changed: Condvar::new(),
            }),
        }
    }

    /// This simulation as a driver, for the layers above.
    #[must_use]
    pub fn as_driver(&self) -> Arc<dyn Driver> {
        Arc::new(self.clone())
    }

    /// What was found wrong so far, in the order in which it was found.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.state().reports.all().to_vec()
    }

    /// Takes the reports away; what is found again is reported again.
    #[must_use = "the reports are gone afterwards"]
    pub fn take_reports(&self) -> Vec<Report> {
        self.state().reports.take()
    }

    /// Ends a test: panics with the text of every report when there is one.
    ///
    /// # Panics
    /// When there is a report.
    #[track_caller]
    pub fn assert_no_reports(&self) {
        let reports = self.reports();
        let texts: Vec<String> = reports.iter().map(ToString::to_string).collect();
        assert!(
            reports.is_empty(),
            "{} reports:\n{}",
            reports.len(),
            texts.join("\n")
        );
    }

    /// Injects faults.
    #[must_use]
    pub fn faults(&self) -> Faults<'_> {
        Faults(self)
    }

    /// The timeline so far; empty unless [`SimBuilder::timeline`] is on.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        self.state().timeline.clone()
    }

    /// When everything asked for so far ends in modelled time, from the start of the simulation.
    #[must_use]
    pub fn modelled_time(&self) -> Duration {
        let sim = self.state();
        duration(
            sim.lanes
                .iter()
                .map(|lane| lane.end)
                .max()
                .unwrap_or(0)
                .max(sim.host_end),
        )
    }

    /// Holds a stream: nothing queued on it starts until [`release_stream`](Self::release_stream). A waiting call
    /// that needs it blocks until another thread releases it, or reports a deadlock after the
    /// [wait limit](SimBuilder::wait_limit). False when there is no such stream.
    pub fn hold_stream(&self, stream: RawStream) -> bool {
        self.set_held(stream, true)
    }

    /// Lets a held stream go on. False when there is no such stream.
    pub fn release_stream(&self, stream: RawStream) -> bool {
        self.set_held(stream, false)
    }

    fn set_held(&self, stream: RawStream, held: bool) -> bool {
        let mut sim = self.state();
        let Some(lane) = sim.streams.get(stream.raw()).map(|entry| entry.lane) else {
            return false;
        };
        sim.lane(lane).held = held;
        self.settle(&mut sim);
        self.shared.changed.notify_all();
        true
    }

    /// Runs everything that can run, on all devices.
    pub fn run_all(&self) {
        let mut sim = self.state();
        while self.step(&mut sim, true) {}
    }

    pub(crate) fn state(&self) -> Locked<'_> {
        Locked(self.shared.state.lock())
    }

    pub(crate) fn call_counters(&self) -> &CallCounters {
        &self.shared.counters
    }

    /// One call of the port: counts it, lets the device make progress, and runs `body`.
    #[track_caller]
    pub(crate) fn call<T>(
        &self,
        call: Call,
        device: Option<DeviceId>,
        body: impl FnOnce(&mut Sim, Caller) -> Result<T, ErrorCode>,
    ) -> CudaResult<T> {
        let caller = caller(call, Location::caller());
        let result = self.begin(caller, device).and_then(|mut sim| {
            let result = body(&mut sim, caller);
            self.settle(&mut sim);
            result
        });
        result.map_err(|code| CudaError::new(code, call, device))
    }

    /// One blocking call of the port: `body` says what to wait for.
    #[track_caller]
    pub(crate) fn waiting_call(
        &self,
        call: Call,
        device: DeviceId,
        body: impl FnOnce(&mut Sim, Caller) -> Result<Wait, ErrorCode>,
    ) -> CudaResult<()> {
        let caller = caller(call, Location::caller());
        let result = self.begin(caller, Some(device)).and_then(|mut sim| {
            let wait = body(&mut sim, caller)?;
            self.run_until(&mut sim, device, caller, &wait)?;
            sim.host_joins(&wait.clock, wait.end);
            sim.release_pools(device);
            self.settle(&mut sim);
            Ok(())
        });
        result.map_err(|code| CudaError::new(code, call, Some(device)))
    }

    fn begin(&self, caller: Caller, device: Option<DeviceId>) -> Result<Locked<'_>, ErrorCode> {
        self.shared.counters.record(caller.call);
        let mut sim = self.state();
        if IN_HOST_FUNCTION.get() {
            let finding = Finding::DriverCallInHostFunction {
                call: caller.call,
                site: caller.site,
            };
            sim.reports.add(finding);
            return Err(ErrorCode::NOT_PERMITTED);
        }
        if let Some(device) = device {
            sim.device(device)?;
        }
        if let Some(code) = sim.faults.next(caller.call) {
            if let (true, Some(device)) = (code.is_sticky(), device) {
                sim.lose_device(device, code);
            }
            return Err(code);
        }
        // A thread that asks may have to wait for a host function, as one that waits does.
        let asks = matches!(caller.call, Call::StreamQuery | Call::EventQuery);
        match self.shared.schedule {
            Schedule::Stepped { .. } => while sim.wants_step() && self.step(&mut sim, asks) {},
            Schedule::Eager => while asks && !sim.active.is_empty() && self.step(&mut sim, true) {},
        }
        match device.and_then(|device| sim.devices[device.0 as usize].fault) {
            Some(code) => Err(code),
            None => Ok(sim),
        }
    }

    /// With the eager schedule, runs what can run.
    fn settle(&self, sim: &mut Locked<'_>) {
        if self.shared.schedule == Schedule::Eager {
            while !sim.active.is_empty() && self.step(sim, false) {}
        }
    }

    /// Runs one operation, host functions only if `may_call`; false when none can run.
    fn step(&self, sim: &mut Locked<'_>, may_call: bool) -> bool {
        let step = match self.shared.schedule {
            Schedule::Stepped { .. } => sim.step_randomly(may_call),
            Schedule::Eager => sim.step_in_order(may_call),
        };
        match step {
            Step::Ran => true,
            Step::Idle => false,
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
                self.shared.changed.notify_all();
                true
            }
        }
    }

    /// Runs operations until what is waited for has happened.
    fn run_until(
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
            if self.step(sim, true) {
                deadline = None;
                continue;
            }
            let held = sim.lanes.iter().any(|lane| lane.held);
            let limit = *deadline.get_or_insert_with(|| Instant::now() + self.shared.wait_limit);
            if (held || sim.running_host_functions > 0)
                && !self
                    .shared
                    .changed
                    .wait_until(&mut sim.0, limit)
                    .timed_out()
            {
                continue;
            }
            let reason = if held {
                "a stream it needs is held"
            } else if sim.running_host_functions > 0 {
                "a host function has not returned within the wait limit"
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
}

fn caller(call: Call, direct: &'static Location<'static>) -> Caller {
    Caller {
        call,
        site: CallSite::current().unwrap_or(direct),
    }
}
