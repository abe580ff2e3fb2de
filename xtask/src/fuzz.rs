//! `cargo xtask fuzz`: the fuzz target of `space-arena`, for a bounded time.
//!
//! It is built with the flags that cargo-fuzz would give, so that only nightly and a C++ compiler
//! are needed. What the fuzzer finds interesting is kept below the target folder, and is where the
//! next run starts from.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::{Report, again};
use crate::{toolchain, workspace};

/// Where the targets are, and the one that is run.
const MANIFEST: &str = "crates/space-arena/fuzz/Cargo.toml";
const TARGET: &str = "programs";

/// How long it runs unless told otherwise.
pub(crate) const SECONDS: u32 = 60;

/// The coverage that libFuzzer reads, with AddressSanitizer and all assertions.
const FLAGS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    --cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions -Zsanitizer=address";

pub(crate) fn seconds(word: &str) -> Result<u32, Failure> {
    match word.parse() {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => Err(Failure::Usage(format!(
            "`--seconds {word}` is not a number of seconds, one or more"
        ))),
    }
}

pub(crate) fn run(seconds: u32) -> Result<(), Failure> {
    let cannot = |reason: &str| Err(Failure::Cannot(format!("fuzzing {reason}")));
    let Some(nightly) = toolchain::nightly() else {
        return cannot(
            "needs nightly, which is not installed; install it with\n    \
             rustup toolchain install nightly --profile minimal",
        );
    };
    let Some(host) = toolchain::host() else {
        return cannot("needs the host's name, and `rustc -vV` does not tell it");
    };
    if !has_runtime(&host) {
        return cannot(
            "needs AddressSanitizer's runtime, which nightly does not have for this host",
        );
    }
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if toolchain::first_line(&format!("{compiler} --version")).is_none() {
        return cannot("needs a C++ compiler for libFuzzer; install one, or name it in CXX");
    }
    let fetch = Invocation::new("cargo +nightly fetch --manifest-path").arg(MANIFEST);
    if !fetch.succeeds()? {
        return cannot(&format!("needs libFuzzer's crate; `{fetch}` failed"));
    }
    println!("    {nightly}");

    let folder = workspace::root()
        .join(workspace::target_folder())
        .join("fuzz");
    let (corpus, found) = (folder.join("corpus"), folder.join("found"));
    for folder in [&corpus, &found] {
        fs::create_dir_all(folder)
            .map_err(|error| Failure::Cannot(format!("{}: {error}", folder.display())))?;
    }
    let mut report = Report::new();
    report.command("build", &build(&folder, &host))?;
    let line = fuzz(&folder, &host, seconds);
    let started = SystemTime::now();
    report.step(&format!("{TARGET}, {seconds} s"), || {
        println!("    {line}");
        if line.succeeds()? {
            return Ok(());
        }
        // One run of the input that was found, if that is what ended it.
        match latest(&found, started) {
            Some(input) => Err(again(TARGET, &rerun(&folder, &host, &input))),
            None => Err(again(TARGET, &line)),
        }
    })?;
    report.skip(
        "other crates",
        "they have no fuzz targets; their random programs are property tests",
    );
    println!("{report}");
    Ok(())
}

fn build(folder: &Path, host: &str) -> Invocation {
    Invocation::new("cargo +nightly build --release --bin")
        .args([TARGET, "--manifest-path", MANIFEST, "--target", host])
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", folder.display().to_string())
}

fn program(folder: &Path, host: &str) -> Invocation {
    let program = folder.join(host).join("release").join(TARGET);
    Invocation::new("").arg(program.display().to_string())
}

fn rerun(folder: &Path, host: &str, input: &Path) -> Invocation {
    program(folder, host).arg(input.display().to_string())
}

fn fuzz(folder: &Path, host: &str, seconds: u32) -> Invocation {
    program(folder, host)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!(
            "-artifact_prefix={}/",
            folder.join("found").display()
        ))
        .args(["-max_len=512", "-print_final_stats=1"])
        .arg(folder.join("corpus").display().to_string())
}

/// The input that was found last, if any was since then.
fn latest(found: &Path, since: SystemTime) -> Option<PathBuf> {
    let entries = fs::read_dir(found).ok()?.flatten();
    let dated = entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry)));
    let fresh = dated.filter(|(when, _)| *when >= since);
    let latest = fresh.max_by_key(|(when, _)| *when);
    latest.map(|(_, entry)| entry.path())
}

/// Whether nightly can link AddressSanitizer.
fn has_runtime(host: &str) -> bool {
    let folder = Invocation::new("rustc +nightly --print target-libdir --target").arg(host);
    let Some(folder) = folder.answer() else {
        return false;
    };
    let Ok(entries) = fs::read_dir(folder.trim()) else {
        return false;
    };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| is_runtime(&name.to_string_lossy()))
}

fn is_runtime(name: &str) -> bool {
    name.contains("rt.asan.") || name.contains("rt_asan")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_seconds_are_a_time() {
        assert_eq!(seconds("5").unwrap(), 5);
        for word in ["0", "-1", "1.5", "1m", ""] {
            assert!(matches!(seconds(word), Err(Failure::Usage(_))), "{word}");
        }
    }

    #[test]
    fn the_lines_are_those_of_one_folder() {
        let (folder, host) = (Path::new("/t/fuzz"), "x86_64-unknown-linux-gnu");
        let build = build(folder, host).to_string();
        assert!(
            build.contains("CARGO_TARGET_DIR=/t/fuzz") && build.contains("--target x86_64-"),
            "{build}"
        );
        let fuzz = fuzz(folder, host, 7).to_string();
        assert!(
            fuzz.starts_with(
                "/t/fuzz/x86_64-unknown-linux-gnu/release/programs -max_total_time=7 "
            ) && fuzz.ends_with(" /t/fuzz/corpus"),
            "{fuzz}"
        );
    }

    #[test]
    fn the_runtime_is_known_by_its_name() {
        assert!(is_runtime("librustc-nightly_rt.asan.a"));
        assert!(!is_runtime("librustc-nightly_rt.tsan.a"));
    }

    #[test]
    fn the_target_is_there() {
        let manifest = fs::read_to_string(workspace::root().join(MANIFEST)).unwrap();
        assert!(manifest.contains(&format!("name = \"{TARGET}\"")));
    }
}
