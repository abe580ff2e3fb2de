//! Slabs in host memory.

mod borrowed;
mod owned;

pub use borrowed::{BorrowedSlab, Lent};
pub use owned::HostSlab;
