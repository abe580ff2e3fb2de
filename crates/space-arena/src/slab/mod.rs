//! Slabs in host memory.

mod borrowed;
#[cfg(feature = "mmap")]
mod mapped;
mod owned;

pub use borrowed::{BorrowedSlab, Lent};
#[cfg(feature = "mmap")]
pub use mapped::{HugePages, MappedSlab, Mapping};
pub use owned::HostSlab;
