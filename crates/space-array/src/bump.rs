//! The arithmetic of a bumper: numbers in, numbers out, no memory in sight.

#![forbid(unsafe_code)]

use std::alloc::Layout;

/// Each array starts at a multiple of this, a cache line, so that no two arrays share one.
pub(crate) const ALIGN: usize = 64;

/// A cursor in a chunk of memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bump {
    /// Address of the chunk.
    pub(crate) base: usize,
    /// Size of the chunk in bytes.
    pub(crate) capacity: usize,
    /// Bytes handed out so far, padding included. At most `capacity`.
    pub(crate) used: usize,
}

impl Bump {
    /// Takes the bytes of `layout` and says at which offset they start, or leaves things as they
    /// were if there is no room. A request of no bytes is always served and moves nothing.
    #[inline]
    pub(crate) fn carve(&mut self, layout: Layout) -> Option<usize> {
        if layout.size() == 0 {
            return Some(self.used);
        }
        let align = layout.align().max(ALIGN);
        let start = (self.base + self.used).checked_next_multiple_of(align)? - self.base;
        let end = start.checked_add(layout.size())?;
        if end > self.capacity {
            return None;
        }
        self.used = end;
        Some(start)
    }

    pub(crate) fn left(&self) -> usize {
        self.capacity - self.used
    }
}

/// Size of a chunk that is certain to hold `layout`.
pub(crate) fn room_for(layout: Layout) -> Option<usize> {
    layout.size().checked_add(layout.align().max(ALIGN))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn carves_are_aligned_disjoint_and_inside(
            base in 0_usize..1 << 20,
            requests in prop::collection::vec((0_usize..3000, 0_u32..10), 0..40),
        ) {
            let mut bump = Bump { base, capacity: 20_000, used: 0 };
            let mut end = 0;
            for (size, align) in requests {
                let layout = Layout::from_size_align(size, 1 << align).unwrap();
                let before = bump.used;
                match bump.carve(layout) {
                    Some(_) if size == 0 => prop_assert_eq!(bump.used, before),
                    Some(start) => {
                        prop_assert!(start >= end);
                        prop_assert_eq!((base + start) % layout.align(), 0);
                        end = start + size;
                        prop_assert!(end <= bump.capacity);
                        prop_assert_eq!(bump.used, end);
                    }
                    None => {
                        prop_assert_eq!(bump.used, before);
                        prop_assert!(bump.left() < room_for(layout).unwrap());
                    }
                }
            }
        }
    }
}
