//! What a matrix product costs on the host beside the provider's own call, and what the host's provider costs beside the `gemm` crate.
//!
//! `cargo bench -p tensor-cuda --bench costs`. Small products run over a driver that does nothing; calls and allocations are those
//! of one in the steady state. The time is a floor: of 200 samples of 200 operations the first percentile, and of five processes
//! the median. Instructions are counted by `callgrind` when `valgrind` is installed. The large product is compared within one
//! process, in turn, by the fastest of several runs.

#[path = "../../cuda-buffer/benches/costs/counting.rs"]
mod counting;
#[path = "costs/in_turn.rs"]
mod in_turn;
#[path = "../../cuda-buffer/benches/costs/null.rs"]
mod null;

use async_value::{Async, SeededExecutor};
use cuda_buffer::{CudaBuffer, DeviceData, DeviceSliceMut, LaunchArg, acquire_all};
use cuda_runtime::{Runtime, Stream};
use ndarray::Array2;
use std::env;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor_cuda::{
    CudaTensor, ElementType, Execution, HostBlas, Matrix, MatrixHandle, MatrixProduct,
    MatrixProvider, Transform, asynchronous, gemm,
};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

/// Rows and columns of the small product.
const SMALL: usize = 4;
/// Rows and columns of the large product.
const LARGE: usize = 1024;

const CASES: [&str; 6] = [
    "gemm on a stream",
    "gemm on a lease",
    "gemm, leased for it",
    "gemm queued, in turn",
    "gemm queued, seeded",
    "bare provider call",
];

/// Products that are queued before they are run.
const QUEUED: u32 = 100;

struct World {
    runtime: Runtime,
    stream: Stream,
    lease: Execution,
    a: CudaTensor<f32, 2>,
    b: CudaTensor<f32, 2>,
    c: CudaTensor<f32, 2>,
    /// The same on values whose writers may not have run.
    queued: [Async<CudaTensor<f32, 2>>; 3],
    in_turn: in_turn::InTurn,
    seeded: SeededExecutor,
}

impl World {
    fn new() -> Self {
        let driver = Arc::new(null::Null::default());
        let runtime = Runtime::builder()
            .driver(driver)
            .build()
            .expect("a runtime");
        let device = runtime.default_device();
        let stream = device.streams().acquire().expect("a stream");
        let tensor = || CudaTensor::uninitialized_on(&stream, [SMALL, SMALL]).expect("a tensor");
        let (a, b, c) = (tensor(), tensor(), tensor());
        let queued = [tensor(), tensor(), tensor()].map(Async::new);
        let lease = tensor_cuda::Blas::of(device).lease().expect("a lease");
        Self {
            stream,
            lease,
            a,
            b,
            c,
            queued,
            in_turn: in_turn::InTurn::default(),
            seeded: SeededExecutor::new(0),
            runtime,
        }
    }

    fn run(&mut self, case: &str, rounds: u32) {
        let Self {
            stream,
            lease,
            a,
            b,
            c,
            queued: [x, y, z],
            in_turn,
            seeded,
            runtime,
        } = self;
        match case {
            "gemm on a stream" => {
                for _ in 0..rounds {
                    gemm(stream, &mut *c, 1.0, &*a, &*b, 0.0).expect("a product");
                }
            }
            "gemm on a lease" => {
                for _ in 0..rounds {
                    gemm(lease, &mut *c, 1.0, &*a, &*b, 0.0).expect("a product");
                }
            }
            "gemm, leased for it" => {
                let blas = tensor_cuda::Blas::of(runtime.default_device());
                for _ in 0..rounds {
                    let lease = blas.lease().expect("a lease");
                    gemm(&lease, &mut *c, 1.0, &*a, &*b, 0.0).expect("a product");
                }
            }
            "gemm queued, in turn" => {
                for _ in 0..rounds / QUEUED {
                    for _ in 0..QUEUED {
                        asynchronous::gemm(in_turn, z, 1.0, x, y, 0.0).expect("queued");
                    }
                    in_turn.run();
                }
                drop(z.try_read().expect("they have run"));
            }
            "gemm queued, seeded" => {
                for _ in 0..rounds / QUEUED {
                    for _ in 0..QUEUED {
                        asynchronous::gemm(seeded, z, 1.0, x, y, 0.0).expect("queued");
                    }
                    seeded.run().expect("they run");
                }
                drop(z.try_read().expect("they have run"));
            }
            _ => bare(stream, [c, a, b], rounds),
        }
    }
}

/// The provider alone, with accesses that are already held.
fn bare(stream: &Stream, [c, a, b]: [&mut CudaTensor<f32, 2>; 3], rounds: u32) {
    let provider = HostBlas::default();
    let device = stream.device();
    let mut handle = provider.open(device).expect("a handle");
    let mut scratch =
        CudaBuffer::<u8>::new_on(stream, provider.workspace_bytes(device)).expect("memory");
    let requests = (
        DeviceData::write(c),
        DeviceData::read(a),
        DeviceData::read(b),
        scratch.write(),
    );
    let (mut c, a, b, mut workspace) = acquire_all(stream, requests).expect("accesses");
    for _ in 0..rounds {
        let matrix = |memory| Matrix {
            memory,
            transform: Transform::None,
            leading: SMALL,
            step: 0,
        };
        let product = MatrixProduct {
            element: ElementType::F32,
            m: SMALL,
            n: SMALL,
            k: SMALL,
            batch: 1,
            alpha: 1.0_f32.operand(),
            a: matrix((&a).operand()),
            b: matrix((&b).operand()),
            beta: 0.0_f32.operand(),
            c: matrix((&mut c).operand()),
            deterministic: false,
        };
        call(&mut *handle, stream, &product, workspace.as_slice_mut());
    }
}

fn call(
    handle: &mut dyn MatrixHandle,
    stream: &Stream,
    product: &MatrixProduct<'_>,
    workspace: DeviceSliceMut<'_, u8>,
) {
    handle
        .product(stream, product, workspace)
        .expect("a product");
}

fn first_percentile(case: &str) -> f64 {
    const ROUNDS: u32 = 200;
    let mut world = World::new();
    world.run(case, 10 * ROUNDS);
    let mut samples: Vec<f64> = (0..200)
        .map(|_| {
            let start = Instant::now();
            world.run(case, ROUNDS);
            start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[2]
}

fn floor(case: &str) -> f64 {
    let this = env::current_exe().expect("this program has a path");
    let mut floors: Vec<f64> = (0..5)
        .map(|_| {
            let output = Command::new(&this).args(["time", case, "0"]).output();
            let output = output.expect("this program runs");
            String::from_utf8_lossy(&output.stdout)
                .trim()
                .parse()
                .expect("a number")
        })
        .collect();
    floors.sort_by(f64::total_cmp);
    floors[2]
}

/// Instructions of one operation: the difference of two processes, free of start-up.
fn instructions(case: &str) -> f64 {
    let this = env::current_exe().expect("this program has a path");
    let total = |rounds: u32| -> f64 {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(&this)
            .args(["count", case, &rounds.to_string()])
            .output()
            .expect("valgrind runs");
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = report
            .lines()
            .find_map(|line| line.split_once("Collected :"));
        line.expect("callgrind reports a count")
            .1
            .trim()
            .parse()
            .expect("a count")
    };
    (total(2000) - total(1000)) / 1000.0
}

/// The fastest of several runs of each, in turn.
fn large() -> [Duration; 2] {
    let runtime = Runtime::builder().build().expect("a simulated device");
    let device = runtime.default_device();
    let stream = device.streams().acquire().expect("a stream");
    let host = Array2::from_shape_fn((LARGE, LARGE), |(i, j)| ((i * 7 + j * 3) % 13) as f32 - 6.0);
    let a = CudaTensor::from_ndarray(device, &host.view()).expect("a tensor");
    let mut c = CudaTensor::<f32, 2>::uninitialized(device, [LARGE, LARGE]).expect("a tensor");
    let mut out = vec![0.0_f32; LARGE * LARGE];
    let values = host.as_slice().expect("row-major");
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..12 {
        let start = Instant::now();
        gemm(&stream, &mut c, 1.0, &a, &a, 0.0).expect("a product");
        stream.synchronize().expect("it ran");
        fastest[0] = fastest[0].min(start.elapsed());
        let start = Instant::now();
        let (n, row) = (LARGE, LARGE as isize);
        // SAFETY: all three are n x n elements in row-major order, and `out` is not read.
        unsafe {
            gemm::gemm::<f32>(
                n,
                n,
                n,
                out.as_mut_ptr(),
                1,
                row,
                false,
                values.as_ptr(),
                1,
                row,
                values.as_ptr(),
                1,
                row,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
        fastest[1] = fastest[1].min(start.elapsed());
    }
    assert_eq!(c.to_vec().expect("a product"), out);
    fastest
}

fn main() {
    let args: Vec<String> = env::args().collect();
    if let [_, what, case, rounds] = &args[..]
        && CASES.contains(&case.as_str())
    {
        match what.as_str() {
            "time" => println!("{}", first_percentile(case)),
            _ => World::new().run(case, rounds.parse().expect("a number of rounds")),
        }
        return;
    }
    let valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    println!(
        "{:<24}{:>7}{:>8}{:>8}{:>8}  calls by name",
        "", "calls", "allocs", "instr", "ns"
    );
    for case in CASES {
        let mut world = World::new();
        world.run(case, 100);
        let device = world.runtime.default_device().clone();
        let (calls, allocated) = (device.call_counts(), counting::allocations());
        world.run(case, 1000);
        let allocated = counting::allocations() - allocated;
        let calls = device.call_counts() - calls;
        let instructions = if valgrind {
            instructions(case)
        } else {
            f64::NAN
        };
        println!(
            "{case:<24}{:>7.2}{:>8.2}{instructions:>8.0}{:>8.1}  {calls}",
            calls.total() as f64 / 1000.0,
            allocated as f64 / 1000.0,
            floor(case),
        );
    }
    let [ours, theirs] = large();
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    println!(
        "{LARGE} x {LARGE} x {LARGE} in f32: {ours:.1?}, by the gemm crate alone {theirs:.1?}: {:.1} %",
        100.0 * ratio
    );
}
