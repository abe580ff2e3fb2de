//! Memory of a vector whose element type is not known any more.

use bytemuck::Pod;
use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// The memory of a vector of plain data. It is freed when this value drops.
#[derive(Debug)]
pub(crate) struct UserMemory {
    first: NonNull<u8>,
    /// Of all that the vector has room for; not zero bytes.
    layout: Layout,
}

// SAFETY: the value owns memory of plain data and does nothing but free it, which any thread may.
unsafe impl Send for UserMemory {}
// SAFETY: as above; nothing is done through a shared reference.
unsafe impl Sync for UserMemory {}

impl UserMemory {
    /// `None` for a vector of no elements, or of elements without size.
    pub(crate) fn new<T: Pod>(values: Vec<T>) -> Option<Self> {
        if size_of_val(values.as_slice()) == 0 {
            return None;
        }
        let mut values = ManuallyDrop::new(values);
        let layout = Layout::array::<T>(values.capacity()).ok()?;
        let first = NonNull::new(values.as_mut_ptr())?.cast();
        Some(Self { first, layout })
    }

    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// The vector that this was made of.
    ///
    /// # Safety
    /// It had elements of this type, `len` of them.
    pub(crate) unsafe fn into_vec<T: Pod>(self, len: usize) -> Vec<T> {
        let memory = ManuallyDrop::new(self);
        let capacity = memory.layout.size() / size_of::<T>();
        // SAFETY: the memory is a vector's of this type, with this layout, and this value, which owned it, is never
        // dropped; the elements were initialised, and every value of plain data is valid.
        unsafe { Vec::from_raw_parts(memory.first.cast().as_ptr(), len, capacity) }
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        // SAFETY: a vector allocated the memory with this layout, and gave it up.
        unsafe { std::alloc::dealloc(self.first.as_ptr(), self.layout) };
    }
}
