//! out[i] = value, for elements of so many bytes.
//!
//! `fill_bN(out, plan[8], codes, value)`; `codes` are the rank, and whether indices need 64 bits.

use super::walk::{PLAN, Walk, bad};
use cuda_driver::{
    Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch, Param,
};

const OUT: usize = 0;
const DIMS: usize = 1;
const CODES: usize = DIMS + PLAN.len();
const VALUE: usize = CODES + 1;

pub(super) const fn declare<const N: usize>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    unsafe { KernelDeclaration::new(name, const { &params::<N>() }, footprint::<N>, model::<N>) }
}

const fn params<const N: usize>() -> [Param; VALUE + 1] {
    let mut params = [Param::scalar::<[u32; 4]>(); VALUE + 1];
    params[OUT] = Param::pointer::<[u8; N]>(Access::Write);
    let mut i = 0;
    while i < PLAN.len() {
        params[DIMS + i] = PLAN[i];
        i += 1;
    }
    params[VALUE] = Param::scalar::<[u8; N]>();
    params
}

fn footprint<const N: usize>(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let [rank, ..] = args.scalar::<[u32; 4]>(CODES)?;
    let walk = Walk::<1>::read(|at| args.scalar(at), DIMS, rank)?;
    walk.touch(touched, OUT, 0, Access::Write, N)
}

fn model<const N: usize>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let [rank, ..] = launch.scalar::<[u32; 4]>(CODES)?;
    let walk = Walk::<1>::read(|at| launch.scalar(at).ok(), DIMS, rank).ok_or_else(|| bad(DIMS))?;
    let value = launch.scalar::<[u8; N]>(VALUE)?;
    let out = launch.take_write::<[u8; N]>(OUT)?;
    walk.each(walk.start(), &mut |[o]| {
        out[o] = value;
        Ok(())
    })
}
