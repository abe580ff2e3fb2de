//! Open frames.

use std::hint;

use super::Cursor;
use crate::{Checkpoint, Family, lend::LenderRef};

impl<F: Family> Cursor<F> {
    /// Opens a frame: what is carved until the level is dropped is given back then.
    #[inline(always)]
    pub(crate) fn open(&self) -> Level<'_, F> {
        let to = match &self.lender {
            None => self.left.get(),
            Some(lender) => open_lent(lender),
        };
        Level { cursor: self, to }
    }

    /// Ends a frame that began at `to`: bytes left, or blocks kept.
    ///
    /// # Safety
    ///
    /// Frames that began later have ended, and no carve with a lifetime that was made since is used
    /// again.
    #[inline(always)]
    pub(crate) unsafe fn close(&self, Checkpoint(to): Checkpoint) {
        let to = if self.left.get() < self.gate.get() {
            hint::cold_path();
            match self.close_slowly(to) {
                Some(to) => to,
                None => return,
            }
        } else {
            to
        };
        // SAFETY: Inner frames have ended, so the cursor is at or below where it was. The caller
        // answers for carves with a lifetime. Ambient arrays that are alive are above `to`:
        // `close_slowly` saw to that, and where it wasn't called there are none.
        unsafe { self.give_back(to) };
    }

    /// Ends a frame where that takes more than moving the cursor: lent blocks, ambient arrays, a
    /// watermark to be folded. Says how far to move the cursor, or `None` if there is none.
    #[cold]
    #[inline(never)]
    fn close_slowly(&self, to: usize) -> Option<usize> {
        if let Some(lender) = &self.lender {
            close_lent(lender, to);
            return None;
        }
        let to = self.pins.borrow_mut().settle(to);
        self.fold();
        Some(to)
    }

    /// Begins a level of ambient arrays. See [`Pins::enter`].
    #[inline]
    pub(crate) fn enter(&self) -> Option<usize> {
        if let Some(lender) = &self.lender {
            enter_lent(lender);
        }
        self.pins.borrow_mut().enter()
    }

    /// Ends a level of ambient arrays. See [`Pins::leave`].
    #[inline]
    pub(crate) fn leave(&self, before: Option<usize>) {
        if let Some(lender) = &self.lender {
            leave_lent(lender);
        }
        self.pins.borrow_mut().leave(before);
    }
}

/// An open frame. Its drop, on return or on panic, restores the state that it saved.
///
/// Private to the crate, and a local of the functions that open frames: no caller can forget it.
pub(crate) struct Level<'c, F: Family> {
    cursor: &'c Cursor<F>,
    /// The saved state: bytes left, or blocks kept.
    to: usize,
}

impl<F: Family> Drop for Level<'_, F> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: Levels are locals, so inner ones are dropped; and carves made since have a
        // lifetime that the closure of the frame could not name outside.
        unsafe { self.cursor.close(Checkpoint(self.to)) };
    }
}

#[cold]
#[inline(never)]
fn open_lent<F: Family>(lender: &LenderRef<F>) -> usize {
    let kept = lender.get().kept();
    lender.get().opened();
    kept
}

#[cold]
#[inline(never)]
fn close_lent<F: Family>(lender: &LenderRef<F>, to: usize) {
    /// Tells the space, also if a block's drop unwinds.
    struct Told<'l, F: Family>(&'l LenderRef<F>);
    impl<F: Family> Drop for Told<'_, F> {
        fn drop(&mut self) {
            self.0.get().closed();
        }
    }
    let told = Told(lender);
    told.0.get().release(to);
}

#[cold]
#[inline(never)]
fn enter_lent<F: Family>(lender: &LenderRef<F>) {
    lender.get().ambient_opened();
}

#[cold]
#[inline(never)]
fn leave_lent<F: Family>(lender: &LenderRef<F>) {
    lender.get().ambient_closed();
}
