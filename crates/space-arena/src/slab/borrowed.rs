//! Memory that belongs to somebody else.

use std::{marker::PhantomData, mem::MaybeUninit, ptr::NonNull};

use space_core::{Host, Parts, Slab};

/// A slab over bytes that the caller lends: a local, a static, a part of a larger buffer.
///
/// ```
/// use std::mem::MaybeUninit;
/// use space_arena::{Arena, BorrowedSlab};
/// use space_core::{AllocError, Space, Undef};
///
/// let mut bytes = [MaybeUninit::<u8>::uninit(); 4096];
/// let mut arena = Arena::builder().alignment(16).build(BorrowedSlab::new(&mut bytes))?;
/// let x = arena.frame().alloc(Undef::<f32, _>::new([4]))?.filled(1.0);
/// assert_eq!(*x, [1.0; 4]);
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Debug)]
pub struct BorrowedSlab<'m> {
    bytes: &'m mut [MaybeUninit<u8>],
}

impl<'m> BorrowedSlab<'m> {
    /// A slab over `bytes`.
    pub fn new(bytes: &'m mut [MaybeUninit<u8>]) -> Self {
        Self { bytes }
    }
}

/// The right to bytes that were lent, without a claim to them: the arena makes that.
#[derive(Debug)]
pub struct Lent<'m>(PhantomData<&'m mut [MaybeUninit<u8>]>);

// SAFETY: The bytes are borrowed exclusively for `'m`, which is part of the owner's type, so the
// owner can't outlive it. The borrow itself was used up to make the pointer.
unsafe impl<'m> Slab for BorrowedSlab<'m> {
    type Family = Host;
    type Owner = Lent<'m>;

    fn into_parts(self) -> Parts<Host, Lent<'m>> {
        let bytes = self.bytes.len();
        Parts {
            base: NonNull::from(self.bytes).cast(),
            bytes,
            region: (),
            owner: Lent(PhantomData),
        }
    }
}
