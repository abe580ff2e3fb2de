//! What an arena would have taken.

use std::{
    alloc::Layout,
    cell::{Cell, RefCell},
    sync::Arc,
};

use crate::{Alignment, AllocError, Checkpoint, Cursor, Host, Keeper, Observer, pins::Held};

/// Counts what an arena would have taken for the same carves and frames, without memory.
///
/// It is an arena's own arithmetic, over addresses that nothing is at. Spaces that count for
/// another one are made of it, such as the `Meter` of `space-arena`.
///
/// ```
/// use std::alloc::Layout;
/// use space_core::{Alignment, AllocError, Observer, Tally};
/// let tally = Tally::new(Alignment::default());
/// tally.carve(Layout::new::<[f32; 100]>())?;
/// tally.frame_opened();
/// tally.carve(Layout::new::<u8>())?;
/// tally.frame_closed();
/// assert_eq!((tally.offset(), tally.watermark()), (512, 768));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Debug)]
pub struct Tally {
    cursor: Cursor<Host>,
    /// Where the open frames began.
    frames: RefCell<Vec<Checkpoint>>,
    /// What to pass to the ends of the levels of ambient arrays that are open.
    levels: RefCell<Vec<Option<usize>>>,
    /// The latest checkpoint. There is one at a time: no code of a caller runs between a
    /// checkpoint and its end.
    noted: Cell<Checkpoint>,
}

impl Tally {
    /// A count for an arena of the given alignment.
    #[must_use]
    pub fn new(alignment: Alignment) -> Self {
        let cursor = Cursor::counting(alignment, Arc::new(()));
        Self {
            noted: Cell::new(cursor.checkpoint()),
            cursor,
            frames: RefCell::default(),
            levels: RefCell::default(),
        }
    }

    /// Whether an arena could carve `layout` now.
    ///
    /// # Errors
    ///
    /// Those of [`carve`](Tally::carve).
    pub fn check(&self, layout: Layout) -> Result<(), AllocError> {
        let before = self.cursor.checkpoint();
        self.carve(layout)?;
        // SAFETY: There are no carves, only numbers.
        unsafe { self.cursor.rollback(before) };
        Ok(())
    }

    /// Counts a carve.
    ///
    /// # Errors
    ///
    /// [`AllocError::BadAlign`] if the layout's alignment is above what the arena serves, and
    /// [`AllocError::SizeOverflow`] if no arena is large enough. Nothing is counted then.
    pub fn carve(&self, layout: Layout) -> Result<(), AllocError> {
        match self.cursor.carve_layout(layout) {
            Ok(_) => Ok(()),
            Err(AllocError::OutOfCapacity { wanted_bytes, .. }) => Err(AllocError::SizeOverflow {
                len: wanted_bytes,
                elem_size: 1,
            }),
            Err(error) => Err(error),
        }
    }

    /// Notes the count, to [`undo`](Tally::undo) what follows.
    pub fn note(&self) {
        self.noted.set(self.cursor.checkpoint());
    }

    /// Forgets what was counted since the latest [`note`](Tally::note): carves that were not made
    /// after all. No frame was closed since.
    pub fn undo(&self) {
        // SAFETY: There are no carves, only numbers.
        unsafe { self.cursor.rollback_ambient(self.noted.get()) };
    }

    /// Bytes that the arena would have taken now.
    pub fn offset(&self) -> usize {
        self.cursor.offset()
    }

    /// The most bytes that the arena would have had taken at once.
    pub fn watermark(&self) -> usize {
        self.cursor.watermark()
    }

    /// Bytes that ended frames could not have given back, because ambient arrays were alive there.
    pub fn pinned_bytes(&self) -> usize {
        self.cursor.pinned_bytes()
    }

    /// The alignment counted for.
    pub fn alignment(&self) -> Alignment {
        self.cursor.alignment()
    }
}

impl Observer for Tally {
    fn frame_opened(&self) {
        self.frames.borrow_mut().push(self.cursor.checkpoint());
    }

    fn frame_closed(&self) {
        if let Some(began) = self.frames.borrow_mut().pop() {
            // SAFETY: There are no carves, only numbers.
            unsafe { self.cursor.close(began) };
        }
    }

    fn ambient_opened(&self) {
        let before = self.cursor.enter();
        self.levels.borrow_mut().push(before);
    }

    fn ambient_closed(&self) {
        if let Some(before) = self.levels.borrow_mut().pop() {
            self.cursor.leave(before);
        }
    }

    fn ambient_made(&self, bytes: usize) -> Option<Keeper> {
        self.cursor.hold(bytes).map(Held::keeper)
    }
}
