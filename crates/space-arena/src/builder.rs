//! How an arena is made.

use space_core::{Alignment, AllocError, Slab};

use crate::{Arena, HostSlab};

/// Names the alignments of an arena, then takes its slab.
///
/// ```
/// use space_arena::{Arena, HostSlab};
/// use space_core::AllocError;
///
/// let packed = Arena::builder().alignment(16).max_alignment(64).capacity(1000)?;
/// assert_eq!(packed.capacity(), 1024);
///
/// let slab = HostSlab::new(1 << 12)?;
/// let arena = Arena::builder().alignment(128).build(slab)?;
/// assert_eq!(arena.alignment().alignment(), 128);
///
/// let wrong = Arena::builder().alignment(3).capacity(1000);
/// assert!(matches!(wrong, Err(AllocError::BadAlign { requested: 3, .. })));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ArenaBuilder {
    alignment: Option<usize>,
    max_alignment: Option<usize>,
}

impl ArenaBuilder {
    /// Each carve starts at a multiple of `bytes` (a power of two; 256 if not named), or of its
    /// element type's own alignment, if that is larger. So 1 leaves it to the element types.
    #[must_use]
    pub fn alignment(self, bytes: usize) -> Self {
        Self {
            alignment: Some(bytes),
            ..self
        }
    }

    /// The largest alignment of element types and layouts that the arena serves, if that is to be
    /// more than `alignment`: a power of two. The slab's origin is padded to it.
    #[must_use]
    pub fn max_alignment(self, bytes: usize) -> Self {
        Self {
            max_alignment: Some(bytes),
            ..self
        }
    }

    /// The alignments, checked.
    ///
    /// # Errors
    ///
    /// [`AllocError::BadAlign`] if one isn't a power of two.
    pub fn checked(self) -> Result<Alignment, AllocError> {
        let alignment = match self.alignment {
            Some(bytes) => Alignment::new(bytes)?,
            None => Alignment::default(),
        };
        match self.max_alignment {
            Some(bytes) => alignment.up_to(bytes),
            None => Ok(alignment),
        }
    }

    /// An arena over `slab`.
    ///
    /// # Errors
    ///
    /// [`AllocError::BadAlign`] if an alignment isn't a power of two, and
    /// [`AllocError::SlabTooSmall`] if the slab ends before its first aligned byte.
    pub fn build<S: Slab>(self, slab: S) -> Result<Arena<S>, AllocError> {
        Arena::aligned(slab, self.checked()?)
    }

    /// An arena over host memory of its own, with room for `capacity_bytes`, rounded up to the
    /// largest alignment.
    ///
    /// # Errors
    ///
    /// [`AllocError::BadAlign`], [`AllocError::OutOfMemory`], and [`AllocError::SizeOverflow`] if
    /// the rounded size exceeds `isize::MAX`.
    pub fn capacity(self, capacity_bytes: usize) -> Result<Arena<HostSlab>, AllocError> {
        let alignment = self.checked()?;
        let slab = HostSlab::aligned(capacity_bytes, alignment.max())?;
        Arena::aligned(slab, alignment)
    }
}
