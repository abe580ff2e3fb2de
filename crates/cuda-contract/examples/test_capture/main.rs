//! A matrix of captures: modes, streams, where scratch memory comes from, copies, matrix products; each dropped in every order
//! and made to fail in every way. `cargo xtask test-capture` builds and runs it.
//!
//! ```sh
//! cargo run -p cuda-contract --example test_capture -- --simulated --quick
//! ```

mod cases;
mod shape;
mod subject;
mod world;

use cases::Tally;
use shape::{COLUMNS, Shape};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;
use subject::Subject;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const USAGE: &str = "test_capture [--simulated] [--quick]
  --simulated   on simulated devices; without it, on the driver that the loader finds
  --quick       a selection that takes seconds: every seventh step, two orders of drops each";

/// Of the steps, `--quick` takes every so many.
const QUICK_SHAPES: usize = 7;
/// Of the orders of drops, `--quick` takes every so many.
const QUICK_ORDERS: usize = 11;
/// How many failures are printed.
const SHOWN: usize = 40;

fn main() -> ExitCode {
    let (mut simulated, mut quick) = (false, false);
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "--simulated" => simulated = true,
            "--quick" => quick = true,
            // The script of the bundle gives it to every program.
            "--test-threads=1" => {}
            _ => {
                eprintln!("unknown option {word}\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    match run(simulated, quick) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("test_capture: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What became of a place of the table.
enum Cell {
    Tried(Tally),
    Left(&'static str),
    /// Not in the selection.
    Skipped,
}

/// Runs the matrix; whether everything passed.
fn run(simulated: bool, quick: bool) -> Outcome<bool> {
    let subject = match simulated {
        true => Subject::Simulated,
        false => Subject::hardware()?,
    };
    println!("captures on {}", subject.name()?);
    let heading: Vec<String> = COLUMNS.map(column).into();
    println!("{:<23}{}", "mode, streams, space", heading.join(""));
    let (begun, rows) = (Instant::now(), shape::rows());
    let (count, mut number) = (rows.len(), 0);
    let (mut passed, mut failed, mut left) = (0, Vec::new(), Vec::new());
    for (row, shapes) in rows.into_iter().enumerate() {
        let mut places = String::new();
        for shape in &shapes {
            let cell = one(&subject, *shape, number, quick)?;
            number += 1;
            places += &place(&cell);
            match cell {
                Cell::Tried(tally) => {
                    passed += tally.passed;
                    failed.extend(tally.failed);
                }
                Cell::Left(why) if !left.contains(&why) => left.push(why),
                Cell::Left(_) | Cell::Skipped => {}
            }
        }
        let took = begun.elapsed().as_secs_f32();
        println!(
            "{}{places}  {}/{count}, {took:.1} s",
            shapes[0].row(),
            row + 1
        );
    }
    println!("each place: cases that passed; `-` not in this selection; `n/a` can't apply");
    for why in left {
        println!("n/a: {why}");
    }
    for failure in failed.iter().take(SHOWN) {
        println!("FAILED: {failure}");
    }
    if failed.len() > SHOWN {
        println!("and {} more", failed.len() - SHOWN);
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "test result: {word}. {passed} passed; {} failed; 0 ignored",
        failed.len()
    );
    Ok(failed.is_empty())
}

fn one(subject: &Subject, shape: Shape, number: usize, quick: bool) -> Outcome<Cell> {
    if let Some(why) = cases::not_applicable(subject, &shape)? {
        return Ok(Cell::Left(why));
    }
    if quick && !number.is_multiple_of(QUICK_SHAPES) {
        return Ok(Cell::Skipped);
    }
    let stride = if quick { QUICK_ORDERS } else { 1 };
    Ok(Cell::Tried(cases::run(subject, shape, number, stride)))
}

/// The heading of a column.
fn column((input, gemm): (shape::Input, bool)) -> String {
    format!("{:>15}", shape::column(input, gemm))
}

fn place(cell: &Cell) -> String {
    let text = match cell {
        Cell::Tried(tally) if tally.failed.is_empty() => tally.passed.to_string(),
        Cell::Tried(tally) => format!("{} FAILED", tally.failed.len()),
        Cell::Left(_) => "n/a".to_owned(),
        Cell::Skipped => "-".to_owned(),
    };
    format!("{text:>15}")
}
