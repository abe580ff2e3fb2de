//! An allocator that counts what the host allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting the blocks that each thread asks it for.
pub(crate) struct Counting;

/// Blocks that this thread has asked for so far, grown ones included.
pub(crate) fn allocations() -> u64 {
    ALLOCATED.get()
}

fn count() {
    // At the end of a thread the count is gone, and nobody asks.
    let _ = ALLOCATED.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: everything is the system allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, handed on.
        unsafe { System.realloc(block, layout, bytes) }
    }
}
