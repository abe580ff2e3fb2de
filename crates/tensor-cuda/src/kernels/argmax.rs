//! out[i] = the j of the largest a[i, j]: the first one of several; a NaN counts as the largest.
//!
//! `argmax_T(out, a, plan[8], codes)`, as the reductions; the last dimension is the one that is searched.

use super::pairs;
use super::reduce::{A, CODES, OUT, footprint, walks};
use super::walk::bad;
use crate::Real;
use crate::number::wide::Wide;
use cuda_driver::{KernelDeclaration, ModelError, ModelLaunch};

pub(super) const fn declare<T: Real>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    unsafe {
        KernelDeclaration::new(
            name,
            const { &pairs::params::<u32, T>() },
            footprint::<u32, T>,
            model::<T>,
        )
    }
}

fn model<T: Real>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let codes = launch.scalar::<[u32; 4]>(CODES)?;
    let (kept, searched) = walks(|at| launch.scalar(at).ok(), codes).ok_or_else(|| bad(CODES))?;
    let out = launch.take_write::<u32>(OUT)?;
    let a = launch.take_read::<T>(A)?;
    let start = searched.start()[1];
    kept.each(kept.start(), &mut |[o, first]| {
        let (mut best, mut at, mut j) = (None, 0, 0);
        searched.each([0, first + start], &mut |[_, i]| {
            let x = a[i].widen();
            let larger = best.is_none_or(|best: T::Wide| {
                !best.is_nan() && (x.is_nan() || best.below(x) == Some(true))
            });
            if larger {
                (best, at) = (Some(x), j);
            }
            j += 1;
            Ok::<_, ModelError>(())
        })?;
        out[o] = at;
        Ok(())
    })
}
