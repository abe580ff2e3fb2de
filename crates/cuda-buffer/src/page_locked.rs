//! Page-locked memory as its owners hold it: where it is, and where it goes afterwards.

use crate::ledger::Predecessors;
use crate::pinned_pool::PoolOfBlock;
use crate::user_memory::UserMemory;
use cuda_runtime::{Device, RuntimeError, RuntimeResult};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// Page-locked memory. It is touched by copies that a ledger orders, and by the host under a token.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    address: NonNull<u8>,
    bytes: usize,
    home: Home,
}

/// Where page-locked memory goes when its last use is over.
#[derive(Debug)]
enum Home {
    Device,
    Pool(PoolOfBlock),
    /// The driver locked what a program had. If this merely drops the memory is leaked: it is locked still.
    User(ManuallyDrop<UserMemory>),
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
            home: pool.map_or(Home::Device, Home::Pool),
        })
    }

    /// The memory of `values`, `bytes` bytes of it, locked where it is. On an error it comes back as it was.
    pub(crate) fn register(
        device: &Device,
        memory: UserMemory,
        bytes: usize,
    ) -> Result<Self, (UserMemory, RuntimeError)> {
        let address = memory.first();
        // SAFETY: the memory is at least that large, and `Home::User` keeps it until its registration has ended.
        match unsafe { device.register_host(address, bytes) } {
            Ok(()) => Ok(Self {
                address,
                bytes,
                home: Home::User(ManuallyDrop::new(memory)),
            }),
            Err(error) => Err((memory, error)),
        }
    }

    /// Ends the registration of memory that a program had, and takes it out. On an error, and where no program had it,
    /// nothing changes.
    ///
    /// # Safety
    /// No work uses the memory.
    pub(crate) unsafe fn unregister(
        place: &mut Option<Self>,
        device: &Device,
    ) -> RuntimeResult<Option<UserMemory>> {
        let Some(Self {
            address,
            home: Home::User(_),
            ..
        }) = place
        else {
            return Ok(None);
        };
        // SAFETY: the memory is registered on this device, and no work uses it.
        unsafe { device.unregister_host(*address)? };
        Ok(place.take().and_then(|memory| match memory.home {
            Home::User(memory) => Some(ManuallyDrop::into_inner(memory)),
            Home::Device | Home::Pool(_) => None,
        }))
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
        let refused = match &self.home {
            Home::Pool(pool) => pool.clone().take_back(self, outstanding),
            Home::Device | Home::User(_) => Err((self, outstanding)),
        };
        if let Err((memory, outstanding)) = refused {
            memory.free(device, outstanding);
        }
    }

    /// Frees the memory after `outstanding`.
    pub(crate) fn free(self, device: &Device, outstanding: Predecessors) {
        let (address, bytes) = (self.address, self.bytes);
        match self.home {
            // SAFETY: the memory was allocated on this device with this size, all its uses are in `outstanding`, and
            // nobody refers to it any more.
            Home::Device | Home::Pool(_) => unsafe {
                device.free_pinned(address, bytes, outstanding);
            },
            Home::User(memory) => {
                let owner = Arc::new(ManuallyDrop::into_inner(memory));
                // SAFETY: the memory was registered on this device with this size, and lives as long as the owner; else
                // as above.
                unsafe { device.release_registered(address, bytes, owner, outstanding) };
            }
        }
    }
}
