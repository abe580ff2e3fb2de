//! The steps of a command: run one after another, timed, and summed up at the end.

use std::fmt;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::invocation::Invocation;

/// What has passed so far, and what was left out.
#[derive(Debug)]
pub(crate) struct Report {
    started: Instant,
    passed: Vec<(String, Duration)>,
    skipped: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            passed: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Runs one check. An error ends the command, after the summary is printed.
    pub(crate) fn step<T>(
        &mut self,
        name: &str,
        check: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        println!("\n==> {name}");
        let started = Instant::now();
        let result = check();
        let took = started.elapsed();
        match result {
            Ok(value) => {
                println!("==> {name}: passed in {}", Seconds(took));
                self.passed.push((name.to_owned(), took));
                Ok(value)
            }
            Err(failure) => {
                println!("==> {name}: FAILED after {}", Seconds(took));
                println!("{self}");
                Err(failure)
            }
        }
    }

    /// As [`step`](Self::step), for a check that needs something which not every machine has: without it, it is skipped.
    pub(crate) fn attempt(
        &mut self,
        name: &str,
        check: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut missing = None;
        self.step(name, || match check() {
            Err(Failure::Cannot(reason)) => {
                missing = Some(reason);
                Ok(())
            }
            result => result,
        })?;
        if let Some(reason) = missing {
            println!("==> {name}: not checked: {reason}");
            self.passed.pop();
            let line = reason.lines().next().unwrap_or_default();
            self.skip(name, line);
        }
        Ok(())
    }

    /// A check that is one command line, and passes when that does.
    pub(crate) fn command(&mut self, name: &str, line: &Invocation) -> Result<(), Failure> {
        self.step(name, || {
            println!("    {line}");
            if line.succeeds()? {
                Ok(())
            } else {
                Err(again(name, line))
            }
        })
    }

    pub(crate) fn skip(&mut self, name: &str, reason: impl Into<String>) {
        self.skipped.push((name.to_owned(), reason.into()));
    }

    pub(crate) fn passed(&self) -> usize {
        self.passed.len()
    }
}

/// The failure of a check that was a command line.
pub(crate) fn again(name: &str, line: &Invocation) -> Failure {
    Failure::Check(format!("{name} failed; run it again with\n    {line}"))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.passed.iter().map(|(name, _)| name.as_str());
        let names = names.chain(self.skipped.iter().map(|(name, _)| name.as_str()));
        let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
        writeln!(f, "\nsummary, after {}", Seconds(self.started.elapsed()))?;
        for (name, took) in &self.passed {
            writeln!(
                f,
                "  passed   {name:<width$}  {:>8}",
                Seconds(*took).to_string()
            )?;
        }
        for (name, reason) in &self.skipped {
            writeln!(f, "  skipped  {name:<width$}  {reason}")?;
        }
        Ok(())
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_not_counted_as_passed() {
        let mut report = Report::new();
        report.step("good", || Ok(())).unwrap();
        report
            .command("bad", &Invocation::new("false --now"))
            .unwrap_err();
        report.skip("rare", "no such tool");
        let text = report.to_string();
        assert!(text.contains("passed   good"), "{text}");
        assert!(text.contains("skipped  rare  no such tool"), "{text}");
        assert!(!text.contains("bad"), "{text}");
    }

    #[test]
    fn a_check_that_could_not_be_made_is_skipped_with_its_reason() {
        let mut report = Report::new();
        let cannot = || Err(Failure::Cannot("no index\nhere".to_owned()));
        report.attempt("fetched", cannot).unwrap();
        report.attempt("good", || Ok(())).unwrap();
        let bad = || Err(Failure::Check("stale".to_owned()));
        report.attempt("bad", bad).unwrap_err();
        let text = report.to_string();
        assert!(text.contains("skipped  fetched  no index\n"), "{text}");
        assert!(
            text.contains("passed   good") && report.passed() == 1,
            "{text}"
        );
    }

    #[test]
    fn a_failed_command_says_how_to_run_it_again() {
        let line = Invocation::new("false --now").env("A", "b c");
        let failure = Report::new().command("bad", &line).unwrap_err();
        assert!(
            failure.to_string().ends_with("A='b c' false --now"),
            "{failure}"
        );
    }
}
