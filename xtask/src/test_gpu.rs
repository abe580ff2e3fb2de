//! `cargo xtask test-gpu`: the suite of the hardware, on a GPU or on the emulated driver library.

use std::path::{Path, PathBuf};

use crate::doctor;
use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::Report;
use crate::test_kernels;
use crate::toolkit;
use crate::workspace;

/// The tests that run on whatever driver the loader finds.
const SUITE: &str = "cargo test --package cuda-contract --features cuda --test hardware --test clients --test opening";
/// Whole programs over all layers.
const PROGRAMS: [(&str, &str); 2] = [
    (
        "digits",
        "cargo run --package tensor-cuda --features cuda --example digits",
    ),
    (
        "chain",
        "cargo run --package tensor-cuda --features cuda --example chain -- --sites 8",
    ),
];

/// Products through cuBLAS: where there is a driver, these tests use it, and the library that is found.
const PRODUCTS: &str = "cargo test --package tensor-cuda --features cuda --lib --test suite -- \
     cublas products:: product_cases:: gemm:: workspaces:: deterministic::";
const ASYNCHRONOUS: &str = "cargo test --package tensor-cuda --features cuda --test asynchronous";

/// On a GPU. Without one, says so.
pub(crate) fn run() -> Result<(), Failure> {
    if let Some(reason) = doctor::no_gpu() {
        return Err(Failure::Cannot(format!(
            "there is no GPU to test on: {reason}; try `cargo xtask test-gpu --emulated`"
        )));
    }
    toolkit::make()?;
    let mut report = Report::new();
    report.command("contract on hardware", &Invocation::new(SUITE))?;
    report.command("kernels on hardware", &Invocation::new(test_kernels::TESTS))?;
    report.command("products on hardware", &Invocation::new(PRODUCTS))?;
    report.command(
        "asynchronous products on hardware",
        &Invocation::new(ASYNCHRONOUS),
    )?;
    for (name, line) in PROGRAMS {
        report.command(&format!("{name} on hardware"), &Invocation::new(line))?;
    }
    println!("{report}");
    Ok(())
}

/// On the emulated library.
pub(crate) fn run_emulated() -> Result<(), Failure> {
    let mut report = Report::new();
    emulated(&mut report)?;
    println!("{report}");
    Ok(())
}

/// The steps of [`run_emulated`]; `ci` has them, too.
pub(crate) fn emulated(report: &mut Report) -> Result<(), Failure> {
    report.step("toolkit", toolkit::make)?;
    let folder = report.step("emulated driver library", || library(Profile::Dev))?;
    let interface = Invocation::new("cargo test --package cuda-sim-library --features cuda");
    let interface = interface.args(["--package", "cublas-sim-library"]);
    report.command("the libraries' interfaces", &interface)?;
    for (name, pools) in [
        ("contract, emulated", "1"),
        ("contract, emulated, no pools", "0"),
    ] {
        let suite = on_library(Invocation::new(SUITE), &folder);
        report.command(name, &suite.env("CARVE_SIM_POOLS", pools))?;
    }
    for (name, tests) in [
        ("products by cuBLAS, emulated", PRODUCTS),
        ("asynchronous products by cuBLAS, emulated", ASYNCHRONOUS),
    ] {
        let tests = on_library(Invocation::new(tests), &folder).env("CARVE_SIM_STRICT", "1");
        report.command(name, &tests.env("CARVE_TEST_CUBLAS", "1"))?;
    }
    for (name, line) in PROGRAMS {
        let example = on_library(Invocation::new(line), &folder).env("CARVE_SIM_STRICT", "1");
        report.command(&format!("{name}, emulated"), &example)?;
    }
    match test_kernels::can_run() {
        true => report.step("kernels, compiled for the host", test_kernels::run),
        false => {
            report.skip(
                "kernels, compiled for the host",
                "there is no C++ compiler for x86-64",
            );
            Ok(())
        }
    }
}

/// How the emulated library is built.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Profile {
    Dev,
    Release,
}

/// The folder with the emulated libraries, by the names of the driver and of cuBLAS.
pub(crate) fn library(profile: Profile) -> Result<PathBuf, Failure> {
    let (arguments, outputs): (&[&str], _) = match profile {
        Profile::Dev => (&[], "debug"),
        Profile::Release => (&["--release"], "release"),
    };
    let line = Invocation::new("cargo build --package cuda-sim-library")
        .args(["--package", "cublas-sim-library"])
        .args(arguments.iter().copied());
    if !line.succeeds()? {
        return Err(Failure::Check(format!(
            "the emulated libraries were not built:\n    {line}"
        )));
    }
    let outputs = workspace::target_folder().join(outputs);
    let folder = outputs.join("emulated");
    for (built, name) in [
        ("libcuda.so", "libcuda.so.1"),
        ("libcublas.so", "libcublas.so.12"),
    ] {
        let built = outputs.join(built);
        let built = std::path::absolute(&built).unwrap_or(built);
        link(&folder, &built, name).map_err(|error| {
            Failure::Check(format!("{} could not be named: {error}", built.display()))
        })?;
    }
    Ok(folder)
}

/// A link and no copy: programs that look for `libcuda.so` find the library itself among the build outputs, and the loader
/// has to see that both are one.
fn link(folder: &Path, library: &Path, name: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let named = folder.join(name);
    match std::fs::remove_file(&named) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::os::unix::fs::symlink(library, named),
    }
}

/// A command whose programs find the emulated libraries, with two devices.
pub(crate) fn on_library(line: Invocation, folder: &Path) -> Invocation {
    line.env("LD_LIBRARY_PATH", folder.display().to_string())
        .env("CARVE_SIM_DEVICES", "2")
}
