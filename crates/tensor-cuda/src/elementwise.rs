//! Operations of one operand: fill, copy, functions, casts.

use crate::kernels::{COPY, CastSource, CastTo, FILL, KernelId, MAP};
use crate::map::{Map, code};
use crate::number::sealed::Arithmetic;
use crate::operation::{NOTHING, Operation};
use crate::plan::Plan;
use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
use crate::{Number, TensorError, TensorResult};
use bytemuck::{NoUninit, Pod};
use cuda_buffer::{ReadAccess, acquire_all};
use cuda_driver::CallSite;
use cuda_runtime::Stream;
use num_complex::Complex;
use std::any::TypeId;

/// Queues `out = value`, for every element, on `stream`.
///
/// # Errors
/// [`TensorError::OverlappingWrite`], [`TensorError::WrongDevice`]; [`TensorError::Unsupported`] for elements of other sizes
/// than 1, 2, 4, 8 or 16 bytes; [`TensorError::Misaligned`] for those that are less aligned than a kernel takes them, from an arena
/// that does not make up for it; an access that is refused; the driver's own.
#[track_caller]
pub fn fill<'a, T: NoUninit, const N: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, N>,
    value: T,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("fill", stream);
    let out = out.into_view_mut();
    operation.output("out", &out)?;
    let (kernel, align) = by_size::<T>(&operation, FILL)?;
    if out.is_empty() {
        return Ok(());
    }
    let layout = *out.layout();
    let plan = Plan::new(&layout.extents(), [&layout.strides()]);
    let kernel = kernel.on(stream.device())?;
    let (mut out,) = acquire_all(stream, (out.into_request()?,))?;
    let aligned = operation.aligned("out", out.as_slice(), align);
    let launched = aligned.and_then(|()| {
        operation.launch(
            &kernel,
            &plan,
            &mut out,
            [None::<&ReadAccess<'_, T>>; 0],
            |rank, wide| [rank, wide, 0, 0],
            &[value],
        )
    });
    operation.finish((out,), launched)
}

/// Queues `out = function(a)`, element by element, on `stream`.
///
/// # Errors
/// As for [`copy`](crate::copy); [`TensorError::Unsupported`] for functions that complex numbers don't have.
#[track_caller]
pub fn map<'a, 'b, T: Number, const N: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, N>,
    function: Map,
    a: impl IntoView<'b, T, N>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let code = function.code::<T>("a")?;
    let operation = Operation::new("map", stream);
    run(
        &operation,
        (T::kernel_of(MAP), 1),
        out.into_view_mut(),
        a.into_view(),
        code,
    )
}

/// Queues `out = a` with elements of another type, rounded as with `as`, on `stream`.
///
/// # Errors
/// As for [`copy`](crate::copy).
#[track_caller]
pub fn cast<'a, 'b, S: CastTo<D>, D: Pod, const N: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, D, N>,
    a: impl IntoView<'b, S, N>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("cast", stream);
    let kernel = <S as CastSource<D>>::kernel();
    run(
        &operation,
        (kernel, 1),
        out.into_view_mut(),
        a.into_view(),
        code::NOTHING,
    )
}

/// Copies by a kernel, both sides being on the operation's device.
#[track_caller]
pub(crate) fn copy_on_device<T: Copy + 'static, const N: usize>(
    operation: &Operation<'_>,
    out: TensorViewMut<'_, T, N>,
    a: TensorView<'_, T, N>,
) -> TensorResult<()> {
    let kernel = match (a.is_conjugated(), TypeId::of::<T>()) {
        (false, _) => by_size::<T>(operation, COPY)?,
        (true, id) if id == TypeId::of::<Complex<f32>>() => (Complex::<f32>::kernel_of(MAP), 1),
        (true, _) => (Complex::<f64>::kernel_of(MAP), 1),
    };
    run(operation, kernel, out, a, code::NOTHING)
}

/// A kernel `(out, a, plan, codes)`, which takes elements at multiples of `align` bytes, and of their own alignment.
#[track_caller]
fn run<O, A, const N: usize>(
    operation: &Operation<'_>,
    (kernel, align): (KernelId, u64),
    out: TensorViewMut<'_, O, N>,
    a: TensorView<'_, A, N>,
    function: u32,
) -> TensorResult<()> {
    operation.extents("a", &a.extents(), &out.extents())?;
    operation.output("out", &out)?;
    operation.input("a", &a, out.domain_id())?;
    if out.is_empty() {
        return Ok(());
    }
    let (to, from) = (*out.layout(), *a.layout());
    let plan = Plan::new(&to.extents(), [&to.strides(), &from.strides()]);
    let kernel = kernel.on(operation.stream.device())?;
    let conjugate = u32::from(a.is_conjugated());
    let requests = (out.into_request()?, a.into_request()?);
    let (mut out, a) = acquire_all(operation.stream, requests)?;
    let aligned = operation
        .aligned("out", out.as_slice(), align)
        .and_then(|()| operation.aligned("a", a.as_slice(), align));
    let launched = aligned.and_then(|()| {
        operation.launch(
            &kernel,
            &plan,
            &mut out,
            [Some(&a)],
            |rank, wide| [rank, wide, conjugate, function],
            NOTHING,
        )
    });
    operation.finish((out, a), launched)
}

/// The kernel of a family for elements of the size of `T`, and the alignment in bytes that it takes them at.
fn by_size<T>(operation: &Operation<'_>, family: KernelId) -> TensorResult<(KernelId, u64)> {
    let (position, align) = match size_of::<T>() {
        1 => (0, 1),
        2 => (1, 2),
        4 => (2, 4),
        8 => (3, 4),
        16 => (4, 8),
        _ => {
            return Err(TensorError::Unsupported {
                operation: operation.name,
                operand: "out",
                element: std::any::type_name::<T>(),
            });
        }
    };
    Ok((family.at(position), align))
}
