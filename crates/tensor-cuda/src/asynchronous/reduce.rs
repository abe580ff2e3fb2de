//! Reductions.

use super::forms::{Tensor, from_one};
use crate::{Norm, Number, Real, TensorResult};
use async_value::Spawn;

/// The extents that are left. Axes that are wrong are the operation's to refuse.
fn left<const N: usize, const M: usize, const R: usize>(
    extents: [usize; N],
    axes: [usize; R],
) -> TensorResult<[usize; M]> {
    let mut kept = (0..N).filter(|axis| !axes.contains(axis));
    Ok(std::array::from_fn(|_| {
        kept.next().map_or(0, |axis| extents[axis])
    }))
}

macro_rules! over_axes {
    ($($(#[$doc:meta])+ $name:ident of $number:ident)+) => { $(
        $(#[$doc])+
        #[track_caller]
        pub fn $name<S, T, const N: usize, const M: usize, const R: usize>(
            executor: &S,
            out: &Tensor<T, M>,
            x: &Tensor<T, N>,
            axes: [usize; R],
        ) -> TensorResult<()>
        where
            S: Spawn + ?Sized,
            T: $number,
        {
            from_one(
                executor,
                stringify!($name),
                out,
                ("x", x),
                move |x| left(x, axes),
                move |on, out, x| crate::$name(on, out, x, axes),
            )
        }
    )+ };
}

over_axes! {
    /// Queues `out` = the sum of `x` over `axes`; `out` has the other dimensions of `x` in their order. Without a value, it becomes a
    /// row-major tensor.
    ///
    /// # Errors
    /// [`TensorError::Aliased`](crate::TensorError::Aliased) when `out` is `x`;
    /// [`TensorError::Value`](crate::TensorError::Value) when the executor admits no more operations. What
    /// [`sum`](crate::sum()) returns fails `out`.
    sum of Number

    /// Queues `out` = the largest elements of `x` over `axes`; otherwise as [`sum`].
    ///
    /// # Errors
    /// As for [`sum`].
    max of Real

    /// Queues `out` = the smallest elements of `x` over `axes`; otherwise as [`sum`].
    ///
    /// # Errors
    /// As for [`sum`].
    min of Real
}

/// Queues `out` = a norm of `x` over `axes`, a real number of complex elements too; otherwise as [`sum`].
///
/// # Errors
/// As for [`sum`].
#[track_caller]
pub fn norm<S: Spawn + ?Sized, T: Number, const N: usize, const M: usize, const R: usize>(
    executor: &S,
    out: &Tensor<T::Magnitude, M>,
    norm: Norm,
    x: &Tensor<T, N>,
    axes: [usize; R],
) -> TensorResult<()> {
    from_one(
        executor,
        "norm",
        out,
        ("x", x),
        move |x| left(x, axes),
        move |on, out, x| crate::norm(on, out, norm, x, axes),
    )
}

/// Queues `out` = the index, along `axis`, of the largest element of `x`; otherwise as [`sum`].
///
/// # Errors
/// As for [`sum`].
#[track_caller]
pub fn argmax<S: Spawn + ?Sized, T: Real, const N: usize, const M: usize>(
    executor: &S,
    out: &Tensor<u32, M>,
    x: &Tensor<T, N>,
    axis: usize,
) -> TensorResult<()> {
    from_one(
        executor,
        "argmax",
        out,
        ("x", x),
        move |x| left(x, [axis]),
        move |on, out, x| crate::argmax(on, out, x, axis),
    )
}
