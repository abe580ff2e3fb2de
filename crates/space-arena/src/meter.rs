//! What an arena would need.

use std::{
    alloc::Layout,
    cell::{Cell, RefCell},
};

use space_core::{Alignment, AllocError, ArrayOf, Checkpoint, Dims, Element, Space};

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
#[derive(Debug, Default)]
pub struct Meter<S> {
    inner: S,
    alignment: Alignment,
    offset: Cell<usize>,
    watermark: Cell<usize>,
    /// The watermark and offset at the latest checkpoint. There is one at a time: no code of a
    /// caller runs between a checkpoint and its end.
    before: Cell<(usize, usize)>,
    /// Offsets at which the open frames began.
    frames: RefCell<Vec<usize>>,
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
            alignment,
            offset: Cell::new(0),
            watermark: Cell::new(0),
            before: Cell::new((0, 0)),
            frames: RefCell::new(Vec::new()),
        }
    }

    /// The space that the blocks come from.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Bytes that the arena would have taken now.
    pub fn offset(&self) -> usize {
        self.offset.get()
    }

    /// The most bytes that the arena would have had taken at once: its watermark.
    pub fn watermark(&self) -> usize {
        self.watermark.get()
    }

    /// Size in bytes of a slab that holds all of it, the slack for the arena's alignment included
    /// ([`Alignment::slab_bytes`]); `isize::MAX` if there is no such slab.
    pub fn arena_bytes(&self) -> usize {
        self.alignment
            .slab_bytes(self.watermark.get())
            .unwrap_or(isize::MAX as usize)
    }

    /// What the offset becomes by a request, to be committed when it succeeds.
    fn advanced(&self, layout: Layout) -> Result<usize, AllocError> {
        self.alignment.advance(self.offset.get(), layout)
    }

    fn commit(&self, offset: usize) {
        self.offset.set(offset);
        self.watermark.set(self.watermark.get().max(offset));
    }
}

impl<S: Space> Space for Meter<S> {
    type Family = S::Family;
    type Block = S::Block;

    fn block(&self, layout: Layout) -> Result<S::Block, AllocError> {
        let offset = self.advanced(layout)?;
        let block = self.inner.block(layout)?;
        self.commit(offset);
        Ok(block)
    }

    fn typed<T: Element, D: Dims>(&self, dims: D) -> Result<ArrayOf<S, T, D>, AllocError> {
        let len = dims.saturating_len();
        let layout = Layout::array::<T>(len).map_err(|_| AllocError::SizeOverflow {
            len,
            elem_size: size_of::<T>(),
        })?;
        let offset = self.advanced(layout)?;
        let array = self.inner.typed(dims)?;
        self.commit(offset);
        Ok(array)
    }

    fn frame_opened(&self) {
        self.frames.borrow_mut().push(self.offset.get());
        self.inner.frame_opened();
    }

    fn frame_closed(&self) {
        self.inner.frame_closed();
        if let Some(offset) = self.frames.borrow_mut().pop() {
            self.offset.set(offset);
        }
    }

    fn checkpoint(&self) -> Checkpoint {
        self.before.set((self.offset.get(), self.watermark.get()));
        self.inner.checkpoint()
    }

    unsafe fn rollback(&self, to: Checkpoint) {
        let (offset, watermark) = self.before.get();
        self.offset.set(offset);
        self.watermark.set(watermark);
        // SAFETY: The checkpoint is the inner space's, and it handed out what this one did.
        unsafe { self.inner.rollback(to) };
    }
}
