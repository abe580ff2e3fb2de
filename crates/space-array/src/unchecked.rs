//! The bumper that checks nothing.

use std::{alloc::Layout, cell::UnsafeCell, fmt, ptr::NonNull, sync::Arc};

use space_core::{AllocError, Block, HostBlock, Scope};

use crate::{
    AllocBuffer, ArrayError, Exhausted, Statistics,
    allocator::Allocator,
    bump::{Bump, room_for},
    source::{Source, Want},
    store::Store,
};

/// A bumper without a lock and without counting: a carve is a few moves.
///
/// It serves [`AllocArray`](crate::AllocArray)s only. Checked arrays are refused, and what others
/// make in its scope comes from the heap.
///
/// ```
/// use space_array::{AllocArray, AllocBuffer, UncheckedBumperAllocator, with_allocator};
///
/// let input = AllocArray::from([1, 2, 3]);
/// // SAFETY: One thread, and no array that is made here leaves the closure.
/// let bumper = unsafe { UncheckedBumperAllocator::new(AllocBuffer::new(1 << 16)?) };
/// let sum = with_allocator(&bumper, || (&input * 2).sum());
/// bumper.reset();
/// assert_eq!(sum, 12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UncheckedBumperAllocator {
    shared: Arc<Shared>,
    scope: Scope,
}

struct Shared {
    /// Keeps the memory.
    buffer: HostBlock,
    cursor: UnsafeCell<Cursor>,
}

#[derive(Clone, Copy)]
struct Cursor {
    bump: Bump,
    peak: usize,
    resets: u64,
}

// SAFETY: `UncheckedBumperAllocator::new`'s caller promises that no two threads use it at a time.
unsafe impl Sync for Shared {}

impl UncheckedBumperAllocator {
    /// An allocator over a buffer.
    ///
    /// # Safety
    ///
    /// Until the allocator and all scopes of it are gone:
    ///
    /// - no two threads allocate from it, reset it or ask for its statistics at the same time,
    ///   through a scope either;
    /// - no array that it made, nor a view of one, is used after the [`reset`] that follows, nor
    ///   after the allocator and its scopes are gone.
    ///
    /// [`reset`]: UncheckedBumperAllocator::reset
    #[must_use]
    pub unsafe fn new(buffer: AllocBuffer) -> Self {
        let cursor = Cursor {
            bump: Bump {
                base: buffer.0.address().addr().get(),
                capacity: buffer.0.bytes(),
                used: 0,
            },
            peak: 0,
            resets: 0,
        };
        let shared = Arc::new(Shared {
            buffer: buffer.0,
            cursor: UnsafeCell::new(cursor),
        });
        let scope = Scope::new(Source::Unchecked(Handle(Arc::clone(&shared))));
        Self { shared, scope }
    }

    /// Takes all memory back.
    pub fn reset(&self) {
        self.shared.with(|cursor| {
            cursor.peak = cursor.peak.max(cursor.bump.used);
            cursor.bump.used = 0;
            cursor.resets += 1;
        });
    }

    /// What the allocator holds and has done. It doesn't count arrays.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let cursor = self.shared.with(|cursor| *cursor);
        Statistics {
            in_use_bytes: cursor.bump.used,
            peak_bytes: cursor.peak.max(cursor.bump.used),
            capacity_bytes: cursor.bump.capacity,
            chunks: 1,
            resets: cursor.resets,
            ..Statistics::default()
        }
    }
}

impl Shared {
    #[inline]
    fn with<R>(&self, body: impl FnOnce(&mut Cursor) -> R) -> R {
        // SAFETY: No two threads are here at a time, as the constructor's caller promised, and
        // `body` is ours and doesn't call back.
        body(unsafe { &mut *self.cursor.get() })
    }

    fn carve(&self, layout: Layout) -> Result<NonNull<u8>, ArrayError> {
        let offset = self.with(|cursor| match cursor.bump.carve(layout) {
            Some(offset) => Ok(offset),
            None => Err(Exhausted {
                wanted_bytes: layout.size(),
                align: layout.align(),
                left_bytes: cursor.bump.left(),
                capacity_bytes: cursor.bump.capacity,
                peak_bytes: room_for(layout)
                    .unwrap_or(usize::MAX)
                    .saturating_add(cursor.bump.used),
            }),
        })?;
        if layout.size() == 0 {
            return Ok(layout.dangling_ptr());
        }
        // SAFETY: The cursor's arithmetic keeps `offset` within the buffer.
        Ok(unsafe { self.buffer.address().add(offset) })
    }
}

impl Allocator for UncheckedBumperAllocator {
    fn scope(&self) -> &Scope {
        &self.scope
    }
}

/// The allocator as its scope sees it.
pub(crate) struct Handle(Arc<Shared>);

impl Handle {
    /// Memory, which nothing keeps.
    pub(crate) fn memory(
        &self,
        want: Want,
        layout: Layout,
    ) -> Result<(NonNull<u8>, Store), ArrayError> {
        match want {
            Want::Counted => Ok((self.0.carve(layout)?, Store::Unchecked)),
            Want::Checked => Err(ArrayError::Alloc(AllocError::other(
                "an unchecked bumper can't make checked arrays; use a `BumperAllocator`",
            ))),
        }
    }
}

impl fmt::Debug for UncheckedBumperAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UncheckedBumperAllocator")
            .finish_non_exhaustive()
    }
}
