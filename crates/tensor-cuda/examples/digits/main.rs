//! Digits: warm up a step, size its arena exactly, capture it once, replay it for every batch.
//!
//! A small multilayer perceptron reads the UCI handwritten digits. Copies of the next batch overlap the compute of the
//! current one; every order between streams comes from the ledgers of the buffers.
//!
//! ```sh
//! cargo run --release -p tensor-cuda --example digits -- --help
//! ```

mod app;
mod files;
mod header;
mod network;
mod options;
mod pipeline;
mod report;

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    ExitCode::from(app::main(std::env::args_os(), &mut out, &mut err))
}
