//! Giving bytes back.

use std::{hint, ops::Range};

use super::Cursor;
use crate::{AllocError, Family, lend::LenderRef, space::Checkpoint};

impl<F: Family> Cursor<F> {
    /// Moves the cursor up to `to`.
    ///
    /// # Safety
    ///
    /// `to` is between the cursor and the capacity, and no carve made since the cursor was there
    /// is used again. Ambient arrays made since are gone.
    #[inline(always)]
    pub(super) unsafe fn give_back(&self, to: usize) {
        if let Some(region) = &self.region {
            // SAFETY: The range is what was claimed since the cursor was at `to`; the caller says
            // that those carves are done with.
            unsafe { F::retract(region, self.addresses(self.left.get()..to)) };
        }
        self.left.set(to);
    }

    /// Gives back what was carved since the cursor was at `to`, unless ambient arrays are alive
    /// there.
    ///
    /// # Safety
    ///
    /// `to` is between the cursor and the capacity, and no carve with a lifetime that was made
    /// since the cursor was there is used again.
    #[inline(always)]
    pub(super) unsafe fn retract_to(&self, to: usize) -> Result<(), AllocError> {
        if self.left.get() < self.gate.get() {
            hint::cold_path();
            self.unpin(to)?;
        }
        // SAFETY: As the caller says, and ambient arrays are gone: `unpin` saw to that, and where
        // it wasn't called there are none.
        unsafe { self.give_back(to) };
        Ok(())
    }

    /// Folds the watermark, and makes sure that no ambient array is alive below `to`.
    #[cold]
    #[inline(never)]
    fn unpin(&self, to: usize) -> Result<(), AllocError> {
        let arrays = self.pins.borrow().alive_below(to);
        if arrays > 0 {
            return Err(AllocError::StillAlive { arrays });
        }
        let settled = self.pins.borrow_mut().settle(to);
        debug_assert_eq!(settled, to, "a token was held that was not counted");
        self.fold();
        Ok(())
    }

    /// Folds the watermark and sets the gate.
    pub(super) fn fold(&self) {
        self.lowest.set(self.lowest.get().min(self.left.get()));
        let ungated = self.lender.is_none() && self.pins.borrow().is_empty();
        self.gate.set(if ungated {
            self.lowest.get()
        } else {
            usize::MAX
        });
    }

    fn addresses(&self, lefts: Range<usize>) -> Range<usize> {
        let base = self.base.0.addr().get();
        base + lefts.start..base + lefts.end
    }

    /// Where a roll-back would return to.
    #[inline(always)]
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint(match &self.lender {
            None => self.left.get(),
            Some(lender) => checkpoint_lent(lender),
        })
    }

    /// Undoes the carves since `to`, as if they had not been made: the watermark forgets them.
    ///
    /// # Safety
    ///
    /// `to` is a checkpoint of this cursor, nothing was given back since, and no carve made since
    /// is used again.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn rollback(&self, to: Checkpoint) {
        match (&self.lender, &self.region) {
            // SAFETY: Handed on.
            (Some(lender), _) => unsafe { lender.get().rollback(to.0) },
            (None, Some(region)) => {
                // SAFETY: As in `give_back`.
                unsafe { F::retract(region, self.addresses(self.left.get()..to.0)) };
                self.left.set(to.0);
            }
            (None, None) => {}
        }
    }

    /// Undoes the ambient carves since `to`, whose arrays have been dropped.
    ///
    /// # Safety
    ///
    /// As for [`Cursor::rollback`].
    pub(crate) unsafe fn rollback_ambient(&self, to: Checkpoint) {
        if self.lender.is_none() {
            self.pins.borrow_mut().roll_back(to.0);
        }
        // SAFETY: Handed on.
        unsafe { self.rollback(to) };
    }
}

#[cold]
#[inline(never)]
fn checkpoint_lent<F: Family>(lender: &LenderRef<F>) -> usize {
    lender.get().checkpoint()
}
