//! out[i] = f(a[i]), with f from a closed set.
//!
//! `map_T(out, a, plan[8], codes)`; its own codes are whether a is conjugated, and the function.

use super::pairs::{self, CODES};
use super::walk::bad;
use crate::Number;
use crate::map::code;
use crate::number::wide::Wide;
use cuda_driver::{KernelDeclaration, ModelError, ModelLaunch};

pub(super) const fn declare<T: Number>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    unsafe {
        KernelDeclaration::new(
            name,
            const { &pairs::params::<T, T>() },
            pairs::footprint::<T, T>,
            model::<T>,
        )
    }
}

fn model<T: Number>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    pairs::model(launch, |x: T, [conjugate, function]| {
        let x = x.widen();
        let x = if conjugate != 0 { x.conjugate() } else { x };
        let x = match function {
            code::NOTHING => x,
            function => x.apply(function).ok_or_else(|| bad(CODES))?,
        };
        Ok(T::narrow(x))
    })
}
