//! `cargo xtask sanitize`: tests of the crates that hold `unsafe` code or threads, under
//! AddressSanitizer and ThreadSanitizer.
//!
//! Both need nightly. ThreadSanitizer also needs `rust-src`: it takes the synchronisation of an
//! uninstrumented standard library for races, so that is built along with the tests.

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::Report;
use crate::{toolchain, workspace};

/// Crates whose tests are run under both.
const CRATES: [&str; 6] = [
    "space-core",
    "space-arena",
    "cuda-driver",
    "cuda-sim",
    "cuda-runtime",
    "cuda-buffer",
];

/// The end of the names of tests that compile programs which must not compile. They compare what
/// the stable compiler says, and run nothing that a sanitizer could look at.
pub(crate) const COMPILE_FAIL: &str = "does_not_compile";

pub(crate) const ALL: [Sanitizer; 2] = [Sanitizer::Address, Sanitizer::Thread];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sanitizer {
    Address,
    Thread,
}

impl Sanitizer {
    pub(crate) fn from_name(name: &str) -> Result<Self, Failure> {
        ALL.into_iter()
            .find(|sanitizer| sanitizer.name() == name)
            .ok_or_else(|| {
                Failure::Usage(format!(
                    "unknown sanitizer `{name}`; there are `address` and `thread`"
                ))
            })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
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
        let packages = crates.iter().flat_map(|name| ["-p", name]);
        let line = Invocation::new("cargo +nightly test --no-fail-fast --lib --tests");
        let line = line.args(["--target", host]).args(packages);
        let line = if self.builds_std() {
            line.arg("-Zbuild-std")
        } else {
            line
        };
        line.args(["--", "--skip", COMPILE_FAIL])
            .env("RUSTFLAGS", format!("-Zsanitizer={}", self.name()))
            .env("CARGO_TARGET_DIR", folder.display().to_string())
    }
}

pub(crate) fn run(wanted: &[Sanitizer]) -> Result<(), Failure> {
    let Some(nightly) = toolchain::nightly() else {
        return Err(Failure::Cannot(
            "sanitizers need nightly, which is not installed; \
             install it with\n    rustup toolchain install nightly --profile minimal"
                .to_owned(),
        ));
    };
    let host = toolchain::host()
        .ok_or_else(|| Failure::Cannot("`rustc -vV` does not name a host".to_owned()))?;
    let packages = workspace::packages()?;
    let here = |name: &&str| packages.iter().any(|package| package.name == *name);
    let crates: Vec<&str> = CRATES.iter().copied().filter(here).collect();
    println!("    {nightly}; crates: {}", crates.join(", "));

    let mut report = Report::new();
    for sanitizer in wanted {
        let name = format!("{} sanitizer", sanitizer.name());
        if sanitizer.builds_std() && !toolchain::nightly_has("rust-src") {
            report.skip(
                &name,
                "needs the standard library's source: \
                 rustup component add rust-src --toolchain nightly",
            );
        } else {
            report.command(&name, &sanitizer.tests(&crates, &host))?;
        }
    }
    report.skip(
        "compile-fail tests",
        "nothing of theirs runs, and nightly words its errors differently",
    );
    report.skip(
        "doctests",
        "not run under sanitizers; they are part of the README's test command",
    );
    println!("{report}");
    if report.passed() < wanted.len() {
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
}
