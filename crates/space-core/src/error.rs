//! What can go wrong, with the numbers that explain it.

use std::{error::Error, sync::Arc};

use crate::{CaptureViolation, Epoch};

/// Why a space gave no array, or why an arena refused to give bytes back.
///
/// Whatever the variant, nothing changed: offset, epoch and watermark are what they were before
/// the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The arena has room, but not enough.
    #[error(
        "{wanted_bytes} bytes at alignment {align} do not fit: {remaining_bytes} of \
         {capacity_bytes} bytes remain; retract, reset, or size the slab from a watermark"
    )]
    OutOfCapacity {
        /// Size of the request, without the padding that its alignment costs.
        wanted_bytes: usize,
        /// Where the request had to start.
        align: usize,
        /// What the arena had left.
        remaining_bytes: usize,
        /// What the arena has in all.
        capacity_bytes: usize,
    },

    /// The byte count of an array is no legal size of an allocation (at most `isize::MAX`).
    #[error(
        "{len} elements of {elem_size} bytes overflow the address space; a length of usize::MAX \
         stands for a product of dims that overflowed"
    )]
    SizeOverflow {
        /// Number of elements; `usize::MAX` when the product of the dims overflowed already.
        len: usize,
        /// Size of one element in bytes.
        elem_size: usize,
    },

    /// An alignment that is not a power of two, or above what the arena was built for.
    #[error(
        "alignment {requested} is not a power of two up to {max}; name a larger one when the \
         arena is built"
    )]
    BadAlign {
        /// The alignment asked for, in bytes.
        requested: usize,
        /// The largest alignment this arena serves, in bytes.
        max: usize,
    },

    /// A slab that ends before its first aligned byte.
    #[error(
        "a slab of {slab_bytes} bytes ends inside the pad of {pad_bytes} bytes that brings its \
         base to alignment {align}"
    )]
    SlabTooSmall {
        /// Size of the slab.
        slab_bytes: usize,
        /// Bytes between the slab's base and the next multiple of `align`.
        pad_bytes: usize,
        /// Alignment of the arena's origin, in bytes.
        align: usize,
    },

    /// The system's allocator, or the device, had no memory left.
    #[error("no {bytes} bytes at alignment {align} are left, neither free nor to be had")]
    OutOfMemory {
        /// Size of the request.
        bytes: usize,
        /// Alignment of the request, in bytes.
        align: usize,
    },

    /// A device arena tracks its carves in a fixed number of ledgers, and all of them are in use.
    #[error(
        "all {capacity} ledgers of this arena are in use; build it with more, or retract earlier"
    )]
    OutOfLedgers {
        /// How many ledgers the arena was built with.
        capacity: usize,
    },

    /// A space handed out a block other than the one asked for.
    #[error(
        "the space returned {got_bytes} bytes at {address:#x} for a request of {wanted_bytes} \
         bytes at alignment {align}; its `block` method is wrong"
    )]
    BadBlock {
        /// Size asked for.
        wanted_bytes: usize,
        /// Alignment asked for, in bytes.
        align: usize,
        /// Size of the block that came.
        got_bytes: usize,
        /// Address of the block that came.
        address: usize,
    },

    /// An array was asked of a pooled space while its device was recording a capture.
    #[error(transparent)]
    CaptureViolation(#[from] Box<CaptureViolation>),

    /// The mark was taken before a reset.
    #[error(
        "this mark is of {mark}, the arena is in {now}: it was reset since; take marks anew after \
         a reset"
    )]
    StaleMark {
        /// Epoch in which the mark was taken.
        mark: Epoch,
        /// Epoch of the arena.
        now: Epoch,
    },

    /// The mark lies above the offset: the arena was retracted below it.
    #[error(
        "this mark is at offset {mark_bytes}, above the arena's offset {offset_bytes}: it was \
         retracted below the mark since"
    )]
    MarkAboveOffset {
        /// Offset of the mark.
        mark_bytes: usize,
        /// Offset of the arena.
        offset_bytes: usize,
    },

    /// The mark was taken on another arena.
    #[error("this mark is of arena {mark}, not of arena {arena}")]
    MarkOfOtherArena {
        /// Identity of the arena that the mark was taken on.
        mark: u64,
        /// Identity of the arena that was asked to retract.
        arena: u64,
    },

    /// Arrays without a lifetime are alive in the bytes that were to be given back.
    #[error(
        "{arrays} ambient arrays are alive in the bytes that were to be given back; drop them first"
    )]
    StillAlive {
        /// How many.
        arrays: usize,
    },

    /// No ambient space is bound on this thread.
    #[error("no ambient space is bound on this thread; call from within `with_space`")]
    Unbound,

    /// The ambient space is an arena's, which can't leave its thread.
    #[error(
        "the ambient space is an arena of this thread and can't be handed to another one; enter a \
         shared `Scope` instead"
    )]
    TaskLocalScope,

    /// An arena over borrowed memory was asked for an ambient array, which could outlive it.
    #[error(
        "this arena borrows its slab, which an ambient array could outlive; use an arena that owns \
         its slab"
    )]
    BorrowedSlab,

    /// A frame over a space whose blocks don't own their bytes was asked for an ambient array.
    #[error(
        "the ambient space is a frame over a space whose blocks end with it; bind a frame of an \
         arena, or of a space whose blocks own their bytes"
    )]
    BlocksEndWithFrame,

    /// The space's own error.
    #[error(transparent)]
    Other(OtherError),
}

impl AllocError {
    /// Wraps an error that only one kind of space knows, such as a driver's.
    ///
    /// ```
    /// use space_core::AllocError;
    /// let error = AllocError::other("the disk is full");
    /// assert_eq!(error.to_string(), "the disk is full");
    /// ```
    #[cold]
    pub fn other(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(OtherError(Arc::from(error.into())))
    }
}

/// An error that only one kind of space knows; it equals its own clones only.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct OtherError(Arc<dyn Error + Send + Sync>);

impl OtherError {
    /// The error, if it is an `E`.
    ///
    /// ```
    /// use space_core::AllocError;
    ///
    /// let AllocError::Other(error) = AllocError::other(std::fmt::Error) else { unreachable!() };
    /// assert_eq!(error.downcast_ref(), Some(&std::fmt::Error));
    /// ```
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl PartialEq for OtherError {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OtherError {}

impl From<CaptureViolation> for AllocError {
    #[cold]
    fn from(violation: CaptureViolation) -> Self {
        Self::CaptureViolation(Box::new(violation))
    }
}
