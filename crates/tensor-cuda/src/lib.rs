//! Tensors on CUDA devices, ordered by their buffers.
//!
//! A [`CudaTensor`] owns device memory with a ledger; views ([`TensorView`], [`TensorViewMut`]) give identity, offset and
//! mapping, and become addresses only when an operation acquires an access. Operations queue on the stream they are
//! given and return: what must come first is ordered on the device. They take tensors, views, and the arrays of any
//! device space alike, so that a step says where results live (its space) and where scratch dies (its frame).
//!
//! It promises that an operation which is refused has changed nothing, and queued nothing but copies into scratch memory that
//! turned out to be too small; that outputs which need not be
//! read are not (`beta` = 0); and that in a steady state no operation allocates on the device, unless strides need a copy and no
//! arena is bound.
//!
//! ```
//! use cuda_buffer::{DeviceArena, DeviceMemory};
//! use cuda_runtime::{Runtime, Stream};
//! use ndarray::array;
//! use space_core::{Frame, Space, Undef};
//! use tensor_cuda::{Activation, CudaTensor, TensorResult, add_bias, gemm};
//!
//! fn layer(
//!     frame: &mut Frame<'_, DeviceMemory>, stream: &Stream,
//!     y: &mut CudaTensor<f32, 2>, x: &CudaTensor<f32, 2>, w: &CudaTensor<f32, 2>, b: &CudaTensor<f32, 1>,
//! ) -> TensorResult<()> {
//!     frame.scratch(|frame| {
//!         let mut xw = frame.alloc(Undef::<f32, _>::new([x.extents()[0], w.extents()[1]]))?;
//!         gemm(stream, &mut xw, 1.0, x, w, 0.0)?;
//!         add_bias(stream, &mut xw, b, Activation::Relu)?;
//!         gemm(stream, y, 1.0, &xw, w, 0.0)?;
//!         Ok(())
//!     })
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().build()?;
//! let device = runtime.default_device();
//! let stream = device.streams().acquire()?;
//! let x = CudaTensor::from_ndarray(device, &array![[1.0_f32, -2.0]].view())?;
//! let w = CudaTensor::from_ndarray(device, &array![[0.0_f32, 1.0], [1.0, 0.0]].view())?;
//! let b = CudaTensor::from_ndarray(device, &array![0.5_f32, 0.5].view())?;
//! let mut y = CudaTensor::uninitialized(device, [1, 2])?;
//! let mut arena = DeviceArena::with_capacity_on(device, 4096)?;
//! layer(&mut arena.frame(), &stream, &mut y, &x, &w, &b)?;
//! assert_eq!(y.to_ndarray()?, array![[1.5, 0.0]]);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! - values: [`Layout`] and [`DynLayout`] (`layout`) are the arithmetic; [`CudaTensor`] (`tensor`), [`DynTensor`] (`dynamic`) and
//!   [`PackedTensors`] (`packed`) own; `view` maps; `initial` says what a new tensor holds; [`Number`] (`number`) is what arithmetic is
//!   for;
//! - operations: `elementwise`, `arithmetic`, `reduce`, `transfer` (on devices), `host_transfer` and [`gemm`]; `operation` is what they share, `plan` which addresses
//!   are visited together, `map` the functions of one element, `scratch` where copies go;
//! - [`asynchronous`]: the same on values whose producer may not have run yet;
//! - below: `blas` is the port to libraries of matrix products, with handles, leases and workspaces; `kernels` declares the kernels and
//!   models them for the simulated device.

mod arithmetic;
pub mod asynchronous;
mod blas;
#[cfg(doctest)]
mod does_not_compile;
mod dynamic;
mod elementwise;
mod error;
mod gemm;
mod host_transfer;
mod initial;
mod kernels;
mod layout;
mod map;
mod number;
mod operation;
mod packed;
mod plan;
mod reduce;
mod scratch;
mod tensor;
mod transfer;
mod view;

pub use crate::gemm::{assign_product, gemm, gemm_batched, gemm_strided_batched, gemv, matmul};
pub use arithmetic::{
    add, add_bias, axpy, linear, map_in_place, multiply, multiply_in_place, scale,
};
pub use blas::{
    AcquireExecution, Blas, BlasCounts, ElementType, Execution, HostBlas, Lease, Matrix,
    MatrixHandle, MatrixProduct, MatrixProvider, Transform,
};
#[cfg(feature = "cuda")]
pub use blas::{
    Cublas, CublasBuilder, CublasError, CublasStatus, CublasVersion, FailedCall, MathMode,
    ProductSizes, TriedFile, TriedPlace,
};
pub use cuda_buffer as buffer;
pub use dynamic::DynTensor;
pub use elementwise::{cast, fill, map};
pub use error::{TensorError, TensorResult};
pub use host_transfer::{copy_from_ndarray, copy_from_pinned, copy_to_pinned, to_ndarray};
pub use kernels::CastTo;
pub use layout::{DynLayout, Layout};
pub use map::{Activation, Map};
pub use number::{ComplexNumber, Number, Real};
pub use packed::PackedTensors;
pub use reduce::{Norm, argmax, max, min, norm, sum};
pub use tensor::CudaTensor;
pub use transfer::copy;
pub use view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
