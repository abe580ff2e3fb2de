//! The command line.

use lexopt::{Arg, ValueExt};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
Reads handwritten digits with a small network: warms the step up, sizes its arena, captures it, replays it per batch.

Usage: digits [OPTIONS]

  --batch N       images per replay (default 64, or all when there are fewer)
  --images FILE   images of one's own: .npy, f32, of shape (n, 64) or (n, 8, 8), 0 paper to 1 ink
  --labels FILE   their digits: .npy, u8, i32 or i64, of shape (n); needs --images
  --seed N        order in which the simulated device runs what may run (default 0)
  --trace FILE    timeline of the simulated device, for Perfetto
  --help          this text";

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) batch: Option<NonZeroUsize>,
    pub(crate) images: Option<PathBuf>,
    pub(crate) labels: Option<PathBuf>,
    pub(crate) seed: u64,
    pub(crate) trace: Option<PathBuf>,
}

impl Options {
    /// `None` when only help is asked for.
    pub(crate) fn parse(
        args: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Self>, lexopt::Error> {
        let mut options = Self {
            batch: None,
            images: None,
            labels: None,
            seed: 0,
            trace: None,
        };
        let mut parser = lexopt::Parser::from_iter(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("batch") => options.batch = Some(parser.value()?.parse()?),
                Arg::Long("images") => options.images = Some(parser.value()?.into()),
                Arg::Long("labels") => options.labels = Some(parser.value()?.into()),
                Arg::Long("seed") => options.seed = parser.value()?.parse()?,
                Arg::Long("trace") => options.trace = Some(parser.value()?.into()),
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                other => return Err(other.unexpected()),
            }
        }
        if options.labels.is_some() && options.images.is_none() {
            return Err("--labels needs --images".into());
        }
        Ok(Some(options))
    }
}
