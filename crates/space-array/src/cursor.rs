//! A run of bytes that is handed out from its start on.

use std::{alloc::Layout, ptr::NonNull};

use space_core::{Block, HostBlock};

use crate::bump::{ALIGN, Bump};

/// Bytes that are nobody's yet, and how many of them were handed out.
pub(crate) struct Cursor {
    memory: Memory,
    pub(crate) bump: Bump,
}

/// Address of the first byte, with the right to access all of them.
struct Memory(NonNull<u8>);

// SAFETY: A pointer that is only turned into blocks of bytes that nobody else was given.
unsafe impl Send for Memory {}

impl Cursor {
    /// Over no bytes.
    pub(crate) fn empty() -> Self {
        Self {
            memory: Memory(NonNull::dangling()),
            bump: Bump::default(),
        }
    }

    /// Over all bytes of a block, which its caller keeps.
    pub(crate) fn over(block: &HostBlock) -> Self {
        Self::at(block.address(), block.bytes())
    }

    fn at(address: NonNull<u8>, capacity: usize) -> Self {
        Self {
            bump: Bump {
                base: address.addr().get(),
                capacity,
                used: 0,
            },
            memory: Memory(address),
        }
    }

    /// Hands out the bytes of `layout`, if there are as many.
    #[inline]
    pub(crate) fn carve(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let offset = self.bump.carve(layout)?;
        if layout.size() == 0 {
            return Some(layout.dangling_ptr());
        }
        // SAFETY: The arithmetic keeps `offset` within the bytes.
        Some(unsafe { self.memory.0.add(offset) })
    }

    /// Hands out `bytes` as a cursor of their own, if there are as many.
    pub(crate) fn stretch(&mut self, bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, ALIGN).ok()?;
        Some(Self::at(self.carve(layout)?, bytes))
    }
}
