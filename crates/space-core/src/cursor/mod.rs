//! The one place where bytes are taken and given back.

mod carve;
mod give_back;
mod level;

use std::{
    cell::{Cell, RefCell},
    fmt,
    num::NonZero,
    ptr::NonNull,
};

use crate::{
    Alignment, AllocError, Epoch, Family, Frame, Host, Keeper, Mark, Parts,
    bump::{self, Clear},
    lend::{Lend, LenderRef},
    mark::Stamp,
    pins::Pins,
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
    /// Rounds down to the alignment.
    clear: Clear,
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
    /// Arrays without a lifetime.
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
            clear: Clear::new(alignment.alignment()),
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
    /// `keeper` by itself keeps the memory of the slab that the cursor was made over, and what
    /// places in it refer to ([`Slab::keeper`](crate::Slab::keeper)).
    pub unsafe fn keep_with(&mut self, keeper: Keeper) {
        self.pins.get_mut().keep(keeper);
    }

    /// A cursor without bytes, whose carves are blocks that `lender` keeps.
    pub(crate) fn lent(lender: LenderRef<F>) -> Self {
        Self {
            left: Cell::new(0),
            clear: Clear::new(1),
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

    /// What blocks come from in a frame over a space that is not an arena.
    pub(crate) fn lender(&self) -> Option<&dyn Lend<F>> {
        self.lender.as_ref().map(LenderRef::get)
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
        // SAFETY: Carves and frames borrow the cursor, which is borrowed exclusively here: none is
        // left.
        unsafe { self.retract_shared(mark) }
    }

    /// [`retract`](Cursor::retract) while others share the cursor.
    ///
    /// # Safety
    ///
    /// No carve made since the mark is used again, and every frame that is open now was open when
    /// the mark was taken.
    #[inline]
    pub(crate) unsafe fn retract_shared(&self, mark: Mark) -> Result<(), AllocError> {
        // One branch for three rare answers.
        if (mark.stamp != self.stamp.get()) | (mark.left < self.left.get()) {
            return Err(self.refuse(mark.stamp, mark.left));
        }
        // SAFETY: The mark is between the cursor and the capacity; the rest is handed on.
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
}

impl Cursor<Host> {
    /// A cursor over addresses that nothing is at, as many as there can be: for those who count.
    /// None of its places may be carved.
    pub(crate) fn counting(alignment: Alignment, keeper: Keeper) -> Self {
        let origin = NonZero::new(alignment.max()).unwrap_or(NOWHERE);
        let capacity = isize::MAX as usize & !(alignment.max() - 1);
        let mut pins = Pins::default();
        pins.keep(keeper);
        Self {
            left: Cell::new(capacity),
            clear: Clear::new(alignment.alignment()),
            base: Base(NonNull::without_provenance(origin)),
            gate: Cell::new(capacity),
            lowest: Cell::new(capacity),
            region: Some(()),
            lender: None,
            capacity,
            alignment,
            epoch: Cell::new(0),
            stamp: Cell::new(Stamp::NONE),
            pins: RefCell::new(pins),
        }
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

/// `base` moved up by `bytes`. The pointer keeps the provenance of `base`.
#[inline(always)]
fn offset(base: NonNull<u8>, bytes: usize) -> NonNull<u8> {
    let address = base.as_ptr().wrapping_add(bytes);
    // SAFETY: A slab's addresses do not wrap around (`Slab`), and its base is not null; a cursor
    // without bytes only ever adds zero.
    unsafe { NonNull::new_unchecked(address) }
}
