//! Extents and strides: which element lies where. Pure arithmetic.

pub(crate) mod arith;
mod dynamic;
mod fixed;
mod overlap;
mod rows;

pub use dynamic::DynLayout;
pub use fixed::Layout;
pub(crate) use rows::Lie;
