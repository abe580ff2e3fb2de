//! What a space's leaf hands out.

use std::{alloc::Layout, ptr::NonNull};

use crate::{AllocError, AmbientBlock, Dims, Element, Family};

/// A run of untyped, uninitialised bytes, owned by whoever holds it.
///
/// The block's type says how the bytes are given back (by its drop, or by the frame it came from)
/// and what an array over them is.
///
/// # Safety
///
/// - The bytes `address()..address() + bytes()` are the holder's alone while the block, or the
///   array made of it, lives. They are memory of the family.
/// - [`place`](Block::place) and [`bytes`](Block::bytes) answer the same at each call, and stay
///   right when the block is moved. Moving the block asserts no claim to the bytes (it holds a raw
///   pointer, not a `Box` or a `&mut`), so that a frame can keep the block and lend the bytes out.
/// - Bytes reached through the place are the block's until it is dropped.
/// - [`INTO_AMBIENT`](Block::INTO_AMBIENT) yields the same bytes at the same place, and calls into no
///   space.
pub unsafe trait Block: Sized {
    /// The kind of memory.
    type Family: Family;

    /// An array over such a block. Its elements start uninitialised.
    type Array<T: Element, D: Dims>;

    /// Makes the block one for an array that outlives every frame, if it owns its bytes. With
    /// `Some(AmbientBlock::of)` here, frames over a space of such blocks can be the ambient space.
    const INTO_AMBIENT: IntoAmbient<Self> = None;

    /// Where the block lies.
    fn place(&self) -> <Self::Family as Family>::Place;

    /// Size in bytes.
    fn bytes(&self) -> usize;

    /// Address of the first byte, with the right to access the block where it is host memory.
    #[inline(always)]
    fn address(&self) -> NonNull<u8> {
        Self::Family::address(self.place())
    }

    /// The array of `T`, shaped `dims`, over this block.
    ///
    /// # Safety
    ///
    /// The product of `dims` does not overflow, the block has at least that many elements' bytes,
    /// at most `isize::MAX`, and its address is aligned for `T`.
    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> Self::Array<T, D>;
}

/// How a block `B` becomes one for an array that outlives every frame. See
/// [`Block::INTO_AMBIENT`].
pub type IntoAmbient<B> = Option<fn(B) -> AmbientBlock<<B as Block>::Family>>;

/// A block that dies with a frame or with a borrow of its arena.
///
/// Marks the blocks that scratch may be made of, so that a scratch specification can't be
/// materialised where nothing reclaims it.
pub trait FrameBlock: Block {}

/// That `block` is what `layout` asked for.
#[inline]
pub(crate) fn check<B: Block>(block: &B, layout: Layout) -> Result<(), AllocError> {
    let address = block.address().addr().get();
    if block.bytes() >= layout.size() && address.is_multiple_of(layout.align()) {
        Ok(())
    } else {
        Err(AllocError::BadBlock {
            wanted_bytes: layout.size(),
            align: layout.align(),
            got_bytes: block.bytes(),
            address,
        })
    }
}
