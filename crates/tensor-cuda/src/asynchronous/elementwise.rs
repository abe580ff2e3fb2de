//! Operations element by element.

use super::task::{device_task, distinct, output};
use crate::{CudaTensor, Map, Number, TensorResult};
use async_value::{Async, Spawn, WriteGuard};
use bytemuck::NoUninit;
use cuda_runtime::Stream;

type Tensor<T, const N: usize> = Async<CudaTensor<T, N>>;

/// An operation that changes a value in place.
#[track_caller]
fn in_place<S: Spawn + ?Sized, T: Copy + Send + Sync + 'static, const N: usize>(
    executor: &S,
    operation: &'static str,
    x: &Tensor<T, N>,
    leaf: impl FnOnce(&Stream, &mut CudaTensor<T, N>) -> TensorResult<()> + Send + 'static,
) -> TensorResult<()> {
    let tickets = || (x.write(),);
    device_task(
        executor,
        operation,
        tickets,
        move |on, (mut x,): (WriteGuard<_>,)| {
            leaf(on, x.get_mut()?)?;
            x.release();
            Ok(())
        },
    )
}

/// One that also reads another.
#[track_caller]
fn in_place_with<S: Spawn + ?Sized, T: Copy + Send + Sync + 'static, const N: usize>(
    executor: &S,
    operation: &'static str,
    y: &Tensor<T, N>,
    (name, x): (&'static str, &Tensor<T, N>),
    leaf: impl FnOnce(&Stream, &mut CudaTensor<T, N>, &CudaTensor<T, N>) -> TensorResult<()>
    + Send
    + 'static,
) -> TensorResult<()> {
    distinct(operation, y, &[(name, x)])?;
    let tickets = || (x.read(), y.write());
    device_task(executor, operation, tickets, move |on, (x, mut y)| {
        leaf(on, y.get_mut()?, &x)?;
        y.release();
        Ok(())
    })
}

/// One with an output of its own, which is made when there is none.
#[track_caller]
fn from_two<S: Spawn + ?Sized, T: Copy + Send + Sync + 'static, const N: usize>(
    executor: &S,
    operation: &'static str,
    out: &Tensor<T, N>,
    a: &Tensor<T, N>,
    b: &Tensor<T, N>,
    leaf: impl FnOnce(
        &Stream,
        &mut CudaTensor<T, N>,
        &CudaTensor<T, N>,
        &CudaTensor<T, N>,
    ) -> TensorResult<()>
    + Send
    + 'static,
) -> TensorResult<()> {
    distinct(operation, out, &[("a", a), ("b", b)])?;
    let tickets = || (a.read(), b.read(), out.write());
    device_task(executor, operation, tickets, move |on, (a, b, mut out)| {
        leaf(on, output(on, &mut out, a.extents())?, &a, &b)?;
        out.release();
        Ok(())
    })
}

/// Queues `x = value` for every element.
///
/// # Errors
/// As for [`scale`].
#[track_caller]
pub fn fill<S: Spawn + ?Sized, T: NoUninit + Send + Sync, const N: usize>(
    executor: &S,
    x: &Tensor<T, N>,
    value: T,
) -> TensorResult<()> {
    in_place(executor, "fill", x, move |on, x| crate::fill(on, x, value))
}

/// Queues `x = alpha x`.
///
/// # Errors
/// [`TensorError::Value`](crate::TensorError::Value) when the executor admits no more operations. What
/// [`scale`](crate::scale()) returns fails `x`.
#[track_caller]
pub fn scale<S: Spawn + ?Sized, T: Number, const N: usize>(
    executor: &S,
    x: &Tensor<T, N>,
    alpha: T,
) -> TensorResult<()> {
    in_place(executor, "scale", x, move |on, x| {
        crate::scale(on, x, alpha)
    })
}

/// Queues `x = function(x)`, element by element.
///
/// # Errors
/// As for [`scale`].
#[track_caller]
pub fn map_in_place<S: Spawn + ?Sized, T: Number, const N: usize>(
    executor: &S,
    x: &Tensor<T, N>,
    function: Map,
) -> TensorResult<()> {
    in_place(executor, "map_in_place", x, move |on, x| {
        crate::map_in_place(on, x, function)
    })
}

/// Queues `y = alpha x + y`.
///
/// # Errors
/// As for [`scale`]; [`TensorError::Aliased`](crate::TensorError::Aliased) when `x` is `y`.
#[track_caller]
pub fn axpy<S: Spawn + ?Sized, T: Number, const N: usize>(
    executor: &S,
    y: &Tensor<T, N>,
    alpha: T,
    x: &Tensor<T, N>,
) -> TensorResult<()> {
    in_place_with(executor, "axpy", y, ("x", x), move |on, y, x| {
        crate::axpy(on, y, alpha, x)
    })
}

/// Queues `x = a x`, element by element.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn multiply_in_place<S: Spawn + ?Sized, T: Number, const N: usize>(
    executor: &S,
    x: &Tensor<T, N>,
    a: &Tensor<T, N>,
) -> TensorResult<()> {
    in_place_with(executor, "multiply_in_place", x, ("a", a), |on, x, a| {
        crate::multiply_in_place(on, x, a)
    })
}

/// Queues `out = function(a)`, element by element. Without a value, `out` becomes a row-major tensor like `a`.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn map<S: Spawn + ?Sized, T: Number, const N: usize>(
    executor: &S,
    out: &Tensor<T, N>,
    function: Map,
    a: &Tensor<T, N>,
) -> TensorResult<()> {
    distinct("map", out, &[("a", a)])?;
    let tickets = || (a.read(), out.write());
    device_task(executor, "map", tickets, move |on, (a, mut out)| {
        crate::map(on, output(on, &mut out, a.extents())?, function, &*a)?;
        out.release();
        Ok(())
    })
}

/// Queues `out = a + b`. Without a value, `out` becomes a row-major tensor like `a`.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn add<S: Spawn + ?Sized, T: Number, const N: usize>(
    executor: &S,
    out: &Tensor<T, N>,
    a: &Tensor<T, N>,
    b: &Tensor<T, N>,
) -> TensorResult<()> {
    from_two(executor, "add", out, a, b, |on, out, a, b| {
        crate::add(on, out, a, b)
    })
}

/// Queues `out = alpha a + beta b`. Without a value, `out` becomes a row-major tensor like `a`.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn linear<S: Spawn + ?Sized, T: Number, const N: usize>(
    executor: &S,
    out: &Tensor<T, N>,
    alpha: T,
    a: &Tensor<T, N>,
    beta: T,
    b: &Tensor<T, N>,
) -> TensorResult<()> {
    from_two(executor, "linear", out, a, b, move |on, out, a, b| {
        crate::linear(on, out, alpha, a, beta, b)
    })
}

/// Queues `out = a b`, element by element. Without a value, `out` becomes a row-major tensor like `a`.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn multiply<S: Spawn + ?Sized, T: Number, const N: usize>(
    executor: &S,
    out: &Tensor<T, N>,
    a: &Tensor<T, N>,
    b: &Tensor<T, N>,
) -> TensorResult<()> {
    from_two(executor, "multiply", out, a, b, |on, out, a, b| {
        crate::multiply(on, out, a, b)
    })
}
