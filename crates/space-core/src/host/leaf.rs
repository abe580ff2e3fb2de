//! What code that takes any space in host memory may do with its arrays.

use std::{fmt, marker::PhantomData};

use bytemuck::Zeroable;

use super::{Host, HostArray, HostBlock, HostCarve, Init};
use crate::{Block, Carved, Describe, Dims, Element, Shaped, Undef};

/// A block of host memory whose arrays are [`HostArray`]s: said as a bound, so that code that
/// takes any space in host memory reaches the elements.
///
/// ```
/// use space_core::{AllocError, Heap, HostArray, HostLeaf, Init, Space, Undef};
///
/// fn squares<S: Space<Block: HostLeaf>>(
///     space: &S,
///     n: usize,
/// ) -> Result<HostArray<S::Block, u64, [usize; 1], Init>, AllocError> {
///     let squares = space.alloc(Undef::<u64, _>::new([n]))?;
///     Ok(S::Block::host(squares).init_with(|i| (i * i) as u64))
/// }
///
/// assert_eq!(*squares(&Heap, 4)?, [0, 1, 4, 9]);
/// # Ok::<(), AllocError>(())
/// ```
pub trait HostLeaf: Block<Family = Host> {
    /// The array as what it is.
    fn host<T: Element, D: Dims>(array: Self::Array<T, D>) -> HostArray<Self, T, D>;

    /// The borrowed array as what it is.
    fn host_mut<T: Element, D: Dims>(array: &mut Self::Array<T, D>) -> &mut HostArray<Self, T, D>;
}

macro_rules! leaf {
    ($($block:ty),+) => { $(
        impl HostLeaf for $block {
            #[inline(always)]
            fn host<T: Element, D: Dims>(array: Self::Array<T, D>) -> HostArray<Self, T, D> {
                array
            }

            #[inline(always)]
            fn host_mut<T: Element, D: Dims>(
                array: &mut Self::Array<T, D>,
            ) -> &mut HostArray<Self, T, D> {
                array
            }
        }
    )+ };
}

leaf!(HostBlock, HostCarve<'_>);

/// An array of `T` with extents `D` in host memory whose elements start as all zero bytes.
///
/// ```
/// use space_core::{AllocError, Heap, Space, Zeroed};
/// let counts = Heap.alloc(Zeroed::<u32, _>::new([3]))?;
/// assert_eq!(*counts, [0; 3]);
/// # Ok::<(), AllocError>(())
/// ```
pub struct Zeroed<T, D> {
    dims: D,
    element: PhantomData<fn() -> T>,
}

impl<T: Element + Zeroable, D: Dims> Zeroed<T, D> {
    /// An array with extents `dims`, in elements.
    pub fn new(dims: D) -> Self {
        Self {
            dims,
            element: PhantomData,
        }
    }

    /// An array like `exemplar`, which is not read.
    pub fn like<X: Shaped<Element = T, Dims = D> + ?Sized>(exemplar: &X) -> Self {
        Self::new(exemplar.shape())
    }
}

impl<T, D: Clone> Clone for Zeroed<T, D> {
    fn clone(&self) -> Self {
        Self {
            dims: self.dims.clone(),
            element: PhantomData,
        }
    }
}

impl<T, D: Copy> Copy for Zeroed<T, D> {}

impl<T, D: fmt::Debug> fmt::Debug for Zeroed<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = std::any::type_name::<T>();
        write!(f, "Zeroed::<{element}>({:?})", self.dims)
    }
}

impl<B: HostLeaf, T: Element + Zeroable, D: Dims> Describe<B> for Zeroed<T, D> {
    type Out = HostArray<B, T, D, Init>;
    type Flat = Undef<T, D>;
    type Held = ();

    #[inline]
    fn flatten(self) -> (Undef<T, D>, ()) {
        (Undef::new(self.dims), ())
    }

    #[inline]
    fn finish(array: Carved<Self, B>, (): ()) -> Self::Out {
        B::host(array).zeroed()
    }
}
