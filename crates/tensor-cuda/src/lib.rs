//! Tensors on CUDA devices, ordered by their buffers.
//!
//! A [`CudaTensor`] owns device memory with a ledger; views ([`TensorView`], [`TensorViewMut`]) give identity, offset and
//! mapping, and become addresses only when an operation acquires an access. Operations queue on the stream they are
//! given and return: what must come first is ordered on the device. They take tensors, views, and the arrays of any
//! device space alike, so that a step says where results live (its space) and where scratch dies (its frame).
//!
//! It promises that an operation which is refused has queued nothing and changed nothing; that outputs which need not be
//! read are not (`beta` = 0); and that in a steady state no operation allocates on the device.
//!
//! ```
//! use cuda_buffer::{DeviceArena, DeviceMemory, DeviceSlab};
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
//! let mut arena = DeviceArena::over(DeviceSlab::new(device, 4096)?)?;
//! layer(&mut arena.frame(), &stream, &mut y, &x, &w, &b)?;
//! assert_eq!(y.to_ndarray()?, array![[1.5, 0.0]]);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! [`Layout`] (`layout`) is the arithmetic; [`CudaTensor`] (`tensor`) owns, `view` maps; [`gemm`] and `rowwise` operate;
//! `kernels` declares the kernels and models them for the simulated device.

mod error;
mod gemm;
mod kernels;
mod layout;
mod real;
mod rowwise;
mod tensor;
mod view;

pub use crate::gemm::gemm;
pub use cuda_buffer as buffer;
pub use error::{TensorError, TensorResult};
pub use layout::Layout;
pub use real::Real;
pub use rowwise::{Activation, add_bias, argmax};
pub use tensor::CudaTensor;
pub use view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
