//! `cargo xtask miri`: tests of the crates that work on host memory alone, under Miri.

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::Report;
use crate::sanitize::COMPILE_FAIL;
use crate::{toolchain, workspace};

/// Crates that Miri can run: no threads that wait on the clock, no foreign functions.
const CRATES: [&str; 2] = ["space-core", "space-arena"];

pub(crate) fn run() -> Result<(), Failure> {
    if toolchain::nightly().is_none() || !toolchain::nightly_has("miri") {
        return Err(Failure::Cannot(
            "Miri is not installed; install it with\n    \
             rustup toolchain install nightly --profile minimal --component miri,rust-src"
                .to_owned(),
        ));
    }
    let mut report = Report::new();
    let packages = CRATES.iter().flat_map(|name| ["-p", name]);
    let folder = workspace::target_folder().join("miri");
    // Memory maps need the kernel, so isolation is off.
    let line = Invocation::new("cargo +nightly miri test --lib --tests")
        .args(packages)
        .args(["--", "--skip", COMPILE_FAIL])
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("CARGO_TARGET_DIR", folder.display().to_string());
    report.command("Miri", &line)?;
    report.skip(
        "crates with a device",
        "the simulated device's threads are too slow under Miri",
    );
    report.skip(
        "compile-fail tests",
        "they start a compiler, which Miri can't",
    );
    println!("{report}");
    Ok(())
}
