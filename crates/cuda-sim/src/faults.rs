//! Injected faults: errors that a real device gives rarely, at the moment a test wants them.

use crate::driver::SimDriver;
use cuda_driver::{Call, DeviceId, ErrorCode};

/// What is to fail, and when.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan {
    /// Calls until each fails, the failing one included.
    calls: Vec<(Call, u64, Fails)>,
    /// The number of the kernel, counted from the start, whose execution loses its device.
    launch: Option<(u64, ErrorCode)>,
    /// Host functions until one never returns, that one included.
    lost_function: Option<u64>,
    /// Waits until one is forgotten, that one included.
    forgotten_wait: Option<u64>,
    /// The process ends: the driver is gone.
    pub(crate) gone: bool,
}

/// How a call fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fails {
    Returns(ErrorCode),
    Unwinds,
}

/// What a call that was told to unwind unwinds with.
#[derive(Clone, Copy, Debug)]
pub struct Unwound(pub Call);

impl FaultPlan {
    /// How this call is to fail.
    pub(crate) fn next(&mut self, call: Call) -> Option<Fails> {
        if self.calls.is_empty() {
            return None;
        }
        let mut failed = None;
        self.calls.retain_mut(|(planned, left, code)| {
            if *planned == call {
                *left -= 1;
                if *left == 0 {
                    failed = Some(*code);
                    return false;
                }
            }
            true
        });
        failed
    }

    /// How many failures there are still to come.
    fn planned(&self) -> usize {
        let others = [
            self.launch.is_some(),
            self.lost_function.is_some(),
            self.forgotten_wait.is_some(),
        ];
        self.calls.len() + others.into_iter().filter(|planned| *planned).count()
    }

    pub(crate) fn launch_fault(&mut self, launch: u64) -> Option<ErrorCode> {
        match self.launch {
            Some((planned, code)) if planned <= launch => {
                self.launch = None;
                Some(code)
            }
            _ => None,
        }
    }

    pub(crate) fn loses_host_function(&mut self) -> bool {
        counts_down(&mut self.lost_function)
    }

    pub(crate) fn forgets_wait(&mut self) -> bool {
        counts_down(&mut self.forgotten_wait)
    }
}

/// Whether this is the one that was counted down to.
fn counts_down(planned: &mut Option<u64>) -> bool {
    match planned {
        Some(1) => {
            *planned = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

/// Injects faults into a [`SimDriver`]; made by [`SimDriver::faults`]. Counts begin now, with 1.
#[derive(Debug)]
pub struct Faults<'a>(pub(crate) &'a SimDriver);

impl Faults<'_> {
    /// The `n`th call of this name from now on returns `code` and does nothing. A sticky code loses the device.
    ///
    /// # Panics
    /// When `n` is 0.
    pub fn fail_nth(&self, call: Call, n: u64, code: ErrorCode) {
        assert!(n > 0, "calls are counted from 1");
        let failure = Fails::Returns(code);
        self.0.state().faults.calls.push((call, n, failure));
    }

    /// The `n`th call of this name from now on unwinds with [`Unwound`] and does nothing, as a driver of somebody's own may that
    /// has a bug. No message is printed.
    ///
    /// ```
    /// use cuda_driver::{Call, DeviceId, Memory};
    /// use cuda_sim::{SimDriver, Unwound};
    /// use std::panic::{AssertUnwindSafe, catch_unwind};
    ///
    /// let sim = SimDriver::builder().build();
    /// sim.faults().unwind_nth(Call::MemAlloc, 1);
    /// let unwound = catch_unwind(AssertUnwindSafe(|| sim.mem_alloc(DeviceId(0), 4))).unwrap_err();
    /// assert!(matches!(unwound.downcast_ref(), Some(Unwound(Call::MemAlloc))));
    /// ```
    ///
    /// # Panics
    /// When `n` is 0.
    pub fn unwind_nth(&self, call: Call, n: u64) {
        assert!(n > 0, "calls are counted from 1");
        let failure = Fails::Unwinds;
        self.0.state().faults.calls.push((call, n, failure));
    }

    /// The `n`th kernel that executes from now on loses its device: every later call there returns `code`.
    ///
    /// # Panics
    /// When `n` is 0.
    pub fn lose_device_at_launch(&self, n: u64, code: ErrorCode) {
        assert!(n > 0, "launches are counted from 1");
        let mut sim = self.0.state();
        let planned = sim.launches + n;
        sim.faults.launch = Some((planned, code));
    }

    /// The `n`th host function that is called from now on never returns: its stream stops there.
    ///
    /// # Panics
    /// When `n` is 0.
    pub fn lose_host_function(&self, n: u64) {
        assert!(n > 0, "host functions are counted from 1");
        self.0.state().faults.lost_function = Some(n);
    }

    /// The `n`th `cuStreamWaitEvent` from now on succeeds and orders nothing: what a program would do that lacks this
    /// wait. A program that needs every wait it makes is reported for each `n`.
    ///
    /// ```
    /// use cuda_driver::{Copies, DeviceId, EventFlags, Events, Memory, Pattern, Streams};
    /// use cuda_sim::SimDriver;
    ///
    /// let sim = SimDriver::builder().build();
    /// let device = DeviceId(0);
    /// let (one, other) = (sim.stream_create(device, 0)?, sim.stream_create(device, 0)?);
    /// let filled = sim.event_create(device, EventFlags::default())?;
    /// let memory = sim.mem_alloc(device, 64)?;
    /// sim.faults().forget_wait(1);
    /// // SAFETY: the memory is allocated; that the fills are not ordered is what is to be seen.
    /// unsafe { sim.fill_async(device, memory, Pattern::U8(1), 64, one)? };
    /// sim.event_record(device, filled, one)?;
    /// sim.stream_wait_event(device, other, filled)?; // forgotten
    /// // SAFETY: as above.
    /// unsafe { sim.fill_async(device, memory, Pattern::U8(2), 64, other)? };
    /// assert_eq!(sim.reports()[0].kind(), "race");
    /// # Ok::<(), cuda_driver::CudaError>(())
    /// ```
    ///
    /// # Panics
    /// When `n` is 0.
    pub fn forget_wait(&self, n: u64) {
        assert!(n > 0, "waits are counted from 1");
        self.0.state().faults.forgotten_wait = Some(n);
    }

    /// Device memory beyond `bytes` is refused with `OUT_OF_MEMORY`; `None` for all that the device has.
    ///
    /// # Panics
    /// When there is no such device.
    pub fn memory_budget(&self, device: DeviceId, bytes: Option<u64>) {
        self.0.state().devices[device.0 as usize]
            .memory
            .budget_bytes = bytes;
    }

    /// From now on every call returns `DEINITIALIZED` and does nothing, as at the end of a process, where the driver may be
    /// gone before destructors run. [`clear`](Self::clear) brings it back.
    ///
    /// ```
    /// use cuda_driver::{DeviceId, ErrorCode, Memory};
    /// use cuda_sim::SimDriver;
    ///
    /// let sim = SimDriver::builder().build();
    /// sim.faults().deinitialize();
    /// assert_eq!(sim.mem_alloc(DeviceId(0), 4).unwrap_err().code, ErrorCode::DEINITIALIZED);
    /// ```
    pub fn deinitialize(&self) {
        self.0.state().faults.gone = true;
    }

    /// Forgets what was planned and has not happened; how many failures that were.
    pub fn clear(&self) -> usize {
        let mut sim = self.0.state();
        let planned = std::mem::take(&mut sim.faults).planned();
        sim.devices
            .iter_mut()
            .for_each(|device| device.memory.budget_bytes = None);
        planned
    }
}
