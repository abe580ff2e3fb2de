//! What was measured, as one table and as JSON.

use crate::Outcome;
use crate::bench::{Bench, Case, Scale, Spread};
use cuda_driver::hardware;
use serde_json::{Value, json};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// What Carve's speed is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Bare,
    Torch,
}

/// A goal that one or more rows have to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Goal {
    what: &'static str,
    base: Base,
    /// At least this part of the base's speed.
    part: f64,
}

impl Goal {
    pub(crate) const PRODUCT: Self = Self {
        what: "products at 0.99 of bare cuBLAS from 2,048 up",
        base: Base::Bare,
        part: 0.99,
    };
    pub(crate) const CREATE_AND_DROP: Self = Self {
        what: "create and drop within 10 % of bare calls",
        base: Base::Bare,
        part: 1.0 / 1.1,
    };
    pub(crate) const REPLAY: Self = Self {
        what: "a replayed step at 1.0 of PyTorch's",
        base: Base::Torch,
        part: 1.0,
    };
    const ALL: [Self; 3] = [Self::CREATE_AND_DROP, Self::PRODUCT, Self::REPLAY];
}

/// How a time was, or why there is none.
pub(crate) type Time = Result<Spread, String>;

struct Row {
    case: Case,
    bare: Time,
    carve: Time,
    torch: Time,
    goal: Option<Goal>,
}

/// Whether a goal was reached; `None` where there was nothing to hold against it.
struct Held {
    what: &'static str,
    reached: Option<bool>,
    detail: String,
}

pub(crate) struct Table {
    device: String,
    driver: String,
    seconds: u64,
    smoke: bool,
    rows: Vec<Row>,
    notes: Vec<String>,
    held: Vec<Held>,
}

/// A part of what is measured, and what it needs.
pub(crate) type Part<N> = fn(&N, &mut Table) -> Outcome;

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
            held: Vec::new(),
        })
    }

    /// The device, in a line.
    pub(crate) fn heading(&self) -> String {
        format!("{}, {}", self.device, self.driver)
    }

    /// Measures each part, with what it needs, and says so. One that fails is noted: what the others took is no less true. Whether none did.
    pub(crate) fn fill<N>(&mut self, needs: &N, parts: &[(&str, Part<N>)]) -> bool {
        let mut whole = true;
        for (number, (name, part)) in parts.iter().enumerate() {
            eprintln!("[{}/{}] {name}", number + 1, parts.len());
            if let Err(error) = part(needs, self) {
                self.note(format!("FAILED: {name}: {error}"));
                whole = false;
            }
        }
        whole
    }

    pub(crate) fn add(&mut self, case: Case, bare: Time, carve: Time, goal: Option<Goal>) {
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

    /// Enters a goal that is no time.
    pub(crate) fn hold(&mut self, what: &'static str, reached: Option<bool>, detail: String) {
        self.held.push(Held {
            what,
            reached,
            detail,
        });
    }

    /// What PyTorch is asked for.
    pub(crate) fn cases(&self) -> Vec<Case> {
        self.rows.iter().map(|row| row.case.clone()).collect()
    }

    /// Enters what PyTorch took for a case; false when there is no such case.
    pub(crate) fn enter_torch(&mut self, case: &str, time: Spread) -> bool {
        let row = self.rows.iter_mut().find(|row| row.case.name == case);
        row.map(|row| row.torch = Ok(time)).is_some()
    }

    /// Every goal.
    fn goals(&self) -> Vec<Held> {
        let of_rows = Goal::ALL.map(|goal| {
            let rows: Vec<&Row> = self
                .rows
                .iter()
                .filter(|row| row.goal == Some(goal))
                .collect();
            let worst = rows
                .iter()
                .filter_map(|row| Some((row.speed()?, row)))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            let known = !rows.is_empty() && rows.iter().all(|row| row.speed().is_some());
            Held {
                what: goal.what,
                reached: match worst {
                    Some((speed, _)) if speed < goal.part => Some(false),
                    _ => known.then_some(true),
                },
                detail: match worst {
                    Some((speed, row)) => format!("the least is {speed:.3}, {}", row.case.name),
                    None => "there is nothing to hold it against".to_owned(),
                },
            }
        });
        let others = self.held.iter().map(|held| Held {
            what: held.what,
            reached: held.reached,
            detail: held.detail.clone(),
        });
        of_rows.into_iter().chain(others).collect()
    }

    /// Whether no goal was missed.
    pub(crate) fn no_goal_is_missed(&self) -> bool {
        self.goals().iter().all(|goal| goal.reached != Some(false))
    }

    pub(crate) fn json(&self) -> String {
        let time = |time: &Time| match time {
            Ok(Spread { median, low, high }) => {
                json!({ "median_us": median, "low_us": low, "high_us": high })
            }
            Err(_) => Value::Null,
        };
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "case": row.case.name,
                    "rounds": row.case.rounds,
                    "bare": time(&row.bare),
                    "carve": time(&row.carve),
                    "torch": time(&row.torch),
                })
            })
            .collect();
        let goals: Vec<Value> = self
            .goals()
            .iter()
            .map(|goal| {
                let reached = goal.reached.filter(|_| !self.smoke);
                json!({ "goal": goal.what, "reached": reached, "detail": goal.detail })
            })
            .collect();
        let table = json!({
            "device": self.device,
            "driver": self.driver,
            "unix_seconds": self.seconds,
            "meaningless": self.smoke,
            "rows": rows,
            "goals": goals,
            "notes": self.notes,
        });
        format!("{table:#}\n")
    }
}

impl Row {
    /// Carve's speed in proportion to that of its goal's base; `None` where there is no goal, or nothing to hold against it.
    fn speed(&self) -> Option<f64> {
        let base = match self.goal?.base {
            Base::Bare => &self.bare,
            Base::Torch => &self.torch,
        };
        let (base, carve) = (base.as_ref().ok()?, self.carve.as_ref().ok()?);
        Some(base.median / carve.median)
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
            "{:<28}{bare:>24}{carve:>24}{torch:>24}",
            "us of the device"
        )?;
        let mut reasons: Vec<&str> = Vec::new();
        for row in &self.rows {
            write!(f, "{:<28}", row.case.name)?;
            for time in [&row.bare, &row.carve, &row.torch] {
                match time {
                    Ok(Spread { median, low, high }) => {
                        let spread = format!("({low:.2}-{high:.2})");
                        write!(f, "{median:>10.2}{spread:>14}")?;
                    }
                    Err(_) => write!(f, "{:>10}{:>14}", "-", "")?,
                }
                if let Err(reason) = time
                    && !reasons.contains(&reason.as_str())
                {
                    reasons.push(reason);
                }
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "the middle sample; in brackets, half of the samples lie between"
        )?;
        for reason in reasons {
            writeln!(f, "-: {reason}")?;
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        for goal in self.goals() {
            let verdict = match goal.reached {
                _ if self.smoke => "not held against a smoke run",
                Some(true) => "reached",
                Some(false) => "MISSED",
                None => "not known",
            };
            writeln!(f, "goal: {}: {verdict}; {}", goal.what, goal.detail)?;
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

    fn table(smoke: bool) -> Table {
        Table {
            device: "device".to_owned(),
            driver: "driver".to_owned(),
            seconds: 0,
            smoke,
            rows: Vec::new(),
            notes: Vec::new(),
            held: Vec::new(),
        }
    }

    fn case(name: &str) -> Case {
        Case {
            name: name.to_owned(),
            rounds: 1,
        }
    }

    fn time(median: f64) -> Spread {
        Spread::of(&[median])
    }

    fn verdict(table: &Table, goal: Goal) -> Option<bool> {
        let goals = table.goals();
        goals
            .iter()
            .find(|held| held.what == goal.what)
            .unwrap()
            .reached
    }

    #[test]
    fn a_goal_is_about_speed_and_not_known_without_a_base() {
        let none = || Err("none".to_owned());
        let mut rows = table(false);
        rows.add(
            case("a"),
            Ok(time(99.0)),
            Ok(time(100.0)),
            Some(Goal::PRODUCT),
        );
        assert_eq!(verdict(&rows, Goal::PRODUCT), Some(true));
        assert_eq!(verdict(&rows, Goal::REPLAY), None);
        // One that is not known: neither reached nor missed.
        rows.add(case("b"), none(), Ok(time(100.0)), Some(Goal::PRODUCT));
        assert_eq!(verdict(&rows, Goal::PRODUCT), None);
        assert!(rows.no_goal_is_missed());
        rows.add(
            case("c"),
            Ok(time(98.0)),
            Ok(time(100.0)),
            Some(Goal::PRODUCT),
        );
        assert_eq!(verdict(&rows, Goal::PRODUCT), Some(false));
        assert!(
            rows.to_string().contains("MISSED; the least is 0.980, c"),
            "{rows}"
        );

        let mut replay = table(false);
        replay.add(case("r"), none(), Ok(time(3.0)), Some(Goal::REPLAY));
        assert_eq!(verdict(&replay, Goal::REPLAY), None);
        assert!(replay.enter_torch("r", time(2.0)) && !replay.enter_torch("s", time(2.0)));
        assert_eq!(verdict(&replay, Goal::REPLAY), Some(false));

        let mut held = table(false);
        held.hold(
            "nothing is allocated",
            Some(false),
            "there were 2".to_owned(),
        );
        assert!(!held.no_goal_is_missed());
        assert!(held.to_string().contains("MISSED; there were 2"), "{held}");
    }

    #[test]
    fn a_part_that_fails_takes_no_other_with_it() {
        fn row(table: &mut Table, name: &str) -> Outcome {
            table.add(case(name), Ok(time(2.0)), Ok(time(1.5)), None);
            Ok(())
        }
        let mut rows = table(false);
        let whole = rows.fill(
            &(),
            &[
                ("one", |(), table| row(table, "first")),
                ("two", |(), table| {
                    row(table, "begun")?;
                    Err("no memory".into())
                }),
                ("three", |(), table| row(table, "last")),
            ],
        );
        let text = rows.to_string();
        for part in ["first ", "begun ", "last ", "\nFAILED: two: no memory\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!whole && rows.no_goal_is_missed());
        assert!(table(false).fill(&(), &[("one", |(), _| Ok(()))]));
    }

    #[test]
    fn the_middle_and_the_quarters_of_samples() {
        let spread = Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 3.0, 4.0));
    }

    #[test]
    fn smoke_runs_say_that_they_mean_nothing() {
        let mut table = table(true);
        let reason = Err("no reason".to_owned());
        table.add(case("a case"), reason, Ok(time(1.5)), Some(Goal::REPLAY));
        assert!(table.enter_torch("a case", time(2.0)));
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
        assert_eq!(json["rows"][0]["torch"]["median_us"], 2.0);
        assert!(json["rows"][0]["bare"].is_null());
        let goals = json["goals"].as_array().unwrap();
        assert!(goals.len() == 3 && goals.iter().all(|goal| goal["reached"].is_null()));
    }
}
