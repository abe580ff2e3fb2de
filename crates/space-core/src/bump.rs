//! The arithmetic of a carve: numbers in, numbers out, no memory in sight.
//!
//! A cursor moves down. Its whole state is `left`, the bytes below it. The origin is aligned to
//! every alignment the cursor serves, so offsets can be aligned in place of addresses, and the
//! lower end needs no check of its own: rounding down never passes zero.

#![forbid(unsafe_code)]

use std::hint;

/// Largest alignment that [`carve_elements`] serves. Every origin is aligned to it at least, so
/// every primitive type finds its own.
pub(crate) const FAST_ALIGN: usize = 16;

/// What rounds the bytes left down to where a carve may start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clear {
    /// By the binary logarithm of an element type's alignment: `!(a - 1)`, where `a` is that or
    /// the arena's, if it is larger. So that a carve need not put the two together.
    masks: [usize; FAST_ALIGN.ilog2() as usize + 1],
}

impl Clear {
    /// For carves that start at multiples of `alignment`.
    pub(crate) fn new(alignment: usize) -> Self {
        let mut masks = [0; _];
        for (log, mask) in masks.iter_mut().enumerate() {
            *mask = !(alignment.max(1 << log) - 1);
        }
        Self { masks }
    }

    /// For elements of `T`, whose alignment is at most [`FAST_ALIGN`].
    #[inline(always)]
    fn of<T>(&self) -> usize {
        self.masks[align_of::<T>().ilog2() as usize]
    }

    /// For requests at `align`.
    #[inline(always)]
    fn at(&self, align: usize) -> usize {
        self.masks[0] & !(align - 1)
    }
}

/// The most elements that [`carve_elements`] serves: few enough for the number to be part of an
/// instruction, and far more than make a slow path felt.
const FAST_LEN: usize = i32::MAX as usize;

/// The bytes left after a carve of `len` elements of `T`, or `None` if the request needs the
/// slow path: over-aligned, of no bytes, overflowing, or more than is left.
///
/// `left` is a multiple of the arena's alignment, and so is the result; it is one of `T`'s own
/// alignment, too. So a request of no bytes would not leave it where it is if the arena's alignment
/// is the smaller one, and is refused here.
#[inline(always)]
pub(crate) fn carve_elements<T>(left: usize, len: usize, clear: &Clear) -> Option<usize> {
    let size = size_of::<T>();
    if size == 0 || align_of::<T>() > FAST_ALIGN {
        return None;
    }
    // One compare for overflow and for no elements, which wrap around.
    if len.wrapping_sub(1) >= FAST_LEN.min(isize::MAX as usize / size) {
        hint::cold_path();
        return None;
    }
    // The result comes of `left` by two steps only, which is what the next carve waits for.
    let Some(rest) = left.checked_sub(len * size) else {
        hint::cold_path();
        return None;
    };
    Some(rest & clear.of::<T>())
}

/// The bytes left after a carve of `bytes` at `align` (a power of two that the origin is aligned
/// to), or `None` if they do not fit or are none.
#[inline(always)]
pub(crate) fn carve_bytes(left: usize, bytes: usize, align: usize, clear: &Clear) -> Option<usize> {
    if bytes == 0 {
        return None;
    }
    Some(left.checked_sub(bytes)? & clear.at(align))
}

/// What `offset` becomes by a carve of `bytes`, each carve starting at a multiple of `alignment`
/// (a power of two). `None` on overflow.
///
/// The same number as the capacity less [`carve_bytes`], for a capacity that is a multiple of
/// `alignment`; it needs no capacity, and so serves those who only count.
#[inline]
pub(crate) fn advance(offset: usize, bytes: usize, alignment: usize) -> Option<usize> {
    offset
        .checked_add(bytes)?
        .checked_next_multiple_of(alignment)
}

/// Where the origin of an arena lies in its slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Bytes between the slab's base and the origin.
    pub(crate) pad: usize,
    /// Bytes from the origin that can be carved: a multiple of the origin's alignment.
    pub(crate) capacity: usize,
}

/// Places the origin in a slab of `bytes` at `address`, aligned to `align`; or the pad, if the
/// slab ends inside it.
pub(crate) fn origin(address: usize, bytes: usize, align: usize) -> Result<Origin, usize> {
    let pad = address.wrapping_neg() & (align - 1);
    let usable = bytes.checked_sub(pad).ok_or(pad)?;
    Ok(Origin {
        pad,
        capacity: usable & !(align - 1),
    })
}

/// Size of a slab that gives an arena a capacity of `watermark` bytes wherever the slab lies.
pub(crate) fn slab_bytes(watermark: usize, align: usize) -> Option<usize> {
    watermark
        .checked_next_multiple_of(align)?
        .checked_add(align - 1)
        .filter(|&bytes| bytes <= isize::MAX as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Alignments, each with what clears the bits below it.
    fn clears() -> impl Iterator<Item = (usize, Clear)> {
        [1, 2, 4, 8, 16, 64, 256]
            .into_iter()
            .map(|align| (align, Clear::new(align)))
    }

    #[test]
    fn both_forms_of_a_carve_agree() {
        fn agree<T>(left: usize, len: usize, clear: &Clear) {
            let bytes = carve_bytes(left, len * size_of::<T>(), align_of::<T>(), clear);
            let elements = carve_elements::<T>(left, len, clear);
            assert_eq!(elements, bytes);
        }
        for (align, clear) in &clears().collect::<Vec<_>>() {
            for left in (0..1100).step_by(*align) {
                for len in 0..100 {
                    agree::<u8>(left, len, clear);
                    agree::<f32>(left, len, clear);
                    agree::<u128>(left, len, clear);
                    agree::<[u16; 3]>(left, len, clear);
                    agree::<[f32; 4]>(left, len, clear);
                }
            }
        }
    }

    #[test]
    fn counting_up_agrees_with_carving_down() {
        for (alignment, clear) in clears() {
            let (mut left, mut offset) = (1 << 16, 0);
            for bytes in 1..100 {
                let align = 1 << (bytes % 5);
                left = carve_bytes(left, bytes, align, &clear).unwrap();
                offset = advance(offset, bytes, align.max(alignment)).unwrap();
                assert_eq!((1 << 16) - left, offset);
            }
        }
    }

    #[test]
    fn no_bytes_are_left_to_the_slow_path() {
        for (_, clear) in clears() {
            assert_eq!(carve_elements::<u8>(0, 0, &clear), None);
            assert_eq!(carve_elements::<u128>(256, 0, &clear), None);
            assert_eq!(carve_elements::<[u16; 3]>(256, 0, &clear), None);
            assert_eq!(carve_bytes(256, 0, 16, &clear), None);
        }
    }

    #[test]
    fn the_last_byte_can_be_had() {
        let clear = Clear::new(1);
        assert_eq!(carve_elements::<u8>(1, 1, &clear), Some(0));
        assert_eq!(carve_elements::<u8>(1, 2, &clear), None);
        assert_eq!(carve_elements::<u8>(16, 16, &clear), Some(0));
        assert_eq!(carve_elements::<f32>(7, 1, &clear), Some(0));
        assert_eq!(carve_elements::<f32>(3, 1, &clear), None);
        assert_eq!(carve_elements::<[u16; 3]>(7, 1, &clear), Some(0));
        assert_eq!(carve_bytes(5, 5, 4, &clear), Some(0));
    }

    #[test]
    fn overflowing_and_overaligned_requests_leave_the_fast_path() {
        #[repr(align(32))]
        struct Wide;
        let refuses = |carved: Option<usize>| assert_eq!(carved, None);
        for (_, clear) in clears() {
            refuses(carve_elements::<u64>(1 << 20, (1 << 61) + 1, &clear));
            refuses(carve_elements::<u64>(1 << 20, usize::MAX, &clear));
            refuses(carve_elements::<u64>(usize::MAX << 8, 1 << 61, &clear));
            refuses(carve_elements::<[u16; 3]>(
                usize::MAX << 8,
                usize::MAX / 6 + 1,
                &clear,
            ));
            refuses(carve_elements::<u8>(usize::MAX << 8, FAST_LEN + 1, &clear));
            refuses(carve_elements::<Wide>(1 << 20, 1, &clear));
            refuses(carve_elements::<()>(1 << 20, 1, &clear));
        }
    }

    #[test]
    fn an_origin_is_padded_from_the_absolute_address() {
        let placed = |pad, capacity| Ok(Origin { pad, capacity });
        assert_eq!(origin(4096, 1000, 256), placed(0, 768));
        assert_eq!(origin(4097, 1000, 256), placed(255, 512));
        assert_eq!(origin(4097, 254, 256), Err(255));
        assert_eq!(slab_bytes(1, 256), Some(511));
        assert_eq!(slab_bytes(usize::MAX, 256), None);
    }
}
