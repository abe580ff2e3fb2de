//! Everything against `ndarray`, on the simulated device.

mod common;
mod elementwise;
mod gemm;
mod rowwise;
mod views;
