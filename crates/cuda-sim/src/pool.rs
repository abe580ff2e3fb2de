//! Memory of one device: what is left of it, and the pools that hold parts of it.

use crate::address_space::{ALIGN, AddressSpace};
use crate::clock::Epoch;
use crate::handles::Site;
use cuda_driver::{DeviceId, ErrorCode, PoolUsage};
use smallvec::SmallVec;

/// Addresses and bytes of one device.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    pub(crate) addresses: AddressSpace,
    pub(crate) total_bytes: u64,
    pub(crate) taken_bytes: u64,
    /// An injected limit on `taken_bytes`.
    pub(crate) budget_bytes: Option<u64>,
}

impl DeviceMemory {
    pub(crate) fn new(device: u32, total_bytes: u64) -> Self {
        Self {
            addresses: AddressSpace::new(device),
            total_bytes,
            taken_bytes: 0,
            budget_bytes: None,
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.total_bytes
            .min(self.budget_bytes.unwrap_or(u64::MAX))
            .saturating_sub(self.taken_bytes)
    }

    /// Takes a range; the size must be a multiple of [`ALIGN`].
    pub(crate) fn take(&mut self, bytes: u64) -> Result<u64, ErrorCode> {
        if bytes > self.free_bytes() {
            return Err(ErrorCode::OUT_OF_MEMORY);
        }
        let address = self.addresses.take(bytes).ok_or(ErrorCode::OUT_OF_MEMORY)?;
        self.taken_bytes += bytes;
        Ok(address)
    }

    pub(crate) fn give_back(&mut self, address: u64, bytes: u64) {
        self.taken_bytes -= bytes;
        self.addresses.give_back(address, bytes);
    }
}

/// Bytes that an allocation of `bytes` takes from its device.
pub(crate) fn rounded(bytes: u64) -> Result<u64, ErrorCode> {
    bytes
        .checked_next_multiple_of(ALIGN)
        .ok_or(ErrorCode::OUT_OF_MEMORY)
}

/// A block that was given back to a pool.
#[derive(Clone, Copy, Debug)]
struct FreeBlock {
    address: u64,
    bytes: u64,
    /// The free.
    freed: Epoch,
}

/// A pool, never reused, unlike its handle.
pub(crate) type PoolId = u64;

/// A stream-ordered pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: DeviceId,
    pub(crate) site: Site,
    pub(crate) release_threshold_bytes: u64,
    pub(crate) usage: PoolUsage,
    pub(crate) peers: SmallVec<[DeviceId; 2]>,
    /// Its handle was destroyed; it ends with its last allocation.
    pub(crate) destroyed: bool,
    /// Blocks to hand out again, the latest last.
    free: Vec<FreeBlock>,
}

impl Pool {
    pub(crate) fn new(device: DeviceId, site: Site, release_threshold_bytes: u64) -> Self {
        Self {
            device,
            site,
            release_threshold_bytes,
            usage: PoolUsage::default(),
            peers: SmallVec::new(),
            destroyed: false,
            free: Vec::new(),
        }
    }

    /// A block of at least `bytes` (rounded). A block that was given back is used again only when `reusable` says
    /// of its free that the new owner is ordered after it or that it has executed; of those, the latest.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        memory: &mut DeviceMemory,
        reusable: &dyn Fn(Epoch) -> bool,
        executed: &dyn Fn(Epoch) -> bool,
    ) -> Result<u64, ErrorCode> {
        let fits = |block: &FreeBlock| block.bytes >= bytes && reusable(block.freed);
        let exact = self
            .free
            .iter()
            .rposition(|block| block.bytes == bytes && reusable(block.freed));
        let address = match exact.or_else(|| self.free.iter().rposition(fits)) {
            Some(index) => {
                let block = self.free.remove(index);
                if block.bytes > bytes {
                    let rest = FreeBlock {
                        address: block.address + bytes,
                        bytes: block.bytes - bytes,
                        ..block
                    };
                    self.free.insert(index, rest);
                }
                block.address
            }
            None => {
                let address = memory.take(bytes).or_else(|_| {
                    self.release(0, memory, executed);
                    memory.take(bytes)
                })?;
                self.usage.reserved_bytes += bytes;
                self.usage.reserved_high_bytes = self
                    .usage
                    .reserved_high_bytes
                    .max(self.usage.reserved_bytes);
                address
            }
        };
        self.usage.used_bytes += bytes;
        self.usage.used_high_bytes = self.usage.used_high_bytes.max(self.usage.used_bytes);
        Ok(address)
    }

    /// A block comes back at the call of its free.
    pub(crate) fn give_back(&mut self, address: u64, bytes: u64, freed: Epoch) {
        self.usage.used_bytes -= bytes;
        self.free.push(FreeBlock {
            address,
            bytes,
            freed,
        });
    }

    /// Returns free blocks to the device while more than `keep_bytes` are reserved. Only frees that have executed
    /// count.
    pub(crate) fn release(
        &mut self,
        keep_bytes: u64,
        memory: &mut DeviceMemory,
        executed: &dyn Fn(Epoch) -> bool,
    ) {
        let reserved = &mut self.usage.reserved_bytes;
        self.free.retain(|block| {
            let release = *reserved > keep_bytes && executed(block.freed);
            if release {
                *reserved -= block.bytes;
                memory.give_back(block.address, block.bytes);
            }
            !release
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::Location;

    const FREED: Epoch = Epoch { lane: 1, index: 1 };

    #[test]
    fn blocks_return_only_when_their_free_is_ordered_before() {
        let mut memory = DeviceMemory::new(0, 4096);
        let mut pool = Pool::new(DeviceId(0), Location::caller(), 0);
        let (no, yes) = (|_: Epoch| false, |_: Epoch| true);
        let a = pool.take(1024, &mut memory, &no, &no).unwrap();
        pool.give_back(a, 1024, FREED);
        let b = pool.take(1024, &mut memory, &no, &no).unwrap();
        assert_ne!(a, b, "the free of the first block is not known to be over");
        assert_eq!(pool.take(256, &mut memory, &yes, &no), Ok(a), "split");
        assert_eq!(pool.take(768, &mut memory, &yes, &no), Ok(a + 256));
        assert_eq!(
            pool.take(4096, &mut memory, &yes, &yes),
            Err(ErrorCode::OUT_OF_MEMORY)
        );
        pool.give_back(a, 256, FREED);
        pool.give_back(a + 256, 768, FREED);
        pool.release(0, &mut memory, &no);
        assert_eq!(pool.usage.reserved_bytes, 2048);
        pool.release(1500, &mut memory, &yes);
        assert_eq!(pool.usage.reserved_bytes, 1024);
        assert_eq!(pool.usage.used_bytes, 1024);
        assert_eq!(pool.usage.reserved_high_bytes, 2048);
        assert_eq!(memory.free_bytes(), 3072);
    }
}
