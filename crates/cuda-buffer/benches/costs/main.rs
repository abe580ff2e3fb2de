//! What operations cost over a driver that does nothing: driver calls, host allocations, instructions, time; and the driver calls
//! once more over the simulated device, which does everything at once and checks it.
//!
//! `cargo bench -p cuda-buffer --bench costs` prints one line for each case. Calls and allocations are those of one
//! operation in the steady state, counted over 1,000. Instructions are counted by `callgrind` when `valgrind` is
//! installed: each case runs in a process of its own, twice, with twice as many operations the second time: the difference is
//! free of start-up. The time is a floor: of 200 samples of 200 operations the first percentile, and of five processes the median.

mod counting;
mod null;
mod work;

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;
use std::{collections::BTreeMap, env};
use work::{Case, Under, World};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

fn main() {
    let args: Vec<String> = env::args().collect();
    if let [_, what, name, rounds] = &args[..]
        && let Some(case) = work::CASES.iter().find(|case| case.name == *name)
    {
        let rounds = rounds.parse().expect("a number of rounds");
        match what.as_str() {
            "count" => run(case, &mut World::new(Under::Null), rounds),
            "time" => println!("{}", first_percentile(case)),
            _ => panic!("{what} is no measurement"),
        }
        return;
    }
    println!(
        "{:<44}{:>6}{:>6}{:>7}{:>9}{:>9}  calls by name",
        "", "calls", "sim", "allocs", "instr", "ns"
    );
    let valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    for case in work::CASES {
        let (calls, allocations, by_name) = counts(case, Under::Null);
        let (simulated, ..) = counts(case, Under::Simulated);
        let per = f64::from(case.per);
        let instructions = match valgrind {
            true => {
                let rounds = (1000 / case.per).max(10);
                let more = instructions(case, 2 * rounds) - instructions(case, rounds);
                more as f64 / f64::from(rounds) / per
            }
            false => f64::NAN,
        };
        let time = floor(case) / per;
        println!(
            "{:<44}{calls:>6}{simulated:>6}{allocations:>7}{instructions:>9.0}{time:>9.1}  {by_name}",
            case.name
        );
    }
}

fn run(case: &Case, world: &mut World, rounds: u32) {
    for _ in 0..rounds {
        (case.run)(black_box(world)).expect("nothing fails");
    }
}

/// Driver calls of one operation, host allocations of one, and the calls by name, in the steady state.
fn counts(case: &Case, under: Under) -> (f64, f64, String) {
    const ROUNDS: u32 = 1000;
    let mut world = World::new(under);
    // Until tables have their size and events their number.
    run(case, &mut world, 100);
    let (calls, allocated) = (world.calls(), counting::allocations());
    run(case, &mut world, ROUNDS);
    let allocated = counting::allocations() - allocated;
    let calls = world.calls() - calls;
    world.check();
    let each = |count: u64| count as f64 / f64::from(ROUNDS);
    let by_name: BTreeMap<_, _> = calls
        .iter()
        .map(|(call, n)| (call.name(), each(n)))
        .collect();
    let by_name: Vec<_> = by_name
        .iter()
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    (each(calls.total()), each(allocated), by_name.join(", "))
}

/// Nanoseconds per operation that 99 of 100 samples exceed.
fn first_percentile(case: &Case) -> f64 {
    let rounds = (200 / case.per).max(1);
    let mut world = World::new(Under::Null);
    run(case, &mut world, 10 * rounds);
    let mut samples: Vec<f64> = (0..200)
        .map(|_| {
            let start = Instant::now();
            run(case, &mut world, rounds);
            start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[2]
}

/// The median over processes of the first percentile.
fn floor(case: &Case) -> f64 {
    let this = env::current_exe().expect("this program has a path");
    let mut floors: Vec<f64> = (0..5)
        .map(|_| {
            let output = Command::new(&this).args(["time", case.name, "0"]).output();
            let output = output.expect("this program runs");
            let floor = String::from_utf8_lossy(&output.stdout);
            floor.trim().parse().expect("a number")
        })
        .collect();
    floors.sort_by(f64::total_cmp);
    floors[floors.len() / 2]
}

/// Instructions of a whole process that runs `case` for `rounds`.
fn instructions(case: &Case, rounds: u32) -> u64 {
    let this = env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args(["count", case.name, &rounds.to_string()])
        .output()
        .expect("valgrind runs");
    let report = String::from_utf8_lossy(&output.stderr);
    let total = report
        .lines()
        .find_map(|line| line.split_once("Collected :"))
        .unwrap_or_else(|| panic!("callgrind reports no count: {report}"));
    total.1.trim().parse().expect("a count")
}
