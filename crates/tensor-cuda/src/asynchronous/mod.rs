//! Operations on tensors whose producer may not have run yet.
//!
//! Each call takes the tickets of its operands before it returns, in program order, and queues a task. The task waits for its turn
//! on each value, takes the device from them, leases what the operation needs (a handle of the BLAS provider, and then a stream),
//! queues the work without ever suspending in between, and releases the values. So a value is ready for other device operations
//! once its work is queued, and their order on the device is the ledgers' business; only what comes to the host
//! ([`to_ndarray`]) waits until the work is done.
//!
//! Where handles or streams run out, tasks wait, first come first served, and no thread does. A task never holds a lease while
//! it waits for a value.
//!
//! ```
//! use async_value::{Async, SeededExecutor};
//! use cuda_runtime::Runtime;
//! use ndarray::array;
//! use tensor_cuda::asynchronous::{assign_product, from_ndarray, scale, to_ndarray};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().build()?;
//! let device = runtime.default_device();
//! let executor = SeededExecutor::new(0); // or any other
//!
//! let a = from_ndarray(&executor, device, array![[1.0_f64, 2.0], [3.0, 4.0]])?;
//! let b = from_ndarray(&executor, device, array![[0.0, 1.0], [1.0, 0.0]])?;
//! let c = Async::empty();
//! assign_product(&executor, &c, &a, &b)?; // makes the tensor
//! scale(&executor, &c, 10.0)?;
//! let host = to_ndarray(&executor, &c)?;
//! let host = executor.run_until(host.read())??;
//! assert_eq!(*host, array![[20.0, 10.0], [40.0, 30.0]]);
//! # Ok(())
//! # }
//! ```
//!
//! What fails in a task fails the values that it should have written, with the operation and the place of the call:
//! [`Failure::error`](async_value::Failure::error) gives the [`TensorError`](crate::TensorError).

mod elementwise;
mod forms;
mod lease;
mod products;
mod recording;
mod reduce;
mod staging;
mod task;
mod transfer;

pub use elementwise::{
    add, add_bias, axpy, cast, fill, linear, map, map_in_place, multiply, multiply_in_place, scale,
};
pub use lease::StreamSearch;
pub use products::{assign_product, gemm, gemm_batched, gemm_strided_batched, gemv};
pub use recording::Recording;
pub use reduce::{argmax, max, min, norm, sum};
pub use task::{DeviceOf, device_task, product_task};
pub use transfer::{copy, from_ndarray, to_device, to_ndarray};
