//! Bare driver calls, Carve and PyTorch on one GPU in one run, timed with the device's events. `cargo xtask bench-gpu` builds and
//! runs it.

mod bench;
mod cublas;
mod launches;
mod memory;
mod network;
mod overlap;
mod products;
mod pytorch;
mod table;

use bench::{Bench, Scale};
use cuda_driver::hardware::OpenError;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use table::Table;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const USAGE: &str = "bench_gpu [--smoke] [--json FILE]
bench_gpu --device
  --smoke       small and few: shows that the program works, and measures nothing
  --json FILE   writes the table as JSON, too
  --device      only says which device there is

exit codes: 0 no goal is missed, or --smoke; 1 one is, or something failed; 2 wrong usage; 3 there is no GPU";

/// Exit code where there is nothing to measure.
const NO_GPU: u8 = 3;

fn main() -> ExitCode {
    let (mut scale, mut json, mut only_device) = (Scale::Full, None, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), &mut words) {
            ("--smoke", _) => scale = Scale::Smoke,
            ("--device", _) => only_device = true,
            ("--json", words) => match words.next() {
                Some(path) => json = Some(PathBuf::from(path)),
                None => return usage("--json takes a file"),
            },
            (other, _) => return usage(&format!("unknown option {other}")),
        }
    }
    let bench = match Bench::open(scale) {
        Ok(bench) => bench,
        Err(error) => {
            let absent = error.downcast_ref().is_some_and(OpenError::is_absence);
            let what = if absent {
                "there is no GPU to measure: "
            } else {
                ""
            };
            eprintln!("bench_gpu: {what}{error}");
            return if absent {
                ExitCode::from(NO_GPU)
            } else {
                ExitCode::FAILURE
            };
        }
    };
    match run(&bench, json, only_device) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench_gpu: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("{problem}\n{USAGE}");
    ExitCode::from(2)
}

/// Measures everything; whether nothing failed and no goal is missed.
fn run(bench: &Bench, json: Option<PathBuf>, only_device: bool) -> Outcome<bool> {
    let mut table = Table::new(bench)?;
    println!("{}", table.heading());
    if only_device {
        return Ok(true);
    }
    let whole = table.fill(
        bench,
        &[
            ("create and drop", memory::run),
            ("launches", launches::run),
            ("two streams", overlap::run),
            ("products", products::run),
            ("the digits step", network::run),
            ("PyTorch", pytorch::run),
        ],
    );
    println!("{table}");
    if let Some(path) = json {
        let written = std::fs::write(&path, table.json());
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        println!("written to {}", path.display());
    }
    Ok(whole && (bench.scale == Scale::Smoke || table.no_goal_is_missed()))
}
