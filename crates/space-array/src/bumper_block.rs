//! Blocks of a bumper, for those who take any space.

use std::ptr::NonNull;

use space_core::{Block, Dims, Element, Host, HostArray, HostLeaf};

use crate::{region::Hold, sync::Arc};

/// A block of a [`BumperAllocator`](crate::BumperAllocator), which isn't reset while it lives.
#[derive(Debug)]
pub struct BumperBlock {
    address: NonNull<u8>,
    bytes: usize,
    _hold: Arc<Hold>,
}

// SAFETY: The bytes are the block's alone, and any thread may drop the hold.
unsafe impl Send for BumperBlock {}

// SAFETY: As above; a shared block gives its address away, and access only by `unsafe`.
unsafe impl Sync for BumperBlock {}

impl BumperBlock {
    /// A block of `bytes` at `address`.
    ///
    /// # Safety
    ///
    /// The bytes were given to this block alone, and are not given back while `hold` is held.
    pub(crate) unsafe fn held(address: NonNull<u8>, bytes: usize, hold: Arc<Hold>) -> Self {
        Self {
            address,
            bytes,
            _hold: hold,
        }
    }
}

// SAFETY: `held`'s caller gave the bytes to this block alone; it holds a raw pointer.
unsafe impl Block for BumperBlock {
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

impl HostLeaf for BumperBlock {
    fn host<T: Element, D: Dims>(array: HostArray<Self, T, D>) -> HostArray<Self, T, D> {
        array
    }

    fn host_mut<T: Element, D: Dims>(
        array: &mut HostArray<Self, T, D>,
    ) -> &mut HostArray<Self, T, D> {
        array
    }
}
