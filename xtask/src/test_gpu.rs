//! `cargo xtask test-gpu`: the suite of the hardware, on a GPU or on the emulated driver library.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::doctor;
use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::Report;
use crate::test_kernels;
use crate::toolchain;
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

const CHECKER: &str = "compute-sanitizer";

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
    for (name, line) in [
        ("contract", SUITE),
        ("kernels", test_kernels::TESTS),
        ("products", PRODUCTS),
        ("asynchronous products", ASYNCHRONOUS),
    ]
    .into_iter()
    .chain(PROGRAMS)
    {
        let line = on_machine(Invocation::new(line));
        report.command(&format!("{name} on hardware"), &line)?;
    }
    for tool in ["memcheck", "synccheck"] {
        let name = format!("contract under compute-sanitizer's {tool}");
        match checked(tool) {
            Some(line) => report.command(&name, &line)?,
            None => report.skip(&name, "compute-sanitizer is not installed"),
        }
    }
    println!("{report}");
    Ok(())
}

/// The suite under a tool of NVIDIA's checker, where that is installed. Calls that the suite makes to have them refused are no finding.
fn checked(tool: &str) -> Option<Invocation> {
    let on_path = doctor::on_path(CHECKER);
    let installed = || {
        let usual = Path::new("/usr/local/cuda/bin").join(CHECKER);
        usual.exists().then_some(usual)
    };
    let checker = on_path.or_else(installed)?;
    let options: &[&str] = match tool {
        "memcheck" => &["--report-api-errors", "no"],
        _ => &[],
    };
    let checker = checker.display().to_string();
    let words = [&[checker.as_str(), "--tool", tool][..], options].concat();
    let suite =
        Invocation::new("cargo test --package cuda-contract --features cuda --test hardware");
    let suite = suite.args(["--", "--test-threads=1"]);
    Some(through(
        suite,
        &[&words, &["--error-exitcode", "9"][..]].concat(),
    ))
}

/// A command whose programs find the libraries of this machine. Cargo puts its outputs into their path, and the emulated libraries among
/// them have the names of the real ones.
pub(crate) fn on_machine(line: Invocation) -> Invocation {
    through(line, &[])
}

/// The same, with the programs started by `wrapper`.
fn through(line: Invocation, wrapper: &[&str]) -> Invocation {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let path = without_outputs(&path, &workspace::target_folder());
    started_by(line, &path, wrapper)
}

/// A command of cargo whose programs get a path of libraries.
fn started_by(line: Invocation, path: &OsStr, wrapper: &[&str]) -> Invocation {
    let Some(host) = toolchain::host() else {
        return line;
    };
    let variable = format!("LD_LIBRARY_PATH={}", path.display());
    let env = match path.is_empty() {
        true => ["env", "-u", "LD_LIBRARY_PATH"].as_slice(),
        false => &["env", &variable],
    };
    let words = [env, wrapper].concat();
    // Cargo splits a variable at spaces. As an option it takes a list, of texts that TOML has as JSON, but not beside a text in
    // somebody's own configuration.
    if words.iter().any(|word| word.contains(char::is_whitespace)) {
        let words = Value::from(words);
        return line.first([
            "--config".to_owned(),
            format!("target.{host}.runner={words}"),
        ]);
    }
    let host = host.to_uppercase().replace(['-', '.'], "_");
    line.env(&format!("CARGO_TARGET_{host}_RUNNER"), words.join(" "))
}

/// A path of libraries without the folders in which cargo builds.
pub(crate) fn without_outputs(path: &OsStr, outputs: &Path) -> OsString {
    let outputs = std::path::absolute(outputs).unwrap_or_else(|_| outputs.to_owned());
    let kept = std::env::split_paths(path)
        .filter(|folder| !folder.starts_with(&outputs) && !folder.as_os_str().is_empty());
    // What was split can be joined.
    std::env::join_paths(kept).unwrap_or_default()
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
    // All layers on devices such as MIG slices.
    let (name, line) = PROGRAMS[0];
    let example = on_library(Invocation::new(line), &folder).env("CARVE_SIM_STRICT", "1");
    let without = example.env("CARVE_SIM_POOLS", "0");
    report.command(&format!("{name}, emulated, no pools"), &without)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_cargo_are_no_libraries_of_the_machine() {
        let outputs = Path::new("/here/target");
        let path =
            OsStr::new("/here/target/debug/deps:/opt/cuda/lib64::/here/target/debug:/here/targets");
        assert_eq!(
            without_outputs(path, outputs),
            "/opt/cuda/lib64:/here/targets"
        );
        assert_eq!(
            without_outputs(OsStr::new("/here/target/debug"), outputs),
            ""
        );
        let line = on_machine(Invocation::new("cargo test")).to_string();
        assert!(line.contains("_RUNNER='env "), "{line}");
        assert!(!line.contains("debug"), "{line}");
    }

    /// Cargo itself, with a program of its own as what is run: what it starts gets each word as it was.
    #[test]
    fn cargo_starts_programs_as_told() {
        let place = std::env::temp_dir().join(format!("carve runner {}", std::process::id()));
        std::fs::create_dir_all(place.join("src")).unwrap();
        let manifest = "[package]\nname = \"nothing\"\nversion = \"0.0.0\"\n[workspace]\n";
        std::fs::write(place.join("Cargo.toml"), manifest).unwrap();
        std::fs::write(place.join("src/main.rs"), "fn main() {}").unwrap();
        let manifest = place.join("Cargo.toml").display().to_string();
        let line = Invocation::new("cargo run --offline --quiet --manifest-path").arg(manifest);
        let line = line.env(
            "CARGO_TARGET_DIR",
            place.join("target").display().to_string(),
        );
        let script = "echo \"$LD_LIBRARY_PATH|$0|$#\"";
        let spaces = ["sh", "-c", script, "a \"name\""];
        let starts = |path: &str, wrapper: &[&str]| {
            let line = started_by(line.clone(), OsStr::new(path), wrapper);
            line.output().map(Option::unwrap_or_default)
        };
        let told = [
            starts("/my cuda:/b", &spaces),
            starts("", &spaces),
            starts("/cuda", &["sh", "-c", "env"]),
        ];
        std::fs::remove_dir_all(&place).unwrap();
        let told = told.map(Result::unwrap);
        assert_eq!(told[0], "/my cuda:/b|a \"name\"|1\n");
        assert_eq!(told[1], "|a \"name\"|1\n");
        assert!(told[2].contains("\nLD_LIBRARY_PATH=/cuda\n"), "{}", told[2]);
    }
}
