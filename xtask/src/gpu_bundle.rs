//! `cargo xtask gpu-bundle`: a folder with the tests and benchmarks of hardware as programs, and a script that runs them, for a
//! machine that has a GPU and no Rust.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::Failure;
use crate::glibc;
use crate::invocation::Invocation;
use crate::report::again;
use crate::test_gpu::{self, Profile};
use crate::toolkit;
use crate::workspace;

/// A program of the bundle: its package, the kind of its target, its name.
type Entry = (&'static str, &'static str, &'static str);

/// Tests. Those that need a compiler, the checkout or a simulated device are not among them.
const TESTS: &[Entry] = &[
    ("cuda-contract", "--test", "opening"),
    ("cuda-contract", "--test", "hardware"),
    ("cuda-contract", "--test", "clients"),
    ("tensor-cuda", "--test", "kernels"),
];

/// Whole programs.
const PROGRAMS: &[Entry] = &[
    ("cuda-contract", "--example", "test_capture"),
    ("tensor-cuda", "--example", "digits"),
    ("tensor-cuda", "--example", "chain"),
];

/// Those that measure, built for that.
const BENCHMARKS: &[Entry] = &[("cuda-contract", "--example", "bench_gpu")];

/// What the folder may take.
const LIMIT_BYTES: u64 = 60 << 20;

/// Runs every program and adds up what they report. A program that reports nothing has failed.
const SCRIPT: &str = include_str!("gpu_bundle.sh");
const SCRIPT_NAME: &str = "run.sh";
/// The file that tells the script which C library the programs need.
const GLIBC_NAME: &str = "glibc";
/// What the digits example reads, beside it.
const DATA: &str = "data/digits";

/// Makes the folder.
pub(crate) fn run() -> Result<(), Failure> {
    make().map(drop)
}

/// Makes the folder, and runs its script on the emulated library: in a folder of its own, without an environment.
pub(crate) fn run_emulated() -> Result<(), Failure> {
    let folder = make()?;
    let library = test_gpu::library(Profile::Dev)?;
    let library = std::path::absolute(&library).unwrap_or(library);
    let elsewhere = std::env::temp_dir().join(format!("carve-bundle-{}", std::process::id()));
    copy(&folder, &elsewhere).map_err(|error| failed(&elsewhere, &error))?;
    let script = elsewhere.join(SCRIPT_NAME).display().to_string();
    let line = Invocation::new("env --ignore-environment")
        .args([format!("LD_LIBRARY_PATH={}", library.display())])
        .args([
            "CARVE_SIM_DEVICES=2".to_owned(),
            script,
            "--quick".to_owned(),
        ]);
    let result = line.succeeds();
    let removed = std::fs::remove_dir_all(&elsewhere);
    removed.map_err(|error| failed(&elsewhere, &error))?;
    match result? {
        true => Ok(()),
        false => Err(again("gpu-bundle --emulated", &line)),
    }
}

fn failed(at: &Path, error: &io::Error) -> Failure {
    Failure::Check(format!("{}: {error}", at.display()))
}

fn make() -> Result<PathBuf, Failure> {
    toolkit::make()?;
    let folder = workspace::target_folder().join("gpu-bundle");
    let broken = |error: io::Error| failed(&folder, &error);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(broken)?;
    }
    let groups = [
        ("tests", TESTS),
        ("programs", PROGRAMS),
        ("programs", BENCHMARKS),
    ];
    let total: usize = groups.iter().map(|(_, entries)| entries.len()).sum();
    let (mut count, mut needed) = (0, (0, 0));
    for (place, entries) in groups {
        let place = folder.join(place);
        std::fs::create_dir_all(&place).map_err(broken)?;
        for entry in entries {
            count += 1;
            println!("[{count}/{total}] {}: {}", entry.0, entry.2);
            let copied = place.join(entry.2);
            let program = build(entry, entries == BENCHMARKS)?;
            std::fs::copy(program, &copied).map_err(broken)?;
            strip(&copied);
            needed = needed.max(glibc::needed_by(&copied).map_err(broken)?);
        }
    }
    let data = workspace::root().join("crates/tensor-cuda").join(DATA);
    copy(&data, &folder.join("programs").join(DATA)).map_err(broken)?;
    let version = format!("{}.{}\n", needed.0, needed.1);
    std::fs::write(folder.join(GLIBC_NAME), &version).map_err(broken)?;
    write_script(&folder).map_err(broken)?;

    let bytes = size(&folder).map_err(broken)?;
    println!(
        "{} has {total} programs in {:.1} MiB, for glibc {} or newer; on the machine with the GPU, call {SCRIPT_NAME} in it",
        folder.display(),
        bytes as f64 / f64::from(1 << 20),
        version.trim_end()
    );
    check_size(bytes)?;
    Ok(folder)
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

/// Bytes of all files in a folder.
fn size(folder: &Path) -> io::Result<u64> {
    std::fs::read_dir(folder)?.try_fold(0, |sum, entry| {
        let entry = entry?;
        let metadata = entry.metadata()?;
        Ok(sum
            + match metadata.is_dir() {
                true => size(&entry.path())?,
                false => metadata.len(),
            })
    })
}

/// Copies a folder with what is in it, and who may run it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.metadata()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => std::fs::copy(entry.path(), &target).map(drop)?,
        }
    }
    Ok(())
}

fn write_script(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let script = folder.join(SCRIPT_NAME);
    std::fs::write(&script, SCRIPT)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
}

/// Takes away what only a debugger needs. Without the tool the program stays as it is, and the size tells.
fn strip(program: &Path) {
    let line = Invocation::new("strip").arg(program.display().to_string());
    if !matches!(line.succeeds(), Ok(true)) {
        println!("    not stripped: {line}");
    }
}

/// Builds a program; where it is.
fn build(entry: &Entry, optimised: bool) -> Result<PathBuf, Failure> {
    let (package, kind, name) = *entry;
    let verb = match kind {
        "--test" => "cargo test --no-run",
        _ => "cargo build",
    };
    let line = Invocation::new(verb)
        .args(optimised.then_some("--release"))
        .args(["--message-format", "json", "--features", "cuda"])
        .args(["--package", package, kind, name]);
    let output = line
        .answer()
        .ok_or_else(|| Failure::Check(format!("{name} was not built:\n    {line}")))?;
    executable(&output, name)
        .ok_or_else(|| Failure::Check(format!("cargo names no program for {name}:\n    {line}")))
}

/// The program of a target among the messages of cargo.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    fn programs_are_found_in_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/t/other"}"#,
            "\nnot json\n",
            r#"{"reason":"compiler-artifact","target":{"name":"one"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"one"},"executable":"/t/one-1"}"#,
        );
        assert_eq!(executable(messages, "one"), Some(PathBuf::from("/t/one-1")));
        assert_eq!(executable(messages, "two"), None);
    }

    #[test]
    fn a_folder_that_is_too_large_is_refused() {
        assert!(check_size(LIMIT_BYTES).is_ok());
        let refused = check_size(LIMIT_BYTES + 1).unwrap_err().to_string();
        assert!(refused.contains("62914561 bytes"), "{refused}");
    }

    /// The last line of the script, and its exit code, over programs that do this.
    fn last_line(name: &str, glibc: &str, programs: &[(&str, &str)]) -> (String, i32) {
        let folder =
            std::env::temp_dir().join(format!("carve-script-{name}-{}", std::process::id()));
        for place in ["tests", "programs/data"] {
            std::fs::create_dir_all(folder.join(place)).unwrap();
        }
        for (program, commands) in programs {
            let path = folder.join(program);
            std::fs::write(&path, format!("#!/bin/sh\n{commands}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::fs::write(folder.join(GLIBC_NAME), glibc).unwrap();
        write_script(&folder).unwrap();
        let output = Command::new(folder.join(SCRIPT_NAME)).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = text.lines().last().unwrap().to_owned();
        (last, output.status.code().unwrap())
    }

    #[test]
    fn the_script_adds_up_what_programs_report() {
        let good = "echo 'test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured'";
        let bad = "echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored'; exit 101";
        let sum = |name, programs: &[(&str, &str)]| last_line(name, "2.1", programs);
        let program = ("programs/digits", "echo fine");
        assert_eq!(
            sum("good", &[("tests/a", good), ("tests/b", good), program]),
            ("11 passed, 0 failed".to_owned(), 0)
        );
        assert_eq!(
            sum("bad", &[("tests/a", good), ("tests/b", bad), program]),
            ("9 passed, 2 failed".to_owned(), 1)
        );
        let silent = "exit 0";
        assert_eq!(
            sum(
                "dead",
                &[("tests/a", "kill -9 $$"), ("tests/b", silent), program]
            ),
            ("1 passed, 2 failed".to_owned(), 1)
        );
        let leaving = format!("{good}; exit 86");
        assert_eq!(
            sum(
                "code",
                &[("tests/a", &leaving), ("programs/digits", "exit 1")]
            ),
            ("5 passed, 2 failed".to_owned(), 1)
        );
    }

    /// The checker runs the suite twice, when it is installed: here, beside the script.
    #[test]
    fn the_script_runs_the_checker_of_nvidia() {
        let folder = std::env::temp_dir().join(format!("carve-checker-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("tests")).unwrap();
        std::fs::create_dir_all(folder.join("programs")).unwrap();
        let checker = folder.join("compute-sanitizer");
        std::fs::write(&checker, "#!/bin/sh\n[ \"$2\" = memcheck ] || exit 9\n").unwrap();
        let suite = folder.join("tests/hardware");
        let reports = "#!/bin/sh\necho 'test result: ok. 1 passed; 0 failed; 0 ignored'\n";
        std::fs::write(&suite, reports).unwrap();
        for program in [&checker, &suite] {
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(program, mode).unwrap();
        }
        std::fs::write(folder.join(GLIBC_NAME), "2.1").unwrap();
        write_script(&folder).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let run = |words: &[&str]| {
            let mut script = Command::new(folder.join(SCRIPT_NAME));
            let output = script.args(words).env("PATH", &path).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().last().unwrap().to_owned()
        };
        let (full, quick) = (run(&[]), run(&["--quick"]));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(full, "2 passed, 1 failed");
        assert_eq!(quick, "1 passed, 0 failed");
    }

    #[test]
    fn an_older_c_library_is_told_with_both_versions() {
        let (last, code) = last_line("old", "9.99", &[]);
        assert!(
            last.starts_with("these programs need glibc 9.99 or newer"),
            "{last}"
        );
        assert_eq!(code, 3);
    }
}
