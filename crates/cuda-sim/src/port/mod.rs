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

impl Driver for SimDriver {
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
