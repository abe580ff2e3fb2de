//! The description of one array.

use std::{fmt, marker::PhantomData};

use super::{Describe, Flat, sealed::Sealed};
use crate::{AllocError, Block, Dims, Element, Space};

/// An array of `T` with extents `D` whose elements are not defined yet.
///
/// ```
/// use space_core::{AllocError, Heap, Space, Undef};
/// let a = Heap.alloc(Undef::<f32, _>::new([2, 3]))?;
/// let b = Heap.alloc(Undef::like(&a))?;                       // same element type, same extents
/// let c = Heap.alloc(Undef::<u8, _>::new(vec![2, 3, 4]))?;    // rank known at run time
/// assert_eq!((a.len(), b.dims(), c.len()), (6, &[2, 3], 24));
/// # Ok::<(), AllocError>(())
/// ```
pub struct Undef<T, D> {
    dims: D,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, D: Dims> Undef<T, D> {
    /// An array with extents `dims`, in elements.
    #[inline(always)]
    pub fn new(dims: D) -> Self {
        Self {
            dims,
            element: PhantomData,
        }
    }

    /// An array like `exemplar`, which is not read.
    #[inline]
    pub fn like<X: Shaped<Element = T, Dims = D> + ?Sized>(exemplar: &X) -> Self {
        Self::new(exemplar.shape())
    }

    /// The extents, in elements.
    pub fn dims(&self) -> &D {
        &self.dims
    }

    /// The same extents with elements of type `U`.
    pub fn of<U: Element>(self) -> Undef<U, D> {
        Undef::new(self.dims)
    }
}

impl<T, D: Clone> Clone for Undef<T, D> {
    fn clone(&self) -> Self {
        Self {
            dims: self.dims.clone(),
            element: PhantomData,
        }
    }
}

impl<T, D: Copy> Copy for Undef<T, D> {}

impl<T, D: fmt::Debug> fmt::Debug for Undef<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Undef::<{}>({:?})",
            std::any::type_name::<T>(),
            self.dims
        )
    }
}

/// Has an element type and extents: what [`Undef::like`] takes from its exemplar.
pub trait Shaped {
    /// Type of the elements.
    type Element: Element;

    /// Type of the extents.
    type Dims: Dims;

    /// The extents, in elements.
    fn shape(&self) -> Self::Dims;
}

impl<T: Element> Shaped for [T] {
    type Element = T;
    type Dims = [usize; 1];

    fn shape(&self) -> [usize; 1] {
        [self.len()]
    }
}

impl<T: Element, D: Dims> Shaped for Undef<T, D> {
    type Element = T;
    type Dims = D;

    fn shape(&self) -> D {
        self.dims.clone()
    }
}

impl<T, D> Sealed for Undef<T, D> {}

impl<T: Element, D: Dims, B: Block> Flat<B> for Undef<T, D> {
    type Arrays = B::Array<T, D>;
    const ENTRIES: usize = 1;

    #[inline(always)]
    fn carve<S: Space<Block = B>>(self, space: &S) -> Result<B::Array<T, D>, AllocError> {
        space.typed(self.dims)
    }
}

impl<T: Element, D: Dims, B: Block> Describe<B> for Undef<T, D> {
    type Out = B::Array<T, D>;
    type Flat = Self;
    type Held = ();

    #[inline(always)]
    fn flatten(self) -> (Self, ()) {
        (self, ())
    }

    #[inline(always)]
    fn finish(array: B::Array<T, D>, (): ()) -> B::Array<T, D> {
        array
    }
}
