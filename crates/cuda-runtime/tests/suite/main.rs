//! Pools, completions, memory and capture on the simulated device, with all of its checks on.

mod capture;
mod kit;
mod memory;
mod pool;
mod waiting;
