//! Reads from the output of `cargo test` how many tests ran, and how many doctests of each crate.

use std::collections::BTreeMap;

/// Doctests that passed, by crate as rustdoc names it (with underscores).
pub(crate) fn doctests_passed(output: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut current: Option<&str> = None;
    for line in output.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("Doc-tests ") {
            counts.entry(name.to_owned()).or_insert(0);
            current = Some(name);
        } else if line.starts_with("Running ") {
            current = None;
        } else if let (Some(name), Some(passed)) = (current, passed_in_summary(line)) {
            // Doctests of a crate may run in two rounds, merged and standalone.
            *counts.entry(name.to_owned()).or_insert(0) += passed;
        }
    }
    counts
}

/// Tests of every kind that passed.
pub(crate) fn tests_passed(output: &str) -> usize {
    output
        .lines()
        .filter_map(|line| passed_in_summary(line.trim()))
        .sum()
}

/// `test result: ok. 5 passed; 0 failed; ...` gives 5.
fn passed_in_summary(line: &str) -> Option<usize> {
    let rest = line.strip_prefix("test result: ok. ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
     Running unittests src/lib.rs (target/debug/deps/space_core-1)

running 9 tests
test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests space_core

running 2 tests
test crates/space-core/src/lib.rs - (line 3) ... ok
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s

running 1 test
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s

   Doc-tests space_arena

running 1 test
test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn counts_only_doctests_that_ran() {
        let counts = doctests_passed(OUTPUT);
        assert_eq!(counts.len(), 2);
        assert_eq!(counts["space_core"], 3);
        assert_eq!(counts["space_arena"], 0);
        assert_eq!(tests_passed(OUTPUT), 12);
    }

    #[test]
    fn an_empty_run_counts_no_tests() {
        let empty = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out";
        assert_eq!(tests_passed(empty), 0);
        assert_eq!(
            tests_passed("test result: FAILED. 3 passed; 1 failed; 0 ignored"),
            0
        );
    }
}
