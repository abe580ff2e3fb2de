//! The simulated driver: a handle of the simulation, and how each call of the port goes.

use crate::builder::{Config, Schedule, SimBuilder};
use crate::core::{Core, Wait, in_host_function};
use crate::faults::{Fails, Faults, Unwound};
use crate::handles::Site;
use crate::locked::Locked;
use crate::report::{Finding, Report};
use crate::sim::{Caller, Sim};
use crate::time::duration;
use crate::timeline::Timeline;
use crate::workers::Workers;
use cuda_driver::{
    Call, CallCounters, CallSite, CudaError, CudaResult, DeviceId, Driver, ErrorCode, RawGraphExec,
    RawStream,
};
use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// A simulated CUDA driver. Clones share one simulation: keep one to ask for reports, pass another on as a
/// [`Driver`].
#[derive(Clone)]
pub struct SimDriver {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
    /// Dropped with the last handle: no thread outlives it.
    _workers: Workers,
}

impl fmt::Debug for SimDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDriver")
            .field("schedule", &self.core().schedule)
            .finish_non_exhaustive()
    }
}

impl SimDriver {
    /// Says what to simulate.
    pub fn builder() -> SimBuilder {
        SimBuilder::new()
    }

    pub(crate) fn from_config(config: Config) -> io::Result<Self> {
        let schedule = config.schedule;
        let core = Arc::new(Core::new(Sim::new(Arc::new(config))));
        let workers = match schedule {
            Schedule::Threaded => Workers::start(Arc::clone(&core))?,
            Schedule::Stepped { .. } | Schedule::Eager => Workers::none(Arc::clone(&core)),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                core,
                _workers: workers,
            }),
        })
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
        self.core().after_call(&mut sim);
        self.core().changed.notify_all();
        true
    }

    /// Runs everything that can run, on all devices; with a threaded schedule, waits for it.
    pub fn run_all(&self) {
        self.core().run_all();
    }

    pub(crate) fn core(&self) -> &Core {
        &self.shared.core
    }

    pub(crate) fn state(&self) -> Locked<'_> {
        self.core().lock()
    }

    pub(crate) fn call_counters(&self) -> &CallCounters {
        &self.core().counters
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
            self.core().after_call(&mut sim);
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
            self.core().run_until(&mut sim, device, caller, &wait)?;
            sim.host_joins(&wait.clock, wait.end);
            sim.release_pools(device);
            self.core().after_call(&mut sim);
            Ok(())
        });
        result.map_err(|code| CudaError::new(code, call, Some(device)))
    }

    /// As [`call`](Self::call), with an executable graph, which only one thread at a time may be in a call with.
    #[track_caller]
    pub(crate) fn call_with_exec<T>(
        &self,
        call: Call,
        device: DeviceId,
        exec: RawGraphExec,
        body: impl FnOnce(&mut Sim, Caller) -> Result<T, ErrorCode>,
    ) -> CudaResult<T> {
        let in_use = InUse::note(
            self.core(),
            exec.raw(),
            caller(call, Location::caller()).site,
        );
        let other = in_use.other;
        self.call(call, Some(device), |sim, caller| {
            if let Some(other) = other {
                sim.reports.add(Finding::ConcurrentUse {
                    call: caller.call,
                    exec,
                    site: caller.site,
                    other,
                });
            }
            body(sim, caller)
        })
    }

    /// An executable graph is gone: whoever is in a call with its handle is not in one with the next of that handle.
    pub(crate) fn forget_uses(&self, exec: RawGraphExec) {
        let mut in_use = self.core().in_use.lock();
        in_use.retain(|(known, _)| *known != exec.raw());
    }

    fn begin(&self, caller: Caller, device: Option<DeviceId>) -> Result<Locked<'_>, ErrorCode> {
        self.core().counters.record(caller.call);
        let mut sim = self.state();
        if in_host_function() {
            let finding = Finding::DriverCallInHostFunction {
                call: caller.call,
                site: caller.site,
            };
            sim.reports.add(finding);
            return Err(ErrorCode::NOT_PERMITTED);
        }
        if sim.faults.gone {
            return Err(ErrorCode::DEINITIALIZED);
        }
        if let Some(device) = device {
            sim.device(device)?;
        }
        if let Some(failure) = sim.faults.next(caller.call) {
            let Fails::Returns(code) = failure else {
                drop(sim);
                std::panic::resume_unwind(Box::new(Unwound(caller.call)));
            };
            if let (true, Some(device)) = (code.is_sticky(), device) {
                sim.lose_device(device, code);
                self.core().changed.notify_all();
            }
            return Err(code);
        }
        // A thread that asks may have to wait for a host function, as one that waits does.
        let asks = matches!(caller.call, Call::StreamQuery | Call::EventQuery);
        self.core().before_call(&mut sim, asks);
        match device.and_then(|device| sim.devices[device.0 as usize].fault) {
            Some(code) => Err(code),
            None => Ok(sim),
        }
    }
}

fn caller(call: Call, direct: &'static Location<'static>) -> Caller {
    Caller {
        call,
        site: CallSite::current().unwrap_or(direct),
    }
}

/// A thread's call with an executable graph, while it goes on.
struct InUse<'a> {
    core: &'a Core,
    exec: u64,
    site: Site,
    /// Where another thread was in a call with it already.
    other: Option<Site>,
}

impl<'a> InUse<'a> {
    fn note(core: &'a Core, exec: u64, site: Site) -> Self {
        let mut in_use = core.in_use.lock();
        let other = in_use.iter().find(|(known, _)| *known == exec);
        let other = other.map(|&(_, site)| site);
        in_use.push((exec, site));
        Self {
            core,
            exec,
            site,
            other,
        }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let mut in_use = self.core.in_use.lock();
        let own = in_use
            .iter()
            .position(|&(exec, site)| exec == self.exec && site == self.site);
        if let Some(own) = own {
            in_use.swap_remove(own);
        }
    }
}
