//! Operations element by element.

use super::forms::{Tensor, from_one, from_two, in_place, in_place_with};
use crate::{Activation, CastTo, Map, Number, Real, TensorResult};
use async_value::Spawn;
use bytemuck::{NoUninit, Pod};

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

/// Queues `x[.., j] = activation(x[.., j] + bias[j])`.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn add_bias<S: Spawn + ?Sized, T: Real, const N: usize>(
    executor: &S,
    x: &Tensor<T, N>,
    bias: &Tensor<T, 1>,
    activation: Activation,
) -> TensorResult<()> {
    in_place_with(
        executor,
        "add_bias",
        x,
        ("bias", bias),
        move |on, x, bias| crate::add_bias(on, x, bias, activation),
    )
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
    from_one(executor, "map", out, ("a", a), Ok, move |on, out, a| {
        crate::map(on, out, function, a)
    })
}

/// Queues `out = a` with elements of another type, rounded as with `as`. Without a value, `out` becomes a row-major tensor like `a`.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn cast<E: Spawn + ?Sized, S: CastTo<D> + Send + Sync, D: Pod + Send + Sync, const N: usize>(
    executor: &E,
    out: &Tensor<D, N>,
    a: &Tensor<S, N>,
) -> TensorResult<()> {
    from_one(executor, "cast", out, ("a", a), Ok, |on, out, a| {
        crate::cast(on, out, a)
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
