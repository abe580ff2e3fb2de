//! The closed set of functions of one element.

use crate::number::sealed::Arithmetic;
use crate::{TensorError, TensorResult};

/// The codes by which kernels know functions.
pub(crate) mod code {
    pub(crate) const NOTHING: u32 = 0;
    pub(crate) const NEGATE: u32 = 1;
    pub(crate) const ABSOLUTE: u32 = 2;
    pub(crate) const CONJUGATE: u32 = 3;
    pub(crate) const SQUARE: u32 = 4;
    pub(crate) const SQUARE_ROOT: u32 = 5;
    pub(crate) const RECIPROCAL: u32 = 6;
    pub(crate) const EXPONENTIAL: u32 = 7;
    pub(crate) const LOGARITHM: u32 = 8;
    pub(crate) const SINE: u32 = 9;
    pub(crate) const COSINE: u32 = 10;
    pub(crate) const TANH: u32 = 11;
    pub(crate) const SIGMOID: u32 = 12;
    pub(crate) const RELU: u32 = 13;
}

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Map {
    /// -x.
    Negate,
    /// |x|; of a complex number, as a complex number.
    Absolute,
    /// The complex conjugate; a real number is its own.
    Conjugate,
    /// x x.
    Square,
    /// The principal square root; NaN for a negative real number.
    SquareRoot,
    /// 1 / x.
    Reciprocal,
    /// e to the power of x.
    Exponential,
    /// The natural logarithm; NaN for a negative real number.
    Logarithm,
    /// sin x.
    Sine,
    /// cos x.
    Cosine,
    /// tanh x.
    Tanh,
    /// 1 / (1 + e^-x). Not for complex numbers.
    Sigmoid,
    /// max(0, x); a NaN stays one. Not for complex numbers.
    Relu,
}

impl Map {
    /// The code, for elements of type `T`, which `operand` has.
    pub(crate) fn code<T: Arithmetic>(self, operand: &'static str) -> TensorResult<u32> {
        let (operation, code) = match self {
            Self::Negate => ("negate", code::NEGATE),
            Self::Absolute => ("absolute", code::ABSOLUTE),
            Self::Conjugate => ("conjugate", code::CONJUGATE),
            Self::Square => ("square", code::SQUARE),
            Self::SquareRoot => ("square root", code::SQUARE_ROOT),
            Self::Reciprocal => ("reciprocal", code::RECIPROCAL),
            Self::Exponential => ("exponential", code::EXPONENTIAL),
            Self::Logarithm => ("logarithm", code::LOGARITHM),
            Self::Sine => ("sine", code::SINE),
            Self::Cosine => ("cosine", code::COSINE),
            Self::Tanh => ("tanh", code::TANH),
            Self::Sigmoid => ("sigmoid", code::SIGMOID),
            Self::Relu => ("relu", code::RELU),
        };
        let complex = T::NAME.starts_with('c');
        match self {
            Self::Sigmoid | Self::Relu if complex => Err(TensorError::Unsupported {
                operation,
                operand,
                element: T::NAME,
            }),
            _ => Ok(code),
        }
    }
}

/// What is applied after a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// Nothing.
    Identity,
    /// max(0, x); a NaN stays one.
    Relu,
    /// tanh x.
    Tanh,
    /// 1 / (1 + e^-x).
    Sigmoid,
}

impl Activation {
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Identity => code::NOTHING,
            Self::Relu => code::RELU,
            Self::Tanh => code::TANH,
            Self::Sigmoid => code::SIGMOID,
        }
    }
}
