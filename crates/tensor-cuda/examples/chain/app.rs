//! The program, with its streams as arguments.

use crate::lanczos::{Operators, Progress, Sector, sectors};
use crate::operators::Part;
use crate::options::{Options, USAGE};
use crate::{exact, picture};
use async_value::{SeededExecutor, compute};
use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

/// How far an energy may be from the closed form.
pub(crate) const TOLERANCE: f64 = 1e-10;

/// What was found of a sector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Solved {
    pub(crate) steps: usize,
    pub(crate) energy: f64,
    /// By the closed form.
    pub(crate) exact: f64,
}

/// Runs the program; its exit code: 0, 1 for what went wrong, 2 for options that it does not know.
pub(crate) fn main(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let (code, result) = match Options::parse(args) {
        Ok(Some(options)) => (1, run(&options, out)),
        Ok(None) => (1, writeln!(out, "{USAGE}").map_err(Into::into)),
        Err(error) => (2, Err(format!("{error} (--help lists the options)").into())),
    };
    match result {
        Ok(()) => 0,
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&*error) => 0,
        Err(error) => {
            // Where nobody listens, the code has to do.
            let _ = writeln!(err, "chain: {error}");
            code
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run(options: &Options, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let simulation = SimDriver::builder().timeline(true);
    let builder = Runtime::builder().simulation(simulation);
    let runtime = builder.streams_per_device(options.streams).build()?;
    // Fails before the work, not after it.
    let trace = match &options.trace {
        None => None,
        Some(_) if runtime.simulation().is_none() => {
            return Err("--trace needs the simulated device".into());
        }
        Some(path) => Some((
            path,
            File::create(path).map_err(|error| unwritable(path, &error))?,
        )),
    };
    let Options {
        sites,
        field,
        streams,
        ..
    } = *options;
    let (left, right) = split(sites);
    writeln!(
        out,
        "{sites} sites, field {field}: 4 blocks of {} x {}, {streams} streams",
        1 << (left - 1),
        1 << (right - 1),
    )?;
    // Both at once.
    let sectors = solve(&runtime, options, &[false, true], Arc::new(show))?;
    for (solved, name) in sectors.iter().zip(["even", "odd"]) {
        let Solved {
            steps,
            energy,
            exact,
        } = solved;
        writeln!(
            out,
            "{name:>4} sector: energy {energy:.12} after {steps} steps, exact {exact:.12}, difference {:.1e}",
            energy - exact,
        )?;
    }
    let lowest = sectors
        .iter()
        .fold(f64::INFINITY, |lowest, sector| lowest.min(sector.energy));
    writeln!(
        out,
        "ground state: {lowest:.12}, {:.12} per site",
        lowest / sites as f64
    )?;
    if let Some(simulated) = runtime.simulation() {
        let timeline = simulated.timeline();
        writeln!(
            out,
            "device time {:.2?}, with up to {} streams busy at once and {:.2} on average",
            timeline.makespan(),
            picture::most(&timeline),
            picture::overlap(&timeline),
        )?;
        picture::print(out, &timeline)?;
        if let Some((path, file)) = trace {
            let mut file = BufWriter::new(file);
            let written = timeline.write_perfetto(&mut file);
            written
                .and_then(|()| file.flush())
                .map_err(|error| unwritable(path, &error))?;
        }
        if let Some(report) = simulated.reports().first() {
            return Err(format!("the simulated device reports: {report}").into());
        }
    }
    for Solved { energy, exact, .. } in sectors {
        if (energy - exact).abs() > TOLERANCE * exact.abs().max(1.0) {
            return Err(format!("energy {energy} is not {exact}").into());
        }
    }
    Ok(())
}

/// Sites of the two parts. The left one is large, so that its products are worth a launch.
fn split(sites: usize) -> (usize, usize) {
    let left = (sites - 2).min(11);
    (left, sites - left)
}

/// Progress goes beside the output, and only now and then.
fn show(odd: bool, steps: usize, energy: f64) {
    if steps.is_multiple_of(20) {
        let name = if odd { "odd" } else { "even" };
        eprintln!("{name:>4} sector, step {steps:>3}: energy {energy:.12}");
    }
}

/// Solves the even sector, the odd one or both at once.
pub(crate) fn solve(
    runtime: &Runtime,
    options: &Options,
    odd: &[bool],
    progress: Progress,
) -> Result<Vec<Solved>, Box<dyn Error>> {
    let Options { sites, field, .. } = *options;
    let device = runtime.default_device();
    let executor = SeededExecutor::new(0);
    let (left, right) = split(sites);
    let parts = [left, right].map(|sites| Part::new(sites, field));
    let operators = Arc::new(Operators::upload(device, &parts[0], &parts[1])?);
    let stream = device.streams().acquire()?;
    let sectors = sectors(&stream, odd, 1 << (left - 1), 1 << (right - 1))?;
    drop(stream);
    // A task for each sector: while one waits for a number, the other one's products run.
    let queue = |sector: Sector| {
        let (inner, operators, progress) = (executor.clone(), operators.clone(), progress.clone());
        compute(&executor, "Lanczos", || {
            sector.solve(inner, operators, progress)
        })
    };
    let solved: Vec<_> = sectors.into_iter().map(queue).collect::<Result<_, _>>()?;
    let energies = solved.iter().zip(odd).map(|(solved, &odd)| {
        let (steps, energy) = *executor.run_until(solved.read())??;
        let exact = exact::energy(sites, field, odd);
        Ok(Solved {
            steps,
            energy,
            exact,
        })
    });
    energies.collect()
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("can't write {}: {error}", path.display())
}
