//! One processor for the thread that measures.

use std::ffi::c_int;

/// Bits of the mask below.
const BITS: usize = 1024;

unsafe extern "C" {
    fn sched_getcpu() -> c_int;
    fn sched_setaffinity(thread: c_int, bytes: usize, mask: *const u64) -> c_int;
}

/// Keeps this thread on the processor that it runs on; which one, or `None` where that is not possible.
pub(crate) fn here() -> Option<usize> {
    // SAFETY: takes nothing, and returns a number or -1.
    let processor = usize::try_from(unsafe { sched_getcpu() }).ok()?;
    let mut mask = [0_u64; BITS / 64];
    *mask.get_mut(processor / 64)? |= 1 << (processor % 64);
    // SAFETY: the mask has so many bytes, and is only read; 0 is this thread.
    let result = unsafe { sched_setaffinity(0, size_of_val(&mask), mask.as_ptr()) };
    (result == 0).then_some(processor)
}
