//! Blocks of this crate's allocators, for those who take any space.

use std::{alloc::Layout, ptr::NonNull};

use space_core::{AllocError, Block, Dims, Element, Heap, Host, HostArray, HostLeaf, Space};

use crate::store::Store;

/// A block of an allocator of this crate, which isn't reset while it lives.
#[derive(Debug)]
pub struct AllocBlock {
    address: NonNull<u8>,
    bytes: usize,
    _store: Store,
}

// SAFETY: The bytes are the block's alone, and any thread may drop the store.
unsafe impl Send for AllocBlock {}

// SAFETY: As above; a shared block gives its address away, and access only by `unsafe`.
unsafe impl Sync for AllocBlock {}

impl AllocBlock {
    /// A block of `bytes` at `address`.
    ///
    /// # Safety
    ///
    /// The bytes were given to this block alone, and are not given back while `store` is kept.
    pub(crate) unsafe fn kept(address: NonNull<u8>, bytes: usize, store: Store) -> Self {
        Self {
            address,
            bytes,
            _store: store,
        }
    }

    /// A block of the heap, freed by its drop.
    pub(crate) fn of_heap(layout: Layout) -> Result<Self, AllocError> {
        let block = Heap.block(layout)?;
        let (address, store) = (block.address(), Store::Heap { _block: block });
        // SAFETY: The block's own bytes, which live as long as it does.
        Ok(unsafe { Self::kept(address, layout.size(), store) })
    }
}

// SAFETY: `kept`'s caller gave the bytes to this block alone; it holds a raw pointer.
unsafe impl Block for AllocBlock {
    type Family = Host;
    type Array<T: Element, D: Dims> = HostArray<Self, T, D>;

    #[inline]
    fn place(&self) -> NonNull<u8> {
        self.address
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> HostArray<Self, T, D> {
        // SAFETY: Handed on.
        unsafe { HostArray::over(self, dims) }
    }
}

impl HostLeaf for AllocBlock {
    fn host<T: Element, D: Dims>(array: HostArray<Self, T, D>) -> HostArray<Self, T, D> {
        array
    }

    fn host_mut<T: Element, D: Dims>(
        array: &mut HostArray<Self, T, D>,
    ) -> &mut HostArray<Self, T, D> {
        array
    }
}
