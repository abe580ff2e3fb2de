//! The memory that a bumper starts with.

use std::alloc::Layout;

use space_core::{AllocError, Block, Heap, HostBlock, Space};

use crate::{bump::ALIGN, scaling::Scaling};

/// Alignment of chunks that are larger than this.
const PAGE: usize = 4096;

/// A buffer of a fixed size, from the heap.
#[derive(Debug)]
pub struct AllocBuffer(pub(crate) HostBlock);

impl AllocBuffer {
    /// A buffer of `capacity_bytes`.
    ///
    /// # Errors
    ///
    /// [`AllocError::OutOfMemory`], and [`AllocError::SizeOverflow`] above `isize::MAX`.
    pub fn new(capacity_bytes: usize) -> Result<Self, AllocError> {
        chunk(capacity_bytes).map(Self)
    }

    /// Size in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// A buffer that grows: what doesn't fit goes to further chunks, and the next reset replaces them
/// by one, sized from the recent runs. After quiet runs it shrinks again.
///
/// A run is what happens between two resets. Eight are remembered: the buffer has room for the
/// largest of them, and gives memory back when it was less than half used in all of them.
#[derive(Debug)]
pub struct AutoscalingAllocBuffer(pub(crate) HostBlock);

impl AutoscalingAllocBuffer {
    /// A buffer that starts with `initial_bytes`, which may be 0.
    ///
    /// # Errors
    ///
    /// Those of [`AllocBuffer::new`].
    pub fn new(initial_bytes: usize) -> Result<Self, AllocError> {
        chunk(initial_bytes).map(Self)
    }
}

/// What to do when there is no room.
#[derive(Debug)]
pub(crate) enum Growth {
    Fixed,
    Autoscaling(Scaling),
}

/// A buffer that a bumper can start with: [`AllocBuffer`] or [`AutoscalingAllocBuffer`].
pub trait Buffer: sealed::Sealed {}

impl Buffer for AllocBuffer {}
impl Buffer for AutoscalingAllocBuffer {}

pub(crate) mod sealed {
    use super::{AllocBuffer, AutoscalingAllocBuffer, Growth, HostBlock, Scaling};

    pub trait Sealed {
        #[doc(hidden)]
        #[expect(
            private_interfaces,
            reason = "the trait is sealed, and nobody else can name it"
        )]
        fn into_parts(self) -> (HostBlock, Growth);
    }

    impl Sealed for AllocBuffer {
        #[expect(private_interfaces, reason = "as above")]
        fn into_parts(self) -> (HostBlock, Growth) {
            (self.0, Growth::Fixed)
        }
    }

    impl Sealed for AutoscalingAllocBuffer {
        #[expect(private_interfaces, reason = "as above")]
        fn into_parts(self) -> (HostBlock, Growth) {
            (self.0, Growth::Autoscaling(Scaling::default()))
        }
    }
}

/// A chunk of `bytes`.
pub(crate) fn chunk(bytes: usize) -> Result<HostBlock, AllocError> {
    let align = if bytes < PAGE { ALIGN } else { PAGE };
    let layout = Layout::from_size_align(bytes, align).map_err(|_| AllocError::SizeOverflow {
        len: bytes,
        elem_size: 1,
    })?;
    Heap.block(layout)
}
