//! `cargo xtask test-capture`: the matrix of captures, on the simulated device and a GPU, or on the emulated driver library.

use crate::doctor;
use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::report::again;
use crate::test_gpu::{self, Profile};
use crate::toolkit;

const PROGRAM: &str =
    "cargo run --quiet --package cuda-contract --features cuda --example test_capture --";

/// What to run, as the command line says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// On the emulated library, in the place of the simulated device and a GPU.
    pub(crate) emulated: bool,
    /// A selection that takes seconds.
    pub(crate) quick: bool,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Result<Self, Failure> {
        let mut options = Self::default();
        for word in words {
            match *word {
                "--emulated" => options.emulated = true,
                "--quick" => options.quick = true,
                other => {
                    let text = format!("test-capture has no option {other}: --emulated, --quick");
                    return Err(Failure::Usage(text));
                }
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(options: Options) -> Result<(), Failure> {
    toolkit::make()?;
    if options.emulated {
        return check(&emulated(options.quick)?);
    }
    check(&line(options.quick).arg("--simulated"))?;
    match doctor::no_gpu() {
        Some(reason) => {
            println!("not run on a GPU, since there is none: {reason}");
            Ok(())
        }
        None => check(&test_gpu::on_machine(line(options.quick))),
    }
}

/// The selection that `ci` runs: on the simulated device, and on the emulated library.
pub(crate) fn quick() -> Result<(), Failure> {
    check(&line(true).arg("--simulated"))?;
    check(&emulated(true)?)
}

fn line(quick: bool) -> Invocation {
    Invocation::new(PROGRAM).args(quick.then_some("--quick"))
}

fn emulated(quick: bool) -> Result<Invocation, Failure> {
    let folder = test_gpu::library(Profile::Dev)?;
    Ok(test_gpu::on_library(line(quick), &folder).env("CARVE_SIM_STRICT", "1"))
}

fn check(line: &Invocation) -> Result<(), Failure> {
    match line.succeeds()? {
        true => Ok(()),
        false => Err(again("test-capture", line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_or_refused() {
        let both = Options {
            emulated: true,
            quick: true,
        };
        assert_eq!(Options::parse(&["--quick", "--emulated"]).unwrap(), both);
        assert_eq!(Options::parse(&[]).unwrap(), Options::default());
        let refused = Options::parse(&["--fast"]).unwrap_err();
        assert!(matches!(refused, Failure::Usage(_)));
    }
}
