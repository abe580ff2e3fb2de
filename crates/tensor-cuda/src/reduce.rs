//! Reductions: sums, extremes and norms over axes, and the position of the largest element.

use crate::kernels::{ARGMAX, CONJUGATE, KernelId, NORM, Norm as NormCode, REDUCE, Reduction};
use crate::operation::{NOTHING, Operation};
use crate::plan::{Dim, Plan};
use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
use crate::{Number, Real, TensorError, TensorResult};
use bytemuck::Pod;
use cuda_buffer::acquire_all;
use cuda_driver::CallSite;
use cuda_runtime::Stream;

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norm {
    /// The sum of the absolute values.
    One,
    /// The square root of the sum of their squares; no intermediate result overflows.
    Two,
    /// The largest absolute value; NaN when there is one.
    Infinity,
}

/// Queues `out` = the sum of `x` over `axes` on `stream`; `out` has the other dimensions of `x` in their order.
///
/// The sum of no elements is 0. The order in which elements are added is not specified, but always the same.
///
/// ```
/// # use cuda_runtime::Runtime;
/// # use ndarray::array;
/// # use tensor_cuda::{CudaTensor, sum};
/// # fn main() -> tensor_cuda::TensorResult<()> {
/// # let runtime = Runtime::builder().build()?;
/// # let device = runtime.default_device();
/// # let stream = device.streams().acquire()?;
/// let x = CudaTensor::from_ndarray(device, &array![[1.0_f32, 2.0], [3.0, 4.0]].view())?;
/// let mut columns = CudaTensor::<f32, 1>::uninitialized(device, [2])?;
/// sum(&stream, &mut columns, &x, [0])?;
/// assert_eq!(columns.to_ndarray()?, array![4.0, 6.0]);
/// let mut all = CudaTensor::<f32, 0>::uninitialized(device, [])?;
/// sum(&stream, &mut all, &x, [0, 1])?;
/// assert_eq!(all.to_ndarray()?[()], 10.0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`TensorError::NoSuchAxis`], [`TensorError::BadOrder`] for an axis that is named twice; [`TensorError::ShapeMismatch`],
/// [`TensorError::WrongDevice`] and [`TensorError::Aliased`] with the operand; [`TensorError::OverlappingWrite`];
/// [`TensorError::TooManyDimensions`] for strides that leave more than 5 dimensions; an access that is refused; the driver's own.
#[track_caller]
pub fn sum<'a, 'b, T: Number, const N: usize, const M: usize, const R: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, M>,
    x: impl IntoView<'b, T, N>,
    axes: [usize; R],
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("sum", stream);
    let (out, x) = (out.into_view_mut(), x.into_view());
    run(
        &operation,
        T::kernel_of(REDUCE),
        out,
        x,
        axes,
        Reduction::Sum as u32,
        true,
    )
}

/// Queues `out` = the largest elements of `x` over `axes` on `stream`. A NaN counts as the largest.
///
/// # Errors
/// As for [`sum`]; [`TensorError::ShapeMismatch`] when there are no elements to choose from.
#[track_caller]
pub fn max<'a, 'b, T: Real, const N: usize, const M: usize, const R: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, M>,
    x: impl IntoView<'b, T, N>,
    axes: [usize; R],
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("max", stream);
    let (out, x) = (out.into_view_mut(), x.into_view());
    run(
        &operation,
        T::kernel_of(REDUCE),
        out,
        x,
        axes,
        Reduction::Max as u32,
        false,
    )
}

/// Queues `out` = the smallest elements of `x` over `axes` on `stream`. A NaN counts as the smallest.
///
/// # Errors
/// As for [`max`].
#[track_caller]
pub fn min<'a, 'b, T: Real, const N: usize, const M: usize, const R: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, M>,
    x: impl IntoView<'b, T, N>,
    axes: [usize; R],
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("min", stream);
    let (out, x) = (out.into_view_mut(), x.into_view());
    run(
        &operation,
        T::kernel_of(REDUCE),
        out,
        x,
        axes,
        Reduction::Min as u32,
        false,
    )
}

/// Queues `out` = a norm of `x` over `axes` on `stream`: a real number, of complex elements too.
///
/// # Errors
/// As for [`sum`].
#[track_caller]
pub fn norm<'a, 'b, T: Number, const N: usize, const M: usize, const R: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T::Magnitude, M>,
    norm: Norm,
    x: impl IntoView<'b, T, N>,
    axes: [usize; R],
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("norm", stream);
    let code = match norm {
        Norm::One => NormCode::One,
        Norm::Two => NormCode::Two,
        Norm::Infinity => NormCode::Infinity,
    };
    let (out, x) = (out.into_view_mut(), x.into_view());
    run(
        &operation,
        T::kernel_of(NORM),
        out,
        x,
        axes,
        code as u32,
        true,
    )
}

/// Queues `out` = the index, along `axis`, of the largest element of `x` on `stream`: the first one of several, and a NaN
/// counts as the largest.
///
/// # Errors
/// As for [`max`]; [`TensorError::TooLarge`] for more elements along the axis than 32 bits count.
#[track_caller]
pub fn argmax<'a, 'b, T: Real, const N: usize, const M: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, u32, M>,
    x: impl IntoView<'b, T, N>,
    axis: usize,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("argmax", stream);
    let (out, x) = (out.into_view_mut(), x.into_view());
    if x.extents()
        .get(axis)
        .is_some_and(|&extent| u32::try_from(extent).is_err())
    {
        return Err(TensorError::TooLarge {
            extents: x.extents().to_vec(),
        });
    }
    run(&operation, T::kernel_of(ARGMAX), out, x, [axis], 0, false)
}

#[track_caller]
fn run<O: Pod, T: Pod, const N: usize, const M: usize, const R: usize>(
    operation: &Operation<'_>,
    kernel: KernelId,
    out: TensorViewMut<'_, O, M>,
    x: TensorView<'_, T, N>,
    axes: [usize; R],
    code: u32,
    of_nothing: bool,
) -> TensorResult<()> {
    const {
        assert!(
            M + R == N,
            "the output has the dimensions that are not reduced"
        )
    };
    let reduced = named::<N>(&axes)?;
    let (extents, from, to) = (x.extents(), x.layout().strides(), out.layout().strides());
    let kept = (0..N).filter(|&axis| !reduced[axis]);
    let mut expected = [0; M];
    expected
        .iter_mut()
        .zip(kept.clone())
        .for_each(|(to, axis)| *to = extents[axis]);
    operation.extents("out", &out.extents(), &expected)?;
    if !of_nothing && axes.iter().any(|&axis| extents[axis] == 0) && !out.is_empty() {
        // There is nothing to choose from.
        let at_least_one = std::array::from_fn::<_, N, _>(|axis| match reduced[axis] {
            true => extents[axis].max(1),
            false => extents[axis],
        });
        operation.extents("x", &extents, &at_least_one)?;
    }
    operation.output("out", &out)?;
    operation.input("x", &x, out.domain_id())?;
    if out.is_empty() {
        return Ok(());
    }
    let outer = Plan::of(kept.zip(to).map(|(axis, to)| Dim {
        extent: extents[axis],
        strides: [to, from[axis]],
    }));
    let inner = axes.iter().map(|&axis| Dim {
        extent: extents[axis],
        strides: [0, from[axis]],
    });
    // One axis keeps its direction, in which positions are counted; of no elements nothing is read.
    let inner = match R {
        1 => inner.collect(),
        _ => {
            let plan = Plan::of(inner);
            match plan.empty {
                true => [Dim {
                    extent: 0,
                    strides: [0; 2],
                }]
                .into_iter()
                .collect(),
                false => plan.dims,
            }
        }
    };
    let reduced = inner.len();
    let mut plan = outer;
    plan.dims.extend(inner);
    let excess = plan.dims.len().saturating_sub(Plan::<2>::MAX);
    if excess > plan.dims.len() - reduced {
        return Err(TensorError::TooManyDimensions {
            operation: operation.name,
            dims: reduced,
            max: Plan::<2>::MAX,
        });
    }
    let flags = if x.is_conjugated() { CONJUGATE } else { 0 };
    let stream = operation.stream;
    let kernel = kernel.on(stream.device())?;
    let (mut out, x) = acquire_all(stream, (out.into_request()?, x.into_request()?))?;
    let codes = |rank, wide| [rank - reduced as u32, rank, wide | flags, code];
    let launched = operation.launch(&kernel, &plan, &mut out, [Some(&x)], codes, NOTHING);
    operation.finish((out, x), launched)
}

/// Which axes are named, each once.
fn named<const N: usize>(axes: &[usize]) -> TensorResult<[bool; N]> {
    let mut named = [false; N];
    for &axis in axes {
        let seen = named
            .get_mut(axis)
            .ok_or(TensorError::NoSuchAxis { axis, rank: N })?;
        if std::mem::replace(seen, true) {
            return Err(TensorError::BadOrder {
                order: axes.to_vec(),
                rank: N,
            });
        }
    }
    Ok(named)
}
