//! Matrix products.

use crate::kernels::MODULE;
use crate::view::{IntoView, IntoViewMut};
use crate::{Layout, Real, TensorError, TensorResult};
use cuda_buffer::{AccessCompletion, Launch, acquire_all};
use cuda_driver::{CallSite, LaunchConfig};
use cuda_runtime::Stream;

const OPERATION: &str = "gemm";

/// Queues `out = alpha a b + beta out` on `stream`, with `out` of m x n, `a` of m x k and `b` of k x n elements.
///
/// Transposes come from the views' strides, without a copy. With `beta` = 0 the output is not read, and may be
/// uninitialised; with `alpha` = 0 or k = 0 the operands are not, and the output is scaled by `beta`. Nothing is queued for
/// an empty output.
///
/// # Errors
/// [`TensorError::ShapeMismatch`] and [`TensorError::BadLayout`] with the operand; an access that is refused, such as
/// that of an operand which a forgotten guard writes; the driver's own.
#[track_caller]
pub fn gemm<'a, T: Real>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, 2>,
    alpha: T,
    a: impl IntoView<'a, T, 2>,
    b: impl IntoView<'a, T, 2>,
    beta: T,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let (out, a, b) = (out.into_view_mut(), a.into_view(), b.into_view());
    let ([m, n], [_, k]) = (out.extents(), a.extents());
    check("a", a.layout(), [m, k])?;
    check("b", b.layout(), [k, n])?;
    check("out", out.layout(), [m, n])?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    let [of_c, of_a, of_b] = [out.layout(), a.layout(), b.layout()].map(strides);
    let sizes = [m, n, k].map(|size| size as u64);
    let kernel = stream.device().kernel(&MODULE, T::PRODUCT)?;
    let config = LaunchConfig::for_elements(m.saturating_mul(n))?;
    let requests = (out.into_request()?, a.into_request()?, b.into_request()?);
    let (mut out, a, b) = acquire_all(stream, requests)?;
    let args = (
        &mut out, &a, &b, sizes[0], sizes[1], sizes[2], of_c[0], of_c[1], of_a[0], of_a[1],
        of_b[0], of_b[1], alpha, beta,
    );
    let launched = kernel.launch(stream, config, args);
    // Also after a failed launch: the accesses end with one completion, or with none when nothing was queued.
    let released = AccessCompletion::new(stream).release((out, a, b));
    launched?;
    Ok(released?)
}

/// Extents as expected, and strides that a matrix product can take.
fn check(operand: &'static str, layout: &Layout<2>, expected: [usize; 2]) -> TensorResult<()> {
    let given = layout.extents();
    if given != expected {
        return Err(TensorError::ShapeMismatch {
            operation: OPERATION,
            operand,
            expected: expected.to_vec(),
            given: given.to_vec(),
        });
    }
    let strides = layout.strides();
    let bad = |reason| {
        Err(TensorError::BadLayout {
            operation: OPERATION,
            operand,
            strides: strides.to_vec(),
            reason,
        })
    };
    let moves = |axis: usize| given[axis] > 1;
    if (moves(0) && strides[0] < 0) || (moves(1) && strides[1] < 0) {
        return bad("negative strides need a copy");
    }
    if moves(0) && moves(1) && strides[0] != 1 && strides[1] != 1 {
        return bad("neither rows nor columns are contiguous");
    }
    if operand == "out" && (moves(0) && strides[0] == 0 || moves(1) && strides[1] == 0) {
        return bad("an output that repeats elements would be written twice");
    }
    Ok(())
}

/// Row and column stride, in elements. An axis of one element has none of its own.
fn strides(layout: &Layout<2>) -> [u64; 2] {
    let [rows, columns] = layout.extents();
    let [row, column] = layout.strides();
    [
        if rows > 1 {
            row as u64
        } else {
            columns.max(1) as u64
        },
        if columns > 1 { column as u64 } else { 1 },
    ]
}
