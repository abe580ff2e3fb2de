//! Copies between host and device, from and into any layout.

use crate::TensorResult;
use crate::elementwise::copy_on_device;
use crate::layout::Lie;
use crate::operation::Operation;
use crate::scratch::with_scratch;
use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
use bytemuck::{AnyBitPattern, NoUninit, Pod};
use cuda_buffer::{BufferError, DeviceData, PinnedSlice, PinnedSliceMut, Rows};
use cuda_driver::CallSite;
use cuda_runtime::Stream;
use ndarray::{Array, ArrayView, Dim, Dimension, IntoDimension};

/// Queues a copy of page-locked memory to `out` on `stream`: its elements in row-major order. The memory stays alive and
/// unchanged until the copy is done; a write access of the host waits for that, and so may a future of the stream.
///
/// Elements of `out` that are rows of a larger matrix come in one copy, too; those that lie in another way, by way of scratch memory.
///
/// # Errors
/// [`LengthMismatch`](BufferError::LengthMismatch); [`WrongDevice`](crate::TensorError::WrongDevice),
/// [`OverlappingWrite`](crate::TensorError::OverlappingWrite); those of the accesses; the driver's own.
#[track_caller]
pub fn copy_from_pinned<'a, 'p, T: Pod, const N: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, N>,
    src: impl Into<PinnedSlice<'p, T>>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("copy_from_pinned", stream);
    let (out, src) = (out.into_view_mut(), src.into());
    operation.output("out", &out)?;
    match out.layout().lie(size_of::<T>()) {
        Lie::Run => Ok(out.into_request()?.copy_from_pinned(src, stream)?),
        Lie::Rows { width, pitch } => {
            same_length(src.len(), out.len())?;
            let rows = Rows {
                width,
                rows: out.len() / width,
                dst_pitch: pitch,
                src_pitch: width,
            };
            Ok(out
                .into_request()?
                .copy_rows_from_pinned(src, rows, stream)?)
        }
        Lie::Scattered => with_scratch(out.device(), out.extents(), |arrived| {
            arrived.write().copy_from_pinned(src, stream)?;
            copy_on_device(&operation, out, (&*arrived).into_view())
        }),
    }
}

/// Queues a copy of `a`, its elements in row-major order, to page-locked memory on `stream`. An access of the host to the
/// memory waits until the copy is done.
///
/// Rows of a larger matrix go in one copy, too; elements that lie in another way, or are conjugated, by way of scratch memory.
///
/// # Errors
/// As for [`copy_from_pinned`].
#[track_caller]
pub fn copy_to_pinned<'a, 'p, T: Pod, const N: usize>(
    stream: &Stream,
    dst: impl Into<PinnedSliceMut<'p, T>>,
    a: impl IntoView<'a, T, N>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("copy_to_pinned", stream);
    let (a, dst) = (a.into_view(), dst.into());
    operation.device("a", a.device())?;
    match lie(&a) {
        Lie::Run => Ok(a.into_request()?.copy_to_pinned(dst, stream)?),
        Lie::Rows { width, pitch } => {
            same_length(a.len(), dst.len())?;
            let rows = Rows {
                width,
                rows: a.len() / width,
                dst_pitch: width,
                src_pitch: pitch,
            };
            Ok(a.into_request()?.copy_rows_to_pinned(dst, rows, stream)?)
        }
        Lie::Scattered => with_scratch(a.device(), a.extents(), |packed| {
            copy_on_device(&operation, (&mut *packed).into_view_mut(), a)?;
            packed.read().copy_to_pinned(dst, stream)?;
            Ok(())
        }),
    }
}

/// Copies a host array, of any layout, into `out`, which may be a part of a tensor. Waits on the host until the array is read and
/// on the device.
///
/// # Errors
/// [`ShapeMismatch`](crate::TensorError::ShapeMismatch), [`OverlappingWrite`](crate::TensorError::OverlappingWrite);
/// [`RuntimeError::CaptureActive`](cuda_runtime::RuntimeError::CaptureActive) while this thread captures; those of the access;
/// the driver's own.
#[track_caller]
pub fn copy_from_ndarray<'a, T: NoUninit, const N: usize>(
    out: impl IntoViewMut<'a, T, N>,
    array: &ArrayView<'_, T, Dim<[usize; N]>>,
) -> TensorResult<()>
where
    Dim<[usize; N]>: Dimension,
{
    let _site = CallSite::enter();
    upload(out.into_view_mut(), array)
}

/// The elements of `a`, which may be a part of a tensor, as a row-major host array. Waits on the host.
///
/// # Errors
/// [`RuntimeError::CaptureActive`](cuda_runtime::RuntimeError::CaptureActive) while this thread captures; those of the access;
/// the driver's own.
#[track_caller]
pub fn to_ndarray<'a, T, const N: usize>(
    a: impl IntoView<'a, T, N>,
) -> TensorResult<Array<T, Dim<[usize; N]>>>
where
    T: AnyBitPattern + NoUninit,
    [usize; N]: IntoDimension<Dim = Dim<[usize; N]>>,
    Dim<[usize; N]>: Dimension,
{
    let _site = CallSite::enter();
    download(a.into_view())
}

#[track_caller]
pub(crate) fn upload<T: NoUninit, const N: usize>(
    out: TensorViewMut<'_, T, N>,
    array: &ArrayView<'_, T, Dim<[usize; N]>>,
) -> TensorResult<()>
where
    Dim<[usize; N]>: Dimension,
{
    let stream = out.device().transfer_stream();
    let operation = Operation::new("copy_from_ndarray", &stream);
    operation.extents("array", array.shape(), &out.extents())?;
    operation.output("out", &out)?;
    cuda_runtime::refuse_in_capture("copying from ordinary host memory")?;
    let gathered;
    let values = match array.as_slice() {
        Some(values) => values,
        None => {
            gathered = array.iter().copied().collect::<Vec<T>>();
            &gathered
        }
    };
    match out.layout().lie(size_of::<T>()) {
        Lie::Run => Ok(out.into_request()?.copy_from_slice(values)?),
        Lie::Rows { width, pitch } => {
            let out = out.into_request()?;
            Ok(out.copy_rows_from_slice(values, width, pitch)?)
        }
        Lie::Scattered => with_scratch(out.device(), out.extents(), |arrived| {
            arrived.write().copy_from_slice(values)?;
            copy_on_device(&operation, out, (&*arrived).into_view())
        }),
    }
}

#[track_caller]
pub(crate) fn download<T, const N: usize>(
    a: TensorView<'_, T, N>,
) -> TensorResult<Array<T, Dim<[usize; N]>>>
where
    T: AnyBitPattern + NoUninit,
    [usize; N]: IntoDimension<Dim = Dim<[usize; N]>>,
    Dim<[usize; N]>: Dimension,
{
    let stream = a.device().transfer_stream();
    let operation = Operation::new("to_ndarray", &stream);
    cuda_runtime::refuse_in_capture("copying to ordinary host memory")?;
    let mut values = vec![T::zeroed(); a.len()];
    let extents = a.extents();
    match lie(&a) {
        Lie::Run => a.into_request()?.copy_to_slice(&mut values)?,
        Lie::Rows { width, pitch } => {
            let a = a.into_request()?;
            a.copy_rows_to_slice(&mut values, width, pitch)?;
        }
        Lie::Scattered => with_scratch(a.device(), extents, |packed| {
            copy_on_device(&operation, (&mut *packed).into_view_mut(), a)?;
            Ok(packed.read().copy_to_slice(&mut values)?)
        })?,
    }
    let (src, dst) = (values.len(), extents.iter().product());
    Array::from_shape_vec(extents, values)
        .map_err(|_| BufferError::LengthMismatch { src, dst }.into())
}

/// How elements lie that are to be read; those of a conjugated view must be worked out.
fn lie<T, const N: usize>(a: &TensorView<'_, T, N>) -> Lie {
    match a.is_conjugated() {
        true => Lie::Scattered,
        false => a.layout().lie(size_of::<T>()),
    }
}

fn same_length(src: usize, dst: usize) -> TensorResult<()> {
    match src == dst {
        true => Ok(()),
        false => Err(BufferError::LengthMismatch { src, dst }.into()),
    }
}

pub(crate) fn extents_of<T, const N: usize>(array: &ArrayView<'_, T, Dim<[usize; N]>>) -> [usize; N]
where
    Dim<[usize; N]>: Dimension,
{
    let mut extents = [0; N];
    extents.copy_from_slice(array.shape());
    extents
}
