//! Driver calls and host time of Carve next to those of `cudarc`, on the emulated driver in null mode, where what is
//! measured is what stands above the driver. `cargo xtask bench-calls` builds and runs it.

mod carve;
mod theirs;

use cuda_contract::emulated;
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

/// Elements of each buffer.
const N: usize = 1024;
/// Operations of a sample, and samples; the first percentile counts.
const ROUNDS: u32 = 200;
const SAMPLES: u32 = 400;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What both sides can do.
trait Side {
    /// Allocates a buffer and keeps it.
    fn allocate(&mut self) -> Outcome<()>;
    /// Drops the buffers that were allocated.
    fn drop_all(&mut self);
    /// `out = x + y` on one of two streams.
    fn operate(&mut self, stream: usize) -> Outcome<()>;
}

/// Calls by name and nanoseconds of one operation.
struct Cost {
    calls: BTreeMap<&'static str, f64>,
    nanoseconds: f64,
}

impl Cost {
    fn total(&self) -> f64 {
        self.calls.values().sum()
    }
}

fn main() -> Outcome<()> {
    if !emulated::is_null() {
        return Err(
            "this needs the emulated driver in null mode: run `cargo xtask bench-calls`".into(),
        );
    }
    let mut carve = carve::Carve::new()?;
    let mut cudarc = theirs::Cudarc::new()?;
    println!(
        "{:<32}{:>7}{:>9}   {:>7}{:>9}",
        "", "Carve", "", "cudarc", ""
    );
    println!(
        "{:<32}{:>7}{:>9}   {:>7}{:>9}",
        "", "calls", "ns", "calls", "ns"
    );
    let mut lost = Vec::new();
    for case in CASES {
        let (ours, theirs) = (case.measure(&mut carve)?, case.measure(&mut cudarc)?);
        println!(
            "{:<32}{:>7.2}{:>9.0}   {:>7.2}{:>9.0}",
            case.name,
            ours.total(),
            ours.nanoseconds,
            theirs.total(),
            theirs.nanoseconds
        );
        for (side, cost) in [("Carve", &ours), ("cudarc", &theirs)] {
            let names: Vec<String> = cost
                .calls
                .iter()
                .map(|(name, calls)| format!("{name} {calls:.2}"))
                .collect();
            println!("    {side:<7} {}", names.join(", "));
        }
        if ours.total() >= theirs.total() || ours.nanoseconds >= theirs.nanoseconds {
            lost.push(case.name);
        }
    }
    match lost.is_empty() {
        true => Ok(()),
        false => Err(format!("Carve is not lower in: {}", lost.join(", ")).into()),
    }
}

struct Case {
    name: &'static str,
    /// Does so many operations.
    run: fn(&mut dyn Side, u32) -> Outcome<()>,
    /// Before and after each sample, outside of the measurement.
    before: fn(&mut dyn Side, u32) -> Outcome<()>,
    after: fn(&mut dyn Side),
}

const CASES: &[Case] = &[
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

fn allocate(side: &mut dyn Side, rounds: u32) -> Outcome<()> {
    (0..rounds).try_for_each(|_| side.allocate())
}

impl Case {
    fn measure(&self, side: &mut dyn Side) -> Outcome<Cost> {
        let mut samples = Vec::new();
        let mut calls = BTreeMap::new();
        for sample in 0..SAMPLES {
            (self.before)(side, ROUNDS)?;
            let counted = emulated::calls();
            let start = Instant::now();
            (self.run)(side, ROUNDS)?;
            let took = start.elapsed().as_secs_f64() * 1e9;
            if sample == SAMPLES - 1 {
                calls = counted
                    .iter()
                    .zip(emulated::calls())
                    .filter(|(before, after)| before.1 != after.1)
                    .map(|(before, after)| {
                        (before.0, (after.1 - before.1) as f64 / f64::from(ROUNDS))
                    })
                    .collect();
            }
            samples.push(took / f64::from(ROUNDS));
            (self.after)(side);
        }
        samples.sort_by(f64::total_cmp);
        Ok(Cost {
            calls,
            nanoseconds: samples[samples.len() / 100],
        })
    }
}
