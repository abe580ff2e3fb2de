//! The system's allocator as a space.

use std::alloc::Layout;

use super::{Host, HostBlock};
use crate::{AllocError, Space};

/// The system's allocator: arrays own their memory and free it by their drop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heap;

impl Space for Heap {
    type Family = Host;
    type Block = HostBlock;

    #[inline]
    fn block(&self, layout: Layout) -> Result<HostBlock, AllocError> {
        HostBlock::new(layout)
    }
}
