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
/// The sum of no elements is 0. The order in which elements are added is not specified, but always the same for the same extents
/// and strides: the same values give the same bits, on any stream and in every run.
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
/// [`TensorError::BadAxes`] for an axis that `x` lacks or that is named twice; [`TensorError::ShapeMismatch`], [`TensorError::WrongDevice`] and [`TensorError::Aliased`] with the operand; [`TensorError::OverlappingWrite`];
/// [`TensorError::TooManyDimensions`] for strides that leave more than 5 dimensions; an access that is refused; the driver's own.
#[track_caller]
pub fn sum<'a, 'b, T: Number, const N: usize, const M: usize, const R: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, M>,
    x: impl IntoView<'b, T, N>,
    axes: [usize; R],
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let what = What {
        operation: Operation::new("sum", stream),
        kernel: T::kernel_of(REDUCE),
        code: Reduction::Sum as u32,
        of_nothing: true,
    };
    what.run(out.into_view_mut(), x.into_view(), axes)
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
    let what = What {
        operation: Operation::new("max", stream),
        kernel: T::kernel_of(REDUCE),
        code: Reduction::Max as u32,
        of_nothing: false,
    };
    what.run(out.into_view_mut(), x.into_view(), axes)
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
    let what = What {
        operation: Operation::new("min", stream),
        kernel: T::kernel_of(REDUCE),
        code: Reduction::Min as u32,
        of_nothing: false,
    };
    what.run(out.into_view_mut(), x.into_view(), axes)
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
    let code = match norm {
        Norm::One => NormCode::One,
        Norm::Two => NormCode::Two,
        Norm::Infinity => NormCode::Infinity,
    };
    let _site = CallSite::enter();
    let what = What {
        operation: Operation::new("norm", stream),
        kernel: T::kernel_of(NORM),
        code: code as u32,
        of_nothing: true,
    };
    what.run(out.into_view_mut(), x.into_view(), axes)
}

/// Queues `out` = the index, along `axis`, of the largest element of `x` on `stream`: the first one of several, and a NaN
/// counts as the largest.
///
/// # Errors
/// As for [`max`]; [`TensorError::DimTooLarge`] for more elements along the axis than 32 bits count.
#[track_caller]
pub fn argmax<'a, 'b, T: Real, const N: usize, const M: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, u32, M>,
    x: impl IntoView<'b, T, N>,
    axis: usize,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("argmax", stream);
    let x = x.into_view();
    if let Some(&dim) = x.extents().get(axis)
        && u32::try_from(dim).is_err()
    {
        return Err(TensorError::DimTooLarge {
            operation: operation.name,
            operand: "x",
            provider: "a 32-bit index",
            dim,
            max: u32::MAX.into(),
        });
    }
    let what = What {
        operation,
        kernel: T::kernel_of(ARGMAX),
        code: 0,
        of_nothing: false,
    };
    what.run(out.into_view_mut(), x, [axis])
}

/// A reduction on one stream.
struct What<'s> {
    operation: Operation<'s>,
    kernel: KernelId,
    /// What the kernel works out.
    code: u32,
    /// Whether there is a result of no elements.
    of_nothing: bool,
}

impl What<'_> {
    #[track_caller]
    fn run<O: Pod, T: Pod, const N: usize, const M: usize, const R: usize>(
        &self,
        out: TensorViewMut<'_, O, M>,
        x: TensorView<'_, T, N>,
        axes: [usize; R],
    ) -> TensorResult<()> {
        const {
            assert!(
                M + R == N,
                "the output has the dimensions that are not reduced"
            )
        };
        let operation = &self.operation;
        let is_reduced = named::<N>(operation, &axes)?;
        let kept: [usize; M] = {
            let mut kept = (0..N).filter(|&axis| !is_reduced[axis]);
            std::array::from_fn(|_| kept.next().expect("all but R of N dimensions are kept"))
        };
        let extents = x.extents();
        operation.same("out", out.extents(), kept.map(|axis| extents[axis]))?;
        if !self.of_nothing && !out.is_empty() {
            // There must be something to choose from.
            let at_least_one = std::array::from_fn(|axis| match is_reduced[axis] {
                true => extents[axis].max(1),
                false => extents[axis],
            });
            operation.same("x", extents, at_least_one)?;
        }
        operation.output("out", &out)?;
        operation.input("x", &x, out.domain_id())?;
        if out.is_empty() {
            return Ok(());
        }
        let (plan, reduced) = self.plan(&out, &x, kept, axes)?;
        let flags = if x.is_conjugated() { CONJUGATE } else { 0 };
        let stream = operation.stream;
        let kernel = self.kernel.on(stream.device())?;
        let (mut out, x) = acquire_all(stream, (out.into_request()?, x.into_request()?))?;
        let codes = |rank, wide| [rank - reduced as u32, rank, wide | flags, self.code];
        let launched = operation.launch(&kernel, &plan, &mut out, [Some(&x)], codes, NOTHING);
        operation.finish((out, x), launched)
    }

    /// The dimensions that are kept, and then those that are reduced, whose number comes with the plan.
    fn plan<O, T, const N: usize, const M: usize, const R: usize>(
        &self,
        out: &TensorViewMut<'_, O, M>,
        x: &TensorView<'_, T, N>,
        kept: [usize; M],
        axes: [usize; R],
    ) -> TensorResult<(Plan<2>, usize)> {
        let (extents, from, to) = (x.extents(), x.layout().strides(), out.layout().strides());
        let mut plan = Plan::of(kept.into_iter().zip(to).map(|(axis, to)| Dim {
            extent: extents[axis],
            strides: [to, from[axis]],
        }));
        let inner = axes.into_iter().map(|axis| Dim {
            extent: extents[axis],
            strides: [0, from[axis]],
        });
        let outer = plan.dims.len();
        if R == 1 {
            // One axis keeps its direction, in which positions are counted.
            plan.dims.extend(inner);
        } else {
            let inner = Plan::of(inner);
            // Of no elements nothing is read.
            let nothing = inner.empty.then_some(Dim {
                extent: 0,
                strides: [0; 2],
            });
            plan.dims.extend(inner.dims.into_iter().chain(nothing));
        }
        let reduced = plan.dims.len() - outer;
        // Launches share out the outer dimensions, never those of one sum.
        if reduced > Plan::<2>::MAX {
            return Err(TensorError::TooManyDimensions {
                operation: self.operation.name,
                operand: "x",
                dims: reduced,
                max: Plan::<2>::MAX,
            });
        }
        Ok((plan, reduced))
    }
}

/// Which axes are named, each once.
fn named<const N: usize>(operation: &Operation<'_>, axes: &[usize]) -> TensorResult<[bool; N]> {
    let mut named = [false; N];
    for &axis in axes {
        let free = named.get_mut(axis).filter(|named| !**named);
        *free.ok_or_else(|| TensorError::BadAxes {
            operation: operation.name,
            operand: "x",
            axes: axes.to_vec(),
            rank: N,
        })? = true;
    }
    Ok(named)
}
