//! What an arena would need.

use std::{alloc::Layout, sync::Arc};

use space_core::{
    Alignment, AllocError, ArrayOf, Checkpoint, Dims, Element, Keeper, Observer, Space, Tally,
};

/// A space that forwards to another one and counts what an arena would need for the same program.
///
/// A first pass against a `Meter`, eagerly and without a guess at sizes, tells how large the arena
/// of the passes after it has to be. What frames give back is counted as given back, so the
/// watermark is that of a real arena, to the byte.
///
/// ```
/// use space_arena::{Arena, Meter};
/// use space_core::{AllocError, ArrayOf, Heap, Space, Undef};
///
/// fn step<S: Space>(space: &mut S) -> Result<ArrayOf<S, f32, [usize; 1]>, AllocError> {
///     let y = space.alloc(Undef::<f32, _>::new([100]))?;
///     for n in [1000, 10] {
///         space.scratch(|frame| frame.alloc(Undef::<f64, _>::new([n])).map(drop))?;
///     }
///     Ok(y)
/// }
///
/// let mut meter = Meter::new(Heap);
/// step(&mut meter)?;
///
/// let mut arena = Arena::with_capacity(meter.arena_bytes())?;
/// step(&mut arena.frame())?;
/// assert_eq!(arena.watermark(), meter.watermark());
/// # Ok::<(), AllocError>(())
/// ```
///
/// Arrays that the meter hands out outside of any frame are counted as carved for good, whenever
/// they are dropped: an arena would not notice either.
///
/// Code that allocates ambiently is measured by a scratch block on the meter, which binds it. Bytes
/// that an array would have pinned by outliving its block are counted, too:
///
/// ```
/// use space_arena::{Arena, Meter};
/// use space_core::{AllocError, Heap, Undef, ambient_alloc, ambient_scratch, with_scratch};
///
/// fn step() -> Result<usize, AllocError> {
///     let kept = ambient_scratch(|| ambient_alloc(Undef::<f32, _>::new([100])))??;
///     let more = ambient_alloc(Undef::like(&kept))?;
///     Ok(kept.len() + more.len())
/// }
///
/// let mut meter = Meter::new(Heap);
/// with_scratch(&mut meter, step)?;
///
/// let mut arena = Arena::with_capacity(meter.watermark())?;
/// with_scratch(&mut arena.frame(), step)?;
/// assert_eq!((arena.watermark(), meter.watermark()), (1024, 1024));
/// # Ok::<(), AllocError>(())
/// ```
///
/// A meter is of one thread. Work that the program hands to other threads, in a shared scope, is
/// not counted: it would not come from the arena.
#[derive(Debug)]
pub struct Meter<S> {
    inner: S,
    tally: Tally,
}

impl<S: Space> Meter<S> {
    /// Counts for an arena of the default alignment, and takes the blocks from `inner`.
    pub fn new(inner: S) -> Self {
        Self::aligned(inner, Alignment::default())
    }

    /// Counts for an arena of the given alignment.
    pub fn aligned(inner: S, alignment: Alignment) -> Self {
        Self {
            inner,
            tally: Tally::new(alignment),
        }
    }

    /// The space that the blocks come from.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Bytes that the arena would have taken now.
    pub fn offset(&self) -> usize {
        self.tally.offset()
    }

    /// The most bytes that the arena would have had taken at once: its watermark.
    pub fn watermark(&self) -> usize {
        self.tally.watermark()
    }

    /// Bytes that ended frames would not have given back, because ambient arrays were alive there.
    pub fn pinned_bytes(&self) -> usize {
        self.tally.pinned_bytes()
    }

    /// Size in bytes of a slab that holds all of it, the slack for the arena's alignment included
    /// ([`Alignment::slab_bytes`]); `isize::MAX` if there is no such slab.
    pub fn arena_bytes(&self) -> usize {
        self.tally
            .alignment()
            .slab_bytes(self.tally.watermark())
            .unwrap_or(isize::MAX as usize)
    }
}

impl<S: Space + Default> Default for Meter<S> {
    fn default() -> Self {
        Self::new(S::default())
    }
}

impl<S: Space> Space for Meter<S> {
    type Family = S::Family;
    type Block = S::Block;

    fn block(&self, layout: Layout) -> Result<S::Block, AllocError> {
        self.tally.check(layout)?;
        let block = self.inner.block(layout)?;
        self.tally.carve(layout)?;
        Ok(block)
    }

    fn typed<T: Element, D: Dims>(&self, dims: D) -> Result<ArrayOf<S, T, D>, AllocError> {
        let len = dims.saturating_len();
        let layout = Layout::array::<T>(len).map_err(|_| AllocError::SizeOverflow {
            len,
            elem_size: size_of::<T>(),
        })?;
        self.tally.check(layout)?;
        let array = self.inner.typed(dims)?;
        self.tally.carve(layout)?;
        Ok(array)
    }

    fn observer(&self) -> Option<&dyn Observer> {
        Some(self)
    }

    fn checkpoint(&self) -> Checkpoint {
        self.tally.note();
        self.inner.checkpoint()
    }

    unsafe fn rollback(&self, to: Checkpoint) {
        self.tally.undo();
        // SAFETY: The checkpoint is the inner space's, and it handed out what this one did.
        unsafe { self.inner.rollback(to) };
    }
}

/// Counts, and tells whoever counts for the space below.
impl<S: Space> Observer for Meter<S> {
    fn frame_opened(&self) {
        self.tally.frame_opened();
        if let Some(below) = self.inner.observer() {
            below.frame_opened();
        }
    }

    fn frame_closed(&self) {
        self.tally.frame_closed();
        if let Some(below) = self.inner.observer() {
            below.frame_closed();
        }
    }

    fn ambient_opened(&self) {
        self.tally.ambient_opened();
        if let Some(below) = self.inner.observer() {
            below.ambient_opened();
        }
    }

    fn ambient_closed(&self) {
        self.tally.ambient_closed();
        if let Some(below) = self.inner.observer() {
            below.ambient_closed();
        }
    }

    fn ambient_made(&self, bytes: usize) -> Option<Keeper> {
        let below = self.inner.observer();
        let below = below.and_then(|below| below.ambient_made(bytes));
        match (self.tally.ambient_made(bytes), below) {
            (Some(here), Some(below)) => Some(Arc::new((here, below))),
            (here, below) => here.or(below),
        }
    }
}
