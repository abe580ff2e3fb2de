//! Matrix products by cuBLAS, found and loaded when the program runs.
//!
//! `places` says where it may be, `needs` which device and driver can use it, `library` loads it, `calls` declares its functions, `error`
//! says what went wrong; `provider` is what users choose, `owned` a handle of the library, `setting` what it is set to, `handle` what is
//! done with it, `operands` whether a product's memory is its own to use, `product` a product as the library takes it, `trial` what comes
//! before one is captured, and `tables` where batches of pointers keep them.

mod calls;
mod error;
mod handle;
mod library;
mod needs;
mod operands;
mod owned;
mod places;
mod product;
mod provider;
mod setting;
mod tables;
#[cfg(test)]
mod tests;
mod trial;

pub use error::{CublasError, CublasStatus, FailedCall, ProductSizes, TriedFile, TriedPlace};
pub use library::Version as CublasVersion;
pub use provider::{Cublas, CublasBuilder, MathMode};
