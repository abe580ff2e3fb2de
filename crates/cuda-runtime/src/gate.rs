//! Calls that captures forbid, made so that they disturb none: neither this thread's nor, where it is a global one, another's.

use crate::capture;
use crate::core::DeviceCore;
use cuda_driver::{CaptureMode, CudaResult, Driver};
use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// What the runtimes over one driver know of global captures: unsafe calls of any thread invalidate those.
#[derive(Default)]
pub(crate) struct Gate {
    /// Those that are open.
    open: AtomicUsize,
    /// Held shared across a short call that captures forbid, and alone while a global one is announced: so that no thread has
    /// looked before and calls after.
    announcing: RwLock<()>,
}

/// Gates by the address of their driver.
type Gates = Vec<(usize, Weak<Gate>)>;

impl Gate {
    /// The one of a driver.
    pub(crate) fn of(driver: &Arc<dyn Driver>) -> Arc<Self> {
        static GATES: Mutex<Gates> = Mutex::new(Vec::new());
        Self::known_or_new(&mut GATES.lock(), Arc::as_ptr(driver).addr())
    }

    fn known_or_new(gates: &mut Gates, address: usize) -> Arc<Self> {
        // Whoever has a gate keeps its driver, so the address is of no other one. The last of those may go at this moment.
        let mut own = gates.iter().filter(|(of, _)| *of == address);
        if let Some(gate) = own.find_map(|(_, gate)| gate.upgrade()) {
            return gate;
        }
        let gate = Arc::<Self>::default();
        gates.retain(|(_, gate)| gate.strong_count() > 0);
        gates.push((address, Arc::downgrade(&gate)));
        gate
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Gate({} global captures)",
            self.open.load(Ordering::Relaxed)
        )
    }
}

/// Counted as long as a global capture is open.
pub(crate) struct GlobalCapture(Arc<Gate>);

impl GlobalCapture {
    pub(crate) fn announce(core: &DeviceCore, mode: CaptureMode) -> Option<Self> {
        (mode == CaptureMode::Global).then(|| {
            let _alone = core.gate.announcing.write();
            core.gate.open.fetch_add(1, Ordering::AcqRel);
            Self(core.gate.clone())
        })
    }
}

impl Drop for GlobalCapture {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl DeviceCore {
    /// Makes a short call that concerns no capture but would invalidate one. When the thread can't be relaxed, it is not made.
    pub(crate) fn relaxed<T>(
        &self,
        calls: impl FnOnce(&dyn Driver) -> CudaResult<T>,
    ) -> CudaResult<T> {
        // Recursive, since the end of one object may be that of others.
        let _shared = self.gate.announcing.read_recursive();
        self.relaxed_for_long(calls)
    }

    /// As [`relaxed`](Self::relaxed), for calls that wait on the host: a global capture that begins at the very moment of one is
    /// not held up, and may be invalidated.
    pub(crate) fn relaxed_for_long<T>(
        &self,
        calls: impl FnOnce(&dyn Driver) -> CudaResult<T>,
    ) -> CudaResult<T> {
        let driver = &*self.driver;
        if !capture::is_open() && self.gate.open.load(Ordering::Acquire) == 0 {
            return calls(driver);
        }
        let strict = driver.exchange_capture_mode(CaptureMode::Relaxed)?;
        let result = calls(driver);
        // The exchange worked a moment ago with the same arguments; a failure leaves this thread more permissive. Where it unwinds, that has
        // told so where it happened: what the calls have made must not be lost.
        let exchange = || driver.exchange_capture_mode(strict);
        let _ = catch_unwind(AssertUnwindSafe(exchange));
        result
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// All runtimes over one driver have one gate, also those that come when the last of others has just gone.
    #[test]
    fn a_driver_has_one_gate_whoever_comes_and_goes() {
        let mut gates = Gates::new();
        let gone = Arc::<Gate>::default();
        gates.extend([(1, Arc::downgrade(&gone)), (2, Weak::new())]);
        drop(gone);
        let [one, two] = [(); 2].map(|()| Gate::known_or_new(&mut gates, 1));
        assert!(Arc::ptr_eq(&one, &two));
        assert!(!Arc::ptr_eq(&one, &Gate::known_or_new(&mut gates, 2)));
        assert!(Arc::ptr_eq(&one, &Gate::known_or_new(&mut gates, 1)));
        assert_eq!(gates.len(), 2);
    }
}
