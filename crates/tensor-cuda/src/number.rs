//! The element types that arithmetic is for.

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;
use std::fmt::Debug;

/// An element type with arithmetic: `f32`, `f64`, [`Complex`] of both, [`f16`](half::f16) and [`bf16`](half::bf16).
///
/// The 16-bit types are widened to `f32` for every operation, and rounded once at its end.
pub trait Number: Pod + Send + Sync + PartialEq + Debug + sealed::Arithmetic {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// What an absolute value is: the type itself, or that of the parts of a complex number.
    type Magnitude: Real;
}

/// A [`Number`] with an order: all but the complex ones.
pub trait Real: Number<Magnitude = Self> {}

/// A complex [`Number`].
pub trait ComplexNumber: Number {}

pub(crate) mod sealed {
    use crate::kernels::KernelId;
    use crate::number::wide::Wide;

    /// How models compute, and which kernels are a type's.
    pub trait Arithmetic: Copy {
        /// The type that models compute in.
        type Wide: Wide;
        /// The name of the type in those of kernels.
        const NAME: &'static str;
        /// Position of the type in a family of kernels.
        const POSITION: usize;

        /// Exact.
        fn widen(self) -> Self::Wide;
        /// Rounded.
        fn narrow(wide: Self::Wide) -> Self;

        /// The kernel of a family for this type.
        fn kernel_of(family: KernelId) -> KernelId {
            family.at(Self::POSITION)
        }
    }
}

pub(crate) mod wide {
    use num_complex::Complex;
    use std::ops::{Add, Div, Mul, Neg};

    /// What models compute with.
    pub trait Wide:
        Copy
        + PartialEq
        + Add<Output = Self>
        + Mul<Output = Self>
        + Div<Output = Self>
        + Neg<Output = Self>
    {
        const ZERO: Self;
        const ONE: Self;
        fn conjugate(self) -> Self;
        /// The absolute value, in double precision.
        fn magnitude(self) -> f64;
        /// The value of a real number.
        fn from_magnitude(magnitude: f64) -> Self;
        /// Applies a function by its code.
        fn apply(self, code: u32) -> Option<Self>;
        /// Whether the value is below another one; `None` for complex numbers and NaN.
        fn below(self, other: Self) -> Option<bool>;
        fn is_nan(self) -> bool;
    }

    macro_rules! real {
        ($type:ty) => {
            impl Wide for $type {
                const ZERO: Self = 0.0;
                const ONE: Self = 1.0;
                fn conjugate(self) -> Self {
                    self
                }
                fn magnitude(self) -> f64 {
                    f64::from(self.abs())
                }
                fn from_magnitude(magnitude: f64) -> Self {
                    magnitude as $type
                }
                fn apply(self, code: u32) -> Option<Self> {
                    use crate::map::code;
                    Some(match code {
                        code::NEGATE => -self,
                        code::ABSOLUTE => self.abs(),
                        code::CONJUGATE => self,
                        code::SQUARE => self * self,
                        code::SQUARE_ROOT => self.sqrt(),
                        code::RECIPROCAL => self.recip(),
                        code::EXPONENTIAL => self.exp(),
                        code::LOGARITHM => self.ln(),
                        code::SINE => self.sin(),
                        code::COSINE => self.cos(),
                        code::TANH => self.tanh(),
                        code::SIGMOID => 1.0 / (1.0 + (-self).exp()),
                        // Not `max`, which would lose a NaN.
                        code::RELU if self < 0.0 => 0.0,
                        code::RELU => self,
                        _ => return None,
                    })
                }
                fn below(self, other: Self) -> Option<bool> {
                    self.partial_cmp(&other).map(std::cmp::Ordering::is_lt)
                }
                fn is_nan(self) -> bool {
                    self.is_nan()
                }
            }
        };
    }

    real!(f32);
    real!(f64);

    macro_rules! complex {
        ($part:ty) => {
            impl Wide for Complex<$part> {
                const ZERO: Self = Complex::new(0.0, 0.0);
                const ONE: Self = Complex::new(1.0, 0.0);
                fn conjugate(self) -> Self {
                    self.conj()
                }
                fn magnitude(self) -> f64 {
                    f64::from(self.re).hypot(f64::from(self.im))
                }
                fn from_magnitude(magnitude: f64) -> Self {
                    Complex::new(magnitude as $part, 0.0)
                }
                fn apply(self, code: u32) -> Option<Self> {
                    use crate::map::code;
                    Some(match code {
                        code::NEGATE => -self,
                        code::ABSOLUTE => Self::from_magnitude(self.magnitude()),
                        code::CONJUGATE => self.conj(),
                        code::SQUARE => self * self,
                        code::SQUARE_ROOT => self.sqrt(),
                        code::RECIPROCAL => self.inv(),
                        code::EXPONENTIAL => self.exp(),
                        code::LOGARITHM => self.ln(),
                        code::SINE => self.sin(),
                        code::COSINE => self.cos(),
                        code::TANH => self.tanh(),
                        _ => return None,
                    })
                }
                fn below(self, _: Self) -> Option<bool> {
                    None
                }
                fn is_nan(self) -> bool {
                    self.re.is_nan() || self.im.is_nan()
                }
            }
        };
    }

    complex!(f32);
    complex!(f64);
}

macro_rules! numbers {
    ($($type:ty, $wide:ty, $magnitude:ty, $name:literal, $position:literal, $zero:expr, $one:expr, $widen:expr, $narrow:expr;)+) => { $(
        impl Number for $type {
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            type Magnitude = $magnitude;
        }

        impl sealed::Arithmetic for $type {
            type Wide = $wide;
            const NAME: &'static str = $name;
            const POSITION: usize = $position;
            #[inline]
            fn widen(self) -> $wide {
                let widen: fn(Self) -> $wide = $widen;
                widen(self)
            }
            #[inline]
            fn narrow(wide: $wide) -> Self {
                let narrow: fn($wide) -> Self = $narrow;
                narrow(wide)
            }
        }
    )+ };
}

numbers! {
    f32, f32, f32, "f32", 0, 0.0, 1.0, |x| x, |x| x;
    f64, f64, f64, "f64", 1, 0.0, 1.0, |x| x, |x| x;
    f16, f32, f16, "f16", 2, f16::ZERO, f16::ONE, f16::to_f32, f16::from_f32;
    bf16, f32, bf16, "bf16", 3, bf16::ZERO, bf16::ONE, bf16::to_f32, bf16::from_f32;
    Complex<f32>, Complex<f32>, f32, "c32", 4, Complex::new(0.0, 0.0), Complex::new(1.0, 0.0), |x| x, |x| x;
    Complex<f64>, Complex<f64>, f64, "c64", 5, Complex::new(0.0, 0.0), Complex::new(1.0, 0.0), |x| x, |x| x;
}

impl Real for f32 {}
impl Real for f64 {}
impl Real for f16 {}
impl Real for bf16 {}
impl ComplexNumber for Complex<f32> {}
impl ComplexNumber for Complex<f64> {}
