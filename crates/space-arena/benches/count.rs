//! Instructions per carve, counted by callgrind, in one table.
//!
//! `cargo bench -p space-arena --bench count`; needs `valgrind` on the path. Each case runs in a
//! process of its own, once with ten and once with twenty rounds of 1,000 carves: the difference
//! is free of start-up. A round's loop and sink are included, about 5 instructions per carve.

mod work;

use std::{env, process::Command};

fn main() {
    let args: Vec<String> = env::args().collect();
    if let [_, case, rounds] = &args[..]
        && let Some(case) = cases().find(|it| it.name == *case)
    {
        let rounds = rounds.parse().expect("a number of rounds");
        std::hint::black_box((case.run)(rounds));
        return;
    }
    println!("{:<34}{:>10}", "", "instr/carve");
    for case in cases() {
        let (ten, twenty) = (count(case.name, 10), count(case.name, 20));
        let per_carve = (twenty - ten) as f64 / (10 * work::LENS) as f64;
        println!("{:<34}{per_carve:>10.1}", case.name);
    }
}

fn cases() -> impl Iterator<Item = &'static work::Case> {
    work::OURS.iter().chain(work::peers::PEERS)
}

/// Instructions of a whole process that runs `case` for `rounds`.
fn count(case: &str, rounds: u32) -> u64 {
    let this = env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args([case, &rounds.to_string()])
        .output()
        .expect("valgrind runs");
    let report = String::from_utf8_lossy(&output.stderr);
    report
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("no count in the report of {case}:\n{report}"))
}
