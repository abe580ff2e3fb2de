//! `cargo xtask ptx`: compiles the kernels in CUDA C to PTX, without a GPU and without a toolkit.
//!
//! The compiler is NVRTC of the oldest version that there is a wheel of, which `pip` fetches: its PTX runs on every driver
//! that Carve supports. Sources and PTX are both in the repository; with `--check` nothing is written, and a PTX that is not
//! what its source compiles to is an error.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::workspace;

/// Fetches a wheel; without an index, it gives up soon.
const PIP: &str = "python3 -m pip install --quiet --no-deps --disable-pip-version-check --retries 1 --timeout 15 --target";
/// The wheel with the compiler, and the library in it.
const WHEEL: &str = "nvidia-cuda-nvrtc-cu11==11.7.99";
const LIBRARY: &str = "nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2";
/// The oldest devices that kernels are for: Pascal.
const ARCHITECTURE: &str = "compute_60";
/// The newest version of PTX that the oldest supported driver, that of CUDA 11.7, compiles.
const VERSION: &str = ".version 7.7";

/// Each is `NAME.cu` with its `NAME.ptx` beside it.
const SOURCES: [&str; 2] = [
    "crates/cuda-contract/kernels/contract",
    "crates/tensor-cuda/kernels/tensor",
];

/// Compiles one file; the arguments are library, source, output, architecture.
const SCRIPT: &str = include_str!("ptx.py");

/// What to do with what was compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Write,
    Check,
}

pub(crate) fn run(mode: Mode) -> Result<(), Failure> {
    let library = compiler()?;
    let mut stale = Vec::new();
    for source in SOURCES {
        let kept = workspace::root().join(format!("{source}.ptx"));
        let compiled = compile(&library, source)?;
        if !compiled.contains(VERSION) {
            return Err(Failure::Check(format!(
                "{source}.cu did not become PTX of{VERSION}"
            )));
        }
        let fresh = std::fs::read_to_string(&kept).is_ok_and(|text| text == compiled);
        println!(
            "{source}.ptx: {}",
            if fresh { "up to date" } else { "changed" }
        );
        if fresh {
            continue;
        }
        match mode {
            Mode::Check => stale.push(source),
            Mode::Write => std::fs::write(&kept, compiled)
                .map_err(|error| Failure::Check(format!("{}: {error}", kept.display())))?,
        }
    }
    match stale.is_empty() {
        true => Ok(()),
        false => Err(Failure::Check(format!(
            "{} is not what its source compiles to; run `cargo xtask ptx`",
            stale.join(" and ")
        ))),
    }
}

/// The compiler's library, fetched when it is not there yet.
fn compiler() -> Result<PathBuf, Failure> {
    let folder = workspace::target_folder().join("nvrtc");
    let library = folder.join(LIBRARY);
    if !library.is_file() {
        let line = Invocation::new(PIP).args([folder.display().to_string(), WHEEL.to_owned()]);
        if !matches!(line.succeeds(), Ok(true)) || !library.is_file() {
            return Err(Failure::Cannot(format!(
                "the compiler could not be fetched, which takes python3 with pip and a package index:\n    {line}"
            )));
        }
    }
    Ok(std::path::absolute(&library).unwrap_or(library))
}

fn compile(library: &Path, source: &str) -> Result<String, Failure> {
    let output = workspace::target_folder().join("nvrtc/compiled.ptx");
    let line = Invocation::new("python3 -c").args([
        SCRIPT.to_owned(),
        library.display().to_string(),
        format!("{source}.cu"),
        std::path::absolute(&output)
            .unwrap_or_else(|_| output.clone())
            .display()
            .to_string(),
        ARCHITECTURE.to_owned(),
    ]);
    if !line.succeeds()? {
        return Err(Failure::Check(format!("{source}.cu does not compile")));
    }
    let path = workspace::root().join(format!("{source}.cu"));
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|error| Failure::Check(format!("{}: {error}", path.display())))
    };
    Ok(format!("{}\n{}", stamp(&read(&path)?), read(&output)?))
}

/// The first line of a PTX file: which text it was compiled from, as a number (FNV-1a), so that a source that was changed since
/// can be told without the compiler.
fn stamp(source: &str) -> String {
    let hash = source
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("// from a source of number {hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be checked without the compiler: each source has its PTX, which is of this source, old enough, and has kernels.
    #[test]
    fn every_source_has_its_ptx() {
        for source in SOURCES {
            let read = |extension: &str| {
                let path = workspace::root().join(format!("{source}.{extension}"));
                std::fs::read_to_string(path).unwrap()
            };
            let ptx = read("ptx");
            assert!(ptx.contains(VERSION), "{source}");
            assert!(
                ptx.starts_with(&stamp(&read("cu"))),
                "{source}.cu was changed: run `cargo xtask ptx`"
            );
            let kernels = ptx.matches(".visible .entry").count();
            assert!(kernels > 0 && read("cu").contains("__global__"), "{source}");
        }
    }
}
