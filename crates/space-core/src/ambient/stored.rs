//! A value of any type, without its type, and in place where it is small.

use std::{fmt, mem::MaybeUninit};

/// Keeps a value until it drops. Values of up to three words are kept in place, larger ones in a
/// box.
pub(super) struct Stored {
    /// Drops what the room holds.
    drop: unsafe fn(*mut Room),
    room: Room,
}

type Room = MaybeUninit<[usize; 3]>;

/// Whether the room is large and aligned enough for a `T`.
const fn fits<T>() -> bool {
    size_of::<T>() <= size_of::<Room>() && align_of::<T>() <= align_of::<Room>()
}

impl Stored {
    /// Keeps `value`. The bounds are what makes a `Stored` safe to send and to share.
    #[inline]
    pub(super) fn new<T: Send + Sync + 'static>(value: T) -> Self {
        if fits::<T>() {
            Self::put(value)
        } else {
            Self::put(Box::new(value))
        }
    }

    #[inline]
    fn put<T>(value: T) -> Self {
        /// # Safety
        ///
        /// The room holds a `T`, which is not used again.
        unsafe fn drop_in<T>(room: *mut Room) {
            // SAFETY: Handed on; the room is aligned for a `T`, or `put` would not have made it.
            unsafe { room.cast::<T>().drop_in_place() };
        }

        assert!(fits::<T>(), "a box is one word, other values were measured");
        let mut room = Room::uninit();
        // SAFETY: The room is large and aligned enough.
        unsafe { room.as_mut_ptr().cast::<T>().write(value) };
        Self {
            drop: drop_in::<T>,
            room,
        }
    }
}

impl Drop for Stored {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `put` made the two together, and this is the value's end.
        unsafe { (self.drop)(&raw mut self.room) };
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stored")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    struct Counted<const N: usize>(Arc<AtomicUsize>, [u64; N]);

    impl<const N: usize> Drop for Counted<N> {
        fn drop(&mut self) {
            assert!(self.1.iter().all(|&word| word == 7));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[repr(align(64))]
    struct Wide(Counted<0>);

    #[test]
    fn a_value_of_any_size_is_dropped_once_wherever_it_moved() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let moved = |stored: Stored| drop(Box::new(stored));
        let count = || Arc::clone(&dropped);
        moved(Stored::new(Counted(count(), [])));
        moved(Stored::new(Counted(count(), [7; 2])));
        moved(Stored::new(Counted(count(), [7; 3])));
        moved(Stored::new(Counted(count(), [7; 30])));
        let wide = Wide(Counted(count(), []));
        assert_eq!(wide.0.1.len(), 0);
        moved(Stored::new(wide));
        moved(Stored::new(()));
        assert_eq!(dropped.load(Ordering::Relaxed), 5);
        assert_eq!(Arc::strong_count(&dropped), 1);
    }
}
