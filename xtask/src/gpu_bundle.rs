//! `cargo xtask gpu-bundle`: a folder with the tests and benchmarks of hardware as programs, and a script that runs them, for a
//! machine that has a GPU and no Rust.

mod folder;
mod machine;
mod programs;
mod script;

use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::glibc;
use crate::invocation::Invocation;
use crate::report::again;
use crate::test_gpu::{self, Profile};
use crate::toolkit;
use crate::workspace;
use programs::{BENCHMARKS, CHECKS, Entry, LIGHT};

/// What the folder may take.
const LIMIT_BYTES: u64 = 60 << 20;

/// The file that tells the script which C library the programs need.
const GLIBC_NAME: &str = "glibc";
/// The file that tells it which programs there are, with their arguments.
const LIST_NAME: &str = "list";
/// What the digits example reads, beside it.
const DATA: &str = "data/digits";

/// Where the programs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    /// For another machine: small, and what measures is optimised.
    Bundle,
    /// A few, as `ci` has built and run them already, to try the folder and its script.
    Dev,
}

/// Makes the folder.
pub(crate) fn run() -> Result<(), Failure> {
    make(Build::Bundle).map(drop)
}

/// Makes the folder, and runs its script on the emulated library.
pub(crate) fn run_emulated() -> Result<(), Failure> {
    let folder = make(Build::Bundle)?;
    elsewhere(&folder)
}

/// The same of a few programs as the other checks build them, so that `ci` has no more to build.
pub(crate) fn run_emulated_in_dev() -> Result<(), Failure> {
    let folder = make(Build::Dev)?;
    elsewhere(&folder)
}

/// Runs the script on the emulated library: of a folder elsewhere that nobody may write to, with no environment but what the library
/// is told.
fn elsewhere(folder: &Path) -> Result<(), Failure> {
    let library = test_gpu::library(Profile::Dev)?;
    let moved = std::env::temp_dir().join(format!("carve-bundle-{}", std::process::id()));
    let broken = |error: io::Error| failed(&moved, &error);
    let (programs, out) = (moved.join("moved here"), moved.join("out"));
    folder::copy(folder, &programs).map_err(broken)?;
    folder::set_writable(&programs, false).map_err(broken)?;
    let before = folder::listing(&programs).map_err(broken)?;
    let library = std::path::absolute(&library).unwrap_or(library);
    let line = Invocation::new("env --ignore-environment")
        .arg(format!("LD_LIBRARY_PATH={}", library.display()))
        .args(["CARVE_SIM_DEVICES=2", "CARVE_TEST_CUBLAS=1"])
        .arg(programs.join(script::NAME).display().to_string())
        .args(["--quick", "--limit", "600", "--out"])
        .arg(out.display().to_string());
    let result = line.succeeds_and_prints();
    let after = folder::listing(&programs).map_err(broken)?;
    folder::set_writable(&programs, true).map_err(broken)?;
    std::fs::remove_dir_all(&moved).map_err(broken)?;
    if before != after {
        let text = format!("the script changed its folder: {before:?} became {after:?}");
        return Err(Failure::Check(text));
    }
    let (passed, printed) = result?;
    let last = printed.lines().last().unwrap_or_default();
    match passed && last.ends_with(" passed, 0 failed") {
        true => Ok(()),
        false => Err(again("gpu-bundle --emulated", &line)),
    }
}

fn failed(at: &Path, error: &io::Error) -> Failure {
    Failure::Check(format!("{}: {error}", at.display()))
}

fn make(how: Build) -> Result<PathBuf, Failure> {
    let groups = match how {
        Build::Bundle => vec![(CHECKS, Some("bundle")), (BENCHMARKS, Some("release"))],
        Build::Dev => vec![(LIGHT, None)],
    };
    let entries: Vec<&Entry> = groups.iter().flat_map(|(entries, _)| *entries).collect();
    let total = entries.len();
    machine::check_sources(entries.iter().copied())?;
    toolkit::make()?;
    let folder = workspace::target_folder().join(match how {
        Build::Bundle => "gpu-bundle",
        Build::Dev => "gpu-bundle-dev",
    });
    let broken = |error: io::Error| failed(&folder, &error);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(broken)?;
    }
    let mut count = 0;
    for (entries, profile) in groups {
        for part in programs::parts(entries, profile) {
            count += part.len();
            let names: Vec<&str> = part.iter().map(|entry| entry.place).collect();
            println!("[{count}/{total}] {}", names.join(", "));
            for (entry, program) in part.iter().zip(programs::build(part, profile)?) {
                let copied = folder.join(entry.place);
                std::fs::create_dir_all(copied.parent().unwrap_or(&folder)).map_err(broken)?;
                std::fs::copy(program, &copied).map_err(broken)?;
                strip(&copied);
            }
        }
    }
    let places = entries.iter().map(|entry| folder.join(entry.place));
    machine::check(entries.iter().copied().zip(places))?;
    let (mut needed, mut list) = ((0, 0), String::new());
    for entry in &entries {
        let program = folder.join(entry.place);
        needed = needed.max(glibc::needed_by(&program).map_err(broken)?);
        // Programs stay as they are, with what they read beside them.
        if !entry.place.starts_with("programs/") {
            pack(&program)?;
        }
        list += &entry.line();
    }
    std::fs::write(folder.join(LIST_NAME), list).map_err(broken)?;
    if how == Build::Bundle {
        null_library(&folder)?;
    }
    let data = workspace::root().join("crates/tensor-cuda").join(DATA);
    folder::copy(&data, &folder.join("programs").join(DATA)).map_err(broken)?;
    let version = format!("{}.{}\n", needed.0, needed.1);
    std::fs::write(folder.join(GLIBC_NAME), &version).map_err(broken)?;
    script::write(&folder).map_err(broken)?;

    let bytes = folder::size(&folder).map_err(broken)?;
    println!(
        "{} has {total} programs in {:.1} MiB, for glibc {} or newer; on the machine with the GPU, call {} in it",
        folder.display(),
        bytes as f64 / f64::from(1 << 20),
        version.trim_end(),
        script::NAME
    );
    if how == Build::Bundle {
        check_size(bytes)?;
    }
    Ok(folder)
}

/// The driver library that does nothing, by both names that programs look for: a machine with a GPU has another of the second.
fn null_library(folder: &Path) -> Result<(), Failure> {
    let built = test_gpu::library(Profile::Release)?.join("libcuda.so.1");
    let place = folder.join("null");
    let made = std::fs::create_dir_all(&place).and_then(|()| {
        std::fs::copy(&built, place.join("libcuda.so.1"))?;
        std::os::unix::fs::symlink("libcuda.so.1", place.join("libcuda.so"))
    });
    made.map_err(|error| failed(&place, &error))?;
    strip(&place.join("libcuda.so.1"));
    Ok(())
}

fn check_size(bytes: u64) -> Result<(), Failure> {
    match bytes <= LIMIT_BYTES {
        true => Ok(()),
        false => Err(Failure::Check(format!(
            "the bundle has {bytes} bytes, more than {} MiB",
            LIMIT_BYTES >> 20
        ))),
    }
}

/// Packs a program, which the script unpacks: a third of the size.
fn pack(program: &Path) -> Result<(), Failure> {
    let line = Invocation::new("gzip -9").arg(program.display().to_string());
    match line.succeeds()? {
        true => Ok(()),
        false => Err(Failure::Check(format!(
            "a program was not packed:\n    {line}"
        ))),
    }
}

/// Takes away what only a debugger needs. Without the tool the program stays as it is, and the size tells.
fn strip(program: &Path) {
    let line = Invocation::new("strip").arg(program.display().to_string());
    if !matches!(line.succeeds(), Ok(true)) {
        println!("    not stripped: {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_too_large_is_refused() {
        assert!(check_size(LIMIT_BYTES).is_ok());
        let refused = check_size(LIMIT_BYTES + 1).unwrap_err().to_string();
        assert!(refused.contains("62914561 bytes"), "{refused}");
    }
}
