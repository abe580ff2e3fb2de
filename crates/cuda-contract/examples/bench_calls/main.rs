//! Driver calls and host time of Carve next to those of `cudarc`, on the emulated driver in null mode, where what is
//! measured is what stands above the driver. `cargo xtask bench-calls` builds and runs it.
//!
//! Both are built alike, and open the same library. Their samples take turns on one processor, so that what disturbs one disturbs the
//! other. Each of several processes takes the first percentile and the middle of its samples; the table has the middle of those.

mod carve;
#[cfg(target_os = "linux")]
mod pin;
mod theirs;

use cuda_contract::emulated;
use std::collections::BTreeMap;
use std::error::Error;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Elements of each buffer.
const N: usize = 1024;
/// Operations of a sample.
const ROUNDS: u32 = 200;
const SIDES: [&str; 2] = ["Carve", "cudarc"];

const USAGE: &str = "bench_calls [--smoke]
  --smoke   few samples: shows that the program works, and measures nothing

exit codes: 0 Carve is lower in each case, or --smoke; 1 it is not, or something failed; 2 wrong usage";

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// What both sides can do.
trait Side {
    /// Allocates a buffer and keeps it.
    fn allocate(&mut self) -> Outcome;
    /// Drops the buffers that were allocated.
    fn drop_all(&mut self);
    /// `out = x + y` on one of two streams.
    fn operate(&mut self, stream: usize) -> Outcome;
}

/// How much is measured.
#[derive(Clone, Copy)]
struct Scale {
    processes: usize,
    samples: usize,
}

const FULL: Scale = Scale {
    processes: 9,
    samples: 400,
};
const SMOKE: Scale = Scale {
    processes: 1,
    samples: 4,
};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => compare(FULL),
        ["--smoke"] => compare(SMOKE).map(|_| true),
        // One of the processes.
        ["--samples", samples] => samples
            .parse()
            .map_err(Into::into)
            .and_then(measure)
            .map(|()| true),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench_calls: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Case {
    name: &'static str,
    /// Does so many operations.
    run: fn(&mut dyn Side, u32) -> Outcome,
    /// Before and after each sample, outside of the measurement.
    before: fn(&mut dyn Side, u32) -> Outcome,
    after: fn(&mut dyn Side),
}

const CASES: [Case; 4] = [
    Case {
        name: "allocate",
        run: allocate,
        before: |_, _| Ok(()),
        after: |side| side.drop_all(),
    },
    Case {
        name: "drop",
        run: |side, _| {
            side.drop_all();
            Ok(())
        },
        before: allocate,
        after: |_| {},
    },
    Case {
        name: "operation, same stream",
        run: |side, rounds| (0..rounds).try_for_each(|_| side.operate(0)),
        before: |_, _| Ok(()),
        after: |_| {},
    },
    Case {
        name: "operation, alternating streams",
        run: |side, rounds| (0..rounds).try_for_each(|turn| side.operate(turn as usize % 2)),
        before: |_, _| Ok(()),
        after: |_| {},
    },
];

fn allocate(side: &mut dyn Side, rounds: u32) -> Outcome {
    (0..rounds).try_for_each(|_| side.allocate())
}

impl Case {
    /// Nanoseconds of one operation.
    fn sample(&self, side: &mut dyn Side) -> Outcome<f64> {
        (self.before)(side, ROUNDS)?;
        let start = Instant::now();
        (self.run)(side, ROUNDS)?;
        let took = start.elapsed().as_secs_f64() * 1e9;
        (self.after)(side);
        Ok(took / f64::from(ROUNDS))
    }

    /// Driver calls of one operation, by name.
    fn calls(&self, side: &mut dyn Side) -> Outcome<BTreeMap<&'static str, f64>> {
        (self.before)(side, ROUNDS)?;
        let before = emulated::calls();
        (self.run)(side, ROUNDS)?;
        let after = emulated::calls();
        (self.after)(side);
        let made = before.iter().zip(after).map(|(before, after)| {
            let calls = (after.1 - before.1) as f64 / f64::from(ROUNDS);
            (before.0, calls)
        });
        Ok(made.filter(|(_, calls)| *calls > 0.0).collect())
    }
}

/// The sides, on the library that does nothing.
fn sides() -> Outcome<(carve::Carve, theirs::Cudarc)> {
    if !emulated::is_null() {
        return Err(
            "this needs the emulated driver in null mode: run `cargo xtask bench-calls`".into(),
        );
    }
    Ok((carve::Carve::new()?, theirs::Cudarc::new()?))
}

/// What one process does: prints a line for each case and side, with the first percentile and the middle of its samples.
fn measure(samples: usize) -> Outcome {
    let (mut carve, mut cudarc) = sides()?;
    #[cfg(target_os = "linux")]
    pin::here();
    for case in &CASES {
        let mut sides: [(&mut dyn Side, Vec<f64>); 2] =
            [(&mut carve, Vec::new()), (&mut cudarc, Vec::new())];
        for number in 0..=samples {
            // Each begins as often as the other; the first samples warm up.
            for turn in [number % 2, 1 - number % 2] {
                let (side, taken) = &mut sides[turn];
                let sample = case.sample(&mut **side)?;
                if number > 0 {
                    taken.push(sample);
                }
            }
        }
        for ((_, mut taken), side) in sides.into_iter().zip(SIDES) {
            taken.sort_by(f64::total_cmp);
            let (floor, middle) = (taken[taken.len() / 100], taken[taken.len() / 2]);
            println!("{}\t{side}\t{floor}\t{middle}", case.name);
        }
    }
    Ok(())
}

/// Figures of the processes for one case and side.
#[derive(Clone, Debug, Default)]
struct Figures {
    floors: Vec<f64>,
    middles: Vec<f64>,
}

impl Figures {
    fn floor(&self) -> f64 {
        middle(&self.floors)
    }

    fn text(&self) -> String {
        let least = self.floors.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.floors.iter().copied().fold(0.0, f64::max);
        let spread = format!("({least:.0}-{most:.0})");
        format!(
            "{:>5.0} {spread:<11}{:>5.0}",
            self.floor(),
            middle(&self.middles)
        )
    }
}

fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs the processes and prints the table; whether Carve is lower in each case.
fn compare(scale: Scale) -> Outcome<bool> {
    let (mut carve, mut cudarc) = sides()?;
    let mut figures: BTreeMap<(String, String), Figures> = BTreeMap::new();
    for number in 1..=scale.processes {
        eprintln!("[{number}/{}]", scale.processes);
        let samples = scale.samples.to_string();
        let mut process = Command::new(std::env::current_exe()?);
        let process = process.args(["--samples", &samples]);
        let output = process.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("a process ended with {}", output.status).into());
        }
        for line in String::from_utf8(output.stdout)?.lines() {
            let [case, side, floor, middle] = line.split('\t').collect::<Vec<_>>()[..] else {
                return Err(format!("a process printed {line:?}").into());
            };
            let entry = figures.entry((case.to_owned(), side.to_owned()));
            let figures = entry.or_default();
            figures.floors.push(floor.parse()?);
            figures.middles.push(middle.parse()?);
        }
    }
    println!(
        "{:<32}{:>6}{:>24}    {:>6}{:>24}",
        "", "Carve", "ns", "cudarc", "ns"
    );
    let mut lost = Vec::new();
    for case in &CASES {
        let calls = [case.calls(&mut carve)?, case.calls(&mut cudarc)?];
        let totals = [0, 1].map(|side: usize| calls[side].values().sum::<f64>());
        // A second library under the same name would count nothing, and be another driver.
        if totals.contains(&0.0) {
            return Err(format!("{}: a side does not call this library", case.name).into());
        }
        let [ours, theirs] = SIDES.map(|side| {
            let key = (case.name.to_owned(), side.to_owned());
            figures.get(&key).cloned().unwrap_or_default()
        });
        println!(
            "{:<32}{:>6.2}{:>24}    {:>6.2}{:>24}",
            case.name,
            totals[0],
            ours.text(),
            totals[1],
            theirs.text()
        );
        for (side, calls) in SIDES.iter().zip(&calls) {
            let names: Vec<String> = calls
                .iter()
                .map(|(name, calls)| format!("{name} {calls:.2}"))
                .collect();
            println!("    {side:<7} {}", names.join(", "));
        }
        if totals[0] >= totals[1] || ours.floor() >= theirs.floor() {
            lost.push(case.name);
        }
    }
    println!(
        "driver calls, and ns: the floor, which is the first percentile of a process, in brackets the least and the most of {} processes; then the middle sample",
        scale.processes
    );
    if scale.processes == 1 {
        println!("SMOKE RUN: these numbers mean nothing");
    } else if lost.is_empty() {
        println!("goal: Carve is lower in each: reached");
    } else {
        println!(
            "goal: Carve is lower in each: MISSED in {}",
            lost.join(", ")
        );
    }
    Ok(lost.is_empty())
}
