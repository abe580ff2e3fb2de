//! out[i] = a[i] as another type.
//!
//! `cast_S_D(out, a, plan[8], codes)`; the first of its own codes is whether a is conjugated.

use super::{CAST, KernelId, pairs};
use bytemuck::Pod;
use cuda_driver::{KernelDeclaration, ModelError, ModelLaunch};
use half::{bf16, f16};
use num_complex::Complex;

/// An element type that [`cast`](crate::cast) turns into `D`.
///
/// Numbers are rounded to the nearest; to whole numbers they are cut off, and those out of range become the nearest one, as
/// with `as`. A pair that is not listed does not compile.
pub trait CastTo<D: Pod>: Pod + sealed::Cast<D> {}

pub(crate) mod sealed {
    use crate::kernels::KernelId;

    pub trait Cast<D>: Copy {
        fn kernel() -> KernelId;
        fn cast(self) -> D;
        /// What a cast of the complex conjugate starts from.
        fn conjugate(self) -> Self;
    }
}

macro_rules! casts {
    ($($position:literal $from:ty => $to:ty: $cast:expr;)+) => {
        pub(super) const COUNT: usize = [$($position),+].len();
        $(
            impl CastTo<$to> for $from {}

            impl sealed::Cast<$to> for $from {
                fn kernel() -> KernelId {
                    CAST.at($position)
                }
                #[inline]
                fn cast(self) -> $to {
                    let cast: fn($from) -> $to = $cast;
                    cast(self)
                }
                fn conjugate(self) -> Self {
                    Conjugate::conjugate(self)
                }
            }
        )+
    };
}

/// The complex conjugate; a real number is its own.
trait Conjugate: Sized {
    fn conjugate(self) -> Self {
        self
    }
}

impl Conjugate for f32 {}
impl Conjugate for f64 {}
impl Conjugate for f16 {}
impl Conjugate for bf16 {}
impl Conjugate for i32 {}
impl Conjugate for u32 {}

impl Conjugate for Complex<f32> {
    fn conjugate(self) -> Self {
        self.conj()
    }
}

impl Conjugate for Complex<f64> {
    fn conjugate(self) -> Self {
        self.conj()
    }
}

casts! {
    0 f32 => f64: f64::from;
    1 f32 => f16: f16::from_f32;
    2 f32 => bf16: bf16::from_f32;
    3 f32 => i32: |x| x as i32;
    4 f32 => u32: |x| x as u32;
    5 f32 => Complex<f32>: Complex::from;
    6 f64 => f32: |x| x as f32;
    7 f64 => f16: f16::from_f64;
    8 f64 => bf16: bf16::from_f64;
    9 f64 => i32: |x| x as i32;
    10 f64 => u32: |x| x as u32;
    11 f64 => Complex<f64>: Complex::from;
    12 f16 => f32: f16::to_f32;
    13 f16 => f64: f16::to_f64;
    14 f16 => bf16: |x| bf16::from_f32(x.to_f32());
    15 bf16 => f32: bf16::to_f32;
    16 bf16 => f64: bf16::to_f64;
    17 bf16 => f16: |x| f16::from_f32(x.to_f32());
    18 i32 => f32: |x| x as f32;
    19 i32 => f64: f64::from;
    20 u32 => f32: |x| x as f32;
    21 u32 => f64: f64::from;
    22 Complex<f32> => Complex<f64>: |x| Complex::new(x.re.into(), x.im.into());
    23 Complex<f64> => Complex<f32>: |x| Complex::new(x.re as f32, x.im as f32);
}

pub(super) const fn declare<S: CastTo<D>, D: Pod>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    unsafe {
        KernelDeclaration::new(
            name,
            const { &pairs::params::<D, S>() },
            pairs::footprint::<D, S>,
            model::<S, D>,
        )
    }
}

fn model<S: CastTo<D>, D: Pod>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    pairs::model(launch, |x: S, [conjugate, _]| {
        let x = if conjugate != 0 { x.conjugate() } else { x };
        Ok(x.cast())
    })
}
