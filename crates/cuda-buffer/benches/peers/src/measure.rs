//! Measures the operations of another crate over the driver library of empty functions, and prints a line for each.

use crate::counting;
use libloading::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::fmt::Debug;
use std::process::Command;
use std::time::Instant;
use std::{env, ptr};

/// The name of an operation, and the operation.
pub(crate) type Case<W, E> = (&'static str, fn(&mut W) -> Result<(), E>);

/// What is measured.
pub(crate) struct Peer<W: 'static, E: 'static> {
    pub(crate) name: &'static str,
    pub(crate) cases: &'static [Case<W, E>],
    /// Makes what the operations work on.
    pub(crate) world: fn() -> Result<W, E>,
    /// Waits until everything that the operations left to other threads is done.
    pub(crate) settle: fn(&Library),
}

/// The driver library. Whoever opens one by its usual name from now on gets this one.
pub(crate) fn library() -> Library {
    // SAFETY: the library does nothing when it is loaded.
    unsafe { Library::new(env!("NULL_CUDA")) }.expect("the library is there")
}

/// The calls that the library has counted, by name.
pub(crate) fn calls(library: &Library) -> BTreeMap<String, u64> {
    type Calls = unsafe extern "C" fn(u32, *mut *const c_char) -> u64;
    // SAFETY: the library's own function, of this type.
    let calls = unsafe { library.get::<Calls>(b"null_calls") }.expect("it has one");
    let mut counts = BTreeMap::new();
    for at in 0.. {
        let mut name = ptr::null();
        // SAFETY: it writes a name, or says that there is no such call.
        let count = unsafe { calls(at, &raw mut name) };
        if count == u64::MAX {
            break;
        }
        // SAFETY: a name in the library, which stays loaded.
        let name = unsafe { CStr::from_ptr(name) };
        counts.insert(name.to_string_lossy().into_owned(), count);
    }
    counts
}

impl<W, E: Debug> Peer<W, E> {
    /// What the program does: the table, or, called by itself, one of its figures.
    pub(crate) fn measure(&self) {
        let library = library();
        let args: Vec<String> = env::args().collect();
        match &args[..] {
            [_, what, name, rounds] if what == "count" => {
                self.run(
                    self.operation(name),
                    &mut self.world(),
                    rounds.parse().expect("a number"),
                );
                (self.settle)(&library);
            }
            [_, what, name, _] if what == "time" => {
                println!("{}", self.first_percentile(self.operation(name)))
            }
            _ => self.table(&library),
        }
    }

    fn world(&self) -> W {
        (self.world)().expect("a world")
    }

    fn operation(&self, name: &str) -> fn(&mut W) -> Result<(), E> {
        self.cases
            .iter()
            .find(|case| case.0 == name)
            .expect("a case")
            .1
    }

    fn run(&self, operation: fn(&mut W) -> Result<(), E>, world: &mut W, rounds: u32) {
        for _ in 0..rounds {
            operation(std::hint::black_box(world)).expect("nothing fails");
        }
    }

    fn table(&self, library: &Library) {
        println!(
            "{:<44}{:>7}{:>7}{:>9}{:>9}  calls by name",
            self.name, "calls", "allocs", "instr", "ns"
        );
        for &(name, operation) in self.cases {
            let mut world = self.world();
            self.run(operation, &mut world, 100);
            (self.settle)(library);
            let (before, allocated) = (calls(library), counting::allocations());
            self.run(operation, &mut world, 1000);
            let allocated = counting::allocations() - allocated;
            (self.settle)(library);
            let after = calls(library);
            let made: Vec<(&String, f64)> = after
                .iter()
                .map(|(name, count)| (name, (count - before[name]) as f64 / 1000.0))
                .filter(|(_, count)| *count > 0.0)
                .collect();
            let total: f64 = made.iter().map(|(_, count)| count).sum();
            let by_name: Vec<_> = made
                .iter()
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            let instructions = instructions(name, 2000).saturating_sub(instructions(name, 1000));
            let mut floors: Vec<f64> = (0..5)
                .map(|_| this(&["time", name, "0"]).trim().parse().expect("a number"))
                .collect();
            floors.sort_by(f64::total_cmp);
            println!(
                "{name:<44}{:>7}{:>7}{:>9.0}{:>9.1}  {}",
                (total * 1000.0).round() / 1000.0,
                allocated as f64 / 1000.0,
                instructions as f64 / 1000.0,
                floors[2],
                by_name.join(", ")
            );
        }
    }

    /// Nanoseconds per operation that 99 of 100 samples exceed.
    fn first_percentile(&self, operation: fn(&mut W) -> Result<(), E>) -> f64 {
        let mut world = self.world();
        self.run(operation, &mut world, 2000);
        let mut samples: Vec<f64> = (0..200)
            .map(|_| {
                let start = Instant::now();
                self.run(operation, &mut world, 200);
                start.elapsed().as_secs_f64() * 1e9 / 200.0
            })
            .collect();
        samples.sort_by(f64::total_cmp);
        samples[2]
    }
}

fn this(args: &[&str]) -> String {
    let program = env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .args(args)
        .output()
        .expect("this program runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn instructions(case: &str, rounds: u32) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe().expect("this program has a path"))
        .args(["count", case, &rounds.to_string()])
        .output();
    let Ok(output) = output else { return 0 };
    let report = String::from_utf8_lossy(&output.stderr);
    let total = report
        .lines()
        .find_map(|line| line.split_once("Collected :"));
    total.map_or(0, |total| total.1.trim().parse().expect("a count"))
}
