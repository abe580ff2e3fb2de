//! Chain: the ground state of a transverse-field Ising chain, by Lanczos steps whose products are queued asynchronously.
//!
//! The state is a few matrices in one partitioned allocation, two for each sector of parity. The program says which product
//! needs which block; that blocks which have nothing to do with each other overlap follows from that.
//!
//! ```sh
//! cargo run --release -p tensor-cuda --example chain -- --help
//! ```

mod app;
mod exact;
mod lanczos;
mod operators;
mod options;
mod picture;

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    ExitCode::from(app::main(std::env::args_os(), &mut out, &mut err))
}
