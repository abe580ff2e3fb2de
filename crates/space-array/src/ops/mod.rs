//! Operations on arrays.

mod combine;
mod compare;
mod convert;
mod elementwise;
mod lanes;
mod operators;
mod product;
mod reduce;
mod reshape;

pub use product::ProductDim;
