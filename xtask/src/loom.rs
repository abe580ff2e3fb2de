//! `cargo xtask loom`: tests that are compiled for loom, in the crates that have some.

use std::path::Path;

use crate::failure::Failure;
use crate::harness;
use crate::invocation::Invocation;
use crate::report::{Report, again};
use crate::workspace;

pub(crate) fn run() -> Result<(), Failure> {
    let packages = workspace::packages()?;
    let mut report = Report::new();
    for package in &packages {
        // This file names the attribute, too.
        if package.name == "xtask" || !has_loom_tests(&package.folder) {
            continue;
        }
        let folder = workspace::target_folder().join("loom");
        let line = Invocation::new("cargo test --release --lib --tests -p")
            .args([package.name.as_str(), "loom"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", folder.display().to_string());
        report.step(&package.name, || run_one(&package.name, &line))?;
    }
    if report.passed() == 0 {
        return Err(Failure::Cannot(
            "no crate has tests for loom yet: none of their files mentions `cfg(loom)`".to_owned(),
        ));
    }
    println!("{report}");
    Ok(())
}

/// A filter that matches nothing passes as well; that is not a success here.
fn run_one(name: &str, line: &Invocation) -> Result<(), Failure> {
    println!("    {line}");
    let (passed, output) = line.succeeds_and_prints()?;
    if !passed {
        return Err(again(name, line));
    }
    if harness::tests_passed(&output) == 0 {
        return Err(Failure::Check(format!(
            "{name} mentions `cfg(loom)`, but no test with `loom` in its path ran:\n    {line}"
        )));
    }
    Ok(())
}

fn has_loom_tests(folder: &Path) -> bool {
    ["src", "tests"]
        .iter()
        .any(|name| mentions_loom(&folder.join(name)))
}

fn mentions_loom(path: &Path) -> bool {
    if path.is_dir() {
        let Ok(entries) = std::fs::read_dir(path) else {
            return false;
        };
        return entries.flatten().any(|entry| mentions_loom(&entry.path()));
    }
    path.extension().is_some_and(|extension| extension == "rs")
        && std::fs::read_to_string(path).is_ok_and(|text| has_attribute(&text))
}

fn has_attribute(source: &str) -> bool {
    source.contains("cfg(loom)") || source.contains("cfg(all(test, loom")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_told_from_prose() {
        assert!(has_attribute("#[cfg(loom)]\nmod loom_tests;"));
        assert!(has_attribute("#![cfg(all(test, loom))]"));
        assert!(!has_attribute("// checked with loom"));
    }
}
