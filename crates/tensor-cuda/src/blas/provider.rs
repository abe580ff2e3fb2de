//! The port to libraries of matrix products.

use crate::TensorResult;
use crate::number::sealed::Arithmetic;
use cuda_buffer::{DeviceSliceMut, Operand, WriteAccess};
use cuda_runtime::{Device, Stream};
use std::fmt;

/// A library of matrix products: cuBLAS, or the host's behind a simulated device.
///
/// Shapes, devices, aliases and what BLAS can't express were dealt with before a product reaches it; also products of which
/// A and B are not read (alpha = 0, k = 0), and empty ones.
pub trait MatrixProvider: fmt::Debug + Send + Sync {
    /// The name, for errors.
    fn name(&self) -> &'static str;

    /// The largest dimension, leading dimension or number of products that it takes.
    fn max_dim(&self) -> u64;

    /// Whether a product that asks for it ([`MatrixProduct::deterministic`]) gives the same bits for the same operands in the same
    /// layouts in every run, on whatever stream and with whatever other work of the device or the host. Says no unless the provider does: then
    /// products of a device in [deterministic mode](crate::Blas::set_deterministic) are refused.
    fn is_deterministic(&self) -> bool {
        false
    }

    /// Bytes of device memory that a product may use for scratch.
    fn workspace_bytes(&self, device: &Device) -> usize;

    /// A handle on `device`. It serves one product at a time, on any stream of the device.
    ///
    /// # Errors
    /// [`Unsupported`](crate::TensorError::Unsupported) for devices that it does not know; its own failures as
    /// [`Provider`](crate::TensorError::Provider).
    fn open(&self, device: &Device) -> TensorResult<Box<dyn MatrixHandle>>;
}

/// A handle of a [`MatrixProvider`].
///
/// Anybody can call it, with any numbers. So one that passes addresses on has to see for itself that the operands hold what a product
/// touches, on its stream: by [`Operand::check_use`], as a launch does. Those of this crate do.
pub trait MatrixHandle: fmt::Debug + Send {
    /// Queues a product on `stream`, with `workspace` as its only scratch memory.
    ///
    /// The handle is set to the stream first and to the workspace then: setting a stream resets the workspace of some
    /// libraries. The accesses of all memory live until this returns, and a completion is recorded after it.
    ///
    /// # Errors
    /// Every status of the library but success, as [`Provider`](crate::TensorError::Provider). Nothing is queued then, or of a batch
    /// the products before the one that fails. [`Buffer`](crate::TensorError::Buffer) for operands that don't hold what is touched.
    fn product(
        &mut self,
        stream: &Stream,
        product: &MatrixProduct<'_>,
        workspace: DeviceSliceMut<'_, u8>,
    ) -> TensorResult<()>;

    /// Queues products that differ in their memory alone: `product` is the first of them, and `memory` has A, B and C of each, the
    /// first one included. None of them depends on another one. One after the other, unless the library takes several at once.
    ///
    /// # Errors
    /// As for [`product`](Self::product); those before the one that fails are queued.
    fn products(
        &mut self,
        stream: &Stream,
        product: &MatrixProduct<'_>,
        memory: &[[Operand<'_>; 3]],
        workspace: &mut WriteAccess<'_, u8>,
    ) -> TensorResult<()> {
        one_by_one(self, stream, product, memory, workspace)
    }
}

/// Queues products that differ in their memory alone, each by itself.
#[track_caller]
pub(in crate::blas) fn one_by_one<H: MatrixHandle + ?Sized>(
    handle: &mut H,
    stream: &Stream,
    product: &MatrixProduct<'_>,
    memory: &[[Operand<'_>; 3]],
    workspace: &mut WriteAccess<'_, u8>,
) -> TensorResult<()> {
    memory.iter().try_for_each(|&[a, b, c]| {
        let matrix = |matrix: Matrix<'_>, memory| Matrix { memory, ..matrix };
        let product = MatrixProduct {
            a: matrix(product.a, a),
            b: matrix(product.b, b),
            c: matrix(product.c, c),
            ..*product
        };
        handle.product(stream, &product, workspace.as_slice_mut())
    })
}

/// C = alpha op(A) op(B) + beta C for one or more column-major matrices, as BLAS takes it. Sizes count elements.
#[derive(Clone, Copy, Debug)]
pub struct MatrixProduct<'g> {
    /// The element type.
    pub element: ElementType,
    /// Rows of C and op(A).
    pub m: usize,
    /// Columns of C and op(B).
    pub n: usize,
    /// Columns of op(A), rows of op(B).
    pub k: usize,
    /// How many products.
    pub batch: usize,
    /// The factor of the product, not 0, of the element type.
    pub alpha: Operand<'g>,
    /// A.
    pub a: Matrix<'g>,
    /// B.
    pub b: Matrix<'g>,
    /// The factor of C, of the element type. With 0, C is not read.
    pub beta: Operand<'g>,
    /// C, whose transform is [`Transform::None`].
    pub c: Matrix<'g>,
    /// Whether the result must be the same to the bit for the same operands in every run; asked of providers only that can.
    pub deterministic: bool,
}

/// One column-major operand.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'g> {
    /// Its memory, from the first element on.
    pub memory: Operand<'g>,
    /// How it takes part.
    pub transform: Transform,
    /// Elements from one stored column to the next: at least as many as it has, and at least 1.
    pub leading: usize,
    /// Elements from one matrix to the next.
    pub step: usize,
}

/// How a stored matrix takes part in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// As it is.
    None,
    /// Transposed.
    Transpose,
    /// Transposed and conjugated.
    ConjugateTranspose,
}

/// The element type of a product. Sums are of the same precision; of 16-bit numbers they are `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// `f32`.
    F32 = 0,
    /// `f64`.
    F64 = 1,
    /// [`half::f16`].
    F16 = 2,
    /// [`half::bf16`].
    Bf16 = 3,
    /// [`num_complex::Complex`] of `f32`.
    C32 = 4,
    /// [`num_complex::Complex`] of `f64`.
    C64 = 5,
}

impl ElementType {
    pub(crate) fn of<T: Arithmetic>() -> Self {
        use ElementType::{Bf16, C32, C64, F16, F32, F64};
        [F32, F64, F16, Bf16, C32, C64][T::POSITION]
    }
}
