//! Memory mapped from the system.

use std::{ptr::NonNull, sync::Arc};

use memmap2::{MmapMut, MmapOptions};
use space_core::{AllocError, Host, Keeper, Parts, Slab};

/// A slab of an anonymous mapping: page-aligned, taken page by page as it is first written, and
/// given back to the system with the arena or with the last ambient array that was made in it.
#[derive(Debug)]
pub struct MappedSlab {
    map: MmapMut,
}

/// What holds a mapping, and gives no access to it.
#[derive(Debug)]
pub struct Mapping {
    _map: MmapMut,
}

/// Which pages the system granted to [`MappedSlab::huge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HugePages {
    /// Huge pages that were set aside for such mappings.
    Reserved,
    /// Ordinary pages that the system was asked to merge into huge ones as it sees fit.
    Advised,
    /// Ordinary pages.
    Refused,
}

impl MappedSlab {
    /// Size of a huge page as asked for by [`huge`](MappedSlab::huge), in bytes.
    pub const HUGE_PAGE: usize = 2 << 20;

    /// A mapping of at least `bytes`, rounded up to 256.
    ///
    /// # Errors
    ///
    /// [`AllocError::OutOfMemory`] if the system has no such mapping, and
    /// [`AllocError::SizeOverflow`] if the size exceeds `isize::MAX`.
    pub fn new(bytes: usize) -> Result<Self, AllocError> {
        let bytes = rounded(bytes, 256)?;
        let map = options(bytes).map_anon();
        let map = map.map_err(|_| out_of_memory(bytes))?;
        Ok(Self { map })
    }

    /// A mapping of at least `bytes`, rounded up to [`HUGE_PAGE`](MappedSlab::HUGE_PAGE), of huge
    /// pages where the system grants them; and which pages it granted.
    ///
    /// # Errors
    ///
    /// Those of [`new`](MappedSlab::new). Not to be granted huge pages is no error.
    pub fn huge(bytes: usize) -> Result<(Self, HugePages), AllocError> {
        let bytes = rounded(bytes, Self::HUGE_PAGE)?;
        #[cfg(target_os = "linux")]
        {
            let page_bits = Self::HUGE_PAGE.trailing_zeros() as u8;
            if let Ok(map) = options(bytes).huge(Some(page_bits)).map_anon() {
                return Ok((Self { map }, HugePages::Reserved));
            }
            let slab = Self::new(bytes)?;
            let granted = match slab.map.advise(memmap2::Advice::HugePage) {
                Ok(()) => HugePages::Advised,
                Err(_) => HugePages::Refused,
            };
            Ok((slab, granted))
        }
        #[cfg(not(target_os = "linux"))]
        Ok((Self::new(bytes)?, HugePages::Refused))
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.len()
    }
}

/// An arena of no bytes is a mapping of none, which the system doesn't have: take the least.
fn options(bytes: usize) -> MmapOptions {
    let mut options = MmapOptions::new();
    options.len(bytes.max(1));
    options
}

fn rounded(bytes: usize, to: usize) -> Result<usize, AllocError> {
    bytes
        .checked_next_multiple_of(to)
        .filter(|&rounded| rounded <= isize::MAX as usize)
        .ok_or(AllocError::SizeOverflow {
            len: bytes,
            elem_size: 1,
        })
}

#[cold]
fn out_of_memory(bytes: usize) -> AllocError {
    AllocError::OutOfMemory { bytes, align: 4096 }
}

// SAFETY: An anonymous mapping has its bytes to itself, at a fixed address, until it drops, and is
// not longer than `isize::MAX`. The owner is only held, so the mapping is never accessed through
// it; it is shared, so that any handle on it keeps the mapping.
unsafe impl Slab for MappedSlab {
    type Family = Host;
    type Owner = Arc<Mapping>;

    fn into_parts(mut self) -> Parts<Host, Arc<Mapping>> {
        Parts {
            base: NonNull::from(&mut *self.map).cast(),
            bytes: self.map.len(),
            region: (),
            owner: Arc::new(Mapping { _map: self.map }),
        }
    }

    fn keeper(owner: &Arc<Mapping>) -> Option<Keeper> {
        Some(Arc::clone(owner) as Keeper)
    }
}
