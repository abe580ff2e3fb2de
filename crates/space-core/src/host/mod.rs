//! Host memory.

mod array;
mod block;
mod heap;
mod leaf;

pub use array::{CarvedArray, HostArray, Init, InitState, OwnedArray, Uninit};
pub use block::{HostBlock, HostCarve};
pub use heap::Heap;
pub use leaf::{HostLeaf, Zeroed};

use std::{ops::Range, ptr::NonNull};

use crate::{AllocError, Family};

/// Memory of the host. Carves share nothing and cost nothing but the arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {}

// SAFETY: The place is the address itself, the carve is that pointer and the byte count, and
// nothing here calls out or unwinds.
unsafe impl Family for Host {
    type Region = ();
    const REGION: Option<&'static ()> = Some(&());
    type Place = NonNull<u8>;
    type Carve<'s> = HostCarve<'s>;

    #[inline(always)]
    fn address(place: NonNull<u8>) -> NonNull<u8> {
        place
    }

    #[inline(always)]
    unsafe fn claim(
        _: &(),
        address: NonNull<u8>,
        _bytes: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        Ok(address)
    }

    #[inline(always)]
    unsafe fn retract(_: &(), _: Range<usize>) {}

    #[inline(always)]
    unsafe fn carve<'s>(place: NonNull<u8>, bytes: usize) -> HostCarve<'s> {
        // SAFETY: The caller promises what `HostCarve::new` asks for.
        unsafe { HostCarve::new(place, bytes) }
    }
}
