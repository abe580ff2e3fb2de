//! Memory for one array, fresh from its allocator.

use std::ptr::NonNull;

use crate::{region::OwnedPin, store::Store};

/// Uninitialised memory with the size and alignment that were asked for, and what keeps it.
#[derive(Debug)]
pub(crate) struct Piece {
    /// First byte, with the right to access all of them.
    pub(crate) address: NonNull<u8>,
    pub(crate) grip: Grip,
}

/// What keeps the memory until the array is initialised.
#[derive(Debug)]
pub(crate) enum Grip {
    /// The same as afterwards.
    Settled(Store),
    /// A pin, which is let go then.
    Pinned(OwnedPin),
}
