//! Page-locked memory as its owners hold it: where it is, and where it goes afterwards.

use crate::ledger::Predecessors;
use crate::pinned_pool::PoolOfBlock;
use cuda_runtime::{Device, RuntimeResult};
use std::ptr::NonNull;

/// Page-locked memory. It is touched by copies that a ledger orders, and by the host under a token.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    address: NonNull<u8>,
    bytes: usize,
    /// The pool that takes it back.
    pool: Option<PoolOfBlock>,
}

// SAFETY: the address is of memory that this value owns; all access to it goes through the ledger's tokens.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Locked memory of `bytes` bytes, at least 1, all zero.
    pub(crate) fn allocate(
        device: &Device,
        bytes: usize,
        pool: Option<PoolOfBlock>,
    ) -> RuntimeResult<Self> {
        let address = device.allocate_pinned(bytes)?;
        // SAFETY: the allocation has that many bytes, and nobody else knows it.
        unsafe { address.as_ptr().write_bytes(0, bytes) };
        Ok(Self {
            address,
            bytes,
            pool,
        })
    }

    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the memory back to where it came from, while `outstanding` may still use it.
    pub(crate) fn give_back(self, device: &Device, outstanding: Predecessors) {
        if device.is_forked() {
            return;
        }
        let refused = match self.pool.clone() {
            None => Err((self, outstanding)),
            Some(pool) => pool.take_back(self, outstanding),
        };
        if let Err((memory, outstanding)) = refused {
            memory.free(device, outstanding);
        }
    }

    /// Frees the memory after `outstanding`.
    pub(crate) fn free(self, device: &Device, outstanding: Predecessors) {
        // SAFETY: the memory was allocated on this device with this size, all its uses are in `outstanding`, and
        // nobody refers to it any more.
        unsafe { device.free_pinned(self.address, self.bytes, outstanding) };
    }
}
