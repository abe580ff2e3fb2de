//! Matrix products by a library: who provides them, and what a call needs of a device.

mod admission;
#[cfg(feature = "cuda")]
mod cublas;
mod detour;
mod handle;
mod host;
mod lease;
mod lower;
mod product;
mod provider;
mod workspace;

#[cfg(feature = "cuda")]
pub use cublas::{
    Cublas, CublasBuilder, CublasError, CublasStatus, CublasVersion, FailedCall, MathMode,
    ProductSizes, TriedFile, TriedPlace,
};
pub use handle::{Blas, BlasCounts};
pub use host::HostBlas;
pub use lease::{AcquireExecution, Execution, Lease};
pub use provider::{ElementType, Matrix, MatrixHandle, MatrixProduct, MatrixProvider, Transform};

pub(crate) use lease::BlasPermit;
pub(crate) use product::{Operands, Product};
