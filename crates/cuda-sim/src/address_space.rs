//! Device addresses: ranges of numbers that no host pointer can have.

use std::collections::BTreeMap;

/// Bases are aligned to this many bytes.
pub(crate) const ALIGN: u64 = 256;

/// First address of device 0: not canonical on any 64-bit host in use, so never a valid host pointer.
const ORIGIN: u64 = 0x00d0_0000_0000_0000;
const PER_DEVICE: u64 = 1 << 44;

/// The free addresses of one device. The lowest range that fits is taken, so that addresses are reused early.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    free: BTreeMap<u64, u64>,
}

impl AddressSpace {
    pub(crate) fn new(device: u32) -> Self {
        let start = ORIGIN + u64::from(device) * PER_DEVICE + ALIGN;
        Self {
            free: BTreeMap::from([(start, PER_DEVICE - 2 * ALIGN)]),
        }
    }

    /// Whether `address` can belong to device memory at all.
    pub(crate) fn is_device_address(address: u64) -> bool {
        address >= ORIGIN
    }

    /// The ordinal of the device that an address belongs to.
    pub(crate) fn device_of(address: u64) -> Option<u32> {
        let ordinal = address.checked_sub(ORIGIN)? / PER_DEVICE;
        u32::try_from(ordinal).ok()
    }

    /// A range of `bytes`, which is a multiple of [`ALIGN`].
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        debug_assert!(bytes.is_multiple_of(ALIGN));
        let (start, len) = self
            .free
            .iter()
            .find(|&(_, &len)| len >= bytes)
            .map(|(&start, &len)| (start, len))?;
        self.free.remove(&start);
        if len > bytes {
            self.free.insert(start + bytes, len - bytes);
        }
        Some(start)
    }

    /// Gives a range back; neighbours are joined.
    pub(crate) fn give_back(&mut self, mut start: u64, mut bytes: u64) {
        if let Some(next) = self.free.remove(&(start + bytes)) {
            bytes += next;
        }
        if let Some((&before, &len)) = self.free.range(..start).next_back()
            && before + len == start
        {
            start = before;
            bytes += len;
        }
        self.free.insert(start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_addresses_are_taken_again_and_neighbours_join() {
        let mut space = AddressSpace::new(0);
        let [a, b, c] = [256, 512, 256].map(|bytes| space.take(bytes).unwrap());
        assert!(a % ALIGN == 0 && b == a + 256 && c == b + 512);
        space.give_back(b, 512);
        assert_eq!(space.take(512), Some(b));
        space.give_back(a, 256);
        space.give_back(c, 256);
        space.give_back(b, 512);
        assert_eq!(space.free.len(), 1);
        assert_eq!(space.take(1024), Some(a));
        assert_eq!(space.take(PER_DEVICE), None);
        assert!(AddressSpace::new(1).take(256).unwrap() > a + PER_DEVICE / 2);
    }
}
