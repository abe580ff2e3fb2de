//! The programs of the bundle, and how each is built.

use std::path::PathBuf;

use serde_json::Value;

use crate::failure::Failure;
use crate::invocation::Invocation;

/// A program of the bundle.
pub(super) struct Entry {
    pub(super) package: &'static str,
    /// What cargo is to build: `--lib`, or `--test`, `--example` or `--bench` with a name.
    pub(super) target: (&'static str, &'static str),
    /// Its place in the folder.
    pub(super) place: &'static str,
    /// Its arguments, and those in a quick run, which leaves it out when there are none. `-` stands for no argument.
    arguments: (&'static str, Option<&'static str>),
}

impl Entry {
    /// The words of cargo that build it. An example is built as the commands that run it build it.
    pub(super) fn verb(&self) -> &'static str {
        match self.target.0 {
            "--example" => "build",
            _ => "test --no-run",
        }
    }

    /// What the script is told of it.
    pub(super) fn line(&self) -> String {
        let (full, quick) = self.arguments;
        format!("{}|{full}|{}\n", self.place, quick.unwrap_or_default())
    }
}

/// The packages whose programs reach a driver.
const DRIVEN: [&str; 2] = ["cuda-contract", "tensor-cuda"];

const fn test(
    package: &'static str,
    target: (&'static str, &'static str),
    place: &'static str,
) -> Entry {
    let one = "--test-threads=1";
    Entry {
        package,
        target,
        place,
        arguments: (one, Some(one)),
    }
}

const fn program(
    package: &'static str,
    target: (&'static str, &'static str),
    place: &'static str,
    arguments: (&'static str, Option<&'static str>),
) -> Entry {
    Entry {
        package,
        target,
        place,
        arguments,
    }
}

const OPENING: Entry = test("cuda-contract", ("--test", "opening"), "tests/opening");
const HARDWARE: Entry = test("cuda-contract", ("--test", "hardware"), "tests/hardware");
const CLIENTS: Entry = test("cuda-contract", ("--test", "clients"), "tests/clients");
const DIGITS: Entry = program(
    "tensor-cuda",
    ("--example", "digits"),
    "programs/digits",
    ("-", Some("-")),
);
const BENCH_GPU: Entry = program(
    "cuda-contract",
    ("--example", "bench_gpu"),
    "programs/bench_gpu",
    ("--json bench-gpu.json", Some("--smoke")),
);

/// A few of all, of each kind.
pub(super) const LIGHT: &[Entry] = &[OPENING, HARDWARE, CLIENTS, DIGITS, BENCH_GPU];

/// Tests that run on the driver that is found, and whole programs. Tests that need a compiler, the checkout or nothing but the
/// simulated device are not among them.
pub(super) const CHECKS: &[Entry] = &[
    OPENING,
    HARDWARE,
    CLIENTS,
    test("tensor-cuda", ("--test", "kernels"), "tests/kernels"),
    test("tensor-cuda", ("--lib", "tensor_cuda"), "tests/tensor_cuda"),
    test("tensor-cuda", ("--test", "suite"), "tests/products"),
    test(
        "tensor-cuda",
        ("--test", "asynchronous"),
        "tests/asynchronous",
    ),
    program(
        "cuda-contract",
        ("--example", "test_capture"),
        "programs/test_capture",
        ("-", Some("--quick")),
    ),
    DIGITS,
    program(
        "tensor-cuda",
        ("--example", "chain"),
        "programs/chain",
        ("-", Some("--sites 8")),
    ),
];

/// Those that measure, built for that.
pub(super) const BENCHMARKS: &[Entry] = &[
    BENCH_GPU,
    program(
        "cuda-contract",
        ("--example", "bench_calls"),
        "programs/bench_calls",
        ("-", Some("--smoke")),
    ),
    program(
        "cuda-buffer",
        ("--bench", "costs"),
        "benches/cuda-buffer-costs",
        ("-", None),
    ),
    program(
        "cuda-buffer",
        ("--bench", "overlap"),
        "benches/cuda-buffer-overlap",
        ("-", None),
    ),
    program(
        "tensor-cuda",
        ("--bench", "costs"),
        "benches/tensor-cuda-costs",
        ("-", None),
    ),
    program(
        "space-arena",
        ("--bench", "count"),
        "benches/space-arena-count",
        ("-", None),
    ),
    program(
        "space-array",
        ("--bench", "ratios"),
        "benches/space-array-ratios",
        ("-", None),
    ),
    // Of criterion.
    program(
        "cuda-sim",
        ("--bench", "throughput"),
        "benches/cuda-sim-throughput",
        ("--bench", Some("--test")),
    ),
    program(
        "space-arena",
        ("--bench", "carve"),
        "benches/space-arena-carve",
        ("--bench", Some("--test")),
    ),
    program(
        "space-array",
        ("--bench", "workloads"),
        "benches/space-array-workloads",
        ("--bench", Some("--test")),
    ),
];

/// Builds the programs of one package; where they are.
pub(super) fn build(entries: &[Entry], profile: Option<&str>) -> Result<Vec<PathBuf>, Failure> {
    let package = entries[0].package;
    let mut line = Invocation::new("cargo")
        .args(entries[0].verb().split(' '))
        .args(["--message-format", "json", "--package", package]);
    if let Some(profile) = profile {
        line = line.args(["--profile", profile]);
    }
    if DRIVEN.contains(&package) {
        line = line.args(["--features", "cuda"]);
    }
    for Entry { target, .. } in entries {
        line = match target {
            ("--lib", _) => line.arg("--lib"),
            (kind, name) => line.args([*kind, *name]),
        };
    }
    let output = line
        .answer()
        .ok_or_else(|| Failure::Check(format!("{package} was not built:\n    {line}")))?;
    let found = entries.iter().map(|entry| {
        let name = entry.target.1;
        executable(&output, name).ok_or_else(|| {
            Failure::Check(format!("cargo names no program for {name}:\n    {line}"))
        })
    });
    found.collect()
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

    /// A benchmark that is added to a crate has to be added here, too.
    #[test]
    fn every_benchmark_of_the_workspace_is_a_program_of_the_bundle() {
        let mut found = 0;
        for package in crate::workspace::packages().unwrap() {
            let manifest = std::fs::read_to_string(package.folder.join("Cargo.toml")).unwrap();
            for bench in manifest.split("[[bench]]").skip(1) {
                let name = bench.split('"').nth(1).unwrap();
                let known = |entry: &&Entry| {
                    entry.package == package.name && entry.target == ("--bench", name)
                };
                assert!(
                    BENCHMARKS.iter().any(|entry| known(&entry)),
                    "{} {name}",
                    package.name
                );
                found += 1;
            }
        }
        assert!(found > 5, "{found}");
    }
}
