//! Matrix products.

use crate::blas::{Lease, Operands, Product};
use crate::operation::Operation;
use crate::view::{IntoView, IntoViewMut};
use crate::{CudaTensor, Number, TensorResult};
use cuda_driver::CallSite;

/// Queues `out = alpha a b + beta out`, with `out` of m x n, `a` of m x k and `b` of k x n elements, on a stream or on an
/// [`Execution`](crate::Execution) lease.
///
/// Transposes and conjugates come from the views, without a copy wherever BLAS can express them. Strides that it can't take
/// (negative, zero, or 1 in neither direction) and conjugates that are not transposed go through a copy in scratch memory of the
/// space in scope, or of the pool; [`Blas::counts`](crate::Blas::counts) tells how often.
///
/// With `beta` = 0 the output is not read, and may be uninitialised or NaN; with `alpha` = 0 or k = 0 the operands are not, and the
/// output is scaled by `beta`. Nothing is queued for an empty output, though its operands are checked. Sums are of the precision of
/// the elements, and `f32` for 16-bit ones.
///
/// # Errors
/// [`ShapeMismatch`](crate::TensorError::ShapeMismatch), [`WrongDevice`](crate::TensorError::WrongDevice), [`Aliased`](crate::TensorError::Aliased) and [`DimTooLarge`](crate::TensorError::DimTooLarge) with the
/// operand; [`Misaligned`](crate::TensorError::Misaligned) for complex elements that lie at no multiple of their size, from an arena with
/// less alignment; [`OverlappingWrite`](crate::TensorError::OverlappingWrite); [`NoProvider`](crate::TensorError::NoProvider), [`Provider`](crate::TensorError::Provider); no room for a copy; an access that is
/// refused, such as that of an operand which a forgotten guard writes; the driver's own.
#[track_caller]
pub fn gemm<'a, 'b, 'c, T: Number>(
    on: &impl Lease,
    out: impl IntoViewMut<'c, T, 2>,
    alpha: T,
    a: impl IntoView<'a, T, 2>,
    b: impl IntoView<'b, T, 2>,
    beta: T,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let product = Product {
        operation: Operation::new("gemm", on.stream()),
        names: NAMES,
        alpha,
        beta,
    };
    let (mut out, a, b) = (out.into_view_mut(), a.into_view(), b.into_view());
    product.queue(on, &mut out, &a, &b)
}

/// What operands are called in errors.
const NAMES: [&str; 3] = ["out", "a", "b"];

/// Queues `out = a b`: [`gemm`](gemm()) with the factors 1 and 0.
///
/// # Errors
/// As for [`gemm`](gemm()).
#[track_caller]
pub fn assign_product<'a, 'b, 'c, T: Number>(
    on: &impl Lease,
    out: impl IntoViewMut<'c, T, 2>,
    a: impl IntoView<'a, T, 2>,
    b: impl IntoView<'b, T, 2>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let product = plain("assign_product", on);
    let (mut out, a, b) = (out.into_view_mut(), a.into_view(), b.into_view());
    product.queue(on, &mut out, &a, &b)
}

/// A product with the factors 1 and 0.
fn plain<'s, T: Number>(operation: &'static str, on: &'s impl Lease) -> Product<'s, T> {
    Product {
        operation: Operation::new(operation, on.stream()),
        names: NAMES,
        alpha: T::ONE,
        beta: T::ZERO,
    }
}

/// Queues the product of `a` and `b` into a new row-major tensor, which is allocated on the stream.
///
/// # Errors
/// As for [`gemm`](gemm()) and [`CudaTensor::uninitialized_on`].
#[track_caller]
pub fn matmul<'a, 'b, T: Number>(
    on: &impl Lease,
    a: impl IntoView<'a, T, 2>,
    b: impl IntoView<'b, T, 2>,
) -> TensorResult<CudaTensor<T, 2>> {
    let _site = CallSite::enter();
    let product = plain("matmul", on);
    let (a, b) = (a.into_view(), b.into_view());
    let ([m, k], [_, n]) = (a.extents(), b.extents());
    // Before memory is asked for.
    product.operation.same("b", b.extents(), [k, n])?;
    product.operation.device("a", a.device())?;
    product.operation.device("b", b.device())?;
    let mut out = CudaTensor::uninitialized_on(on.stream(), [m, n])?;
    product.queue(on, &mut out.view_mut(), &a, &b)?;
    Ok(out)
}

/// Queues `y = alpha a x + beta y`, with `a` of m x n elements.
///
/// # Errors
/// As for [`gemm`](gemm()).
#[track_caller]
pub fn gemv<'a, 'x, 'y, T: Number>(
    on: &impl Lease,
    y: impl IntoViewMut<'y, T, 1>,
    alpha: T,
    a: impl IntoView<'a, T, 2>,
    x: impl IntoView<'x, T, 1>,
    beta: T,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let product = Product {
        operation: Operation::new("gemv", on.stream()),
        names: ["y", "a", "x"],
        alpha,
        beta,
    };
    let (y, a, x) = (y.into_view_mut(), a.into_view(), x.into_view());
    let [m, n] = a.extents();
    product.operation.same("y", y.extents(), [m])?;
    product.operation.same("x", x.extents(), [n])?;
    let (mut y, x) = (y.reshaped([m, 1])?, x.reshaped([n, 1])?);
    product.queue(on, &mut y, &a, &x)
}

/// Queues `out[i] = alpha a[i] b[i] + beta out[i]` for every i, as one call of the provider. An operand may repeat one matrix
/// (stride 0).
///
/// # Errors
/// As for [`gemm`](gemm()).
#[track_caller]
pub fn gemm_strided_batched<'a, 'b, 'c, T: Number>(
    on: &impl Lease,
    out: impl IntoViewMut<'c, T, 3>,
    alpha: T,
    a: impl IntoView<'a, T, 3>,
    b: impl IntoView<'b, T, 3>,
    beta: T,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let product = Product {
        operation: Operation::new("gemm_strided_batched", on.stream()),
        names: NAMES,
        alpha,
        beta,
    };
    let (mut out, a, b) = (out.into_view_mut(), a.into_view(), b.into_view());
    product.queue(on, &mut out, &a, &b)
}

/// Queues `out[i] = alpha a[i] b[i] + beta out[i]` for every i, with matrices of tensors of their own, whose sizes may differ.
/// They are checked together before the first one is queued, and end with one completion.
///
/// # Errors
/// As for [`gemm`](gemm()); [`ShapeMismatch`](crate::TensorError::ShapeMismatch) also when there are not as many of each. Products before one
/// that the provider refuses are queued.
#[track_caller]
pub fn gemm_batched<'v, T: Number, C, A, B>(
    on: &impl Lease,
    out: impl IntoIterator<Item = C>,
    alpha: T,
    a: impl IntoIterator<Item = A>,
    b: impl IntoIterator<Item = B>,
    beta: T,
) -> TensorResult<()>
where
    C: IntoViewMut<'v, T, 2>,
    A: IntoView<'v, T, 2>,
    B: IntoView<'v, T, 2>,
{
    let _site = CallSite::enter();
    let product = Product {
        operation: Operation::new("gemm_batched", on.stream()),
        names: NAMES,
        alpha,
        beta,
    };
    let operation = &product.operation;
    let out: Vec<_> = out.into_iter().map(IntoViewMut::into_view_mut).collect();
    let a: Vec<_> = a.into_iter().map(IntoView::into_view).collect();
    let b: Vec<_> = b.into_iter().map(IntoView::into_view).collect();
    operation.extents("a", &[a.len()], &[out.len()])?;
    operation.extents("b", &[b.len()], &[out.len()])?;
    let operands = out.into_iter().zip(a).zip(b);
    let operands = operands.map(|((out, a), b)| Operands { out, a, b });
    product.queue_all(on, operands.collect())
}
