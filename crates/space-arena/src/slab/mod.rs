//! Slabs in host memory, and slabs that are made at a place.

mod borrowed;
#[cfg(feature = "mmap")]
mod mapped;
mod owned;

pub use borrowed::{BorrowedSlab, Lent};
#[cfg(feature = "mmap")]
pub use mapped::{HugePages, MappedSlab, Mapping};
pub use owned::HostSlab;

use space_core::{AllocError, Slab};

/// A slab of which one of any size can be made at a place, such as in a device's memory. See
/// [`Arena::with_capacity_on`](crate::Arena::with_capacity_on).
pub trait SlabOn: Slab + Sized {
    /// Where the memory is.
    type Place: ?Sized;

    /// Why there is no slab.
    type Error: From<AllocError>;

    /// A slab of `bytes` bytes whose base is a multiple of the default
    /// [`Alignment`](space_core::Alignment).
    ///
    /// # Errors
    ///
    /// Those of the place.
    fn slab_on(place: &Self::Place, bytes: usize) -> Result<Self, Self::Error>;
}
