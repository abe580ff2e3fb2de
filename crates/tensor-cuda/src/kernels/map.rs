//! out[i] = f(a[i]), with f from a closed set.
//!
//! `map_T(out, a, plan[8], codes)`; `codes` are the rank, whether indices need 64 bits, whether a is conjugated, and the
//! function.

use super::walk::{PLAN, Walk, bad, two_pointers};
use crate::Number;
use crate::map::code;
use crate::number::wide::Wide;
use cuda_driver::{Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch};

const OUT: usize = 0;
const A: usize = 1;
const DIMS: usize = 2;
const CODES: usize = DIMS + PLAN.len();

pub(super) const fn declare<T: Number>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    unsafe {
        KernelDeclaration::new(
            name,
            const { &two_pointers::<T, T>() },
            footprint::<T>,
            model::<T>,
        )
    }
}

fn footprint<T>(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let [rank, ..] = args.scalar::<[u32; 4]>(CODES)?;
    let walk = Walk::<2>::read(|at| args.scalar(at), DIMS, rank)?;
    walk.touch(touched, OUT, 0, Access::Write, size_of::<T>())?;
    walk.touch(touched, A, 1, Access::Read, size_of::<T>())
}

fn model<T: Number>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let [rank, _, conjugate, function] = launch.scalar::<[u32; 4]>(CODES)?;
    let walk = Walk::<2>::read(|at| launch.scalar(at).ok(), DIMS, rank).ok_or_else(|| bad(DIMS))?;
    let out = launch.take_write::<T>(OUT)?;
    let a = launch.take_read::<T>(A)?;
    walk.each(walk.start(), &mut |[o, i]| {
        let x = a[i].widen();
        let x = if conjugate != 0 { x.conjugate() } else { x };
        out[o] = T::narrow(match function {
            code::NOTHING => x,
            function => x.apply(function).ok_or_else(|| bad(CODES))?,
        });
        Ok(())
    })
}
