//! Digits: warm up a step, size its arena exactly, capture it once, replay it for every batch.
//!
//! A small multilayer perceptron reads the UCI handwritten digits. Copies of the next batch overlap the compute of the
//! current one; every order between streams comes from the ledgers of the buffers.
//!
//! ```sh
//! cargo run --release -p tensor-cuda --example digits -- --help
//! ```

mod files;
mod network;
mod options;
mod pipeline;
mod report;

use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use options::Options;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args_os()) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("digits: {error} (--help lists the options)");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("digits: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let network = network::Network::load()?;
    let input = files::Input::load(options)?;
    // Fails before the work, not after it.
    let trace = match &options.trace {
        Some(path) => Some(
            File::create(path)
                .map_err(|error| format!("can't write {}: {error}", path.display()))?,
        ),
        None => None,
    };

    let simulation = SimDriver::builder()
        .seed(options.seed)
        .timeline(trace.is_some());
    let runtime = Runtime::builder().simulation(simulation).build()?;
    let outcome = pipeline::run(&runtime, &network, &input.images, input.batch)?;

    report::print(&runtime, &outcome, &input);
    if let (Some(file), Some(simulated)) = (trace, runtime.simulation()) {
        simulated.timeline().write_perfetto(BufWriter::new(file))?;
    }
    outcome.check(&network, &input.images)?;
    match report::allocations(&outcome) {
        0 => {}
        count => {
            return Err(
                format!("{count} device allocations during replay, where none are needed").into(),
            );
        }
    }
    if let Some(simulated) = runtime.simulation() {
        report::refuse(&simulated.reports())?;
    }
    Ok(())
}
