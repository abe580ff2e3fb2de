//! The command line.

use lexopt::{Arg, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
Finds the ground state of a ring of spins with nearest-neighbour coupling 1 in a transverse field, by Lanczos steps whose
products are queued asynchronously, and compares its energy with the closed form.

Usage: chain [OPTIONS]

  --sites N      spins, 4 to 16 (default 14)
  --field H      transverse field, 0 or more (default 1: the critical point)
  --streams N    streams of the device, 1 to 64 (default 8)
  --trace FILE   timeline of the simulated device, for Perfetto
  --help         this text";

/// What was asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    pub(crate) sites: usize,
    pub(crate) field: f64,
    pub(crate) streams: usize,
    pub(crate) trace: Option<PathBuf>,
}

impl Options {
    /// `None` when only help is asked for.
    pub(crate) fn parse(
        args: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Self>, lexopt::Error> {
        let mut options = Self {
            sites: 14,
            field: 1.0,
            streams: 8,
            trace: None,
        };
        let mut parser = lexopt::Parser::from_iter(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("sites") => options.sites = parser.value()?.parse()?,
                Arg::Long("field") => options.field = parser.value()?.parse()?,
                Arg::Long("streams") => options.streams = parser.value()?.parse()?,
                Arg::Long("trace") => options.trace = Some(parser.value()?.into()),
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                other => return Err(other.unexpected()),
            }
        }
        let Self {
            sites,
            field,
            streams,
            ..
        } = options;
        if !(4..=16).contains(&sites) {
            return Err(format!("--sites is {sites}, and 4 to 16 are possible").into());
        }
        if !(0.0..=1e6).contains(&field) {
            return Err(format!("--field is {field}, and 0 to 1000000 is possible").into());
        }
        if !(1..=64).contains(&streams) {
            return Err(format!("--streams is {streams}, and 1 to 64 are possible").into());
        }
        Ok(Some(options))
    }
}
