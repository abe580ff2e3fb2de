//! The space around an array.

use std::alloc::Layout;

use crate::{
    AllocError, ArrayOf, Block, Checkpoint, Dims, Element, Heap, Host, HostArray, Observer, Space,
};

/// An array that tells where more like it come from.
pub trait Exemplar {
    /// The space that makes arrays of the same kind of memory, on the same device.
    type Space: Space;

    /// That space. The array's elements are not read.
    fn space(&self) -> Self::Space;
}

/// The space around an exemplar: arrays of the same kind of memory on the same device, which own
/// their memory.
///
/// Such a space goes through the device's allocator, so it serves eager work only: under a graph
/// capture it returns [`AllocError::CaptureViolation`]. Under a capture, use an arena.
///
/// ```
/// use space_core::{AllocError, Similar, Space, Undef};
/// let x = vec![1.0_f32, 2.0];
/// let y = Similar::to(&x).alloc(Undef::like(&x[..]))?.zeroed();
/// assert_eq!(*y, [0.0, 0.0]);
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Similar<S>(S);

impl<S: Space> Similar<S> {
    /// The space around `exemplar`, which is not read.
    pub fn to<X: Exemplar<Space = S> + ?Sized>(exemplar: &X) -> Self {
        Self(exemplar.space())
    }
}

impl<S: Space> Space for Similar<S> {
    type Family = S::Family;
    type Block = S::Block;

    #[inline]
    fn block(&self, layout: Layout) -> Result<S::Block, AllocError> {
        self.0.block(layout)
    }

    fn observer(&self) -> Option<&dyn Observer> {
        self.0.observer()
    }

    fn checkpoint(&self) -> Checkpoint {
        self.0.checkpoint()
    }

    unsafe fn rollback(&self, to: Checkpoint) {
        // SAFETY: Handed on.
        unsafe { self.0.rollback(to) };
    }

    #[inline]
    fn typed<T: Element, D: Dims>(&self, dims: D) -> Result<ArrayOf<S, T, D>, AllocError> {
        self.0.typed(dims)
    }
}

impl<T> Exemplar for [T] {
    type Space = Heap;

    fn space(&self) -> Heap {
        Heap
    }
}

impl<T> Exemplar for Vec<T> {
    type Space = Heap;

    fn space(&self) -> Heap {
        Heap
    }
}

impl<B: Block<Family = Host>, T, D, I> Exemplar for HostArray<B, T, D, I> {
    type Space = Heap;

    fn space(&self) -> Heap {
        Heap
    }
}
