//! The port, one file per part of it. No file here has a block of `unsafe` code: the port's `unsafe` methods are
//! promises of the caller, which the simulation mostly checks.

mod capture;
mod copies;
mod devices;
mod events;
mod graphs;
mod kernels;
mod memory;
mod pools;
mod streams;

use crate::SimDriver;
use cuda_driver::{CallCounters, Driver};

// SAFETY: memory is real, of the size asked for and one owner's; operations touch what their footprints name, when the
// queues, events and waits allow; handles come from tables that tell live objects from dead ones; a call that returns an
// error before it has begun changes nothing. Calls unwind for bad arguments of the simulation's own interface alone.
#[expect(unsafe_code, reason = "the promise of a driver")]
unsafe impl Driver for SimDriver {
    fn name(&self) -> String {
        "simulated".to_owned()
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn counters(&self) -> &CallCounters {
        self.call_counters()
    }
}
