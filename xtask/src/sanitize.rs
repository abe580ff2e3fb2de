//! `cargo xtask sanitize`: tests of the crates that hold `unsafe` code or threads, under
//! AddressSanitizer and ThreadSanitizer, and of those of host memory alone under valgrind.
//!
//! The sanitizers need nightly. ThreadSanitizer also needs `rust-src`: it takes the synchronisation
//! of an uninstrumented standard library for races, so that is built along with the tests. The
//! memory core of `space-array` and `async-value` can do without: their locks and counts of owners
//! have stand-ins that are compiled with them.
//! valgrind sees what AddressSanitizer does not: decisions that depend on bytes nobody wrote, and
//! leaks, which tests of the crates with a device make on purpose.

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::Report;
use crate::{toolchain, workspace};

/// Crates whose tests are run under the sanitizers. `async-value` forbids `unsafe`, but has threads.
const CRATES: [&str; 8] = [
    "space-core",
    "space-arena",
    "space-array",
    "cuda-driver",
    "cuda-sim",
    "cuda-runtime",
    "cuda-buffer",
    "async-value",
];

/// Crates whose tests are run under valgrind; it makes one thread of many, far too slow for a device.
const VALGRIND_CRATES: [&str; 2] = ["space-core", "space-arena"];

/// The end of the names of tests that compile programs which must not compile. They compare what
/// the stable compiler says, and run nothing that a sanitizer could look at.
pub(crate) const COMPILE_FAIL: &str = "does_not_compile";

/// A test that takes waits away, among them those of the host for its own memory: what it then sees used after its end, a sanitizer ends
/// the process for.
const WAITS_TAKEN_AWAY: &str = "every_kind_of_wait_is_missed";

pub(crate) const ALL: [Sanitizer; 3] = [Sanitizer::Address, Sanitizer::Thread, Sanitizer::Valgrind];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sanitizer {
    Address,
    Thread,
    Valgrind,
}

impl Sanitizer {
    pub(crate) fn from_name(name: &str) -> Result<Self, Failure> {
        ALL.into_iter()
            .find(|sanitizer| sanitizer.name() == name)
            .ok_or_else(|| {
                Failure::Usage(format!(
                    "unknown sanitizer `{name}`; there are `address`, `thread` and `valgrind`"
                ))
            })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
            Self::Valgrind => "valgrind",
        }
    }

    /// Under which name its run is reported.
    fn title(self) -> String {
        match self {
            Self::Valgrind => self.name().to_owned(),
            Self::Address | Self::Thread => format!("{} sanitizer", self.name()),
        }
    }

    /// What it needs and this machine does not have.
    fn lacks(self) -> Option<&'static str> {
        let nightly = || toolchain::nightly().is_some();
        match self {
            Self::Address | Self::Thread if !nightly() => {
                Some("needs nightly: rustup toolchain install nightly --profile minimal")
            }
            Self::Thread if !toolchain::nightly_has("rust-src") => Some(
                "needs the standard library's source, for all but the parts named here: \
                 rustup component add rust-src --toolchain nightly",
            ),
            Self::Valgrind if toolchain::first_line("valgrind --version").is_none() => {
                Some("needs valgrind, which is not on the path")
            }
            Self::Address | Self::Thread | Self::Valgrind => None,
        }
    }

    /// Whether the standard library has to be built with it.
    fn builds_std(self) -> bool {
        self == Self::Thread
    }

    fn tests(self, crates: &[&str], host: &str) -> Invocation {
        let folder = workspace::target_folder()
            .join("sanitize")
            .join(self.name());
        let suits = |name: &&&str| self != Self::Valgrind || VALGRIND_CRATES.contains(*name);
        let packages = crates.iter().filter(suits).flat_map(|name| ["-p", name]);
        let line = match self {
            Self::Valgrind => {
                let runner = host.to_uppercase().replace(['-', '.'], "_");
                Invocation::new("cargo test --no-fail-fast --lib --tests").env(
                    &format!("CARGO_TARGET_{runner}_RUNNER"),
                    "valgrind --quiet --error-exitcode=9 --leak-check=full \
                     --show-leak-kinds=definite --errors-for-leak-kinds=definite",
                )
            }
            Self::Address | Self::Thread => {
                Invocation::new("cargo +nightly test --no-fail-fast --lib --tests")
                    .env("RUSTFLAGS", format!("-Zsanitizer={}", self.name()))
                    // Tests forget guards on purpose, which leaks what they hold by design, and ask for more memory than there is.
                    .env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1")
                    .env("TSAN_OPTIONS", "allocator_may_return_null=1")
            }
        };
        let line = line.args(["--target", host]).args(packages);
        let line = if self.builds_std() {
            line.arg("-Zbuild-std")
        } else {
            line
        };
        line.args(["--", "--skip", COMPILE_FAIL, "--skip", WAITS_TAKEN_AWAY])
            .env("CARGO_TARGET_DIR", folder.display().to_string())
    }
}

/// A test that runs under ThreadSanitizer without the source of the standard library, since its
/// crate has stand-ins for what that does out of the sanitizer's sight.
struct Visible {
    what: &'static str,
    package: &'static str,
    test: &'static str,
}

const VISIBLE: [Visible; 2] = [
    Visible {
        what: "memory of arrays",
        package: "space-array",
        test: "stress",
    },
    Visible {
        what: "asynchronous values",
        package: "async-value",
        test: "races",
    },
];

impl Visible {
    fn title(&self) -> String {
        format!("{}, {}", Sanitizer::Thread.title(), self.what)
    }
}

fn visible(part: &Visible, host: &str) -> Invocation {
    let folder = workspace::target_folder().join("sanitize/visible");
    let known = workspace::root().join("xtask/tsan-suppressions.txt");
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer -Zshare-generics=n \
                 --cfg carve_tsan";
    Invocation::new("cargo +nightly test")
        .args(["-p", part.package, "--test", part.test])
        .args(["--target", host, "--", "--test-threads=1"])
        .env("RUSTFLAGS", flags)
        .env("TSAN_OPTIONS", format!("suppressions={}", known.display()))
        .env("CARGO_TARGET_DIR", folder.display().to_string())
}

pub(crate) fn run(wanted: &[Sanitizer]) -> Result<(), Failure> {
    let host = toolchain::host()
        .ok_or_else(|| Failure::Cannot("`rustc -vV` does not name a host".to_owned()))?;
    let packages = workspace::packages()?;
    let here = |name: &&str| packages.iter().any(|package| package.name == *name);
    let crates: Vec<&str> = CRATES.iter().copied().filter(here).collect();
    let nightly = toolchain::nightly().unwrap_or_else(|| "no nightly".to_owned());
    println!("    {nightly}; crates: {}", crates.join(", "));

    let mut report = Report::new();
    let mut all = true;
    for sanitizer in wanted {
        let name = sanitizer.title();
        match sanitizer.lacks() {
            Some(reason) => {
                all = false;
                report.skip(&name, reason);
            }
            None => report.command(&name, &sanitizer.tests(&crates, &host))?,
        }
    }
    if wanted.contains(&Sanitizer::Thread) && toolchain::nightly().is_some() {
        for part in VISIBLE {
            report.command(&part.title(), &visible(&part, &host))?;
        }
        report.skip(
            "executors of other crates, under ThreadSanitizer without rust-src",
            "tokio, smol and futures take locks and counts of the standard library",
        );
    }
    report.skip(
        "compile-fail tests",
        "nothing of theirs runs, and nightly words its errors differently",
    );
    report.skip(
        "doctests",
        "not run under sanitizers; they are part of the README's test command",
    );
    if wanted.contains(&Sanitizer::Valgrind) {
        report.skip(
            "crates with a device, under valgrind",
            "it runs one thread at a time; their tests ask the device for leaks",
        );
    }
    println!("{report}");
    if !all {
        return Err(Failure::Cannot(
            "not every sanitizer could be run; see the summary".to_owned(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for sanitizer in ALL {
            assert_eq!(Sanitizer::from_name(sanitizer.name()).unwrap(), sanitizer);
        }
        assert!(Sanitizer::from_name("memory").is_err());
    }

    #[test]
    fn only_thread_sanitizer_builds_the_standard_library() {
        let host = "x86_64-unknown-linux-gnu";
        let address = Sanitizer::Address.tests(&["space-core"], host).to_string();
        let thread = Sanitizer::Thread.tests(&["space-core"], host).to_string();
        assert!(
            address.contains("RUSTFLAGS=-Zsanitizer=address"),
            "{address}"
        );
        assert!(
            !address.contains("build-std") && thread.contains("-Zbuild-std"),
            "{thread}"
        );
        assert!(
            thread.contains("--target x86_64-unknown-linux-gnu -p space-core"),
            "{thread}"
        );
    }

    #[test]
    fn parts_with_stand_ins_are_built_with_what_the_sanitizer_sees() {
        for part in VISIBLE {
            let line = visible(&part, "x86_64-unknown-linux-gnu").to_string();
            assert!(line.contains("--cfg carve_tsan"), "{line}");
            assert!(!line.contains("build-std"), "{line}");
            let test = format!("crates/{}/tests/{}.rs", part.package, part.test);
            assert!(workspace::root().join(&test).exists(), "{test}");
        }
        assert!(
            workspace::root()
                .join("xtask/tsan-suppressions.txt")
                .exists()
        );
    }

    #[test]
    fn valgrind_runs_the_tests_of_host_memory_on_the_stable_toolchain() {
        let crates = ["space-core", "cuda-sim", "space-arena"];
        let line = Sanitizer::Valgrind.tests(&crates, "x86_64-unknown-linux-gnu");
        let line = line.to_string();
        assert!(
            line.contains("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER='valgrind "),
            "{line}"
        );
        assert!(
            line.contains("-p space-core -p space-arena -- ") && !line.contains("+nightly"),
            "{line}"
        );
    }
}
