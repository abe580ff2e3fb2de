//! The arena.

use std::{alloc::Layout, fmt, ptr::NonNull};

use space_core::{
    Alignment, AllocError, ArrayOf, Checkpoint, Cursor, Describe, Dims, Element, Epoch, Family,
    Frame, Mark, Slab, Space,
};

use crate::{ArenaBuilder, HostSlab, SlabOn};

/// A bump allocator over one slab.
///
/// It does arithmetic only: it never grows, takes no lock, calls no allocator, and gives the same
/// addresses for the same sequence of requests. Nothing tracks single carves; bytes are given back
/// in bulk, by the end of a frame, by [`retract`](Arena::retract) and by [`reset`](Arena::reset).
///
/// ```
/// use space_arena::Arena;
/// use space_core::{AllocError, Space, Undef};
///
/// let mut arena = Arena::with_capacity(1 << 16)?;
/// let mut frame = arena.frame();
/// let y = frame.alloc(Undef::<f32, _>::new([8, 8]))?;
/// frame.scratch(|inner| inner.alloc(Undef::like(&y)).map(drop))?;
/// let y = y.filled(1.0); // survived the inner frame
/// assert_eq!(y.iter().sum::<f32>(), 64.0);
///
/// assert_eq!((arena.offset(), arena.watermark()), (256, 512));
/// arena.reset()?;
/// assert_eq!((arena.offset(), arena.watermark()), (0, 512));
/// # Ok::<(), AllocError>(())
/// ```
///
/// Carves borrow the arena, so none is left when bytes are given back:
///
/// ```compile_fail
/// # use space_arena::Arena;
/// # use space_core::{Space, Undef};
/// # let mut arena = Arena::with_capacity(1 << 16).unwrap();
/// let y = arena.frame().alloc(Undef::<f32, _>::new([8])).unwrap();
/// arena.reset().unwrap();
/// y.filled(1.0);
/// ```
///
/// # Offsets
///
/// A carve takes its bytes and the padding up to the next multiple of its alignment at once, so
/// [`offset`](Arena::offset) and [`watermark`](Arena::watermark) are multiples of the arena's
/// alignment. A request of zero bytes takes nothing, and a failed one changes nothing. The arena
/// hands bytes out from the slab's end downwards.
///
/// An arena can be moved to another thread between uses, and never shared with one.
pub struct Arena<S: Slab> {
    /// Before `owner`: the region may refer to the memory.
    cursor: Cursor<S::Family>,
    /// Only held: to hand it out could be to hand out the memory.
    _owner: S::Owner,
}

impl Arena<HostSlab> {
    /// An arena of the default alignment over host memory of its own, with room for
    /// `capacity_bytes`, rounded up to the alignment.
    ///
    /// # Errors
    ///
    /// [`AllocError::OutOfMemory`] and [`AllocError::SizeOverflow`].
    pub fn with_capacity(capacity_bytes: usize) -> Result<Self, AllocError> {
        Self::builder().capacity(capacity_bytes)
    }

    /// Sets the alignment of the carves, then takes a slab of any kind.
    #[must_use]
    pub fn builder() -> ArenaBuilder {
        ArenaBuilder::default()
    }
}

impl<S: Slab> Arena<S> {
    /// An arena of the default alignment over `slab`.
    ///
    /// # Errors
    ///
    /// [`AllocError::SlabTooSmall`] if the slab ends before its first aligned byte.
    pub fn over(slab: S) -> Result<Self, AllocError> {
        Self::aligned(slab, Alignment::default())
    }

    /// An arena over `slab` whose carves start as `alignment` says.
    ///
    /// # Errors
    ///
    /// [`AllocError::SlabTooSmall`] if the slab ends before its first aligned byte.
    pub fn aligned(slab: S, alignment: Alignment) -> Result<Self, AllocError> {
        // SAFETY: The parts are a slab's, and the owner lives in the arena, dropped after the
        // cursor. The cursor is private and never moved out or swapped with another arena's.
        let (mut cursor, owner) = unsafe { Cursor::new(slab.into_parts(), alignment) }?;
        if let Some(keeper) = S::keeper(&owner) {
            // SAFETY: It is the keeper of this slab.
            unsafe { cursor.keep_with(keeper) };
        }
        Ok(Self {
            cursor,
            _owner: owner,
        })
    }

    /// An arena of the default alignment over memory of its own at `place`, with room for
    /// `capacity_bytes`, rounded up to the alignment. [`with_capacity`](Arena::with_capacity) is
    /// the form for host memory.
    ///
    /// # Errors
    ///
    /// Those of the place, and [`AllocError::SizeOverflow`] if the rounded size exceeds
    /// `isize::MAX`.
    #[track_caller]
    pub fn with_capacity_on(place: &S::Place, capacity_bytes: usize) -> Result<Self, S::Error>
    where
        S: SlabOn,
    {
        let bytes = capacity_bytes
            .checked_next_multiple_of(Alignment::default().max())
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or(AllocError::SizeOverflow {
                len: capacity_bytes,
                elem_size: 1,
            })?;
        Ok(Self::over(S::slab_on(place, bytes)?)?)
    }

    /// The frame of everything that follows. It borrows the arena exclusively; its carves live as
    /// long as that borrow.
    #[inline]
    pub fn frame(&mut self) -> Frame<'_, S::Family> {
        self.cursor.frame()
    }

    /// Materialises a description; the arrays live as long as this shared borrow of the arena.
    ///
    /// # Errors
    ///
    /// Those of [`Space::alloc`].
    #[inline(always)]
    pub fn alloc<'a, D>(&'a self, description: D) -> Result<D::Out, AllocError>
    where
        D: Describe<<S::Family as Family>::Carve<'a>>,
    {
        (&self.cursor).alloc(description)
    }

    /// A snapshot of the offset.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.cursor.mark()
    }

    /// Gives back everything carved since `mark`, at once. Retracting to the same mark twice with
    /// nothing in between is a no-op.
    ///
    /// # Errors
    ///
    /// [`AllocError::MarkOfOtherArena`]; [`AllocError::StaleMark`] for a mark from before a
    /// reset; [`AllocError::MarkAboveOffset`]; [`AllocError::StillAlive`] if ambient arrays are
    /// alive in the bytes. Nothing changes then.
    #[inline]
    pub fn retract(&mut self, mark: Mark) -> Result<(), AllocError> {
        self.cursor.retract(mark)
    }

    /// Gives everything back and begins the next epoch: marks taken before are stale. The
    /// watermark stays.
    ///
    /// # Errors
    ///
    /// [`AllocError::StillAlive`] if ambient arrays are alive; nothing changes then.
    #[inline]
    pub fn reset(&mut self) -> Result<(), AllocError> {
        self.cursor.reset()
    }

    /// Bytes that ended frames could not give back because ambient arrays were alive there. A
    /// later end of a frame, a retract or a reset gives them back.
    pub fn pinned_bytes(&self) -> usize {
        self.cursor.pinned_bytes()
    }

    /// Bytes taken, padding included.
    #[inline]
    pub fn offset(&self) -> usize {
        self.cursor.offset()
    }

    /// Bytes that can be taken in all: the slab's, less the pads that align its two ends. A
    /// multiple of the largest alignment served.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.cursor.capacity()
    }

    /// Bytes not taken yet.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.cursor.remaining()
    }

    /// The largest offset ever reached: what everything that ran against this arena needed, in
    /// bytes. It survives resets. [`slab_bytes`](Arena::slab_bytes) makes a slab's size of it.
    #[inline]
    pub fn watermark(&self) -> usize {
        self.cursor.watermark()
    }

    /// How often the arena was reset.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.cursor.epoch()
    }

    /// Where carves start.
    pub fn alignment(&self) -> Alignment {
        self.cursor.alignment()
    }

    /// Size in bytes of a slab that holds what ran against this arena so far, slack for its
    /// alignment included: the watermark, made a slab's size by [`Alignment::slab_bytes`].
    ///
    /// # Errors
    ///
    /// [`AllocError::SizeOverflow`] if that exceeds `isize::MAX`.
    pub fn slab_bytes(&self) -> Result<usize, AllocError> {
        self.alignment().slab_bytes(self.watermark())
    }

    /// What all carves share: `()` in host memory; a device's buffer and ledgers.
    #[inline]
    pub fn region(&self) -> &<S::Family as Family>::Region {
        self.cursor
            .region()
            .expect("the cursor of an arena has a region")
    }

    /// Address of the arena's lowest byte, a multiple of the largest alignment served. For a
    /// device, a number.
    pub fn base(&self) -> NonNull<u8> {
        self.cursor.base()
    }
}

impl<S: Slab> fmt::Debug for Arena<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Arena").field(&self.cursor).finish()
    }
}

/// A shared borrow of an arena is a space whose arrays live as long as the borrow.
///
/// It can't open a frame of the arena, which takes the arena by `&mut`: a
/// [`scratch`](Space::scratch) block over the borrow gives nothing back before the arena does.
impl<'a, S: Slab> Space for &'a Arena<S> {
    type Family = S::Family;
    type Block = <S::Family as Family>::Carve<'a>;

    #[inline]
    fn block(&self, layout: Layout) -> Result<Self::Block, AllocError> {
        (&self.cursor).block(layout)
    }

    #[inline(always)]
    fn typed<T: Element, D: Dims>(&self, dims: D) -> Result<ArrayOf<Self, T, D>, AllocError> {
        (&self.cursor).typed(dims)
    }

    #[inline(always)]
    fn checkpoint(&self) -> Checkpoint {
        Space::checkpoint(&&self.cursor)
    }

    #[inline(always)]
    unsafe fn rollback(&self, to: Checkpoint) {
        // SAFETY: Handed on.
        unsafe { Space::rollback(&&self.cursor, to) };
    }
}
