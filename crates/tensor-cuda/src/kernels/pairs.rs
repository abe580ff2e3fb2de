//! Kernels `(out, a, plan[8], codes)` that work out out[i] from a[i]: their parameters, what they touch, and their walk.
//!
//! `codes` are the rank, whether indices need 64 bits, and two of the kernel's own.

use super::walk::{PLAN, Walk, bad};
use crate::plan::NUMBERS;
use bytemuck::Pod;
use cuda_driver::{Access, Arguments, Footprint, ModelError, ModelLaunch, Param};

const OUT: usize = 0;
const FROM: usize = 1;
const DIMS: usize = 2;
pub(super) const CODES: usize = DIMS + PLAN.len();

/// The parameters, also of the reductions.
pub(super) const fn params<O, A>() -> [Param; 3 + NUMBERS / 2] {
    let mut params = [Param::scalar::<[u32; 4]>(); 3 + NUMBERS / 2];
    params[OUT] = Param::pointer::<O>(Access::Write);
    params[FROM] = Param::pointer::<A>(Access::Read);
    let mut i = 0;
    while i < PLAN.len() {
        params[DIMS + i] = PLAN[i];
        i += 1;
    }
    params
}

pub(super) fn footprint<O, A>(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let [rank, ..] = args.scalar::<[u32; 4]>(CODES)?;
    let walk = Walk::<2>::read(|at| args.scalar(at), DIMS, rank)?;
    walk.touch(touched, OUT, 0, Access::Write, size_of::<O>())?;
    walk.touch(touched, FROM, 1, Access::Read, size_of::<A>())
}

/// Sets every out[i] to `f` of a[i] and the kernel's own codes.
pub(super) fn model<O: Pod, A: Pod>(
    launch: &mut ModelLaunch<'_>,
    f: impl Fn(A, [u32; 2]) -> Result<O, ModelError>,
) -> Result<(), ModelError> {
    let [rank, _, first, second] = launch.scalar::<[u32; 4]>(CODES)?;
    let walk = Walk::<2>::read(|at| launch.scalar(at).ok(), DIMS, rank).ok_or_else(|| bad(DIMS))?;
    let out = launch.take_write::<O>(OUT)?;
    let a = launch.take_read::<A>(FROM)?;
    walk.each(walk.start(), &mut |[o, i]| {
        out[o] = f(a[i], [first, second])?;
        Ok(())
    })
}
