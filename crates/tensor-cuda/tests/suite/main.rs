//! Everything against `ndarray`, on the simulated device.

mod common;
mod elementwise;
mod gemm;
mod products;
mod rowwise;
mod tensors;
mod transfers;
mod views;
