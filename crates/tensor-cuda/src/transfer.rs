//! Copies between host and device, and between devices, from and into any layout.

use crate::elementwise::copy_on_device;
use crate::operation::Operation;
use crate::scratch::with_scratch;
use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
use crate::{Layout, TensorResult};
use bytemuck::{AnyBitPattern, NoUninit, Pod};
use cuda_buffer::{BufferError, DeviceData, PinnedSlice, PinnedSliceMut};
use cuda_driver::CallSite;
use cuda_runtime::Stream;
use ndarray::{Array, ArrayView, Dim, Dimension, IntoDimension};

/// Queues `out = a` on `stream`, each side with strides of its own: a copy that changes the layout, or a part of one.
///
/// A conjugated view is copied as what it stands for. The sides may be on different devices of one driver; then the stream
/// is of either, and elements that don't lie alike on both are brought in order through scratch memory of the space in
/// scope, or of the pools; a capture refuses that.
///
/// # Errors
/// [`ShapeMismatch`](crate::TensorError::ShapeMismatch), [`WrongDevice`](crate::TensorError::WrongDevice) and
/// [`Aliased`](crate::TensorError::Aliased) with the operand; [`OverlappingWrite`](crate::TensorError::OverlappingWrite);
/// [`Unsupported`](crate::TensorError::Unsupported) for elements of other sizes than 1, 2, 4, 8 or 16 bytes that don't lie alike on
/// both sides, [`Misaligned`](crate::TensorError::Misaligned) for those that lie at less than a kernel takes them; an access that is
/// refused; the driver's own.
#[track_caller]
pub fn copy<'a, 'b, T: Copy + 'static, const N: usize>(
    stream: &Stream,
    out: impl IntoViewMut<'a, T, N>,
    a: impl IntoView<'b, T, N>,
) -> TensorResult<()> {
    let _site = CallSite::enter();
    let operation = Operation::new("copy", stream);
    let (out, a) = (out.into_view_mut(), a.into_view());
    operation.extents("a", &a.extents(), &out.extents())?;
    let peers = !out.device().same(a.device());
    if !peers {
        operation.output("out", &out)?;
        operation.input("a", &a, out.domain_id())?;
    } else {
        operation.repeats("out", &out)?;
        if !stream.device().same(a.device()) {
            operation.device("out", out.device())?;
        }
    }
    if out.is_empty() {
        return Ok(());
    }
    if alike(out.layout(), a.layout()) && !a.is_conjugated() {
        let (to, from) = (out.into_request()?, a.into_request()?);
        return Ok(to.copy_from(from, stream)?);
    }
    if !peers {
        return copy_on_device(&operation, out, a);
    }
    // A stream of each device: the given one, and the other device's own for transfers, which no capture records.
    if stream.session()?.is_some() {
        cuda_runtime::refuse_in_capture("bringing elements in order on another device")?;
    }
    let (from, to) = (a.device(), out.device());
    let on = |device: &cuda_runtime::Device| match device.same(stream.device()) {
        true => stream.clone(),
        false => device.transfer_stream(),
    };
    let extents = out.extents();
    let send = |packed: TensorView<'_, T, N>, out: TensorViewMut<'_, T, N>| {
        if out.layout().is_row_major() {
            return Ok(out
                .into_request()?
                .copy_from(packed.into_request()?, stream)?);
        }
        with_scratch(to, extents, |arrived| {
            let landing: TensorViewMut<'_, T, N> = (&mut *arrived).into_view_mut();
            landing
                .into_request()?
                .copy_from(packed.into_request()?, stream)?;
            copy_on_device(
                &Operation::new("copy", &on(to)),
                out,
                (&*arrived).into_view(),
            )
        })
    };
    if a.layout().is_row_major() && !a.is_conjugated() {
        return send(a, out);
    }
    with_scratch(from, extents, |packed| {
        let leaving: TensorViewMut<'_, T, N> = (&mut *packed).into_view_mut();
        copy_on_device(&Operation::new("copy", &on(from)), leaving, a)?;
        send((&*packed).into_view(), out)
    })
}

/// Queues a copy of page-locked memory to `out` on `stream`: its elements in row-major order. The memory stays alive and
/// unchanged until the copy is done; a write access of the host waits for that, and so may a future of the stream.
///
/// Elements of `out` that lie in another order come by way of scratch memory.
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
    if out.layout().is_row_major() {
        return Ok(out.into_request()?.copy_from_pinned(src, stream)?);
    }
    with_scratch(out.device(), out.extents(), |arrived| {
        arrived.write().copy_from_pinned(src, stream)?;
        copy_on_device(&operation, out, (&*arrived).into_view())
    })
}

/// Queues a copy of `a`, its elements in row-major order, to page-locked memory on `stream`. An access of the host to the
/// memory waits until the copy is done.
///
/// Elements that lie in another order go by way of scratch memory.
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
    if a.layout().is_row_major() && !a.is_conjugated() {
        return Ok(a.into_request()?.copy_to_pinned(dst, stream)?);
    }
    with_scratch(a.device(), a.extents(), |packed| {
        copy_on_device(&operation, (&mut *packed).into_view_mut(), a)?;
        packed.read().copy_to_pinned(dst, stream)?;
        Ok(())
    })
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
    if out.layout().is_row_major() {
        return Ok(out.into_request()?.copy_from_slice(values)?);
    }
    with_scratch(out.device(), out.extents(), |arrived| {
        arrived.write().copy_from_slice(values)?;
        copy_on_device(&operation, out, (&*arrived).into_view())
    })
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
    if a.layout().is_row_major() && !a.is_conjugated() {
        a.into_request()?.copy_to_slice(&mut values)?;
    } else {
        with_scratch(a.device(), extents, |packed| {
            copy_on_device(&operation, (&mut *packed).into_view_mut(), a)?;
            Ok(packed.read().copy_to_slice(&mut values)?)
        })?;
    }
    let (src, dst) = (values.len(), extents.iter().product());
    Array::from_shape_vec(extents, values)
        .map_err(|_| BufferError::LengthMismatch { src, dst }.into())
}

/// Whether two layouts of the same extents are one run of memory each, in the same order.
fn alike<const N: usize>(a: &Layout<N>, b: &Layout<N>) -> bool {
    let same = |axis: usize| a.extents()[axis] <= 1 || a.strides()[axis] == b.strides()[axis];
    a.is_empty() || (a.span().len() == a.len() && !a.repeats() && (0..N).all(same))
}

pub(crate) fn extents_of<T, const N: usize>(array: &ArrayView<'_, T, Dim<[usize; N]>>) -> [usize; N]
where
    Dim<[usize; N]>: Dimension,
{
    let mut extents = [0; N];
    extents.copy_from_slice(array.shape());
    extents
}
