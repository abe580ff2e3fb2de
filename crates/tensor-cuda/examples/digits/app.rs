//! The program, with its streams as arguments.

use crate::files::Input;
use crate::network::Network;
use crate::options::{Options, USAGE};
use crate::{pipeline, report};
use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

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
            let _ = writeln!(err, "digits: {}", report::readable(&error.to_string()));
            code
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run(options: &Options, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let network = Network::load()?;
    let input = Input::load(options)?;
    let simulation = SimDriver::builder()
        .seed(options.seed)
        .timeline(options.trace.is_some());
    let runtime = Runtime::builder().simulation(simulation).build()?;
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
    let outcome = pipeline::run(&runtime, &network, &input.images, input.batch)?;

    report::print(out, &runtime, &outcome, &input)?;
    if let (Some((path, file)), Some(simulated)) = (trace, runtime.simulation()) {
        let mut file = BufWriter::new(file);
        let written = simulated.timeline().write_perfetto(&mut file);
        written
            .and_then(|()| file.flush())
            .map_err(|error| unwritable(path, &error))?;
    }
    outcome.check(&network, &input.images)?;
    if let count @ 1.. = report::allocations(&outcome) {
        let text = format!("{count} device allocations during replay, where none are needed");
        return Err(text.into());
    }
    if let Some(simulated) = runtime.simulation() {
        report::refuse(&simulated.reports())?;
    }
    Ok(())
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("can't write {}: {error}", path.display())
}
