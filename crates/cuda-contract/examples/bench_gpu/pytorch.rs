//! The same in PyTorch, when `python3` has it: a script that is given the cases and prints a line for each.

use crate::Outcome;
use crate::bench::{Bench, Case, Scale, Spread};
use crate::overlap;
use crate::table::Table;
use serde_json::{Map, json};
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("pytorch.py");

pub(crate) fn run(bench: &Bench, table: &mut Table) -> Outcome {
    let asked = asked(&table.cases(), bench.scale);
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT, &asked]).stderr(Stdio::inherit());
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
    let entered: Vec<Outcome> = text.lines().map(|line| enter(table, line)).collect();
    if !output.status.success() {
        // What the others took is no less true.
        let status = output.status;
        table.note(format!(
            "PyTorch's part ended with {status}, for the reason on standard error"
        ));
    }
    // A line that is none of the script's takes no other with it, either.
    entered.into_iter().collect()
}

/// What the script is told.
fn asked(cases: &[Case], scale: Scale) -> String {
    let rounds: Map<_, _> = cases
        .iter()
        .map(|case| (case.name.clone(), json!(case.rounds)))
        .collect();
    json!({ "samples": scale.samples(), "elements": overlap::elements(scale), "rounds": rounds })
        .to_string()
}

/// Takes a line of the script: a case and its microseconds, or a note.
fn enter(table: &mut Table, line: &str) -> Outcome {
    if let Some(note) = line.strip_prefix("note\t") {
        table.note(note.to_owned());
        return Ok(());
    }
    let (case, time) = figure(line)?;
    match table.enter_torch(case, time) {
        true => Ok(()),
        false => Err(format!("PyTorch measured {case:?}, which nobody asked for").into()),
    }
}

fn figure(line: &str) -> Outcome<(&str, Spread)> {
    let (case, samples) = line
        .split_once('\t')
        .ok_or_else(|| format!("PyTorch's part printed {line:?}"))?;
    let samples: Result<Vec<f64>, _> = samples.split(' ').map(str::parse).collect();
    Ok((case, Spread::of(&samples?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{launches, memory, network, products};

    /// Runs the script with a PyTorch in which everything exists, does nothing, and takes 8 us.
    fn printed(asked: &str, prelude: &str) -> Option<String> {
        let program = format!(
            "import sys\nfrom unittest.mock import MagicMock\n{prelude}\nexec(sys.argv.pop(1))"
        );
        let mut python = Command::new("python3");
        let output = python.args(["-c", &program, SCRIPT, asked]).output();
        let Ok(output) = output else {
            eprintln!("not run: python3 does not start");
            return None;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    const FAKE: &str = "torch = MagicMock(__version__='2.0')
torch.cuda.Event.return_value.elapsed_time.return_value = 0.008
sys.modules['torch'] = torch";

    #[test]
    fn pytorch_measures_every_case_that_it_is_asked_for_and_no_other() {
        for scale in [Scale::Full, Scale::Smoke] {
            let mut cases = memory::cases(scale);
            cases.extend([launches::case(scale), overlap::case(scale)]);
            cases.extend(products::cases(scale));
            cases.push(network::case(scale));
            // Few, since everything that does nothing is slow.
            cases
                .iter_mut()
                .for_each(|case| case.rounds = case.rounds.min(2));
            let Some(text) = printed(&asked(&cases, scale), FAKE) else {
                return;
            };
            let lines = text.lines().filter(|line| !line.starts_with("note\t"));
            let figures: Vec<_> = lines.map(|line| figure(line).unwrap()).collect();
            assert_eq!(figures.len(), cases.len(), "{text}");
            for case in &cases {
                let figure = figures.iter().find(|(name, _)| *name == case.name);
                let (name, time) = figure.unwrap_or_else(|| panic!("{case:?} in {text}"));
                let each = 8.0 / f64::from(case.rounds);
                assert!((time.median - each).abs() < 1e-9, "{name}: {time:?}");
            }
            assert!(text.starts_with("note\tPyTorch "), "{text}");
        }
    }

    #[test]
    fn without_pytorch_or_a_gpu_it_says_so_in_one_line() {
        for (prelude, reason) in [
            (
                "sys.modules['torch'] = None",
                "note\tPyTorch is not measured: ",
            ),
            (
                "torch = MagicMock()\ntorch.cuda.is_available.return_value = False\nsys.modules['torch'] = torch",
                "note\tPyTorch is not measured: it sees no GPU",
            ),
        ] {
            let Some(text) = printed(&asked(&[], Scale::Smoke), prelude) else {
                return;
            };
            assert!(text.starts_with(reason), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        for line in ["", "a case", "a case\t", "a case\tfast"] {
            assert!(figure(line).is_err(), "{line:?}");
        }
        assert_eq!(figure("a case\t1.5 2.5 3.5").unwrap().1.median, 2.5);
    }
}
