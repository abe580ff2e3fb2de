//! Why a command did not succeed, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

/// The end of a command that did not do all of its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A check ran and failed.
    Check(String),
    /// The command line was not understood.
    Usage(String),
    /// Something that the command needs is not here, or there was nothing to run.
    Cannot(String),
}

impl Failure {
    /// Exit code of a command that could not do its work, or not all of it.
    pub(crate) const CANNOT: u8 = 3;

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Check(_) => 1,
            Self::Usage(_) => 2,
            Self::Cannot(_) => Self::CANNOT,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(text) | Self::Usage(text) | Self::Cannot(text) => f.write_str(text),
        }
    }
}
