//! Matrix products.

use crate::blas::{Factors, Lease, Operands, product, products};
use crate::operation::Operation;
use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
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
/// operand; [`OverlappingWrite`](crate::TensorError::OverlappingWrite); [`NoProvider`](crate::TensorError::NoProvider), [`Provider`](crate::TensorError::Provider); no room for a copy; an access that is
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
    let operation = Operation::new("gemm", on.stream());
    let (out, a, b) = (out.into_view_mut(), a.into_view(), b.into_view());
    one_product(on, &operation, out, a, b, Factors { alpha, beta })
}

#[track_caller]
fn one_product<T: Number>(
    on: &impl Lease,
    operation: &Operation<'_>,
    out: TensorViewMut<'_, T, 2>,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    factors: Factors<T>,
) -> TensorResult<()> {
    let ([m, n], [_, k]) = (out.extents(), a.extents());
    operation.same("a", a.extents(), [m, k])?;
    operation.same("b", b.extents(), [k, n])?;
    product(on, operation, one_mut(out), one(a), one(b), factors)
}

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
    let operation = Operation::new("assign_product", on.stream());
    let (out, a, b) = (out.into_view_mut(), a.into_view(), b.into_view());
    one_product(on, &operation, out, a, b, Factors::PRODUCT)
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
    let operation = Operation::new("matmul", on.stream());
    let (a, b) = (a.into_view(), b.into_view());
    let ([m, k], [_, n]) = (a.extents(), b.extents());
    // Before memory is asked for.
    operation.extents("b", &b.extents(), &[k, n])?;
    let mut out = CudaTensor::uninitialized_on(on.stream(), [m, n])?;
    one_product(on, &operation, out.view_mut(), a, b, Factors::PRODUCT)?;
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
    let operation = Operation::new("gemv", on.stream());
    let (y, a, x) = (y.into_view_mut(), a.into_view(), x.into_view());
    let [m, n] = a.extents();
    operation.extents("y", &y.extents(), &[m])?;
    operation.extents("x", &x.extents(), &[n])?;
    let (y, x) = (y.reshaped([m, 1]), x.reshaped([n, 1]));
    let (out, a, b) = (one_mut(y?), one(a), one(x?));
    product(on, &operation, out, a, b, Factors { alpha, beta })
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
    let operation = Operation::new("gemm_strided_batched", on.stream());
    let (out, a, b) = (out.into_view_mut(), a.into_view(), b.into_view());
    product(on, &operation, out, a, b, Factors { alpha, beta })
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
    let operation = Operation::new("gemm_batched", on.stream());
    let out: Vec<_> = out.into_iter().map(IntoViewMut::into_view_mut).collect();
    let a: Vec<_> = a.into_iter().map(IntoView::into_view).collect();
    let b: Vec<_> = b.into_iter().map(IntoView::into_view).collect();
    operation.extents("a", &[a.len()], &[out.len()])?;
    operation.extents("b", &[b.len()], &[out.len()])?;
    let operands = out.into_iter().zip(a).zip(b).map(|((out, a), b)| {
        let ([m, n], [_, k]) = (out.extents(), a.extents());
        operation.extents("a", &a.extents(), &[m, k])?;
        operation.extents("b", &b.extents(), &[k, n])?;
        let (out, a, b) = (one_mut(out), one(a), one(b));
        Ok(Operands { out, a, b })
    });
    let operands = operands.collect::<TensorResult<_>>()?;
    products(on, &operation, operands, Factors { alpha, beta })
}

/// A matrix as the only one of a batch.
fn one<T>(view: TensorView<'_, T, 2>) -> TensorView<'_, T, 3> {
    let layout = view.layout().batch_of_one();
    view.with(layout)
}

fn one_mut<T>(view: TensorViewMut<'_, T, 2>) -> TensorViewMut<'_, T, 3> {
    let layout = view.layout().batch_of_one();
    view.with(layout)
}
