//! Running a program under many seeds, and once for every call that can fail.

use crate::builder::SimBuilder;
use crate::driver::SimDriver;
use crate::report::Report;
use crate::timeline::Timeline;
use cuda_driver::{Call, Driver, ErrorCode};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A run that went wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The seed; a driver built with it and the same program does the same again.
    pub seed: u64,
    /// The call that was made to fail, its number from 1, and the code; `None` without an injected fault.
    pub fault: Option<(Call, u64, ErrorCode)>,
    /// What the program panicked with, if it did.
    pub panic: Option<String>,
    /// What the simulated device reported, leaks included if the builder checks them.
    pub reports: Vec<Report>,
    /// The run in modelled time.
    pub timeline: Timeline,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}", self.seed)?;
        if let Some((call, n, code)) = self.fault {
            write!(f, ", {call} number {n} returning {code}")?;
        }
        match &self.panic {
            Some(message) => write!(f, ": the program panicked: {message}")?,
            None => write!(f, ": {} reports", self.reports.len())?,
        }
        for report in &self.reports {
            write!(f, "\n{report}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl SimBuilder {
    /// Runs `program` on a new driver for each seed of a stepped schedule, until one fails: when the program panics, or
    /// when the device has something to report at the end. The program should free what it makes, or the builder
    /// should not check leaks.
    ///
    /// ```
    /// use cuda_driver::{Copies, DeviceId, Memory, Pattern, Streams};
    /// use cuda_sim::SimDriver;
    ///
    /// let failure = SimDriver::builder().explore(0..100, |sim| {
    ///     let device = DeviceId(0);
    ///     let (a, b) = (sim.stream_create(device, 0).unwrap(), sim.stream_create(device, 0).unwrap());
    ///     let x = sim.mem_alloc(device, 1).unwrap();
    ///     // SAFETY: the simulated device checks ranges and order.
    ///     unsafe {
    ///         sim.fill_async(device, x, Pattern::U8(1), 1, a).unwrap();
    ///         sim.fill_async(device, x, Pattern::U8(2), 1, b).unwrap();
    ///     }
    /// }).unwrap_err();
    /// assert_eq!((failure.seed, failure.reports[0].kind()), (0, "race"));
    /// ```
    ///
    /// # Errors
    /// The first failing run.
    pub fn explore(
        &self,
        seeds: Range<u64>,
        program: impl Fn(&SimDriver),
    ) -> Result<(), Box<Failure>> {
        for seed in seeds {
            run(
                &self.clone().seed(seed).timeline(true).build(),
                seed,
                None,
                &program,
            )?;
        }
        Ok(())
    }

    /// Runs `program` once without a fault, to count its driver calls, and then once for each of those calls with
    /// that call returning `code`. Returns how many runs there were. The program must cope: it should end without a
    /// panic, leaving nothing alive if the builder checks leaks.
    ///
    /// Calls that free or destroy something fail too, and then the object stays alive: it is the program that must
    /// not make things worse. So memory, streams and other objects whose own destruction was made to fail are not
    /// counted as leaks; see [`Failure::fault`].
    ///
    /// # Errors
    /// The first failing run.
    pub fn sweep(
        &self,
        seed: u64,
        code: ErrorCode,
        program: impl Fn(&SimDriver),
    ) -> Result<usize, Box<Failure>> {
        let builder = self.clone().seed(seed).timeline(true);
        let sim = builder.clone().build();
        run(&sim, seed, None, &program)?;
        let counts = sim.counters().snapshot();
        let mut runs = 1;
        for (call, count) in counts.iter() {
            for n in 1..=count {
                let sim = builder.clone().build();
                sim.faults().fail_nth(call, n, code);
                run(&sim, seed, Some((call, n, code)), &program)?;
                runs += 1;
            }
        }
        Ok(runs)
    }
}

fn run(
    sim: &SimDriver,
    seed: u64,
    fault: Option<(Call, u64, ErrorCode)>,
    program: &impl Fn(&SimDriver),
) -> Result<(), Box<Failure>> {
    let panic = catch_unwind(AssertUnwindSafe(|| program(sim)))
        .err()
        .map(panic_message);
    let mut reports = sim.shutdown();
    if fault.is_some_and(|(call, ..)| destroys(call)) {
        reports.retain(|report| report.kind() != "leak");
    }
    if panic.is_none() && reports.is_empty() {
        return Ok(());
    }
    Err(Box::new(Failure {
        seed,
        fault,
        panic,
        reports,
        timeline: sim.timeline(),
    }))
}

/// Whether a call ends an object, which outlives the call when it fails.
fn destroys(call: Call) -> bool {
    matches!(
        call,
        Call::StreamDestroy
            | Call::EventDestroy
            | Call::MemFree
            | Call::MemFreeAsync
            | Call::MemFreeHost
            | Call::MemPoolDestroy
            | Call::ModuleUnload
            | Call::StreamEndCapture
            | Call::GraphDestroy
            | Call::GraphExecDestroy
    )
}

/// What a panic says.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic
            .downcast_ref::<&str>()
            .map_or_else(|| "(no message)".to_owned(), |text| (*text).to_owned()),
    }
}
