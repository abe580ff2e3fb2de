//! The CUDA driver's C interface over the simulated device: a `libcuda.so.1` for machines without a GPU.
//!
//! Programs that were written for the driver find here what they expect there: the same names, signatures and result
//! codes, contexts that are current per thread, functions by name. Behind it stands one `cuda-sim`, which runs streams in
//! any legal order and finds what is wrong. So the path of a program down to the driver can be tested anywhere.
//!
//! `cargo xtask test-gpu --emulated` builds it and runs the suite of the hardware with it. By hand: the library is
//! `libcuda.so` among the build outputs; put it into a folder by the name `libcuda.so.1` and name the folder in
//! `LD_LIBRARY_PATH`. What is simulated, the environment says: `CARVE_SIM_DEVICES`, `CARVE_SIM_SEED`, `CARVE_SIM_POOLS`,
//! `CARVE_SIM_VERSION`, `CARVE_SIM_CAPABILITY`, `CARVE_SIM_INIT`, `CARVE_SIM_STRICT=1` to fail a process that did something wrong, and
//! `CARVE_SIM_NULL=1` for null mode, in which calls succeed at once and do nothing.
//!
//! Who validates: the simulation, and this interface for what only it knows (contexts, null pointers, names).
//! Pointers that programs pass are trusted as a driver trusts them. A kernel does what the function does that was
//! registered under its name (`cuda_driver::hardware_models`); one without such a function is refused with a message on
//! standard error. What is not emulated returns `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! # Modules
//!
//! *Interface*, by area: `devices`, `contexts`, `memory`, `pools`, `copies`, `streams` (with events), `graphs` (with
//! capture), `launch` (with modules), `newer`, `unsupported`, `carve` (what drivers have not). *Behind it*: `library` (the
//! state), `export` (how a function is exported), `types`, `context`, `legacy` (the default stream), `kernels`, `ptx`,
//! `native` (kernels of the host in the place of models), `user_objects`, `names`; `signatures`, `facts` and `module_facts` are tests of the interface.

#![allow(
    non_snake_case,
    non_camel_case_types,
    missing_docs,
    unreachable_pub,
    clippy::missing_safety_doc,
    reason = "names and types are the driver's, whose documentation tells what they are"
)]

mod carve;
mod context;
mod contexts;
mod copies;
mod devices;
mod export;
#[cfg(test)]
mod facts;
mod graphs;
mod kernels;
mod launch;
mod legacy;
mod library;
mod memory;
#[cfg(test)]
mod module_facts;
mod names;
mod native;
mod newer;
mod pools;
mod ptx;
#[cfg(all(test, feature = "cuda"))]
mod signatures;
mod streams;
mod types;
mod unsupported;
mod user_objects;

/// Every table of functions.
static TABLES: &[&[export::Export]] = &[
    devices::devices_table::EXPORTS,
    contexts::contexts_table::EXPORTS,
    memory::memory_table::EXPORTS,
    pools::pools_table::EXPORTS,
    copies::copies_table::EXPORTS,
    streams::streams_table::EXPORTS,
    graphs::graphs_table::EXPORTS,
    launch::launch_table::EXPORTS,
    newer::newer_table::EXPORTS,
    carve::carve_table::EXPORTS,
];
