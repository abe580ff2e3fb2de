//! Instructions per carve, counted by callgrind, and the least time per carve, in one table.
//!
//! `cargo bench -p space-arena --bench count`; needs `valgrind` on the path. Each case runs in a
//! process of its own, once with ten and once with twenty rounds of 1,000 carves: the difference
//! is free of start-up. A round's loop and sink are included, about 5 instructions per carve.
//!
//! The time is a floor: the first percentile of many samples of 500 rounds each, and of several
//! processes the median. It tells what a carve costs when nothing else gets in its way.

mod work;

use std::{env, hint::black_box, process::Command, time::Instant};

/// How many processes a time is the median of.
const PROCESSES: usize = 9;

fn main() {
    let args: Vec<String> = env::args().collect();
    if let [_, case, what] = &args[..]
        && let Some(case) = cases().find(|it| it.name == *case)
    {
        match what.parse() {
            Ok(rounds) => _ = black_box((case.run)(rounds)),
            Err(_) => println!("{}", first_percentile(case)),
        }
        return;
    }
    println!("{:<34}{:>12}{:>10}", "", "instr/carve", "floor ns");
    for case in cases() {
        let (ten, twenty) = (count(case.name, 10), count(case.name, 20));
        let per_carve = (twenty - ten) as f64 / (10 * work::LENS) as f64;
        println!(
            "{:<34}{per_carve:>12.1}{:>10.2}",
            case.name,
            floor(case.name)
        );
    }
}

/// Nanoseconds per carve that 99 of 100 samples exceed.
fn first_percentile(case: &work::Case) -> f64 {
    const ROUNDS: u32 = 500;
    let mut samples: Vec<f64> = (0..100)
        .map(|_| {
            let start = Instant::now();
            black_box((case.run)(ROUNDS));
            start.elapsed().as_secs_f64() * 1e9 / (f64::from(ROUNDS) * work::LENS as f64)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[1]
}

/// The median over processes of the first percentile.
fn floor(case: &str) -> f64 {
    let this = env::current_exe().expect("this program has a path");
    let mut floors: Vec<f64> = (0..PROCESSES)
        .map(|_| {
            let output = Command::new(&this).args([case, "time"]).output();
            let output = output.expect("this program runs");
            let floor = String::from_utf8_lossy(&output.stdout);
            floor.trim().parse().expect("a number")
        })
        .collect();
    floors.sort_by(f64::total_cmp);
    floors[PROCESSES / 2]
}

fn cases() -> impl Iterator<Item = &'static work::Case> {
    work::OURS
        .iter()
        .chain(work::PARTS)
        .chain(work::peers::PEERS)
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
