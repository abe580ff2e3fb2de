//! Matrix products.

use super::task::{distinct, output, product_task};
use crate::{CudaTensor, Number, TensorResult};
use async_value::{Async, Spawn};

/// Queues `out = a b`. Without a value, `out` becomes a row-major tensor on the device of `a`.
///
/// # Errors
/// [`TensorError::Aliased`](crate::TensorError::Aliased) when `out` is one of the operands;
/// [`TensorError::Value`](crate::TensorError::Value) when the executor admits no more operations. What
/// [`gemm`](crate::gemm()) returns fails `out`.
#[track_caller]
pub fn assign_product<S: Spawn + ?Sized, T: Number>(
    executor: &S,
    out: &Async<CudaTensor<T, 2>>,
    a: &Async<CudaTensor<T, 2>>,
    b: &Async<CudaTensor<T, 2>>,
) -> TensorResult<()> {
    distinct("assign_product", out, &[("a", a), ("b", b)])?;
    product_task(
        executor,
        "assign_product",
        || (a.read(), b.read(), out.write()),
        move |on, (a, b, mut out)| {
            let extents = [a.extents()[0], b.extents()[1]];
            crate::assign_product(on, output(on.stream(), &mut out, extents)?, &*a, &*b)?;
            out.release();
            Ok(())
        },
    )
}

/// Queues `out = alpha a b + beta out`. `out` must have a value, unless `beta` is 0: then it is as in [`assign_product`].
///
/// # Errors
/// As for [`assign_product`].
#[track_caller]
pub fn gemm<S: Spawn + ?Sized, T: Number>(
    executor: &S,
    out: &Async<CudaTensor<T, 2>>,
    alpha: T,
    a: &Async<CudaTensor<T, 2>>,
    b: &Async<CudaTensor<T, 2>>,
    beta: T,
) -> TensorResult<()> {
    distinct("gemm", out, &[("a", a), ("b", b)])?;
    product_task(
        executor,
        "gemm",
        || (a.read(), b.read(), out.write()),
        move |on, (a, b, mut out)| {
            let extents = [a.extents()[0], b.extents()[1]];
            let to = if beta == T::ZERO {
                output(on.stream(), &mut out, extents)?
            } else {
                out.get_mut()?
            };
            crate::gemm(on, to, alpha, &*a, &*b, beta)?;
            out.release();
            Ok(())
        },
    )
}
