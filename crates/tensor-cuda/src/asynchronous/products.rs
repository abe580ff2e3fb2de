//! Matrix products.

use super::forms::{Tensor, product};
use super::lease::{Leased, StreamSearch};
use super::task::{DeviceOf, distinct, output, queue};
use crate::{CudaTensor, Execution, Number, TensorError, TensorResult};
use async_value::{ReadGuard, Spawn, WriteGuard, all};

/// Queues `out = a b`. Without a value, `out` becomes a row-major tensor on the device of `a`.
///
/// # Errors
/// [`TensorError::Aliased`](crate::TensorError::Aliased) when `out` is one of the operands;
/// [`TensorError::Value`](crate::TensorError::Value) when the executor admits no more operations. What
/// [`gemm`](crate::gemm()) returns fails `out`.
#[track_caller]
pub fn assign_product<S: Spawn + ?Sized, T: Number>(
    executor: &S,
    out: &Tensor<T, 2>,
    a: &Tensor<T, 2>,
    b: &Tensor<T, 2>,
) -> TensorResult<()> {
    product(
        executor,
        "assign_product",
        (out, false),
        ["a", "b"],
        (a, b),
        |[m, _], [_, n]| [m, n],
        |on, out, a, b| crate::assign_product(on, out, a, b),
    )
}

/// Queues `out = alpha a b + beta out`. `out` must have a value, unless `beta` is 0: then it is as in [`assign_product`].
///
/// # Errors
/// As for [`assign_product`].
#[track_caller]
pub fn gemm<S: Spawn + ?Sized, T: Number>(
    executor: &S,
    out: &Tensor<T, 2>,
    alpha: T,
    a: &Tensor<T, 2>,
    b: &Tensor<T, 2>,
    beta: T,
) -> TensorResult<()> {
    product(
        executor,
        "gemm",
        (out, beta != T::ZERO),
        ["a", "b"],
        (a, b),
        |[m, _], [_, n]| [m, n],
        move |on, out, a, b| crate::gemm(on, out, alpha, a, b, beta),
    )
}

/// Queues `y = alpha a x + beta y`, with `a` of m x n elements. `y` must have a value, unless `beta` is 0.
///
/// # Errors
/// As for [`assign_product`].
#[track_caller]
pub fn gemv<S: Spawn + ?Sized, T: Number>(
    executor: &S,
    y: &Tensor<T, 1>,
    alpha: T,
    a: &Tensor<T, 2>,
    x: &Tensor<T, 1>,
    beta: T,
) -> TensorResult<()> {
    product(
        executor,
        "gemv",
        (y, beta != T::ZERO),
        ["a", "x"],
        (a, x),
        |[m, _], _| [m],
        move |on, y, a, x| crate::gemv(on, y, alpha, a, x, beta),
    )
}

/// Queues `out[i] = alpha a[i] b[i] + beta out[i]` for every i, as one call of the provider. `out` must have a value, unless
/// `beta` is 0.
///
/// # Errors
/// As for [`assign_product`].
#[track_caller]
pub fn gemm_strided_batched<S: Spawn + ?Sized, T: Number>(
    executor: &S,
    out: &Tensor<T, 3>,
    alpha: T,
    a: &Tensor<T, 3>,
    b: &Tensor<T, 3>,
    beta: T,
) -> TensorResult<()> {
    product(
        executor,
        "gemm_strided_batched",
        (out, beta != T::ZERO),
        ["a", "b"],
        (a, b),
        |[batch, m, _], [_, _, n]| [batch, m, n],
        move |on, out, a, b| crate::gemm_strided_batched(on, out, alpha, a, b, beta),
    )
}

/// Of `a`, `b` and `out`.
type Batch<T> = (
    Vec<ReadGuard<CudaTensor<T, 2>>>,
    Vec<ReadGuard<CudaTensor<T, 2>>>,
    Vec<WriteGuard<CudaTensor<T, 2>>>,
);

/// Queues `out[i] = alpha a[i] b[i] + beta out[i]` for every i as one operation, with values of their own, whose sizes may differ.
/// Each `out[i]` must have a value, unless `beta` is 0. An input may occur several times, an output once.
///
/// # Errors
/// As for [`assign_product`]; [`TensorError::NoOperand`] for none; [`TensorError::ShapeMismatch`] when there are not as many
/// of each. When one product fails, all outputs do.
#[track_caller]
pub fn gemm_batched<S: Spawn + ?Sized, T: Number>(
    executor: &S,
    out: &[&Tensor<T, 2>],
    alpha: T,
    a: &[&Tensor<T, 2>],
    b: &[&Tensor<T, 2>],
    beta: T,
) -> TensorResult<()> {
    const NAME: &str = "gemm_batched";
    if out.is_empty() {
        return Err(TensorError::NoOperand);
    }
    for (operand, given) in [("a", a), ("b", b)] {
        if given.len() != out.len() {
            return Err(TensorError::ShapeMismatch {
                operation: NAME,
                operand,
                expected: vec![out.len()],
                given: vec![given.len()],
            });
        }
    }
    for (at, to) in out.iter().enumerate() {
        let inputs = a
            .iter()
            .map(|a| ("a", *a))
            .chain(b.iter().map(|b| ("b", *b)));
        let others = out[..at].iter().map(|other| ("out", *other));
        for input in inputs.chain(others) {
            distinct(NAME, to, input)?;
        }
    }
    let tickets = || {
        let read =
            |values: &[&Tensor<T, 2>]| all(values.iter().map(|x| x.read()).collect::<Vec<_>>());
        let write = all(out.iter().map(|x| x.write()).collect::<Vec<_>>());
        (read(a), read(b), write)
    };
    let follow = |(a, b, out): &Batch<T>, search: &mut StreamSearch<'_>| {
        out.last_writes(search) || a.last_writes(search) || b.last_writes(search)
    };
    let leaf = move |on: &Execution, (a, b, mut out): Batch<T>| {
        let sizes = a
            .iter()
            .zip(&b)
            .map(|(a, b)| [a.extents()[0], b.extents()[1]]);
        let to = out
            .iter_mut()
            .zip(sizes)
            .map(|(out, extents)| match beta == T::ZERO {
                true => output(on.stream(), out, extents),
                false => Ok(out.get_mut()?),
            });
        let to = to.collect::<TensorResult<Vec<_>>>()?;
        let (a, b) = (a.iter().map(|a| &**a), b.iter().map(|b| &**b));
        crate::gemm_batched(on, to, alpha, a, b, beta)?;
        out.into_iter().for_each(WriteGuard::release);
        Ok(())
    };
    queue::<Leased, _, _, _, _>(executor, NAME, tickets, follow, leaf)
}
