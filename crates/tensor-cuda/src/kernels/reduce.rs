//! out[i] = the sum, the largest or smallest element, or a norm, of a[i, j] over all j.
//!
//! `reduce_T(out, a, plan[8], codes)` and `norm_T` alike, whose output holds magnitudes. The dimensions that stay come first;
//! `codes` are their number, that of all dimensions, whether indices need 64 bits with the flag of a conjugated operand, and
//! what is worked out.

use super::pairs;
use super::walk::{PLAN, Walk, bad};
use crate::Number;
use crate::number::sealed::Arithmetic;
use crate::number::wide::Wide;
use cuda_driver::{Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch};

pub(super) const OUT: usize = 0;
pub(super) const A: usize = 1;
const DIMS: usize = 2;
pub(super) const CODES: usize = DIMS + PLAN.len();

/// The flag of a conjugated operand.
pub(crate) const CONJUGATE: u32 = 1 << 8;

/// What a reduction works out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Sum = 0,
    Max = 1,
    Min = 2,
}

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norm {
    /// The sum of the absolute values.
    One = 0,
    /// The square root of the sum of their squares.
    Two = 1,
    /// The largest absolute value.
    Infinity = 2,
}

pub(super) const fn declare<T: Number>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    unsafe {
        KernelDeclaration::new(
            name,
            const { &pairs::params::<T, T>() },
            footprint::<T, T>,
            model::<T>,
        )
    }
}

pub(super) const fn declare_norm<T: Number>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    unsafe {
        KernelDeclaration::new(
            name,
            const { &pairs::params::<T::Magnitude, T>() },
            footprint::<T::Magnitude, T>,
            norm_model::<T>,
        )
    }
}

/// The dimensions that stay, and those that are reduced.
pub(super) fn walks(
    scalar: impl Fn(usize) -> Option<[i64; 2]>,
    codes: [u32; 4],
) -> Option<(Walk<2>, Walk<2>)> {
    Walk::read(scalar, DIMS, codes[1])?.split(codes[0])
}

pub(super) fn footprint<O, T>(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let codes = args.scalar(CODES)?;
    let (kept, _) = walks(|at| args.scalar(at), codes)?;
    let all = Walk::<2>::read(|at| args.scalar(at), DIMS, codes[1])?;
    kept.touch(touched, OUT, 0, Access::Write, size_of::<O>())?;
    all.touch(touched, A, 1, Access::Read, size_of::<T>())
}

fn model<T: Number>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let codes = launch.scalar::<[u32; 4]>(CODES)?;
    let (kept, reduced) = walks(|at| launch.scalar(at).ok(), codes).ok_or_else(|| bad(DIMS))?;
    let out = launch.take_write::<T>(OUT)?;
    let a = launch.take_read::<T>(A)?;
    let conjugate = codes[2] & CONJUGATE != 0;
    let start = reduced.start()[1];
    kept.each(kept.start(), &mut |[o, first]| {
        let mut result = None;
        reduced.each([0, first + start], &mut |[_, i]| {
            let x = a[i].widen();
            let x = if conjugate { x.conjugate() } else { x };
            result = Some(match result {
                None => x,
                Some(before) => combine::<T>(codes[3], before, x)?,
            });
            Ok(())
        })?;
        out[o] = T::narrow(result.unwrap_or(<T as Arithmetic>::Wide::ZERO));
        Ok(())
    })
}

fn combine<T: Number>(code: u32, before: T::Wide, x: T::Wide) -> Result<T::Wide, ModelError> {
    if code == Reduction::Sum as u32 {
        return Ok(before + x);
    }
    // A NaN stays.
    if before.is_nan() || x.is_nan() {
        return Ok(if before.is_nan() { before } else { x });
    }
    let (low, high) = match before.below(x) {
        Some(true) => (before, x),
        Some(false) => (x, before),
        None => return Err(bad(CODES)),
    };
    match code {
        _ if code == Reduction::Max as u32 => Ok(high),
        _ if code == Reduction::Min as u32 => Ok(low),
        _ => Err(bad(CODES)),
    }
}

fn norm_model<T: Number>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let codes = launch.scalar::<[u32; 4]>(CODES)?;
    let (kept, reduced) = walks(|at| launch.scalar(at).ok(), codes).ok_or_else(|| bad(DIMS))?;
    let out = launch.take_write::<T::Magnitude>(OUT)?;
    let a = launch.take_read::<T>(A)?;
    let start = reduced.start()[1];
    kept.each(kept.start(), &mut |[o, first]| {
        // Squares are summed relative to the largest value, so that they neither overflow nor vanish.
        let (mut sum, mut scale) = (0.0_f64, 0.0_f64);
        reduced.each([0, first + start], &mut |[_, i]| {
            let x = a[i].widen().magnitude();
            match codes[3] {
                code if code == Norm::One as u32 => sum += x,
                code if code == Norm::Infinity as u32 => {
                    sum = if sum.is_nan() || x.is_nan() {
                        f64::NAN
                    } else {
                        sum.max(x)
                    };
                }
                code if code == Norm::Two as u32 => {
                    if x > scale {
                        sum = if scale == 0.0 {
                            1.0
                        } else {
                            1.0 + sum * (scale / x).powi(2)
                        };
                        scale = x;
                    } else if x.is_nan() {
                        scale = x;
                    } else if scale != 0.0 && scale.is_finite() {
                        sum += (x / scale).powi(2);
                    }
                }
                _ => return Err(bad(CODES)),
            }
            Ok(())
        })?;
        let norm = match codes[3] {
            code if code == Norm::Two as u32 && scale.is_finite() => scale * sum.sqrt(),
            code if code == Norm::Two as u32 => scale,
            _ => sum,
        };
        let wide = <<T::Magnitude as Arithmetic>::Wide as Wide>::from_magnitude(norm);
        out[o] = T::Magnitude::narrow(wide);
        Ok(())
    })
}
