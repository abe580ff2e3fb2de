//! Blocks of host memory.

use std::{
    alloc::{self, Layout},
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::NonNull,
};

use super::{Host, HostArray};
use crate::{AllocError, AmbientBlock, Block, Dims, Element, FrameBlock, IntoAmbient};

/// A carve of an arena in host memory, or a block lent by a frame: bytes for as long as `'s`.
#[derive(Debug)]
pub struct HostCarve<'s> {
    address: NonNull<u8>,
    bytes: usize,
    lifetime: PhantomData<&'s mut [MaybeUninit<u8>]>,
}

// SAFETY: The carve is the only way to its bytes, as a `&mut [MaybeUninit<u8>]` would be.
unsafe impl Send for HostCarve<'_> {}

// SAFETY: As above; a shared carve gives its address away, and access only by `unsafe`.
unsafe impl Sync for HostCarve<'_> {}

impl HostCarve<'_> {
    /// A carve of `bytes` at `address`.
    ///
    /// # Safety
    ///
    /// The bytes may be read and written through `address` during the carve's lifetime, and by
    /// nobody else. No bytes need a non-null address only.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(address: NonNull<u8>, bytes: usize) -> Self {
        Self {
            address,
            bytes,
            lifetime: PhantomData,
        }
    }
}

// SAFETY: `new`'s caller gave the bytes to this carve alone; it holds a raw pointer.
unsafe impl<'s> Block for HostCarve<'s> {
    type Family = Host;
    type Array<T: Element, D: Dims> = HostArray<HostCarve<'s>, T, D>;

    #[inline(always)]
    fn place(&self) -> NonNull<u8> {
        self.address
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline(always)]
    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> HostArray<Self, T, D> {
        // SAFETY: Handed on.
        unsafe { HostArray::over(self, dims) }
    }
}

impl FrameBlock for HostCarve<'_> {}

/// A block of the system's allocator, freed by its drop.
#[derive(Debug)]
pub struct HostBlock {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: The block owns its bytes, and the system's allocator serves every thread.
unsafe impl Send for HostBlock {}

// SAFETY: As above; a shared block gives its address away, and access only by `unsafe`.
unsafe impl Sync for HostBlock {}

impl HostBlock {
    /// Allocates a block.
    ///
    /// # Errors
    ///
    /// [`AllocError::OutOfMemory`].
    pub fn new(layout: Layout) -> Result<Self, AllocError> {
        let address = if layout.size() == 0 {
            layout.dangling_ptr()
        } else {
            // SAFETY: The size isn't zero.
            let address = unsafe { alloc::alloc(layout) };
            NonNull::new(address).ok_or(AllocError::OutOfMemory {
                bytes: layout.size(),
                align: layout.align(),
            })?
        };
        Ok(Self { address, layout })
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        if self.layout.size() != 0 {
            // SAFETY: Allocated by `new` with this layout; an array over the block holds it.
            unsafe { alloc::dealloc(self.address.as_ptr(), self.layout) };
        }
    }
}

// SAFETY: The bytes were allocated for this block alone; it holds a raw pointer.
unsafe impl Block for HostBlock {
    type Family = Host;
    type Array<T: Element, D: Dims> = HostArray<Self, T, D>;
    const INTO_AMBIENT: IntoAmbient<Self> = Some(AmbientBlock::of);

    #[inline(always)]
    fn place(&self) -> NonNull<u8> {
        self.address
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.layout.size()
    }

    #[inline]
    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> HostArray<Self, T, D> {
        // SAFETY: Handed on.
        unsafe { HostArray::over(self, dims) }
    }
}
