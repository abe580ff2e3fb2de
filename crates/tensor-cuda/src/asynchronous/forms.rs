//! The forms that operations have: which values they read and write. Each takes its tickets before it returns.

use super::lease::{Leased, StreamSearch};
use super::task::{DeviceOf, distinct, output, queue};
use crate::{CudaTensor, Execution, TensorResult};
use async_value::{Async, ReadGuard, Spawn, WriteGuard};
use cuda_runtime::Stream;

pub(super) type Tensor<T, const N: usize> = Async<CudaTensor<T, N>>;

/// Elements of tensors that tasks take to other threads.
pub(super) trait Element: Copy + Send + Sync + 'static {}

impl<T: Copy + Send + Sync + 'static> Element for T {}

/// An input, with its name in errors.
pub(super) type Input<'v, T, const N: usize> = (&'static str, &'v Tensor<T, N>);

type Two<T, const A: usize, U, const B: usize> =
    (ReadGuard<CudaTensor<T, A>>, WriteGuard<CudaTensor<U, B>>);

/// The output first: it is what a chain of operations hands on.
fn follow_two<T: Element, U: Element, const A: usize, const B: usize>(
    (x, out): &Two<T, A, U, B>,
    search: &mut StreamSearch<'_>,
) -> bool {
    out.last_writes(search) || x.last_writes(search)
}

type Three<T, const A: usize, const B: usize, const C: usize> = (
    ReadGuard<CudaTensor<T, A>>,
    ReadGuard<CudaTensor<T, B>>,
    WriteGuard<CudaTensor<T, C>>,
);

/// As [`follow_two`].
fn follow_three<T: Element, const A: usize, const B: usize, const C: usize>(
    (a, b, out): &Three<T, A, B, C>,
    search: &mut StreamSearch<'_>,
) -> bool {
    out.last_writes(search) || a.last_writes(search) || b.last_writes(search)
}

/// Changes a value in place.
#[track_caller]
pub(super) fn in_place<S: Spawn + ?Sized, T: Element, const N: usize>(
    executor: &S,
    operation: &'static str,
    x: &Tensor<T, N>,
    leaf: impl FnOnce(&Stream, &mut CudaTensor<T, N>) -> TensorResult<()> + Send + 'static,
) -> TensorResult<()> {
    let tickets = || (x.write(),);
    let leaf = |on: &Stream, (mut x,): (WriteGuard<_>,)| {
        leaf(on, x.get_mut()?)?;
        x.release();
        Ok(())
    };
    queue::<Stream, _, _, _, _>(executor, operation, tickets, DeviceOf::last_writes, leaf)
}

/// Changes a value in place, and reads another.
#[track_caller]
pub(super) fn in_place_with<
    S: Spawn + ?Sized,
    T: Element,
    U: Element,
    const N: usize,
    const M: usize,
>(
    executor: &S,
    operation: &'static str,
    y: &Tensor<T, N>,
    x: Input<'_, U, M>,
    leaf: impl FnOnce(&Stream, &mut CudaTensor<T, N>, &CudaTensor<U, M>) -> TensorResult<()>
    + Send
    + 'static,
) -> TensorResult<()> {
    distinct(operation, y, x)?;
    let tickets = || (x.1.read(), y.write());
    let leaf = |on: &Stream, (x, mut y): Two<U, M, T, N>| {
        leaf(on, y.get_mut()?, &x)?;
        y.release();
        Ok(())
    };
    queue::<Stream, _, _, _, _>(executor, operation, tickets, follow_two, leaf)
}

/// Makes an output of one input. Without a value, it becomes a row-major tensor of `extents`.
#[track_caller]
pub(super) fn from_one<
    S: Spawn + ?Sized,
    T: Element,
    U: Element,
    const N: usize,
    const M: usize,
>(
    executor: &S,
    operation: &'static str,
    out: &Tensor<U, M>,
    x: Input<'_, T, N>,
    extents: impl FnOnce([usize; N]) -> TensorResult<[usize; M]> + Send + 'static,
    leaf: impl FnOnce(&Stream, &mut CudaTensor<U, M>, &CudaTensor<T, N>) -> TensorResult<()>
    + Send
    + 'static,
) -> TensorResult<()> {
    distinct(operation, out, x)?;
    let tickets = || (x.1.read(), out.write());
    let leaf = |on: &Stream, (x, mut out): Two<T, N, U, M>| {
        leaf(on, output(on, &mut out, extents(x.extents())?)?, &x)?;
        out.release();
        Ok(())
    };
    queue::<Stream, _, _, _, _>(executor, operation, tickets, follow_two, leaf)
}

/// Makes an output of two inputs like them. Without a value, it becomes a row-major tensor like the first.
#[track_caller]
pub(super) fn from_two<S: Spawn + ?Sized, T: Element, const N: usize>(
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
    distinct(operation, out, ("a", a))?;
    distinct(operation, out, ("b", b))?;
    let tickets = || (a.read(), b.read(), out.write());
    let leaf = |on: &Stream, (a, b, mut out): Three<T, N, N, N>| {
        leaf(on, output(on, &mut out, a.extents())?, &a, &b)?;
        out.release();
        Ok(())
    };
    queue::<Stream, _, _, _, _>(executor, operation, tickets, follow_three, leaf)
}

/// A product. The output is read when it is `kept`; else it may have no value, and becomes a row-major tensor of `extents`.
#[track_caller]
pub(super) fn product<
    S: Spawn + ?Sized,
    T: Element,
    const A: usize,
    const B: usize,
    const C: usize,
>(
    executor: &S,
    operation: &'static str,
    (out, kept): (&Tensor<T, C>, bool),
    [a, b]: [&'static str; 2],
    (left, right): (&Tensor<T, A>, &Tensor<T, B>),
    extents: fn([usize; A], [usize; B]) -> [usize; C],
    leaf: impl FnOnce(
        &Execution,
        &mut CudaTensor<T, C>,
        &CudaTensor<T, A>,
        &CudaTensor<T, B>,
    ) -> TensorResult<()>
    + Send
    + 'static,
) -> TensorResult<()> {
    distinct(operation, out, (a, left))?;
    distinct(operation, out, (b, right))?;
    let tickets = || (left.read(), right.read(), out.write());
    let leaf = move |on: &Execution, (a, b, mut out): Three<T, A, B, C>| {
        let to = match kept {
            true => out.get_mut()?,
            false => output(on.stream(), &mut out, extents(a.extents(), b.extents()))?,
        };
        leaf(on, to, &a, &b)?;
        out.release();
        Ok(())
    };
    queue::<Leased, _, _, _, _>(executor, operation, tickets, follow_three, leaf)
}
