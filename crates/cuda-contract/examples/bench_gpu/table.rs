//! What was measured, as one table and as JSON.

use crate::Outcome;
use crate::bench::{Bench, Scale};
use cuda_driver::hardware;
use serde_json::{Value, json};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// What Carve's speed is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// At least this part of the speed of bare calls.
    OfBare(f64),
    /// At least this part of the speed of PyTorch.
    OfTorch(f64),
}

/// Microseconds, or why there are none.
pub(crate) type Time = Result<f64, String>;

struct Row {
    case: String,
    bare: Time,
    carve: Time,
    torch: Time,
    goal: Option<Goal>,
}

pub(crate) struct Table {
    device: String,
    driver: String,
    seconds: u64,
    smoke: bool,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// Said of every number of a smoke run.
const MEANINGLESS: &str = "SMOKE RUN: these numbers mean nothing";

impl Table {
    pub(crate) fn new(bench: &Bench) -> Outcome<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(Self {
            device: bench.device().properties().name.clone(),
            driver: format!("{} ({})", bench.driver.name(), hardware::open()?.version()),
            seconds: now.as_secs(),
            smoke: bench.scale == Scale::Smoke,
            rows: Vec::new(),
            notes: Vec::new(),
        })
    }

    pub(crate) fn heading(&self) -> String {
        let smoke = if self.smoke { MEANINGLESS } else { "" };
        format!("{}, {}\n{smoke}", self.device, self.driver)
    }

    pub(crate) fn add(&mut self, case: String, bare: Time, carve: Time, goal: Option<Goal>) {
        self.rows.push(Row {
            case,
            bare,
            carve,
            torch: Err("no figure of PyTorch, for the reason below".to_owned()),
            goal,
        });
    }

    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Enters what PyTorch took for a case; false when there is no such case.
    pub(crate) fn enter_torch(&mut self, case: &str, time: f64) -> bool {
        let row = self.rows.iter_mut().find(|row| row.case == case);
        row.map(|row| row.torch = Ok(time)).is_some()
    }

    /// Whether every goal that could be held against something is reached.
    pub(crate) fn goals_are_reached(&self) -> bool {
        self.rows.iter().all(|row| row.reached() != Some(false))
    }

    pub(crate) fn json(&self) -> String {
        let time = |time: &Time| match time {
            Ok(microseconds) => json!(microseconds),
            Err(_) => Value::Null,
        };
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "case": row.case,
                    "bare_us": time(&row.bare),
                    "carve_us": time(&row.carve),
                    "torch_us": time(&row.torch),
                    "goal_reached": if self.smoke { None } else { row.reached() },
                })
            })
            .collect();
        let table = json!({
            "device": self.device,
            "driver": self.driver,
            "unix_seconds": self.seconds,
            "meaningless": self.smoke,
            "rows": rows,
            "notes": self.notes,
        });
        format!("{table:#}\n")
    }
}

impl Row {
    /// `None` where there is no goal, or nothing to hold against it.
    fn reached(&self) -> Option<bool> {
        let (base, part) = match self.goal? {
            Goal::OfBare(part) => (self.bare.as_ref().ok()?, part),
            Goal::OfTorch(part) => (self.torch.as_ref().ok()?, part),
        };
        let carve = self.carve.as_ref().ok()?;
        Some(base / carve >= part)
    }

    /// What the last column says.
    fn verdict(&self, smoke: bool) -> String {
        let (of, part) = match self.goal {
            None => return String::new(),
            Some(Goal::OfBare(part)) => ("bare", part),
            Some(Goal::OfTorch(part)) => ("PyTorch", part),
        };
        match self.reached() {
            _ if smoke => format!("at least {part:.2} of {of}"),
            Some(true) => format!("at least {part:.2} of {of}: reached"),
            Some(false) => format!("at least {part:.2} of {of}: MISSED"),
            None => format!("at least {part:.2} of {of}: not known"),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.smoke {
            writeln!(f, "{MEANINGLESS}")?;
        }
        let (bare, carve, torch) = ("bare", "Carve", "PyTorch");
        writeln!(
            f,
            "{:<32}{bare:>11}{carve:>11}{torch:>11}   goal",
            "us of the device"
        )?;
        let mut reasons: Vec<&str> = Vec::new();
        for row in &self.rows {
            let mut text = format!("{:<32}", row.case);
            for time in [&row.bare, &row.carve, &row.torch] {
                text += &match time {
                    Ok(microseconds) => format!("{microseconds:>11.2}"),
                    Err(_) => format!("{:>11}", "-"),
                };
                if let Err(reason) = time
                    && !reasons.contains(&reason.as_str())
                {
                    reasons.push(reason);
                }
            }
            writeln!(
                f,
                "{}",
                format!("{text}   {}", row.verdict(self.smoke)).trim_end()
            )?;
        }
        for reason in reasons {
            writeln!(f, "-: {reason}")?;
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        if self.smoke {
            write!(f, "{MEANINGLESS}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bare: Time, carve: f64, torch: Time, goal: Goal) -> Row {
        Row {
            case: "a case".to_owned(),
            bare,
            carve: Ok(carve),
            torch,
            goal: Some(goal),
        }
    }

    #[test]
    fn a_goal_is_about_speed_and_not_known_without_a_base() {
        let none = || Err("none".to_owned());
        let reached = |bare, carve, torch, goal| row(bare, carve, torch, goal).reached();
        assert_eq!(
            reached(Ok(99.0), 100.0, none(), Goal::OfBare(0.99)),
            Some(true)
        );
        assert_eq!(
            reached(Ok(98.0), 100.0, none(), Goal::OfBare(0.99)),
            Some(false)
        );
        assert_eq!(reached(none(), 100.0, none(), Goal::OfBare(0.99)), None);
        assert_eq!(
            reached(none(), 3.0, Ok(2.0), Goal::OfTorch(1.0)),
            Some(false)
        );
    }

    #[test]
    fn smoke_runs_say_that_they_mean_nothing() {
        let mut table = Table {
            device: "device".to_owned(),
            driver: "driver".to_owned(),
            seconds: 0,
            smoke: true,
            rows: Vec::new(),
            notes: Vec::new(),
        };
        table.add(
            "a case".to_owned(),
            Err("no reason".to_owned()),
            Ok(1.5),
            None,
        );
        assert!(table.enter_torch("a case", 2.0) && !table.enter_torch("another", 2.0));
        let text = table.to_string();
        assert!(
            text.starts_with(MEANINGLESS) && text.ends_with(MEANINGLESS),
            "{text}"
        );
        assert!(
            text.contains("-: no reason") && text.contains("2.00"),
            "{text}"
        );
        let json: Value = serde_json::from_str(&table.json()).unwrap();
        assert_eq!(json["meaningless"], true);
        assert_eq!(json["rows"][0]["torch_us"], 2.0);
        assert!(json["rows"][0]["bare_us"].is_null());
    }
}
