//! `cargo xtask gpu-bundle`: a folder with the tests of hardware as programs, and a script that runs them, for a machine that
//! has a GPU and no Rust.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::toolkit;
use crate::workspace;

/// Packages with their tests of hardware.
const TESTS: [(&str, &str); 4] = [
    ("cuda-contract", "opening"),
    ("cuda-contract", "hardware"),
    ("cuda-contract", "clients"),
    ("tensor-cuda", "kernels"),
];

/// What the folder may take.
const LIMIT_BYTES: u64 = 60 << 20;

/// Runs every program beside it and adds up what they report. A program that reports nothing has failed.
const SCRIPT: &str = include_str!("gpu_bundle.sh");
const SCRIPT_NAME: &str = "run.sh";

pub(crate) fn run() -> Result<(), Failure> {
    toolkit::make()?;
    let folder = workspace::target_folder().join("gpu-bundle");
    let failed = |error: std::io::Error| Failure::Check(format!("{}: {error}", folder.display()));
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(failed)?;
    }
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let mut bytes = 0;
    for (package, test) in TESTS {
        println!("{package}: {test}");
        let program = build(package, test)?;
        bytes += std::fs::copy(program, folder.join(test)).map_err(failed)?;
    }
    write_script(&folder).map_err(failed)?;
    println!(
        "{} has {} programs in {:.1} MiB; on the machine with the GPU, call {SCRIPT_NAME} in it",
        folder.display(),
        TESTS.len(),
        bytes as f64 / f64::from(1 << 20)
    );
    match bytes <= LIMIT_BYTES {
        true => Ok(()),
        false => Err(Failure::Check(format!(
            "that is more than {} MiB",
            LIMIT_BYTES >> 20
        ))),
    }
}

fn write_script(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let script = folder.join(SCRIPT_NAME);
    std::fs::write(&script, SCRIPT)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
}

/// Builds a test without what only a debugger needs; its program.
fn build(package: &str, test: &str) -> Result<PathBuf, Failure> {
    let line = Invocation::new("cargo test --no-run --message-format json --features cuda")
        .args(["--package", package, "--test", test])
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    let output = line
        .answer()
        .ok_or_else(|| Failure::Check(format!("{test} was not built:\n    {line}")))?;
    executable(&output, test)
        .ok_or_else(|| Failure::Check(format!("cargo names no program for {test}:\n    {line}")))
}

/// The program of a test among the messages of cargo.
fn executable(messages: &str, test: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == test)
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

    /// The last line of the script, and whether it succeeded, over programs that print this.
    fn last_line(name: &str, programs: &[(&str, &str)]) -> (String, bool) {
        let folder =
            std::env::temp_dir().join(format!("carve-bundle-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (program, commands) in programs {
            let path = folder.join(program);
            std::fs::write(&path, format!("#!/bin/sh\n{commands}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        write_script(&folder).unwrap();
        let output = Command::new(folder.join(SCRIPT_NAME)).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            text.lines().last().unwrap().to_owned(),
            output.status.success(),
        )
    }

    #[test]
    fn the_script_adds_up_what_programs_report() {
        let good = "echo 'test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured'";
        let bad = "echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored'; exit 101";
        let sum = last_line("good", &[("a", good), ("b", good)]);
        assert_eq!(sum, ("10 passed, 0 failed".to_owned(), true));
        let sum = last_line("bad", &[("a", good), ("b", bad)]);
        assert_eq!(sum, ("8 passed, 2 failed".to_owned(), false));
        let sum = last_line("dead", &[("a", good), ("b", "kill -9 $$")]);
        assert_eq!(sum, ("5 passed, 1 failed".to_owned(), false));
    }
}
