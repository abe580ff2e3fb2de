//! out[i] = a[i], for elements of so many bytes, each side with strides of its own.
//!
//! `copy_bN(out, a, plan[8], codes)`; `codes` are the rank, and whether indices need 64 bits.

use super::walk::{PLAN, Walk, bad};
use cuda_driver::{Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch};

const OUT: usize = 0;
const A: usize = 1;
const DIMS: usize = 2;
const CODES: usize = DIMS + PLAN.len();

pub(super) const fn declare<const N: usize>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    unsafe {
        KernelDeclaration::new(
            name,
            const { &super::walk::two_pointers::<[u8; N], [u8; N]>() },
            footprint::<N>,
            model::<N>,
        )
    }
}

fn footprint<const N: usize>(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let [rank, ..] = args.scalar::<[u32; 4]>(CODES)?;
    let walk = Walk::<2>::read(|at| args.scalar(at), DIMS, rank)?;
    walk.touch(touched, OUT, 0, Access::Write, N)?;
    walk.touch(touched, A, 1, Access::Read, N)
}

fn model<const N: usize>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let [rank, ..] = launch.scalar::<[u32; 4]>(CODES)?;
    let walk = Walk::<2>::read(|at| launch.scalar(at).ok(), DIMS, rank).ok_or_else(|| bad(DIMS))?;
    let out = launch.take_write::<[u8; N]>(OUT)?;
    let a = launch.take_read::<[u8; N]>(A)?;
    walk.each(walk.start(), &mut |[o, i]| {
        out[o] = a[i];
        Ok(())
    })
}
