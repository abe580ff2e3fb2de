//! Products of operands that BLAS can't take as they lie: by way of a copy in scratch memory.

use super::handle::State;
use super::lease::Lease;
use super::lower::Side;
use super::product::Product;
use crate::elementwise::copy_on_device;
use crate::scratch::with_scratch;
use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
use crate::{Number, TensorResult};

/// The product with a copy of one operand in its place. The copy is row-major, and not conjugated any more.
#[cold]
#[track_caller]
pub(super) fn detour<T: Number, L: Lease, const N: usize>(
    product: &Product<'_, T>,
    on: &L,
    side: Side,
    out: &mut TensorViewMut<'_, T, N>,
    a: &TensorView<'_, T, N>,
    b: &TensorView<'_, T, N>,
) -> TensorResult<()> {
    let operation = &product.operation;
    let device = operation.stream.device();
    let layout = *match side {
        Side::Out => out.layout(),
        Side::A => a.layout(),
        Side::B => b.layout(),
    };
    State::of(device).count_copy(layout.len() * size_of::<T>());
    with_scratch(device, layout.extents(), |scratch| {
        if side == Side::Out {
            if product.beta != T::ZERO {
                copy_on_device(operation, (&mut *scratch).into_view_mut(), out.as_view())?;
            }
            product.perform(on, &mut (&mut *scratch).into_view_mut(), a, b)?;
            return copy_on_device(operation, out.reborrow(), (&*scratch).into_view());
        }
        let operand = if side == Side::A { a } else { b };
        copy_on_device(operation, (&mut *scratch).into_view_mut(), *operand)?;
        let copied = (&*scratch).into_view();
        match side {
            Side::A => product.perform(on, out, &copied, b),
            _ => product.perform(on, out, a, &copied),
        }
    })
}
