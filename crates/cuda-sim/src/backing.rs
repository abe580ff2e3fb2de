//! The bytes behind an allocation, aligned as the device address is.

use crate::address_space::ALIGN;

/// What memory holds that nobody has written: a NaN in every floating-point format, -1 in integers.
pub(crate) const POISON: u8 = 0xff;

const ALIGN_BYTES: usize = ALIGN as usize;

/// Host bytes whose address, modulo 256, is that of the device range they stand for.
#[derive(Debug, Default)]
pub(crate) struct Backing {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Backing {
    /// Poisoned bytes whose first address is `lead` bytes past a multiple of 256.
    pub(crate) fn poisoned(len: usize, lead: usize) -> Self {
        let lead = lead % ALIGN_BYTES;
        let bytes = vec![POISON; len + 2 * ALIGN_BYTES];
        let start = bytes.as_ptr().align_offset(ALIGN_BYTES) + lead;
        Self { bytes, start, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_like_the_device_address() {
        for (len, lead) in [(0, 0), (1, 255), (1000, 0), (77, 260)] {
            let mut backing = Backing::poisoned(len, lead);
            assert_eq!(
                backing.as_slice().as_ptr().addr() % ALIGN_BYTES,
                lead % ALIGN_BYTES
            );
            assert_eq!(backing.as_mut_slice().len(), len);
            assert!(backing.as_slice().iter().all(|&b| b == POISON));
        }
    }
}
