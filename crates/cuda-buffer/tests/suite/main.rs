//! Buffers, ledgers, capture and arenas on the simulated device, with all of its checks on.
//!
//! `CARVE_CASES=10` runs ten times as many random programs, `CARVE_SCHEDULES=200` runs each under so many schedules.

mod accesses;
mod ambient;
mod captured_launches;
mod cases;
mod costs;
mod fault_kit;
mod faults;
mod foreign;
mod foreign_faults;
mod interleavings;
mod kit;
mod mutations;
mod no_threads;
mod operands;
mod operations;
mod overlap;
mod partition;
mod peer_faults;
mod programs;
mod registered;
mod spaces;
mod tap;
mod thread_ends;
mod threads;
mod transfers;
mod turmoil;
mod unwinding;
mod views;
mod waits;
