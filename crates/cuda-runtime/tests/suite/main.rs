//! Pools, completions, memory and capture on the simulated device, with all of its checks on.

#![cfg(not(loom))]

mod busy;
mod capture;
mod executors;
mod graphs;
mod kit;
mod memory;
mod no_threads;
mod places;
mod pool;
mod provider;
mod replaced;
mod setup;
mod sweep;
mod threaded;
mod waiting;
