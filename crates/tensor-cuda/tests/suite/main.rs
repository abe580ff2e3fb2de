//! Everything against `ndarray`, on the simulated device.

mod bad_input;
mod common;
mod coverage;
mod deterministic;
mod elementwise;
mod errors;
mod exact;
mod gemm;
mod operands;
mod packed;
mod product_cases;
mod products;
mod reductions;
mod rowwise;
mod tensors;
mod transfers;
mod views;
mod workspaces;
