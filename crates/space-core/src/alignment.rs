//! Where carves start.

use std::alloc::Layout;

use crate::{AllocError, bump};

/// Where the carves of an arena start: each at a multiple of [`alignment`](Alignment::alignment),
/// or of its element type's own alignment if that is larger, up to [`max`](Alignment::max).
///
/// Alignment is of addresses. The arena pads its origin to `max` from the slab's base address, so
/// every offset that is a multiple is an address that is one.
///
/// ```
/// use space_core::Alignment;
/// let default = Alignment::default();
/// assert_eq!((default.alignment(), default.max()), (256, 256));
/// let natural = Alignment::new(1)?; // each carve at its element type's own
/// assert_eq!((natural.alignment(), natural.max()), (1, 16));
/// assert_eq!(natural.up_to(64)?.max(), 64);
/// assert!(Alignment::new(3).is_err());
/// # Ok::<(), space_core::AllocError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    carve: usize,
    origin: usize,
}

impl Default for Alignment {
    /// 256 bytes: what device allocators give, and what device libraries want of their workspaces.
    fn default() -> Self {
        Self {
            carve: 256,
            origin: 256,
        }
    }
}

impl Alignment {
    /// Each carve starts at a multiple of `alignment` bytes.
    ///
    /// Never below its element type's own: with an `alignment` of 1, each carve has just that.
    /// Element types aligned to up to 16 bytes are always served, which is every primitive one.
    /// For others name a larger `alignment` here or in [`up_to`](Alignment::up_to).
    ///
    /// # Errors
    ///
    /// [`AllocError::BadAlign`] if `alignment` is not a power of two.
    pub fn new(alignment: usize) -> Result<Self, AllocError> {
        check(alignment)?;
        Ok(Self {
            carve: alignment,
            origin: alignment.max(bump::FAST_ALIGN),
        })
    }

    /// Serves element types and layouts aligned to up to `max` bytes, by aligning the origin so.
    ///
    /// # Errors
    ///
    /// [`AllocError::BadAlign`] if `max` is not a power of two.
    pub fn up_to(self, max: usize) -> Result<Self, AllocError> {
        check(max)?;
        Ok(Self {
            carve: self.carve,
            origin: self.origin.max(max),
        })
    }

    /// Each carve starts at a multiple of this, in bytes, and of its element type's own alignment.
    #[must_use]
    pub fn alignment(self) -> usize {
        self.carve
    }

    /// The largest alignment served, in bytes, 16 at least; the arena's origin is a multiple of it.
    #[must_use]
    pub fn max(self) -> usize {
        self.origin
    }

    /// Size in bytes of a slab that gives an arena of this alignment room for `watermark` bytes,
    /// wherever the slab lies: the watermark rounded up, and the slack for the origin's pad.
    ///
    /// # Errors
    ///
    /// [`AllocError::SizeOverflow`] if that exceeds `isize::MAX`.
    ///
    /// ```
    /// use space_core::Alignment;
    /// assert_eq!(Alignment::new(64)?.slab_bytes(100)?, 128 + 63);
    /// # Ok::<(), space_core::AllocError>(())
    /// ```
    pub fn slab_bytes(self, watermark: usize) -> Result<usize, AllocError> {
        bump::slab_bytes(watermark, self.origin).ok_or(AllocError::SizeOverflow {
            len: watermark,
            elem_size: 1,
        })
    }

    /// What an arena's offset becomes when it carves `layout` at `offset`: for those who count
    /// without carving. A request of zero bytes costs nothing.
    ///
    /// # Errors
    ///
    /// [`AllocError::BadAlign`] if the layout's alignment is above [`max`](Alignment::max), and
    /// [`AllocError::SizeOverflow`] if the offset overflows.
    pub fn advance(self, offset: usize, layout: Layout) -> Result<usize, AllocError> {
        if layout.size() == 0 {
            return Ok(offset);
        }
        if layout.align() > self.origin {
            return Err(AllocError::BadAlign {
                requested: layout.align(),
                max: self.origin,
            });
        }
        bump::advance(offset, layout.size(), self.carve.max(layout.align())).ok_or(
            AllocError::SizeOverflow {
                len: layout.size(),
                elem_size: 1,
            },
        )
    }
}

fn check(alignment: usize) -> Result<(), AllocError> {
    if alignment.is_power_of_two() && alignment <= LARGEST {
        Ok(())
    } else {
        Err(AllocError::BadAlign {
            requested: alignment,
            max: LARGEST,
        })
    }
}

/// The largest power of two that a `Layout` can name.
const LARGEST: usize = 1 << (usize::BITS - 2);
