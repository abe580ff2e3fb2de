//! Memory of the system's allocator.

use std::{alloc::Layout, sync::Arc};

use space_core::{AllocError, Block, Host, HostBlock, Keeper, Parts, Slab};

/// A slab of memory from the system's allocator, freed with the arena, or with the last ambient
/// array that was made in it.
#[derive(Debug)]
pub struct HostSlab {
    block: HostBlock,
}

impl HostSlab {
    /// Alignment of a slab made by [`new`](HostSlab::new), in bytes: that of a page.
    pub const ALIGNMENT: usize = 4096;

    /// A slab of `bytes`, aligned to a page.
    ///
    /// # Errors
    ///
    /// [`AllocError::OutOfMemory`], and [`AllocError::SizeOverflow`] if `bytes` exceeds
    /// `isize::MAX`.
    pub fn new(bytes: usize) -> Result<Self, AllocError> {
        Self::aligned(bytes, Self::ALIGNMENT)
    }

    /// A slab of `bytes`, rounded up to `alignment` and aligned to it, so that an arena of that
    /// alignment loses nothing to pads.
    ///
    /// # Errors
    ///
    /// [`AllocError::BadAlign`] if `alignment` isn't a power of two, [`AllocError::OutOfMemory`],
    /// and [`AllocError::SizeOverflow`] if the size exceeds `isize::MAX`.
    pub fn aligned(bytes: usize, alignment: usize) -> Result<Self, AllocError> {
        if !alignment.is_power_of_two() {
            return Err(AllocError::BadAlign {
                requested: alignment,
                max: isize::MAX as usize / 2 + 1,
            });
        }
        let layout = bytes
            .checked_next_multiple_of(alignment)
            .and_then(|bytes| Layout::from_size_align(bytes, alignment).ok())
            .ok_or(AllocError::SizeOverflow {
                len: bytes,
                elem_size: 1,
            })?;
        Ok(Self {
            block: HostBlock::new(layout)?,
        })
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.block.bytes()
    }
}

// SAFETY: A block of host memory has its bytes to itself, at a fixed address, until it drops; it
// holds a raw pointer, and its size is that of a `Layout`. The owner is shared, so that any handle
// on it keeps the block.
unsafe impl Slab for HostSlab {
    type Family = Host;
    type Owner = Arc<HostBlock>;

    fn into_parts(self) -> Parts<Host, Arc<HostBlock>> {
        Parts {
            base: self.block.address(),
            bytes: self.block.bytes(),
            region: (),
            owner: Arc::new(self.block),
        }
    }

    fn keeper(owner: &Arc<HostBlock>) -> Option<Keeper> {
        Some(Arc::clone(owner) as Keeper)
    }
}
