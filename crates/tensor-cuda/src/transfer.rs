//! Copies on a device and between devices, from and into any layout.

use crate::elementwise::copy_on_device;
use crate::operation::Operation;
use crate::scratch::with_scratch;
use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
use crate::{Layout, TensorResult};
use cuda_driver::CallSite;
use cuda_runtime::Stream;

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

/// Whether two layouts of the same extents are one run of memory each, in the same order.
fn alike<const N: usize>(a: &Layout<N>, b: &Layout<N>) -> bool {
    let same = |axis: usize| a.extents()[axis] <= 1 || a.strides()[axis] == b.strides()[axis];
    a.is_empty() || (a.span().len() == a.len() && !a.repeats() && (0..N).all(same))
}
