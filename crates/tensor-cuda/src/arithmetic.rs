//! Sums and products of elements, in place and not, with a function at the end.

use crate::kernels::{COMBINE, CombineCodes, Form};
use crate::map::{Activation, Map, code};
use crate::operation::Operation;
use crate::plan::Plan;
use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
use crate::{Number, Real, TensorResult};
use cuda_buffer::{ReadAccess, acquire_all};
use cuda_driver::CallSite;
use cuda_runtime::Stream;

/// Queues `y = alpha x + y` on `stream`.
///
/// With `alpha` = 0, `x` is not read.
///
/// # Errors
/// [`ShapeMismatch`](crate::TensorError::ShapeMismatch), [`WrongDevice`](crate::TensorError::WrongDevice) and
/// [`Aliased`](crate::TensorError::Aliased) with the operand; [`OverlappingWrite`](crate::TensorError::OverlappingWrite); an access
/// that is refused; the driver's own.
#[track_caller]
pub fn axpy<'a, 'b, T: Number, const N: usize>(
    stream: &Stream,
    y: impl IntoViewMut<'a, T, N>,
    alpha: T,
    x: impl IntoView<'b, T, N>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("axpy", stream);
    let factors = [alpha, T::ZERO, T::ONE];
    let form = (Form::Sum, factors, code::NOTHING);
    run(
        &operation,
        y.into_view_mut(),
        ["y", "x", ""],
        Some(x.into_view()),
        None,
        form,
    )
}

/// Queues `x = alpha x` on `stream`. With `alpha` = 0, `x` is not read and becomes 0.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn scale<'a, T: Number, const N: usize>(
    stream: &Stream,
    x: impl IntoViewMut<'a, T, N>,
    alpha: T,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("scale", stream);
    let form = (Form::Sum, [T::ZERO, T::ZERO, alpha], code::NOTHING);
    run(
        &operation,
        x.into_view_mut(),
        ["x", "", ""],
        None,
        None,
        form,
    )
}

/// Queues `x = function(x)`, element by element, on `stream`.
///
/// # Errors
/// As for [`axpy`]; [`Unsupported`](crate::TensorError::Unsupported) for functions that complex numbers don't have.
#[track_caller]
pub fn map_in_place<'a, T: Number, const N: usize>(
    stream: &Stream,
    x: impl IntoViewMut<'a, T, N>,
    function: Map,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let code = function.code::<T>("x")?;
    let operation = Operation::new("map_in_place", stream);
    let form = (Form::Sum, [T::ZERO, T::ZERO, T::ONE], code);
    run(
        &operation,
        x.into_view_mut(),
        ["x", "", ""],
        None,
        None,
        form,
    )
}

/// Queues `out = a + b` on `stream`.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn add<'a, 'b, 'c, T: Number, const N: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, N>,
    a: impl IntoView<'b, T, N>,
    b: impl IntoView<'c, T, N>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("add", stream);
    let (out, a, b) = (out.into_view_mut(), a.into_view(), b.into_view());
    let form = (Form::Sum, [T::ONE, T::ONE, T::ZERO], code::NOTHING);
    run(&operation, out, ["out", "a", "b"], Some(a), Some(b), form)
}

/// Queues `out = alpha a + beta b` on `stream`. An operand whose factor is 0 is not read.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn linear<'a, 'b, 'c, T: Number, const N: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, N>,
    alpha: T,
    a: impl IntoView<'b, T, N>,
    beta: T,
    b: impl IntoView<'c, T, N>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("linear", stream);
    let (out, a, b) = (out.into_view_mut(), a.into_view(), b.into_view());
    let form = (Form::Sum, [alpha, beta, T::ZERO], code::NOTHING);
    run(&operation, out, ["out", "a", "b"], Some(a), Some(b), form)
}

/// Queues `out = a b`, element by element, on `stream`.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn multiply<'a, 'b, 'c, T: Number, const N: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, N>,
    a: impl IntoView<'b, T, N>,
    b: impl IntoView<'c, T, N>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("multiply", stream);
    let (out, a, b) = (out.into_view_mut(), a.into_view(), b.into_view());
    let form = (Form::Product, [T::ONE, T::ZERO, T::ZERO], code::NOTHING);
    run(&operation, out, ["out", "a", "b"], Some(a), Some(b), form)
}

/// Queues `x = a x`, element by element, on `stream`.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn multiply_in_place<'a, 'b, T: Number, const N: usize>(
    stream: &Stream,
    x: impl IntoViewMut<'a, T, N>,
    a: impl IntoView<'b, T, N>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("multiply_in_place", stream);
    let form = (Form::InPlace, [T::ONE, T::ZERO, T::ZERO], code::NOTHING);
    run(
        &operation,
        x.into_view_mut(),
        ["x", "a", ""],
        Some(a.into_view()),
        None,
        form,
    )
}

/// Queues `x[.., j] = activation(x[.., j] + bias[j])` on `stream`, in place.
///
/// # Errors
/// As for [`axpy`].
#[track_caller]
pub fn add_bias<'a, 'b, T: Real, const N: usize>(
    stream: &Stream,
    x: impl IntoViewMut<'a, T, N>,
    bias: impl IntoView<'b, T, 1>,
    activation: Activation,
) -> TensorResult<()> {
    const { assert!(N > 0, "a bias is added along the last dimension") };
    let _site = CallSite::enter();
    let operation = Operation::new("add_bias", stream);
    let (x, bias) = (x.into_view_mut(), bias.into_view());
    let extents = x.extents();
    operation.extents("bias", &bias.extents(), &extents[N - 1..])?;
    let bias = bias.broadcast(extents)?;
    let form = (Form::Sum, [T::ONE, T::ZERO, T::ONE], activation.code());
    run(&operation, x, ["x", "bias", ""], Some(bias), None, form)
}

/// As [`scale`], for an operation that has an output to scale.
#[track_caller]
pub(crate) fn scale_by<T: Number, const N: usize>(
    operation: &Operation<'_>,
    name: &'static str,
    out: TensorViewMut<'_, T, N>,
    factor: T,
) -> TensorResult<()> {
    let form = (Form::Sum, [T::ZERO, T::ZERO, factor], code::NOTHING);
    run(operation, out, [name, "", ""], None, None, form)
}

#[track_caller]
fn run<T: Number, const N: usize>(
    operation: &Operation<'_>,
    out: TensorViewMut<'_, T, N>,
    names: [&'static str; 3],
    a: Option<TensorView<'_, T, N>>,
    b: Option<TensorView<'_, T, N>>,
    (form, [alpha, beta, gamma], function): (Form, [T; 3], u32),
) -> TensorResult<()> {
    operation.output(names[0], &out)?;
    for (name, input) in [(names[1], &a), (names[2], &b)] {
        if let Some(input) = input {
            operation.extents(name, &input.extents(), &out.extents())?;
            operation.input(name, input, out.domain_id())?;
        }
    }
    if out.is_empty() {
        return Ok(());
    }
    let to = *out.layout();
    let strides = |input: &Option<TensorView<'_, T, N>>| match input {
        Some(input) => input.layout().strides(),
        None => [0; N],
    };
    let plan = Plan::new(&to.extents(), [&to.strides(), &strides(&a), &strides(&b)]);
    let conjugate = [&a, &b].map(|input| input.is_some_and(|input| input.is_conjugated()));
    let codes = CombineCodes {
        form,
        conjugate,
        function,
    };
    let stream = operation.stream;
    let kernel = T::kernel_of(COMBINE).on(stream.device())?;
    let out = out.into_request()?;
    let [a, b] = [a, b].map(|input| input.map(TensorView::into_request));
    let codes = |rank, wide| codes.numbers(rank, wide);
    let rest = &[alpha, beta, gamma];
    match (a.transpose()?, b.transpose()?) {
        (Some(a), Some(b)) => {
            let (mut out, a, b) = acquire_all(stream, (out, a, b))?;
            let inputs = [Some(&a), Some(&b)];
            let launched = operation.launch(&kernel, &plan, &mut out, inputs, codes, rest);
            operation.finish((out, a, b), launched)
        }
        (Some(a), None) => {
            let (mut out, a) = acquire_all(stream, (out, a))?;
            let inputs = [Some(&a), None];
            let launched = operation.launch(&kernel, &plan, &mut out, inputs, codes, rest);
            operation.finish((out, a), launched)
        }
        (None, _) => {
            let (mut out,) = acquire_all(stream, (out,))?;
            let launched = operation.launch(
                &kernel,
                &plan,
                &mut out,
                [None::<&ReadAccess<'_, T>>; 2],
                codes,
                rest,
            );
            operation.finish((out,), launched)
        }
    }
}
