//! Host memory: the only file of this crate that touches raw pointers.
//!
//! The port's copies take host pointers under a contract: readable or writable until the copy has completed. The
//! simulated device reads and writes through them when the copy executes, never later.

#![expect(
    unsafe_code,
    reason = "host pointers of copies, and page-locked allocations"
)]

use crate::backing::POISON;
use std::alloc::Layout;
use std::ptr::NonNull;

const PAGE_BYTES: usize = 4096;

/// A host pointer that a copy was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPtr(*mut u8);

// SAFETY: the pointer is only used by `read`, `write`, `poison` and the checks below, whose callers keep the port's
// contract; which thread does so does not matter to plain bytes.
unsafe impl Send for HostPtr {}
// SAFETY: as for `Send`; all use happens under the simulation's lock.
unsafe impl Sync for HostPtr {}

impl HostPtr {
    pub(crate) fn from_const(pointer: *const u8) -> Self {
        Self(pointer.cast_mut())
    }

    pub(crate) fn from_mut(pointer: *mut u8) -> Self {
        Self(pointer)
    }

    /// The pointer so many bytes further on; where that is, is for its user to know.
    pub(crate) fn at(self, offset: usize) -> Self {
        Self(self.0.wrapping_add(offset))
    }

    pub(crate) fn address(self) -> u64 {
        self.0.addr() as u64
    }

    /// Copies host memory into `into`, as the caller of a copy promised that one may.
    pub(crate) fn read(self, into: &mut [u8]) {
        // SAFETY: the copy's contract makes `into.len()` bytes readable until the copy completes, which it has not.
        unsafe { self.0.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    /// Writes host memory, as the caller of a copy promised that one may.
    pub(crate) fn write(self, from: &[u8]) {
        // SAFETY: the copy's contract makes `from.len()` bytes writable until the copy completes, which it has not.
        unsafe { self.0.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    /// Makes the destination of a pending copy recognisable.
    pub(crate) fn poison(self, bytes: usize) {
        // SAFETY: the destination is writable and nobody else's until the copy completes.
        unsafe { self.0.write_bytes(POISON, bytes) };
    }

    /// Whether a pending copy's destination is still as `poison` left it.
    pub(crate) fn is_poisoned(self, bytes: usize) -> bool {
        // SAFETY: the destination is valid and untouched until the copy completes, and was initialised by `poison`.
        let memory = unsafe { std::slice::from_raw_parts(self.0, bytes) };
        memory.iter().all(|&byte| byte == POISON)
    }

    /// A number that changes when the source of a pending copy does, but for rare accidents.
    pub(crate) fn fingerprint(self, bytes: usize) -> u64 {
        // SAFETY: the source is readable and unchanged until the copy completes.
        let memory = unsafe { std::slice::from_raw_parts(self.0, bytes) };
        let mix =
            |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        let (words, rest) = memory.as_chunks::<8>();
        let hash = words.iter().fold(bytes as u64, |hash, word| {
            mix(hash, u64::from_le_bytes(*word))
        });
        rest.iter().fold(hash, |hash, &byte| mix(hash, byte.into()))
    }
}

/// Page-locked memory: really allocated, page-aligned, poisoned, freed when dropped; or else the program's own, which is
/// left as it is.
#[derive(Debug)]
pub(crate) struct PinnedBlock {
    pointer: HostPtr,
    layout: Layout,
    registered: bool,
}

impl PinnedBlock {
    /// `None` when the host has no such memory.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).ok()?;
        if bytes == 0 {
            return None;
        }
        // SAFETY: the size is not zero.
        let pointer = unsafe { std::alloc::alloc(layout) };
        let pointer = HostPtr(NonNull::new(pointer)?.as_ptr());
        pointer.poison(bytes);
        Some(Self {
            pointer,
            layout,
            registered: false,
        })
    }

    /// Memory of the program. `None` when it can't have that many bytes.
    pub(crate) fn registered(pointer: NonNull<u8>, bytes: usize) -> Option<Self> {
        Some(Self {
            pointer: HostPtr(pointer.as_ptr()),
            layout: Layout::from_size_align(bytes, 1).ok()?,
            registered: true,
        })
    }

    /// Whether it is the program's.
    pub(crate) fn is_registered(&self) -> bool {
        self.registered
    }

    pub(crate) fn pointer(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.pointer.0)
    }

    /// Its contents are gone.
    pub(crate) fn poison(&self) {
        self.pointer.poison(self.layout.size());
    }

    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        if self.registered {
            return;
        }
        self.pointer.poison(self.layout.size());
        // SAFETY: allocated in `new` with this layout and freed once, here.
        unsafe { std::alloc::dealloc(self.pointer.0, self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_any_byte_changes_the_fingerprint() {
        let mut memory: Vec<u8> = (0..37).collect();
        let print = HostPtr::from_const(memory.as_ptr()).fingerprint(37);
        for i in 0..37 {
            memory[i] ^= 1;
            assert_ne!(HostPtr::from_const(memory.as_ptr()).fingerprint(37), print);
            memory[i] ^= 1;
        }
        assert_eq!(HostPtr::from_const(memory.as_ptr()).fingerprint(37), print);
    }

    #[test]
    fn pinned_memory_is_aligned_and_poisoned() {
        assert!(PinnedBlock::new(0).is_none());
        let block = PinnedBlock::new(5000).unwrap();
        assert_eq!(block.pointer().unwrap().addr().get() % PAGE_BYTES, 0);
        assert!(block.pointer.is_poisoned(block.bytes()));
    }
}
