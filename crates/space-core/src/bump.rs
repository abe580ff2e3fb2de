//! The arithmetic of a carve: numbers in, numbers out, no memory in sight.
//!
//! A cursor moves down. Its whole state is `left`, the bytes below it. The origin is aligned to
//! every alignment the cursor serves, so offsets can be aligned in place of addresses, and the
//! lower end needs no check of its own: rounding down never passes zero.

#![forbid(unsafe_code)]

use std::hint;

/// Largest alignment that [`carve_elements`] serves. Every carve starts at a multiple of this at
/// least, so that `left` is one always, and a request of no bytes doesn't move it.
pub(crate) const FAST_ALIGN: usize = 16;

/// The bytes left after a carve of `len` elements of `T`, or `None` if the request needs the
/// slow path: over-aligned, of no size, overflowing, or more than is left.
///
/// `left` is a multiple of the arena's alignment, and `clear` is `!(alignment - 1)`.
#[inline(always)]
pub(crate) fn carve_elements<T>(left: usize, len: usize, clear: usize) -> Option<usize> {
    let size = size_of::<T>();
    let align = align_of::<T>();
    if size == 0 || align > FAST_ALIGN {
        return None;
    }
    // One compare for the ceiling and for overflow.
    // The result comes of `left` by two steps only, which is what the next carve waits for.
    if len > left / size {
        hint::cold_path();
        return None;
    }
    Some((left - len * size) & clear)
}

/// The bytes left after a carve of `bytes` at `align` (a power of two that the origin is aligned
/// to), or `None` if they do not fit.
#[inline(always)]
pub(crate) fn carve_bytes(left: usize, bytes: usize, align: usize, clear: usize) -> Option<usize> {
    Some(left.checked_sub(bytes)? & clear & !(align - 1))
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

    #[test]
    fn both_forms_of_a_carve_agree() {
        for clear in [!15, !63, !255] {
            for left in (0..1100).filter(|left| left & !clear == 0) {
                for len in 0..100 {
                    let bytes = carve_bytes(left, len * 4, 4, clear);
                    assert_eq!(carve_elements::<f32>(left, len, clear), bytes);
                    let bytes = carve_bytes(left, len * 6, 2, clear);
                    assert_eq!(carve_elements::<[u16; 3]>(left, len, clear), bytes);
                }
            }
        }
    }

    #[test]
    fn counting_up_agrees_with_carving_down() {
        for alignment in [1, 16, 64] {
            let (mut left, mut offset) = (1 << 16, 0);
            for bytes in 0..100 {
                left = carve_bytes(left, bytes, 4, !(alignment - 1)).unwrap();
                offset = advance(offset, bytes, alignment.max(4)).unwrap();
                assert_eq!((1 << 16) - left, offset);
            }
        }
    }

    #[test]
    fn no_bytes_are_always_there_and_cost_nothing() {
        assert_eq!(carve_elements::<u8>(0, 0, !15), Some(0));
        assert_eq!(carve_elements::<u128>(256, 0, !255), Some(256));
        assert_eq!(carve_bytes(48, 0, 16, !15), Some(48));
    }

    #[test]
    fn overflowing_and_overaligned_requests_leave_the_fast_path() {
        #[repr(align(32))]
        struct Wide;
        assert_eq!(carve_elements::<u64>(1 << 20, (1 << 61) + 1, !0), None);
        assert_eq!(carve_elements::<u64>(1 << 20, usize::MAX, !0), None);
        assert_eq!(carve_elements::<Wide>(1 << 20, 1, !0), None);
        assert_eq!(carve_elements::<()>(1 << 20, 1, !0), None);
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
