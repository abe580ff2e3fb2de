//! Injected faults: errors that a real device gives rarely, at the moment a test wants them.

use crate::driver::SimDriver;
use cuda_driver::{Call, DeviceId, ErrorCode};

/// What is to fail, and when.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan {
    /// Calls until each fails, the failing one included.
    calls: Vec<(Call, u64, ErrorCode)>,
    /// The number of the kernel, counted from the start, whose execution loses its device.
    launch: Option<(u64, ErrorCode)>,
    /// Host functions until one never returns, that one included.
    lost_function: Option<u64>,
}

impl FaultPlan {
    /// The error that this call is to return.
    pub(crate) fn next(&mut self, call: Call) -> Option<ErrorCode> {
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
        match &mut self.lost_function {
            Some(1) => {
                self.lost_function = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
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
        self.0.state().faults.calls.push((call, n, code));
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

    /// Device memory beyond `bytes` is refused with `OUT_OF_MEMORY`; `None` for all that the device has.
    ///
    /// # Panics
    /// When there is no such device.
    pub fn memory_budget(&self, device: DeviceId, bytes: Option<u64>) {
        self.0.state().devices[device.0 as usize]
            .memory
            .budget_bytes = bytes;
    }

    /// Forgets what was planned and has not happened.
    pub fn clear(&self) {
        let mut sim = self.0.state();
        sim.faults = FaultPlan::default();
        sim.devices
            .iter_mut()
            .for_each(|device| device.memory.budget_bytes = None);
    }
}
