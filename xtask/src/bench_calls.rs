//! `cargo xtask bench-calls`: driver calls and host time of Carve next to those of `cudarc`, on a driver that does nothing.

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::again;
use crate::test_gpu::{self, Profile};
use crate::toolkit;

const PROGRAM: &str =
    "cargo run --release --package cuda-contract --features cuda --example bench_calls";

pub(crate) fn run() -> Result<(), Failure> {
    toolkit::make()?;
    let folder = test_gpu::library(Profile::Release)?;
    let line = test_gpu::on_library(Invocation::new(PROGRAM), &folder).env("CARVE_SIM_NULL", "1");
    match line.succeeds()? {
        true => Ok(()),
        false => Err(again("bench-calls", &line)),
    }
}
