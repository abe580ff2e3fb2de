//! The same in PyTorch, when `python3` has it: a script that prints a case and its microseconds on each line.

use crate::Outcome;
use crate::bench::{Bench, Scale};
use crate::table::Table;
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("torch.py");

pub(crate) fn run(bench: &Bench, table: &mut Table) -> Outcome {
    let scale = match bench.scale {
        Scale::Full => "full",
        Scale::Smoke => "smoke",
    };
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT, scale]).stderr(Stdio::inherit());
    let output = match python.output() {
        Ok(output) => output,
        Err(error) => {
            table.note(format!(
                "PyTorch is not measured: python3 does not start: {error}"
            ));
            return Ok(());
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        enter(table, line)?;
    }
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("PyTorch's part ended with {}", output.status).into()),
    }
}

/// Takes a line of the script.
fn enter(table: &mut Table, line: &str) -> Outcome {
    match line.split_once('\t') {
        Some(("note", note)) => table.note(note.to_owned()),
        Some((case, time)) => {
            if !table.enter_torch(case, time.parse()?) {
                return Err(format!("PyTorch measured {case:?}, which nobody asked for").into());
            }
        }
        None => return Err(format!("PyTorch's part printed {line:?}").into()),
    }
    Ok(())
}
