//! Taking bytes.

use std::{alloc::Layout, num::NonZero, ptr::NonNull};

use super::{Cursor, NOWHERE, offset};
use crate::{AllocError, Family, bump, pins::Held};

impl<F: Family> Cursor<F> {
    /// Takes `len` elements of `T`, or says `None` where it takes [`carve_slowly`] to answer.
    ///
    /// [`carve_slowly`]: Cursor::carve_slowly
    #[inline(always)]
    pub(crate) fn carve_fast<T>(&self, len: usize) -> Option<Result<F::Place, AllocError>> {
        let left = bump::carve_elements::<T>(self.left.get(), len, &self.clear)?;
        Some(self.take(self.known_region()?, left, len * size_of::<T>()))
    }

    /// The region; `None` where a lender takes its place and the family wants one all the same.
    #[inline(always)]
    fn known_region(&self) -> Option<&F::Region> {
        match F::REGION {
            Some(region) => Some(region),
            None => self.region.as_ref(),
        }
    }

    /// Takes the bytes of `layout`.
    #[inline]
    pub(crate) fn carve_layout(&self, layout: Layout) -> Result<F::Place, AllocError> {
        let (bytes, align) = (layout.size(), layout.align());
        if align <= bump::FAST_ALIGN
            && let Some(left) = bump::carve_bytes(self.left.get(), bytes, align, &self.clear)
            && let Some(region) = self.known_region()
        {
            return self.take(region, left, bytes);
        }
        self.carve_slowly(layout.size(), 1, layout.align())
    }

    /// What the fast path leaves: lent blocks, over-aligned and zero-sized elements, and errors.
    #[cold]
    #[inline(never)]
    pub(crate) fn carve_slowly(
        &self,
        len: usize,
        size: usize,
        align: usize,
    ) -> Result<F::Place, AllocError> {
        let overflow = AllocError::SizeOverflow {
            len,
            elem_size: size,
        };
        let Some(bytes) = len.checked_mul(size) else {
            return Err(overflow);
        };
        let Ok(layout) = Layout::from_size_align(bytes, align) else {
            return Err(overflow);
        };
        if bytes == 0
            && let Some(region) = self.known_region()
        {
            let aligned = NonZero::new(align.max(self.alignment.alignment()));
            let address = NonNull::without_provenance(aligned.unwrap_or(NOWHERE));
            // SAFETY: No bytes.
            return unsafe { F::claim(region, address, 0) };
        }
        if let Some(lender) = &self.lender {
            return lender.get().lend(layout);
        }
        let Some(region) = &self.region else {
            unreachable!("a cursor has a region or a lender");
        };
        if align > self.alignment.max() {
            return Err(AllocError::BadAlign {
                requested: align,
                max: self.alignment.max(),
            });
        }
        match bump::carve_bytes(self.left.get(), bytes, align, &self.clear) {
            Some(left) => self.take(region, left, bytes),
            None => Err(AllocError::OutOfCapacity {
                wanted_bytes: bytes,
                align: align.max(self.alignment.alignment()),
                remaining_bytes: self.left.get(),
                capacity_bytes: self.capacity,
            }),
        }
    }

    /// Moves the cursor down to `left`, after the family has agreed.
    #[inline(always)]
    fn take(&self, region: &F::Region, left: usize, bytes: usize) -> Result<F::Place, AllocError> {
        // Moved first and back on an error: so the address is made in the register that held the
        // bytes left.
        let before = self.left.replace(left);
        let address = offset(self.base.0, left);
        // SAFETY: `left + bytes` is at most the former `left`: the bytes lie between the origin
        // and the cursor, so in the slab, and everything below the cursor is given back. A lent
        // cursor has no room, so no bytes get here.
        match unsafe { F::claim(region, address, bytes) } {
            Ok(place) => Ok(place),
            Err(error) => {
                self.left.set(before);
                Err(error)
            }
        }
    }

    /// Takes the bytes of `layout` for an array without a lifetime, and what it holds meanwhile.
    ///
    /// Not for lent cursors, which have no bytes.
    #[inline]
    pub(crate) fn carve_ambient(&self, layout: Layout) -> Result<(F::Place, Held), AllocError> {
        if !self.pins.borrow().can_keep() {
            return Err(AllocError::BorrowedSlab);
        }
        let place = self.carve_layout(layout)?;
        match self.hold(layout.size()) {
            Some(held) => Ok((place, held)),
            None => unreachable!("the slab can be kept: see above"),
        }
    }

    /// What an array without a lifetime holds, for which the latest `bytes` were taken; `None` if
    /// the slab can't be kept.
    #[inline]
    pub(crate) fn hold(&self, bytes: usize) -> Option<Held> {
        let mut pins = self.pins.borrow_mut();
        if bytes == 0 {
            return pins.slab().map(Held::Slab);
        }
        self.gate.set(usize::MAX);
        pins.hold(self.left.get()).map(Held::Level)
    }
}
