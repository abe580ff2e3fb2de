//! The heap as an allocator.

use std::{
    alloc::Layout,
    fmt,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use space_core::{AllocError, Block, Heap, HostBlock, Scope, Space};

use crate::{AllocBlock, Statistics, allocator::Allocator, source::Source, store::Store};

/// The heap: each array owns its memory and frees it by its drop.
///
/// It is what arrays come from where nothing is bound. Bound by
/// [`with_allocator`](crate::with_allocator), it hides an outer allocator, and counts.
///
/// ```
/// use space_array::{AllocArray, DefaultAllocator, with_allocator};
/// let heap = DefaultAllocator::new();
/// let x = with_allocator(&heap, || AllocArray::filled([10], 1.0_f64));
/// assert_eq!((heap.statistics().arrays, heap.statistics().in_use_bytes), (1, 80));
/// drop(x);
/// assert_eq!((heap.statistics().arrays, heap.statistics().peak_bytes), (0, 80));
/// ```
#[derive(Clone)]
pub struct DefaultAllocator {
    tally: Arc<Tally>,
    scope: Scope,
}

/// Numbers that guard nothing.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    bytes: AtomicUsize,
    peak: AtomicUsize,
    arrays: AtomicUsize,
}

/// A block that is counted while it lives.
#[derive(Debug)]
pub(crate) struct MeteredBlock {
    block: HostBlock,
    tally: Arc<Tally>,
}

impl DefaultAllocator {
    /// An allocator that has counted nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let tally = Arc::new(Tally::default());
        let scope = Scope::new(Source::Heap(Handle(Arc::clone(&tally))));
        Self { tally, scope }
    }

    /// What was allocated while this was bound. Its capacity is what is in use; there are no
    /// chunks, views or resets.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let bytes = self.tally.bytes.load(Relaxed);
        Statistics {
            in_use_bytes: bytes,
            peak_bytes: self.tally.peak.load(Relaxed),
            capacity_bytes: bytes,
            arrays: self.tally.arrays.load(Relaxed),
            ..Statistics::default()
        }
    }
}

impl Default for DefaultAllocator {
    fn default() -> Self {
        Self::new()
    }
}

impl Allocator for DefaultAllocator {
    fn scope(&self) -> &Scope {
        &self.scope
    }
}

impl MeteredBlock {
    fn new(layout: Layout, tally: &Arc<Tally>) -> Result<Self, AllocError> {
        let block = Heap.block(layout)?;
        let bytes = tally.bytes.fetch_add(layout.size(), Relaxed) + layout.size();
        tally.peak.fetch_max(bytes, Relaxed);
        tally.arrays.fetch_add(1, Relaxed);
        Ok(Self {
            block,
            tally: Arc::clone(tally),
        })
    }
}

impl Drop for MeteredBlock {
    fn drop(&mut self) {
        self.tally.bytes.fetch_sub(self.block.bytes(), Relaxed);
        self.tally.arrays.fetch_sub(1, Relaxed);
    }
}

/// The allocator as its scope sees it.
pub(crate) struct Handle(Arc<Tally>);

impl Handle {
    /// Memory, and what keeps it.
    pub(crate) fn memory(&self, layout: Layout) -> Result<(NonNull<u8>, Store), AllocError> {
        let block = MeteredBlock::new(layout, &self.0)?;
        Ok((block.block.address(), Store::Metered { _block: block }))
    }

    /// Memory for whoever takes a space; it counts as an array.
    pub(crate) fn block(&self, layout: Layout) -> Result<AllocBlock, AllocError> {
        let (address, store) = self.memory(layout)?;
        // SAFETY: The block's own bytes, which live as long as it does.
        Ok(unsafe { AllocBlock::kept(address, layout.size(), store) })
    }
}

impl fmt::Debug for DefaultAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefaultAllocator")
            .field("statistics", &self.statistics())
            .finish()
    }
}
