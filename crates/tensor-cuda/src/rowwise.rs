//! Operations on the rows of a matrix: bias and activation, position of the largest element.

use crate::kernels::MODULE;
use crate::view::{IntoView, IntoViewMut};
use crate::{Layout, Real, TensorError, TensorResult};
use cuda_buffer::{AccessCompletion, Launch, acquire_all};
use cuda_driver::{CallSite, LaunchConfig};
use cuda_runtime::Stream;

/// What is applied after the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// max(0, x); a NaN stays one.
    Relu,
}

/// Queues `x[i, j] = activation(x[i, j] + bias[j])` on `stream`, in place.
///
/// # Errors
/// [`TensorError::ShapeMismatch`] and [`TensorError::BadLayout`] with the operand: both must be row-major; an access that
/// is refused; the driver's own.
#[track_caller]
pub fn add_bias<'a, T: Real>(
    stream: &Stream,
    x: impl IntoViewMut<'a, T, 2>,
    bias: impl IntoView<'a, T, 1>,
    activation: Activation,
) -> TensorResult<()> {
    const OPERATION: &str = "add_bias";
    let _site = CallSite::enter();
    let (x, bias) = (x.into_view_mut(), bias.into_view());
    let [rows, columns] = x.extents();
    same_extents(OPERATION, "bias", bias.extents(), [columns])?;
    row_major(OPERATION, "x", x.layout())?;
    row_major(OPERATION, "bias", bias.layout())?;
    if x.layout().is_empty() {
        return Ok(());
    }
    let kernel = stream.device().kernel(&MODULE, T::ADD_BIAS)?;
    let config = LaunchConfig::for_elements(x.layout().len())?;
    let (mut x, bias) = acquire_all(stream, (x.into_request()?, bias.into_request()?))?;
    let relu = u32::from(activation == Activation::Relu);
    let args = (&mut x, &bias, rows as u64, columns as u64, relu);
    let launched = kernel.launch(stream, config, args);
    let released = AccessCompletion::new(stream).release((x, bias));
    launched?;
    Ok(released?)
}

/// Queues `out[i]` = the column of the largest element of row i of `x` on `stream`: the first one of several, and a NaN
/// counts as the largest.
///
/// # Errors
/// [`TensorError::ShapeMismatch`] with the operand, also for rows of no elements; [`TensorError::TooLarge`] for more columns
/// than 32 bits count; [`TensorError::BadLayout`]: both must be row-major; an access that is refused; the driver's own.
#[track_caller]
pub fn argmax<'a, T: Real>(
    stream: &Stream,
    out: impl IntoViewMut<'a, u32, 1>,
    x: impl IntoView<'a, T, 2>,
) -> TensorResult<()> {
    const OPERATION: &str = "argmax";
    let _site = CallSite::enter();
    let (out, x) = (out.into_view_mut(), x.into_view());
    let [rows, columns] = x.extents();
    same_extents(OPERATION, "out", out.extents(), [rows])?;
    same_extents(OPERATION, "x", [rows, columns], [rows, columns.max(1)])?;
    if u32::try_from(columns).is_err() {
        return Err(TensorError::TooLarge {
            extents: vec![rows, columns],
        });
    }
    row_major(OPERATION, "out", out.layout())?;
    row_major(OPERATION, "x", x.layout())?;
    if rows == 0 {
        return Ok(());
    }
    let kernel = stream.device().kernel(&MODULE, T::ARGMAX)?;
    let config = LaunchConfig::for_elements(rows)?;
    let (mut out, x) = acquire_all(stream, (out.into_request()?, x.into_request()?))?;
    let launched = kernel.launch(stream, config, (&mut out, &x, rows as u64, columns as u64));
    let released = AccessCompletion::new(stream).release((out, x));
    launched?;
    Ok(released?)
}

fn same_extents<const N: usize>(
    operation: &'static str,
    operand: &'static str,
    given: [usize; N],
    expected: [usize; N],
) -> TensorResult<()> {
    if given == expected {
        return Ok(());
    }
    Err(TensorError::ShapeMismatch {
        operation,
        operand,
        expected: expected.to_vec(),
        given: given.to_vec(),
    })
}

fn row_major<const N: usize>(
    operation: &'static str,
    operand: &'static str,
    layout: &Layout<N>,
) -> TensorResult<()> {
    if layout.is_row_major() {
        return Ok(());
    }
    Err(TensorError::BadLayout {
        operation,
        operand,
        strides: layout.strides().to_vec(),
        reason: "the elements must follow each other without gaps",
    })
}
