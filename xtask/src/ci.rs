//! `cargo xtask ci`: the checks that need nothing but the workspace's own toolchain, cheap
//! ones first.

use crate::bench_gpu;
use crate::doctor;
use crate::failure::Failure;
use crate::gpu_bundle;
use crate::harness;
use crate::invocation::Invocation;
use crate::peers;
use crate::ptx;
use crate::readme::Promises;
use crate::report::{Report, again};
use crate::test_capture;
use crate::test_gpu;
use crate::toolkit;
use crate::workspace::{self, Package};

pub(crate) fn run() -> Result<(), Failure> {
    let mut report = Report::new();

    let promises = report.step("README names its commands", Promises::read)?;
    let packages = report.step("workspace", workspace::packages)?;
    report.command("format", &Invocation::new("cargo fmt --all --check"))?;

    let clippy = Invocation::new("cargo clippy --workspace --all-targets");
    let strict = ["--", "-D", "warnings"];
    report.command("clippy, default features", &clippy.clone().args(strict))?;
    let features = workspace::non_hardware_features(&packages).join(",");
    if features.is_empty() {
        report.skip(
            "clippy, all features",
            "no package has features that need no hardware",
        );
    } else {
        let clippy = clippy.args(["--features", features.as_str()]).args(strict);
        report.command("clippy, all features", &clippy)?;
    }
    for package in packages.iter().filter(|package| package.has_defaults()) {
        let name = &package.name;
        let clippy = Invocation::new("cargo clippy --lib --no-default-features -p").arg(name);
        report.command(&format!("clippy, bare {name}"), &clippy.args(strict))?;
    }

    let docs =
        Invocation::new("cargo doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings");
    report.command("docs", &docs)?;
    report.step("tests and doctests", || test(&promises.tests, &packages))?;
    // The one feature that changes what the default build computes.
    let filled = Invocation::new("cargo test --package tensor-cuda --features snan-fill");
    let filled = filled.args(["--test", "suite"]);
    report.command("tests, memory filled with signalling NaNs", &filled)?;
    report.command("example", &promises.example)?;

    if doctor::on_path("mdbook").is_some() {
        // Beside the other build outputs, so that the checkout stays clean.
        let folder = workspace::target_folder().join("book");
        let book = Invocation::new("mdbook build docs --dest-dir");
        report.command("book", &book.arg(folder.display().to_string()))?;
    } else {
        let reason = "mdbook is not installed; its snippets were tested as doctests of carve-book";
        report.skip("book", reason);
    }
    report.attempt("PTX of the kernels", || ptx::run(ptx::Mode::Check))?;
    peers::check(&mut report)?;
    report.skip("sanitizers", "own command: cargo xtask sanitize");
    report.skip("Miri", "own command: cargo xtask miri");
    report.skip("loom", "own command: cargo xtask loom");
    let hardware = Invocation::new("cargo clippy --all-targets")
        .args(["--package", "cuda-driver", "--package", "cuda-runtime"])
        .args(["--package", "cuda-contract"])
        .args(["--package", "cuda-sim-library"])
        .args(["--package", "cublas-sim-library"])
        .args(["--package", "tensor-cuda"])
        .args(["--features", "cuda"]);
    report.step("toolkit", toolkit::make)?;
    report.command("clippy, hardware", &hardware.args(strict))?;
    test_gpu::emulated(&mut report)?;
    report.step("captures, a selection", test_capture::quick)?;
    report.step("the benchmark of GPUs, emulated", bench_gpu::run_emulated)?;
    let bundle = "the script for a GPU without Rust, emulated";
    report.step(bundle, gpu_bundle::run_emulated_in_dev)?;
    report.skip("hardware", "own command: cargo xtask test-gpu");
    println!("{report}");
    Ok(())
}

/// Runs the README's test command, and makes sure that every library's doctests were in it.
fn test(line: &Invocation, packages: &[Package]) -> Result<(), Failure> {
    println!("    {line}");
    let (passed, output) = line.succeeds_and_prints()?;
    if !passed {
        return Err(again("tests and doctests", line));
    }
    let counts = harness::doctests_passed(&output);
    println!("    doctests by crate: {counts:?}");
    let libraries = packages
        .iter()
        .filter_map(|package| package.doctested_library.as_deref());
    let without: Vec<&str> = libraries
        .filter(|&name| counts.get(name).is_none_or(|&count| count == 0))
        .collect();
    if without.is_empty() {
        Ok(())
    } else {
        Err(Failure::Check(format!(
            "no doctest ran in {}: a library opens with an example; run it again with\n    {line}",
            without.join(", ")
        )))
    }
}
