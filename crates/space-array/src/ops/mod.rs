//! Operations on arrays.

mod combine;
mod compare;
mod convert;
mod elementwise;
mod gemm;
mod lanes;
mod operators;
mod product;
mod reduce;
mod reshape;
mod scalar;
mod unary;

pub use product::ProductDim;
pub use scalar::Scalar;
