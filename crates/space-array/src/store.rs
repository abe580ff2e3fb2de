//! What an array's elements are part of.

use std::{
    alloc::{self, Layout},
    ptr::NonNull,
};

use space_core::{AmbientBlock, HostBlock};

use crate::{
    heap::MeteredBlock,
    region::{Hold, Region},
    sync::Arc,
};

/// What an array keeps, and drops with its last access.
#[derive(Debug)]
pub(crate) enum Store {
    /// The buffer of a vector that was wrapped.
    Vector(Buffer),
    /// A block of the heap.
    Heap { _block: HostBlock },
    /// A block of the heap that an allocator counts.
    Metered { _block: MeteredBlock },
    /// A bumper's memory, which isn't given back meanwhile.
    Held { _hold: Arc<Hold> },
    /// A bumper's memory, which may be given back.
    Checked { region: Arc<Region>, made: u64 },
    /// The block of an arena, or of a user's own space.
    Ambient { _block: AmbientBlock },
    /// Memory that its allocator's caller answers for.
    Unchecked,
}

/// The buffer of a vector, without its element type.
#[derive(Debug)]
pub(crate) struct Buffer {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: The buffer owns bytes of the system's allocator, which serves every thread.
unsafe impl Send for Buffer {}

// SAFETY: As above; a shared buffer gives nothing away.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The buffer of a vector, and its first element. The elements are forgotten, so they must
    /// not need dropping.
    pub(crate) fn of<T: Copy>(vector: Vec<T>) -> (NonNull<T>, Self) {
        let mut vector = std::mem::ManuallyDrop::new(vector);
        let first = match NonNull::new(vector.as_mut_ptr()) {
            Some(first) => first,
            None => unreachable!("a vector's pointer isn't null"),
        };
        let layout = match Layout::array::<T>(vector.capacity()) {
            Ok(layout) => layout,
            // Elements of no size: the capacity is no number of bytes.
            Err(_) => Layout::new::<[T; 0]>(),
        };
        let address = first.cast();
        (first, Self { address, layout })
    }

    /// The vector again.
    ///
    /// # Safety
    ///
    /// The buffer was made of a vector of `T`, and has `len` elements that are initialised.
    pub(crate) unsafe fn into_vec<T: Copy>(self, len: usize) -> Vec<T> {
        let this = std::mem::ManuallyDrop::new(self);
        let capacity = match size_of::<T>() {
            0 => len,
            size => this.layout.size() / size,
        };
        // SAFETY: The vector's own parts, which this buffer gives up.
        unsafe { Vec::from_raw_parts(this.address.cast().as_ptr(), len, capacity) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.layout.size() != 0 {
            // SAFETY: A vector's buffer comes from the global allocator with this layout.
            unsafe { alloc::dealloc(self.address.as_ptr(), self.layout) };
        }
    }
}
