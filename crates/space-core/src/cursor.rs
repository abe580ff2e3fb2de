//! The one place where bytes are taken and given back.

use std::{
    alloc::Layout,
    cell::{Cell, RefCell},
    fmt, hint,
    num::NonZero,
    ops::Range,
    ptr::NonNull,
    sync::Arc,
};

use crate::{
    Alignment, AllocError, Epoch, Family, Frame, Keeper, Mark, Parts, bump,
    lend::LenderRef,
    mark::Stamp,
    pins::{Pins, Token},
    space::Checkpoint,
};

/// The state of an arena: how much of a run of bytes is taken.
///
/// This is what an arena type owns and what its frames share; `space-arena` has the arena that
/// goes with it. It only ever does arithmetic, and it cannot be shared between threads.
///
/// The cursor moves down from the end of the bytes, which saves a compare at each carve. Nothing
/// that callers see depends on it: an `offset` counts the bytes taken.
pub struct Cursor<F: Family> {
    /// Bytes below the cursor, not taken yet. At most `capacity`.
    left: Cell<usize>,
    /// `!(alignment - 1)`.
    clear: usize,
    /// Address of the origin, a multiple of `alignment.max()`.
    base: Base,
    /// Giving bytes back takes the slow path if `left` is below this. It is `lowest`, so that the
    /// watermark is folded there; or everything, if there is a lender or ambient arrays.
    gate: Cell<usize>,
    /// The least `left` that was seen when bytes were given back: the watermark, folded lazily.
    lowest: Cell<usize>,
    /// What all carves share. `None` exactly when there is a lender.
    region: Option<F::Region>,
    /// Where a frame over a space that is not an arena gets its blocks. Then `capacity` is 0.
    lender: Option<LenderRef<F>>,
    /// Bytes above the origin. A multiple of `alignment.max()`.
    capacity: usize,
    alignment: Alignment,
    epoch: Cell<u64>,
    /// Identity and epoch, for marks.
    stamp: Cell<Stamp>,
    /// Arrays without a lifetime. Empty for families other than the host.
    pins: RefCell<Pins>,
}

/// The address of an origin.
#[derive(Clone, Copy)]
struct Base(NonNull<u8>);

// SAFETY: A pointer to bytes that the cursor alone hands out, by carves whose own types say what
// may cross threads. The address is never used by two threads at once: `Cursor` is not `Sync`.
unsafe impl Send for Base {}

/// The origin of a cursor without bytes: a multiple of every alignment on the fast path.
const NOWHERE: NonZero<usize> = NonZero::new(bump::FAST_ALIGN).unwrap();

impl<F: Family> Cursor<F> {
    /// A cursor over the parts of a slab, and what keeps them alive.
    ///
    /// # Errors
    ///
    /// [`AllocError::SlabTooSmall`] if the slab ends before the first multiple of
    /// `alignment.max()`.
    ///
    /// # Safety
    ///
    /// `parts` are what a [`Slab`](crate::Slab) yielded. The owner, where one is returned, is kept
    /// until the cursor is dropped.
    pub unsafe fn new<O>(
        parts: Parts<F, O>,
        alignment: Alignment,
    ) -> Result<(Self, O), AllocError> {
        let Parts {
            base,
            bytes,
            region,
            owner,
        } = parts;
        let origin = bump::origin(base.addr().get(), bytes, alignment.max()).map_err(|pad| {
            AllocError::SlabTooSmall {
                slab_bytes: bytes,
                pad_bytes: pad,
                align: alignment.max(),
            }
        })?;
        let cursor = Self {
            left: Cell::new(origin.capacity),
            clear: !(alignment.alignment() - 1),
            base: Base(offset(base, origin.pad)),
            gate: Cell::new(origin.capacity),
            lowest: Cell::new(origin.capacity),
            region: Some(region),
            lender: None,
            capacity: origin.capacity,
            alignment,
            epoch: Cell::new(0),
            stamp: Cell::new(Stamp::fresh()),
            pins: RefCell::default(),
        };
        Ok((cursor, owner))
    }

    /// Lets arrays outlive the cursor: they hold `keeper`.
    ///
    /// # Safety
    ///
    /// `keeper` by itself keeps the memory of the slab that the cursor was made over
    /// ([`Slab::keeper`](crate::Slab::keeper)).
    pub unsafe fn keep_with(&mut self, keeper: Keeper) {
        self.pins.get_mut().keep(keeper);
    }

    /// A cursor without bytes, whose carves are blocks that `lender` keeps.
    pub(crate) fn lent(lender: LenderRef<F>) -> Self {
        Self {
            left: Cell::new(0),
            clear: !0,
            base: Base(NonNull::without_provenance(NOWHERE)),
            gate: Cell::new(usize::MAX),
            lowest: Cell::new(0),
            region: None,
            lender: Some(lender),
            capacity: 0,
            alignment: Alignment::default(),
            epoch: Cell::new(0),
            stamp: Cell::new(Stamp::NONE),
            pins: RefCell::default(),
        }
    }

    /// The frame of everything that follows: carves through it borrow the cursor exclusively.
    #[inline]
    pub fn frame(&mut self) -> Frame<'_, F> {
        Frame::over(self)
    }

    /// Bytes taken, each carve's padding included.
    #[inline]
    pub fn offset(&self) -> usize {
        self.capacity - self.left.get()
    }

    /// Bytes that can be taken in all: the slab less the pads of its ends.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes not taken yet.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.left.get()
    }

    /// The largest offset ever reached. It survives resets.
    #[inline]
    pub fn watermark(&self) -> usize {
        self.capacity - self.lowest.get().min(self.left.get())
    }

    /// How often the cursor was reset.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.get())
    }

    /// Where carves start.
    #[inline]
    pub fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Address of the origin, and of all bytes above it. For a device, a number.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base.0
    }

    /// What all carves share; `None` in a frame over a space that is not an arena.
    #[inline]
    pub fn region(&self) -> Option<&F::Region> {
        self.region.as_ref()
    }

    /// A snapshot of the offset.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark {
            stamp: self.stamp.get(),
            left: self.left.get(),
            capacity: self.capacity,
        }
    }

    /// Gives back everything taken since `mark`.
    ///
    /// # Errors
    ///
    /// [`AllocError::MarkOfOtherArena`], [`AllocError::StaleMark`],
    /// [`AllocError::MarkAboveOffset`], and [`AllocError::StillAlive`] if ambient arrays are alive
    /// in the bytes. Nothing changes then.
    #[inline]
    pub fn retract(&mut self, mark: Mark) -> Result<(), AllocError> {
        // One branch for three rare answers.
        if (mark.stamp != self.stamp.get()) | (mark.left < self.left.get()) {
            return Err(self.refuse(mark.stamp, mark.left));
        }
        // SAFETY: Carves borrow the cursor, which is borrowed exclusively here: none is left.
        unsafe { self.retract_to(mark.left) }
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self, stamp: Stamp, left: usize) -> AllocError {
        // The mark comes in parts: whole, it would be put in memory on the way that succeeds.
        if stamp.arena() != self.stamp.get().arena() {
            AllocError::MarkOfOtherArena {
                mark: stamp.arena(),
                arena: self.stamp.get().arena(),
            }
        } else if stamp != self.stamp.get() {
            AllocError::StaleMark {
                mark: stamp.epoch(self.epoch()),
                now: self.epoch(),
            }
        } else {
            AllocError::MarkAboveOffset {
                mark_bytes: self.capacity - left,
                offset_bytes: self.offset(),
            }
        }
    }

    /// Gives everything back and begins the next epoch: marks taken before are stale.
    ///
    /// # Errors
    ///
    /// [`AllocError::StillAlive`] if ambient arrays are alive. Nothing changes then.
    #[inline]
    pub fn reset(&mut self) -> Result<(), AllocError> {
        // SAFETY: Carves borrow the cursor, which is borrowed exclusively here: none is left.
        unsafe { self.retract_to(self.capacity) }?;
        self.epoch.set(self.epoch.get() + 1);
        self.stamp.set(self.stamp.get().next());
        Ok(())
    }

    /// Bytes that ended frames could not give back, because ambient arrays were alive there.
    pub fn pinned_bytes(&self) -> usize {
        self.pins.borrow().pinned_bytes()
    }

    /// Takes `len` elements of `T`, or says `None` where it takes [`carve_slowly`] to answer.
    ///
    /// [`carve_slowly`]: Cursor::carve_slowly
    #[inline(always)]
    pub(crate) fn carve_fast<T>(&self, len: usize) -> Option<Result<F::Place, AllocError>> {
        let left = bump::carve_elements::<T>(self.left.get(), len, self.clear)?;
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
            && let Some(left) = bump::carve_bytes(self.left.get(), bytes, align, self.clear)
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
        if let Some(lender) = &self.lender {
            return lender.get().lend(layout);
        }
        let Some(region) = &self.region else {
            unreachable!("a cursor has a region or a lender");
        };
        if bytes == 0 {
            let aligned = NonZero::new(align.max(self.alignment.alignment()));
            let address = NonNull::without_provenance(aligned.unwrap_or(NOWHERE));
            // SAFETY: No bytes.
            return unsafe { F::claim(region, address, 0) };
        }
        if align > self.alignment.max() {
            return Err(AllocError::BadAlign {
                requested: align,
                max: self.alignment.max(),
            });
        }
        match bump::carve_bytes(self.left.get(), bytes, align, self.clear) {
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

    /// Moves the cursor up to `to`.
    ///
    /// # Safety
    ///
    /// `to` is between the cursor and the capacity, and no carve made since the cursor was there
    /// is used again. Ambient arrays made since are gone.
    #[inline(always)]
    unsafe fn give_back(&self, to: usize) {
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
    unsafe fn retract_to(&mut self, to: usize) -> Result<(), AllocError> {
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
    fn unpin(&mut self, to: usize) -> Result<(), AllocError> {
        let pins = self.pins.get_mut();
        let arrays = pins.alive_below(to);
        if arrays > 0 {
            return Err(AllocError::StillAlive { arrays });
        }
        let settled = pins.settle(to);
        debug_assert_eq!(settled, to, "a token was held that was not counted");
        self.fold();
        Ok(())
    }

    /// Folds the watermark and sets the gate.
    fn fold(&self) {
        self.lowest.set(self.lowest.get().min(self.left.get()));
        let ungated = self.pins.borrow().is_empty();
        self.gate.set(if ungated {
            self.lowest.get()
        } else {
            usize::MAX
        });
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

    /// Takes the bytes of `layout` for an array without a lifetime, and a token that holds them;
    /// no token for no bytes.
    pub(crate) fn carve_ambient(
        &self,
        layout: Layout,
    ) -> Result<(F::Place, Option<Arc<Token>>), AllocError> {
        if self.lender.is_some() {
            return Err(AllocError::NotAnArena);
        }
        if !self.pins.borrow().can_keep() {
            return Err(AllocError::BorrowedSlab);
        }
        let place = self.carve_layout(layout)?;
        if layout.size() == 0 {
            return Ok((place, None));
        }
        self.gate.set(usize::MAX);
        let token = self.pins.borrow_mut().hold(self.left.get());
        Ok((place, token))
    }

    /// Undoes the ambient carves since `to`, whose arrays have been dropped.
    ///
    /// # Safety
    ///
    /// As for [`Cursor::rollback`].
    pub(crate) unsafe fn rollback_ambient(&self, to: Checkpoint) {
        if self.lender.is_none() {
            self.pins.borrow_mut().roll_back(to.0);
            // SAFETY: Handed on.
            unsafe { self.rollback(to) };
        }
    }

    /// Begins a level of ambient arrays. See [`Pins::enter`].
    pub(crate) fn enter(&self) -> Option<usize> {
        self.pins.borrow_mut().enter()
    }

    /// Ends a level of ambient arrays. See [`Pins::leave`].
    pub(crate) fn leave(&self, before: Option<usize>) {
        self.pins.borrow_mut().leave(before);
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
            Some(lender) => lender.get().checkpoint(),
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

    /// Opens a frame: what is carved until the level is dropped is given back then.
    #[inline(always)]
    pub(crate) fn open(&self) -> Level<'_, F> {
        let to = match &self.lender {
            None => self.left.get(),
            Some(lender) => open_lent(lender),
        };
        Level { cursor: self, to }
    }
}

impl<F: Family> fmt::Debug for Cursor<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("offset", &self.offset())
            .field("capacity", &self.capacity)
            .field("watermark", &self.watermark())
            .field("epoch", &self.epoch.get())
            .field("alignment", &self.alignment)
            .finish_non_exhaustive()
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
        let cursor = self.cursor;
        let to = if cursor.left.get() < cursor.gate.get() {
            hint::cold_path();
            match cursor.close_slowly(self.to) {
                Some(to) => to,
                None => return,
            }
        } else {
            self.to
        };
        // SAFETY: Inner levels are closed, so the cursor is at or below where it was. Carves made
        // since have a lifetime that the closure of the frame could not name outside, and ambient
        // arrays that are alive are above `to`: `close_slowly` saw to that, and where it wasn't
        // called there are none.
        unsafe { cursor.give_back(to) };
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

/// `base` moved up by `bytes`. The pointer keeps the provenance of `base`.
#[inline(always)]
fn offset(base: NonNull<u8>, bytes: usize) -> NonNull<u8> {
    let address = base.as_ptr().wrapping_add(bytes);
    // SAFETY: A slab's addresses do not wrap around (`Slab`), and its base is not null; a cursor
    // without bytes only ever adds zero.
    unsafe { NonNull::new_unchecked(address) }
}
