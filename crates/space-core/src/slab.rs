//! The memory under an arena.

use std::ptr::NonNull;

use crate::{Family, Keeper};

/// A run of bytes that an arena takes over.
///
/// Owned and borrowed host memory come with `space-arena`; a device brings its own. Anything else
/// that can promise the following is a slab too.
///
/// # Safety
///
/// For the parts that [`into_parts`](Slab::into_parts) yields:
///
/// - `base..base + bytes` is memory of the family `Self::Family`, and stays so, at that address,
///   while `owner` and `region` live, however they are moved;
/// - nothing else reads, writes or frees it meanwhile, except through what the family hands out;
/// - for host memory the pointer may be used to access the whole range, and `bytes` is at most
///   `isize::MAX`; moving `owner` must not assert a claim to the bytes (so it holds a raw pointer
///   or a `Vec`, not a `Box` or a `&mut`);
/// - `base + bytes` does not overflow;
/// - `region` was made for this slab, and no other arena has it.
///
/// What [`keeper`](Slab::keeper) returns keeps the memory by itself, without `owner` and `region`;
/// also what the family's places of its claims refer to, if they refer to anything; and the claims
/// themselves, which don't end with `region` as long as it is held.
///
/// If `into_parts` unwinds, no arena was made.
pub unsafe trait Slab {
    /// The kind of memory.
    type Family: Family;

    /// What keeps the memory alive. The arena holds it and drops it after the region.
    type Owner;

    /// Gives the memory up: where it is, what its carves share, and what keeps it alive.
    fn into_parts(self) -> Parts<Self::Family, Self::Owner>;

    /// Another handle on what keeps the memory alive, for arrays that outlive the arena; `None`
    /// if the memory can't outlive it, because it is borrowed.
    fn keeper(owner: &Self::Owner) -> Option<Keeper> {
        let _ = owner;
        None
    }
}

/// What a [`Slab`] is made of.
#[derive(Debug)]
pub struct Parts<F: Family, O> {
    /// Address of the first byte. For a device: a number, never dereferenced on the host.
    pub base: NonNull<u8>,
    /// Length in bytes.
    pub bytes: usize,
    /// What all carves of the arena share.
    pub region: F::Region,
    /// What keeps the memory alive.
    pub owner: O,
}
