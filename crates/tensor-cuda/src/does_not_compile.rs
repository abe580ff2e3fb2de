//! Programs that must not compile, each after the part of it that does.
//!
//! A zero of this type is not all zero bytes: it can't be filled with zeros, and works uninitialised.
//! ```
//! use tensor_cuda::CudaTensor;
//! #[derive(Clone, Copy)]
//! enum Colour { Red = 1 }
//! fn uninitialised(device: &cuda_runtime::Device) {
//!     let _ = CudaTensor::<Colour, 1>::uninitialized(device, [4]);
//!     let _ = Colour::Red;
//! }
//! ```
//! ```compile_fail,E0277
//! use tensor_cuda::CudaTensor;
//! #[derive(Clone, Copy)]
//! enum Colour { Red = 1 }
//! fn zeros(device: &cuda_runtime::Device) {
//!     let _ = CudaTensor::<Colour, 1>::new(device, [4]);
//!     let _ = Colour::Red;
//! }
//! ```
//! A view ends with its tensor.
//! ```
//! use tensor_cuda::{CudaTensor, TensorView};
//! fn turned(tensor: &CudaTensor<f32, 2>) -> TensorView<'_, f32, 2> {
//!     tensor.view().transposed()
//! }
//! ```
//! ```compile_fail,E0515
//! use tensor_cuda::{CudaTensor, TensorView};
//! fn turned<'t>(tensor: CudaTensor<f32, 2>) -> TensorView<'t, f32, 2> {
//!     tensor.view().transposed()
//! }
//! ```
//! An output is no operand.
//! ```
//! use tensor_cuda::{CudaTensor, gemm};
//! fn product(stream: &cuda_runtime::Stream, a: &CudaTensor<f32, 2>, c: &mut CudaTensor<f32, 2>) {
//!     let _ = gemm(stream, c, 1.0, a, a, 0.0);
//! }
//! ```
//! ```compile_fail,E0502
//! use tensor_cuda::{CudaTensor, gemm};
//! fn product(stream: &cuda_runtime::Stream, a: &CudaTensor<f32, 2>, c: &mut CudaTensor<f32, 2>) {
//!     let _ = gemm(stream, &mut *c, 1.0, a, &*c, 0.0);
//! }
//! ```
//! A cast that is not listed.
//! ```
//! use tensor_cuda::{CudaTensor, cast};
//! fn to_double(stream: &cuda_runtime::Stream, out: &mut CudaTensor<f64, 1>, a: &CudaTensor<f32, 1>) {
//!     let _ = cast(stream, out, a);
//! }
//! ```
//! ```compile_fail,E0277
//! use tensor_cuda::{CudaTensor, cast};
//! fn to_byte(stream: &cuda_runtime::Stream, out: &mut CudaTensor<u8, 1>, a: &CudaTensor<f32, 1>) {
//!     let _ = cast(stream, out, a);
//! }
//! ```
//! Operands of a product of different types.
//! ```
//! use tensor_cuda::{CudaTensor, gemm};
//! fn product(stream: &cuda_runtime::Stream, a: &CudaTensor<f32, 2>, b: &CudaTensor<f32, 2>, c: &mut CudaTensor<f32, 2>) {
//!     let _ = gemm(stream, c, 1.0, a, b, 0.0);
//! }
//! ```
//! ```compile_fail,E0277
//! use tensor_cuda::{CudaTensor, gemm};
//! fn product(stream: &cuda_runtime::Stream, a: &CudaTensor<f32, 2>, b: &CudaTensor<f64, 2>, c: &mut CudaTensor<f32, 2>) {
//!     let _ = gemm(stream, c, 1.0, a, b, 0.0);
//! }
//! ```
//! A tensor that is carved from a frame ends with it.
//! ```
//! use space_core::{Frame, Space, Undef};
//! fn step(frame: &mut Frame<'_, cuda_buffer::DeviceMemory>) {
//!     frame.scratch(|frame| {
//!         let kept = frame.alloc(Undef::<f32, _>::new([2, 2]));
//!         drop(kept);
//!     });
//! }
//! ```
//! ```compile_fail
//! use space_core::{Frame, Space, Undef};
//! fn step(frame: &mut Frame<'_, cuda_buffer::DeviceMemory>) {
//!     let kept = frame.scratch(|frame| {
//!         let kept = frame.alloc(Undef::<f32, _>::new([2, 2]));
//!         kept
//!     });
//!     drop(kept);
//! }
//! ```
