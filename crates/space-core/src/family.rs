//! Kinds of memory.

use std::{ops::Range, ptr::NonNull};

use crate::{AllocError, Block, FrameBlock};

/// A kind of memory: the host's ([`Host`](crate::Host)), a device's.
///
/// A family says what a carve of an arena is, and what all carves of one arena share. The cursor
/// knows addresses only; it tells the family when bytes are taken and when they are given back.
/// A device uses this to keep a completion ledger per carve; for the host all of it compiles to
/// nothing.
///
/// # Safety
///
/// The implementor promises, and callers rely on, that
///
/// - [`claim`](Family::claim) returns a place whose [`address`](Family::address) is the one given;
/// - [`carve`](Family::carve) makes a block of that place, with that many bytes, and that block
///   gives access to those bytes only;
/// - [`REGION`](Family::REGION), where there is one, may stand in for any arena's region;
/// - no method, nor the drop of a carve or of an array made from it, calls back into a space, a
///   frame or an arena, or unwinds.
pub unsafe trait Family: Sized + 'static {
    /// What all carves of one arena share: `()` for the host; for a device the buffer under the
    /// slab and the ledgers of its carves. It has interior mutability where it needs any.
    type Region;

    /// The region of every arena, for a family whose arenas share nothing: it spares a carve the
    /// question whether there is one.
    const REGION: Option<&'static Self::Region> = None;

    /// Where a block lies, and how its bookkeeping is reached: an address, or an address and a
    /// pointer to a ledger. It has no lifetime; those who use it answer for that.
    type Place: Copy;

    /// A block whose bytes are given back by a frame, not by its drop.
    type Carve<'s>: Block<Family = Self> + FrameBlock;

    /// Address of a place. Never null; for a device, a number.
    fn address(place: Self::Place) -> NonNull<u8>;

    /// Takes `bytes` at `address` of the slab under `region`.
    ///
    /// A claim of zero bytes has an address that is aligned as asked and otherwise means nothing:
    /// it may be outside the slab, or the address of another claim. It must not take anything that
    /// would have to be given back: no [`retract`](Family::retract) is about it.
    ///
    /// # Errors
    ///
    /// The family's own limit, such as [`AllocError::OutOfLedgers`]. Then nothing was taken, and
    /// the cursor stays where it was.
    ///
    /// # Safety
    ///
    /// The bytes, if any, lie in the slab that `region` was made for, and were not claimed since
    /// they were last given back.
    unsafe fn claim(
        region: &Self::Region,
        address: NonNull<u8>,
        bytes: usize,
    ) -> Result<Self::Place, AllocError>;

    /// Gives back all claims whose addresses lie in `addresses`: at the end of a frame (by a panic
    /// too), by a retract or a reset, or because a specification could not be carved in full.
    ///
    /// Called once per such event, possibly with an empty range. Claims are given back in the
    /// reverse order of their making: those in `addresses` are always the latest. No call is made
    /// when the arena itself is dropped; the region's own drop ends whatever is left.
    ///
    /// # Safety
    ///
    /// No carve or array of those claims is used again, though one may exist that was forgotten.
    unsafe fn retract(region: &Self::Region, addresses: Range<usize>);

    /// The block of `bytes` at `place`.
    ///
    /// # Safety
    ///
    /// `place` is of a claim, or of a block ([`Block::place`]), of at least `bytes` bytes, that
    /// lives as long as `'s` and of which no other carve is made or used during `'s`.
    unsafe fn carve<'s>(place: Self::Place, bytes: usize) -> Self::Carve<'s>;
}
