//! The programs of the bundle, and how each is built.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::workspace;

/// A program of the bundle.
#[derive(Clone, Copy)]
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

    /// Whether it reaches a driver.
    fn driven(&self) -> bool {
        DRIVEN.contains(&self.package)
    }

    /// Whether what it reads is beside it: the folder of its package, which it names, is where it looks without that.
    pub(super) fn has_data_beside(&self) -> bool {
        self.place == "programs/digits"
    }

    pub(super) fn package_folder(&self) -> PathBuf {
        workspace::root().join("crates").join(self.package)
    }

    /// A file or a folder with its sources; those of others may be among them.
    pub(super) fn sources(&self) -> PathBuf {
        let folder = self.package_folder();
        match self.target {
            ("--lib", _) => folder.join("src"),
            ("--test", name) => {
                let within = folder.join("tests").join(name);
                match within.is_dir() {
                    true => within,
                    false => within.with_extension("rs"),
                }
            }
            ("--bench", _) => folder.join("benches"),
            _ => folder.join("examples"),
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

pub(super) const fn test(
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
        "tensor-cuda",
        ("--bench", "costs"),
        "benches/tensor-cuda-costs",
        ("-", None),
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

/// Programs in parts that one call of cargo builds. With a profile of its own, packages are built together where that gives them the same
/// features, so that little is built twice; without one, as other commands build them.
pub(super) fn parts(
    entries: &'static [Entry],
    profile: Option<&str>,
) -> impl Iterator<Item = &'static [Entry]> {
    let together = profile.is_some();
    entries.chunk_by(move |a, b| {
        let joined = together && a.driven() == b.driven();
        a.verb() == b.verb() && (joined || a.package == b.package)
    })
}

/// Builds the programs of one part; where they are.
pub(super) fn build(entries: &[Entry], profile: Option<&str>) -> Result<Vec<PathBuf>, Failure> {
    let mut line = Invocation::new("cargo")
        .args(entries[0].verb().split(' '))
        .args(["--message-format", "json-render-diagnostics"]);
    if let Some(profile) = profile {
        line = line.args(["--profile", profile]);
    }
    if entries[0].driven() {
        line = line.args(["--features", "cuda"]);
    }
    let packages: BTreeSet<&str> = entries.iter().map(|entry| entry.package).collect();
    for package in packages {
        line = line.args(["--package", package]);
    }
    for Entry { target, .. } in entries {
        line = match target {
            ("--lib", _) => line.arg("--lib"),
            (kind, name) => line.args([*kind, *name]),
        };
    }
    let output = line
        .output()?
        .ok_or_else(|| Failure::Check(format!("not built:\n    {line}")))?;
    let found = entries.iter().map(|entry| {
        executable(&output, entry).ok_or_else(|| {
            let name = entry.target.1;
            Failure::Check(format!("cargo names no program for {name}:\n    {line}"))
        })
    });
    found.collect()
}

/// The program of an entry among the messages of cargo.
fn executable(messages: &str, entry: &Entry) -> Option<PathBuf> {
    let manifest = Path::new(entry.package).join("Cargo.toml");
    let of_package = |path: &str| Path::new(path).ends_with(&manifest);
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == entry.target.1)
        .filter(|message| message["manifest_path"].as_str().is_some_and(of_package))
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Two packages of one part have a benchmark of one name.
    #[test]
    fn programs_are_found_in_messages() {
        let costs = |package| test(package, ("--bench", "costs"), "benches/costs");
        let message = |entry: &Entry, executable: Value| {
            let manifest = entry.package_folder().join("Cargo.toml");
            let target = json!({ "name": entry.target.1 });
            json!({ "manifest_path": manifest, "target": target, "executable": executable })
        };
        let [one, two, three] = ["one", "two", "three"].map(costs);
        let messages = [
            message(&test("one", ("--bench", "other"), ""), json!("/t/other")),
            json!("no message"),
            message(&one, Value::Null),
            message(&two, json!("/t/costs-2")),
            message(&one, json!("/t/costs-1")),
        ];
        let messages = messages.map(|message| message.to_string()).join("\n") + "\nnot json";
        assert_eq!(executable(&messages, &one), Some("/t/costs-1".into()));
        assert_eq!(executable(&messages, &two), Some("/t/costs-2".into()));
        assert_eq!(executable(&messages, &three), None);
    }

    #[test]
    fn a_part_has_one_verb_and_one_set_of_features() {
        for (entries, profile, most) in [
            (CHECKS, Some("bundle"), 2),
            (BENCHMARKS, Some("release"), 3),
            (LIGHT, None, 3),
        ] {
            let parts: Vec<_> = parts(entries, profile).collect();
            assert_eq!(parts.concat().len(), entries.len());
            assert_eq!(parts.len(), most);
            for part in parts {
                for entry in part {
                    assert_eq!(entry.verb(), part[0].verb());
                    assert_eq!(entry.driven(), part[0].driven());
                    assert!(profile.is_some() || entry.package == part[0].package);
                }
            }
        }
    }

    /// A benchmark that is added to a crate has to be added here, too.
    #[test]
    fn every_benchmark_of_the_workspace_is_a_program_of_the_bundle() {
        let mut found = 0;
        for package in workspace::packages().unwrap() {
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
