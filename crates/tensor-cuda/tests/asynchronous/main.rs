//! Operations on tensors whose producer may not have run yet.

mod failures;
mod leases;
mod operations;
mod recording;

use async_value::{Async, AsyncError, Cause, Limited, SeededExecutor, Spawn, spawn};
use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::{Schedule, SimDriver};
use ndarray::{Array2, array};
use std::sync::Arc;
use tensor_cuda::asynchronous::{
    Recording, add, add_bias, argmax, assign_product, axpy, cast, copy, device_task, fill,
    from_ndarray, gemm, gemm_batched, gemm_strided_batched, gemv, linear, map, map_in_place, max,
    min, multiply, multiply_in_place, norm, scale, sum, to_device, to_ndarray,
};
use tensor_cuda::{Activation, CudaTensor, Map, Norm, TensorError, TensorResult};

type Matrix = Async<CudaTensor<f64, 2>>;

fn runtime(seed: u64, devices: u32, streams: usize) -> Runtime {
    let simulation = SimDriver::builder()
        .devices(devices)
        .schedule(Schedule::Stepped { seed });
    let builder = Runtime::builder().streams_per_device(streams);
    let runtime = builder.simulation(simulation).build().unwrap();
    small_workspaces(&runtime);
    runtime
}

/// Makes workspaces of cuBLAS small, where products go through the emulated one: its driver fills whatever is allocated.
fn small_workspaces(runtime: &Runtime) {
    #[cfg(feature = "cuda")]
    if runtime.simulation().is_none() && cuda_contract::emulated::is_there() {
        for device in runtime.devices() {
            if let Ok(cublas) = tensor_cuda::Cublas::builder()
                .workspace_bytes(4096)
                .open(device)
            {
                tensor_cuda::Blas::of(device).set_provider(Arc::new(cublas));
            }
        }
    }
    let _ = runtime;
}

fn check(runtime: Runtime) {
    match runtime.simulation() {
        Some(simulated) => simulated.assert_no_reports(),
        // Where the loader finds a driver. All runtimes on the emulated one share its simulation.
        #[cfg(feature = "cuda")]
        None => assert_eq!(cuda_contract::emulated::take_reports(), 0),
        #[cfg(not(feature = "cuda"))]
        None => unreachable!("there is no other driver"),
    }
    for (_, alive) in runtime.shutdown().unwrap() {
        assert_eq!(alive, Default::default());
    }
}

fn matrix(size: usize, seed: usize) -> Array2<f64> {
    Array2::from_shape_fn((size, size), |(i, j)| {
        ((i * 7 + j * 3 + seed) % 11) as f64 - 5.0
    })
}

fn block_on(task: impl Future<Output = ()>) {
    let executor = SeededExecutor::new(0);
    executor.run_until(task).unwrap();
}

#[expect(dead_code, reason = "asserts at compile time")]
fn executors_are_objects(executor: &dyn Spawn, a: &Matrix) -> TensorResult<()> {
    scale(executor, a, 1.0)
}
