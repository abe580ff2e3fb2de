//! Families of memory that a thread can have an ambient space of.

use std::{cell::Cell, fmt, thread::LocalKey};

use super::Bound;
use crate::{Block, Dims, Element, Family, Host, HostArray};

/// A kind of memory that can be the ambient space of a thread.
///
/// ```
/// use std::thread::LocalKey;
/// use space_core::{AmbientFamily, AmbientSlot};
/// # use space_core::{AllocError, Block, Dims, Element, Family, HostArray, Host};
/// # type Mine = Host;
///
/// thread_local! {
///     static SLOT: AmbientSlot<Mine> = const { AmbientSlot::new() };
/// }
///
/// fn slot() -> &'static LocalKey<AmbientSlot<Mine>> {
///     &SLOT
/// }
/// ```
///
/// # Safety
///
/// The implementor promises, and callers rely on, that
///
/// - [`slot`](AmbientFamily::slot) returns the same slot at each call on a thread;
/// - the place of a block may be used on any thread, and is right on all of them; where it refers
///   to something else, as to a ledger, the keeper of a slab ([`Slab::keeper`](crate::Slab::keeper))
///   keeps that too;
/// - an array made by [`array`](AmbientFamily::array) gives access to the bytes of its block only,
///   and drops the block no sooner than that access ends;
/// - neither calls back into a space, a frame or an arena, or unwinds.
pub unsafe trait AmbientFamily: Family {
    /// An array that holds the block it was made of.
    type Array<B: Block<Family = Self>, T: Element, D: Dims>;

    /// Where a thread's binding is kept.
    fn slot() -> &'static LocalKey<AmbientSlot<Self>>;

    /// The array of `T`, shaped `dims`, over `block`. Its elements start uninitialised.
    ///
    /// # Safety
    ///
    /// As for [`Block::typed`].
    unsafe fn array<B: Block<Family = Self>, T: Element, D: Dims>(
        block: B,
        dims: D,
    ) -> Self::Array<B, T, D>;
}

/// What is bound as a thread's ambient space of one family; nothing at first.
pub struct AmbientSlot<F: AmbientFamily>(Cell<Option<Bound<F>>>);

impl<F: AmbientFamily> AmbientSlot<F> {
    /// A slot with nothing bound.
    #[must_use]
    pub const fn new() -> Self {
        Self(Cell::new(None))
    }

    pub(super) fn get(&self) -> Option<Bound<F>> {
        self.0.get()
    }

    pub(super) fn replace(&self, bound: Option<Bound<F>>) -> Option<Bound<F>> {
        self.0.replace(bound)
    }
}

impl<F: AmbientFamily> Default for AmbientSlot<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: AmbientFamily> fmt::Debug for AmbientSlot<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.get() {
            None => "nothing",
            Some(Bound::Local(_)) => "arena",
            Some(Bound::Shared(_)) => "shared space",
        };
        f.debug_tuple("AmbientSlot").field(&bound).finish()
    }
}

thread_local! {
    static SLOT: AmbientSlot<Host> = const { AmbientSlot::new() };
}

// SAFETY: There is one slot; a place is an address; a host array holds its block.
unsafe impl AmbientFamily for Host {
    type Array<B: Block<Family = Self>, T: Element, D: Dims> = HostArray<B, T, D>;

    #[inline]
    fn slot() -> &'static LocalKey<AmbientSlot<Self>> {
        &SLOT
    }

    #[inline]
    unsafe fn array<B: Block<Family = Self>, T: Element, D: Dims>(
        block: B,
        dims: D,
    ) -> HostArray<B, T, D> {
        // SAFETY: Handed on.
        unsafe { HostArray::over(block, dims) }
    }
}
