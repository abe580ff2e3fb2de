//! Which kinds of findings are reported.

use crate::report::Finding;

/// Which checks report what they find. All are on by default.
///
/// More may come: name those to change and take the others from [`Checks::ALL`].
///
/// ```
/// use cuda_sim::{Checks, SimDriver};
/// let checks = Checks { uninitialised: false, ..Checks::ALL };
/// let sim = SimDriver::builder().checks(checks).build();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Conflicting accesses that nothing orders, and aliased writes of one launch.
    pub races: bool,
    /// Uses before allocation and after free, frees before the last use has ended, double frees, modules that are unloaded
    /// before the last launch has ended.
    pub lifetime: bool,
    /// Accesses outside every allocation, or of a kernel to memory of a device that it can't reach. (They lose the device
    /// in any case.)
    pub bounds: bool,
    /// Reads of bytes that nobody has written.
    pub uninitialised: bool,
    /// Host memory of an asynchronous copy that the host touches too early.
    pub host_memory: bool,
    /// Handles of destroyed objects, graphs of kernels whose module was unloaded, and executable graphs that two threads use
    /// at once.
    pub handles: bool,
    /// Broken rules of stream capture.
    pub capture: bool,
    /// Objects that are alive at [`SimDriver::shutdown`](crate::SimDriver::shutdown).
    pub leaks: bool,
    /// Waits that nothing can end. (They return an error in any case.)
    pub deadlocks: bool,
    /// Launches that don't fit, kernels that fail, host functions that panic or call the driver. (They fail in any case.)
    pub launches: bool,
}

impl Checks {
    /// Every check.
    pub const ALL: Self = Self {
        races: true,
        lifetime: true,
        bounds: true,
        uninitialised: true,
        host_memory: true,
        handles: true,
        capture: true,
        leaks: true,
        deadlocks: true,
        launches: true,
    };

    /// No check: the device only behaves as its rules say.
    pub const NONE: Self = Self {
        races: false,
        lifetime: false,
        bounds: false,
        uninitialised: false,
        host_memory: false,
        handles: false,
        capture: false,
        leaks: false,
        deadlocks: false,
        launches: false,
    };
}

impl Checks {
    /// Whether a finding is to be reported.
    pub(crate) const fn cover(&self, finding: &Finding) -> bool {
        match finding {
            Finding::Race { .. } | Finding::AliasedWrites { .. } => self.races,
            Finding::UseBeforeAllocation { .. }
            | Finding::UseAfterFree { .. }
            | Finding::FreeBeforeUseEnds { .. }
            | Finding::UnloadBeforeLaunchEnds { .. }
            | Finding::BadFree { .. } => self.lifetime,
            Finding::OutOfBounds { .. } | Finding::NoPeerAccess { .. } => self.bounds,
            Finding::Uninitialised { .. } => self.uninitialised,
            Finding::HostMemoryTouched { .. } => self.host_memory,
            Finding::DestroyedHandle { .. }
            | Finding::UnloadedModule { .. }
            | Finding::ConcurrentUse { .. } => self.handles,
            Finding::CaptureMisuse { .. } => self.capture,
            Finding::Leak { .. } => self.leaks,
            Finding::Deadlock { .. } => self.deadlocks,
            Finding::BadLaunch { .. }
            | Finding::KernelFault { .. }
            | Finding::DriverCallInHostFunction { .. } => self.launches,
        }
    }
}

impl Default for Checks {
    fn default() -> Self {
        Self::ALL
    }
}
