//! What `cudarc` costs over a driver library of empty functions: driver calls, host allocations, instructions, time; measured as
//! `cargo bench -p cuda-buffer --bench costs` measures Carve. Run it with
//! `cargo run --release --manifest-path crates/cuda-buffer/benches/peers/Cargo.toml`.

#[path = "../../costs/counting.rs"]
mod counting;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg,
};
use libloading::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use std::{env, ptr};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const N: usize = 1024;

type Operation = fn(&mut World) -> Result<(), DriverError>;

static CASES: &[(&str, Operation)] = &[
    ("operation, same stream", |world| world.join(0)),
    ("operation, alternating streams", |world| {
        world.turn = 1 - world.turn;
        world.join(world.turn)
    }),
    ("allocate, drop", |world| {
        // SAFETY: nothing reads what nobody wrote.
        unsafe { world.streams[0].alloc::<f32>(N) }.map(drop)
    }),
];

struct World {
    out: CudaSlice<f32>,
    x: CudaSlice<f32>,
    y: CudaSlice<f32>,
    function: CudaFunction,
    streams: [Arc<CudaStream>; 2],
    turn: usize,
}

impl World {
    fn new() -> Result<Self, DriverError> {
        let context = CudaContext::new(0)?;
        let streams = [context.new_stream()?, context.new_stream()?];
        // SAFETY: nothing reads what nobody wrote.
        let buffer = || unsafe { streams[0].alloc::<f32>(N) };
        let module = context.load_module(cudarc::nvrtc::Ptx::from_src(""))?;
        Ok(Self {
            out: buffer()?,
            x: buffer()?,
            y: buffer()?,
            function: module.load_function("add")?,
            streams,
            turn: 0,
        })
    }

    /// One output, two inputs.
    fn join(&mut self, stream: usize) -> Result<(), DriverError> {
        let mut launch = self.streams[stream].launch_builder(&self.function);
        launch.arg(&N).arg(&mut self.out).arg(&self.x).arg(&self.y);
        // SAFETY: nothing runs.
        unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32)) }.map(drop)
    }
}

/// The calls that the library has counted, by name.
fn calls(library: &Library) -> BTreeMap<String, u64> {
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

fn run(operation: Operation, world: &mut World, rounds: u32) {
    for _ in 0..rounds {
        operation(std::hint::black_box(world)).expect("nothing fails");
    }
}

fn main() {
    // SAFETY: the library does nothing when it is loaded.
    let library = unsafe { Library::new(env!("NULL_CUDA")) }.expect("the library is there");
    let args: Vec<String> = env::args().collect();
    let case = |name: &str| CASES.iter().find(|case| case.0 == name).expect("a case").1;
    match &args[..] {
        [_, what, name, rounds] if what == "count" => {
            let rounds = rounds.parse().expect("a number");
            return run(case(name), &mut World::new().expect("a world"), rounds);
        }
        [_, what, name, _] if what == "time" => return println!("{}", first_percentile(case(name))),
        _ => {}
    }
    println!("{:<44}{:>6}{:>7}{:>9}{:>9}  calls by name", "cudarc 0.19", "calls", "allocs", "instr", "ns");
    for &(name, operation) in CASES {
        let mut world = World::new().expect("a world");
        run(operation, &mut world, 100);
        let (before, allocated) = (calls(&library), counting::allocations());
        run(operation, &mut world, 1000);
        let allocated = counting::allocations() - allocated;
        let after = calls(&library);
        let made: Vec<(&String, f64)> = after
            .iter()
            .map(|(name, count)| (name, (count - before[name]) as f64 / 1000.0))
            .filter(|(_, count)| *count > 0.0)
            .collect();
        let total: f64 = made.iter().map(|(_, count)| count).sum();
        let by_name: Vec<_> = made.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let instructions = instructions(name, 2000) - instructions(name, 1000);
        let mut floors: Vec<f64> = (0..5).map(|_| this(&["time", name, "0"]).trim().parse().expect("a number")).collect();
        floors.sort_by(f64::total_cmp);
        println!(
            "{name:<44}{total:>6}{:>7}{:>9.0}{:>9.1}  {}",
            allocated as f64 / 1000.0,
            instructions as f64 / 1000.0,
            floors[2],
            by_name.join(", ")
        );
    }
}

/// Nanoseconds per operation that 99 of 100 samples exceed.
fn first_percentile(operation: Operation) -> f64 {
    let mut world = World::new().expect("a world");
    run(operation, &mut world, 2000);
    let mut samples: Vec<f64> = (0..200)
        .map(|_| {
            let start = Instant::now();
            run(operation, &mut world, 200);
            start.elapsed().as_secs_f64() * 1e9 / 200.0
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[2]
}

fn this(args: &[&str]) -> String {
    let program = env::current_exe().expect("this program has a path");
    let output = Command::new(program).args(args).output().expect("this program runs");
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
    let total = report.lines().find_map(|line| line.split_once("Collected :"));
    total.map_or(0, |total| total.1.trim().parse().expect("a count"))
}
