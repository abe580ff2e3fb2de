//! `cargo xtask bench-gpu`: bare driver calls, Carve and PyTorch on a GPU in one run; or, on the emulated library, whether that
//! program works.

use crate::doctor;
use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::again;
use crate::test_gpu::{self, Profile};
use crate::toolkit;
use crate::workspace;

const PROGRAM: &str =
    "cargo run --quiet --package cuda-contract --features cuda --example bench_gpu";
/// Among the build outputs.
const JSON: &str = "bench-gpu.json";

/// On a GPU. Without one, says so.
pub(crate) fn run() -> Result<(), Failure> {
    if let Some(reason) = doctor::no_gpu() {
        return Err(Failure::Cannot(format!(
            "there is no GPU to measure: {reason}; `cargo xtask bench-gpu --emulated` only tries the program"
        )));
    }
    toolkit::make()?;
    let json = workspace::target_folder().join(JSON);
    let line = Invocation::new(PROGRAM).args(["--release", "--", "--json"]);
    check(&test_gpu::on_machine(line.arg(json.display().to_string())))
}

/// A run on the emulated library, whose numbers mean nothing, as they say.
pub(crate) fn run_emulated() -> Result<(), Failure> {
    toolkit::make()?;
    let folder = test_gpu::library(Profile::Dev)?;
    let line = Invocation::new(PROGRAM).args(["--", "--smoke"]);
    check(&test_gpu::on_library(line, &folder).env("CARVE_SIM_STRICT", "1"))
}

fn check(line: &Invocation) -> Result<(), Failure> {
    match line.succeeds()? {
        true => Ok(()),
        false => Err(again("bench-gpu", line)),
    }
}
