//! Scratch that dies at the end of a block.

use std::{alloc::Layout, fmt, marker::PhantomData};

use crate::{
    AllocError, ArrayOf, Block, CaptureViolation, Checkpoint, Cursor, Dims, Element, Family, Mark,
    Space,
    lend::{Lender, LenderRef},
};

/// An open frame: a space whose carves live as long as `'a` and no longer.
///
/// [`Space::scratch`] opens one for the duration of a closure. It carves through `&self` and opens
/// an inner frame through `&mut self`, so what was carved before the inner frame survives it and
/// nothing is carved behind its back. What is carved inside cannot leave:
///
/// ```compile_fail
/// # use space_core::{AllocError, Heap, Space, Undef};
/// let mut escaped = None;
/// Heap.scratch(|frame| escaped = frame.alloc(Undef::<f32, _>::new([3])).ok());
/// ```
///
/// There is one frame type for every space. Over an arena a carve is arithmetic. Over any other
/// space the frame asks that space, keeps its blocks, and drops them in reverse order at the end
/// of the level they were made in.
///
/// Only the end of the closure gives bytes back, never the drop of a `Frame` value. A frame cannot
/// be sent to another thread or shared with one.
pub struct Frame<'a, F: Family> {
    cursor: &'a Cursor<F>,
    /// A frame of one lifetime is never taken for a frame of another.
    brand: PhantomData<fn(&'a ()) -> &'a ()>,
}

impl<'a, F: Family> Frame<'a, F> {
    #[inline(always)]
    pub(crate) fn over(cursor: &'a Cursor<F>) -> Self {
        Self {
            cursor,
            brand: PhantomData,
        }
    }

    /// The state that the frame shares with its arena.
    #[inline(always)]
    pub(crate) fn cursor(&self) -> &'a Cursor<F> {
        self.cursor
    }

    /// Bytes of the arena that are taken; 0 over a space that is not an arena.
    #[inline]
    #[must_use]
    pub fn offset(&self) -> usize {
        self.cursor.offset()
    }

    /// Bytes of the arena not taken yet; 0 over a space that is not an arena.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.cursor.remaining()
    }

    /// A snapshot of the arena's offset, for [`retract_raw`](Frame::retract_raw).
    #[inline]
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.cursor.mark()
    }

    /// Gives back everything carved since `mark`, while the frame goes on: for callers that hold
    /// raw pointers into their carves and know when they are done with them. Everybody else opens
    /// an inner frame.
    ///
    /// # Errors
    ///
    /// Those of [`Cursor::retract`]. Over a space that is not an arena nothing is given back.
    ///
    /// # Safety
    ///
    /// No carve made since the mark, through whatever frame, is used again, and the mark was taken
    /// on a frame of this level: this one, while no inner one was open.
    #[inline]
    pub unsafe fn retract_raw(&self, mark: Mark) -> Result<(), AllocError> {
        // SAFETY: Handed on; frames open and close in order, so those that are open now were open
        // when a mark of this level was taken.
        unsafe { self.cursor.retract_shared(mark) }
    }

    /// What all carves of the arena share; `None` over a space that is not an arena.
    #[inline]
    #[must_use]
    pub fn region(&self) -> Option<&'a F::Region> {
        self.cursor.region()
    }
}

impl<'a, F: Family> Space for Frame<'a, F> {
    type Family = F;
    type Block = F::Carve<'a>;

    #[inline]
    fn block(&self, layout: Layout) -> Result<F::Carve<'a>, AllocError> {
        self.cursor.block(layout)
    }

    #[inline(always)]
    fn typed<T: Element, D: Dims>(&self, dims: D) -> Result<ArrayOf<Self, T, D>, AllocError> {
        self.cursor.typed(dims)
    }

    #[inline(always)]
    fn scratch<R>(&mut self, body: impl for<'f> FnOnce(&mut Frame<'f, F>) -> R) -> R {
        let _level = self.cursor.open();
        body(&mut Frame::over(self.cursor))
    }

    #[inline(always)]
    fn checkpoint(&self) -> Checkpoint {
        self.cursor.checkpoint()
    }

    #[inline(always)]
    unsafe fn rollback(&self, to: Checkpoint) {
        // SAFETY: Handed on.
        unsafe { self.cursor.rollback(to) };
    }
}

impl<F: Family> fmt::Debug for Frame<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Frame").field(self.cursor).finish()
    }
}

/// A shared borrow of an arena's cursor is a space whose carves live as long as the borrow. It
/// can't open a frame of the arena: that takes the arena by `&mut`.
impl<'a, F: Family> Space for &'a Cursor<F> {
    type Family = F;
    type Block = F::Carve<'a>;

    #[inline]
    fn block(&self, layout: Layout) -> Result<F::Carve<'a>, AllocError> {
        let place = self.carve_layout(layout)?;
        // SAFETY: The cursor gave the place out for this carve alone, and takes the bytes back
        // only when `'a` is over.
        Ok(unsafe { F::carve(place, layout.size()) })
    }

    #[inline(always)]
    fn typed<T: Element, D: Dims>(&self, dims: D) -> Result<ArrayOf<Self, T, D>, AllocError> {
        let len = dims.saturating_len();
        let place = match self.carve_fast::<T>(len) {
            Some(answer) => answer?,
            None => carve_slowly::<F, T, _>(self, len, dims.passed())?,
        };
        // SAFETY: As in `block`; a length that overflows is never taken.
        let block: F::Carve<'a> = unsafe { F::carve(place, len * size_of::<T>()) };
        // SAFETY: The cursor took `len` elements of `T`, aligned for it.
        Ok(unsafe { block.typed(dims) })
    }

    #[inline(always)]
    fn checkpoint(&self) -> Checkpoint {
        Cursor::checkpoint(self)
    }

    #[inline(always)]
    unsafe fn rollback(&self, to: Checkpoint) {
        // SAFETY: Handed on.
        unsafe { Cursor::rollback(self, to) };
    }
}

/// What is left of [`Space::typed`] when the fast path has no answer: one call, so that the fast
/// path has the registers to itself.
#[cold]
#[inline(never)]
fn carve_slowly<F: Family, T, D: Dims>(
    cursor: &Cursor<F>,
    len: usize,
    dims: D,
) -> Result<F::Place, AllocError> {
    // Of elements of no size, a length that overflows takes no bytes either.
    if size_of::<T>() == 0 && dims.checked_len().is_none() {
        return Err(AllocError::SizeOverflow { len, elem_size: 0 });
    }
    cursor
        .carve_slowly(len, size_of::<T>(), align_of::<T>())
        .map_err(|error| CaptureViolation::name::<T, D>(error, dims))
}

/// Opens a frame over a space that is not an arena.
pub(crate) fn scratch_over<S: Space, R>(
    space: &S,
    body: impl for<'f> FnOnce(&mut Frame<'f, S::Family>) -> R,
) -> R {
    let lender = Lender::new(space);
    // SAFETY: `lender` is declared first, so it outlives the cursor and the level, which are the
    // only ones to use it.
    let cursor = Cursor::lent(unsafe { LenderRef::new(&lender) });
    let _level = cursor.open();
    body(&mut Frame::over(&cursor))
}
