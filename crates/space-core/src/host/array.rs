//! Arrays in host memory.

use std::{
    fmt,
    marker::PhantomData,
    mem::MaybeUninit,
    ops::{Deref, DerefMut},
    slice,
};

use bytemuck::Zeroable;

use super::{Host, HostBlock, HostCarve};
use crate::{Block, Capturing, Carved, Describe, Dims, Element, Shaped};

/// An array of `T` with extents `D` in host memory, over a block `B`.
///
/// It comes uninitialised and is then a slice of `MaybeUninit<T>`: safe code never reads what
/// nobody wrote. [`filled`](HostArray::filled), [`zeroed`](HostArray::zeroed) and
/// [`init_with`](HostArray::init_with) turn it into one whose elements are there (`I` is
/// [`Init`]), which is a slice of `T`. Elements lie in row-major order, without gaps.
///
/// ```
/// use space_core::{AllocError, Heap, Space, Undef};
/// let squares = Heap
///     .alloc(Undef::<u32, _>::new([2, 2]))?
///     .init_with(|i| (i * i) as u32);
/// assert_eq!(*squares, [0, 1, 4, 9]);
/// assert_eq!(squares.dims(), &[2, 2]);
/// # Ok::<(), AllocError>(())
/// ```
pub struct HostArray<B, T, D, I = Uninit>
where
    B: Block<Family = Host>,
{
    /// At least the bytes of `dims` elements of `T`, aligned for it.
    block: B,
    dims: D,
    element: PhantomData<(T, fn() -> I)>,
}

/// An array over a carve: it lives as long as the frame, or as the borrow of its arena.
pub type CarvedArray<'s, T, D, I = Uninit> = HostArray<HostCarve<'s>, T, D, I>;

/// An array that owns its memory.
pub type OwnedArray<T, D, I = Uninit> = HostArray<HostBlock, T, D, I>;

/// State of an array whose elements may not have been written.
#[derive(Debug, Clone, Copy)]
pub enum Uninit {}

/// State of an array whose elements were all written.
#[derive(Debug, Clone, Copy)]
pub enum Init {}

/// Whether the elements of an array are there: [`Uninit`] or [`Init`].
pub trait InitState: sealed::Sealed {
    /// What an element is seen as.
    type Slot<T: Element>: Copy;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Uninit {}
    impl Sealed for super::Init {}
}

impl InitState for Uninit {
    type Slot<T: Element> = MaybeUninit<T>;
}

impl InitState for Init {
    type Slot<T: Element> = T;
}

impl<B: Block<Family = Host>, T: Element, D: Dims> HostArray<B, T, D> {
    /// An array over `block`, for those who write blocks of their own.
    ///
    /// # Safety
    ///
    /// As for [`Block::typed`].
    #[inline(always)]
    pub unsafe fn over(block: B, dims: D) -> Self {
        Self {
            block,
            dims,
            element: PhantomData,
        }
    }

    /// The array with every element written.
    ///
    /// # Safety
    ///
    /// Every element was written.
    #[inline(always)]
    pub unsafe fn assume_init(self) -> HostArray<B, T, D, Init> {
        HostArray {
            block: self.block,
            dims: self.dims,
            element: PhantomData,
        }
    }

    /// Writes `value` to every element.
    pub fn filled(mut self, value: T) -> HostArray<B, T, D, Init> {
        self.fill(MaybeUninit::new(value));
        // SAFETY: Just written.
        unsafe { self.assume_init() }
    }

    /// Writes the value of all zero bytes to every element.
    pub fn zeroed(self) -> HostArray<B, T, D, Init>
    where
        T: Zeroable,
    {
        self.filled(T::zeroed())
    }

    /// Writes `element(i)` to the element at the row-major index `i`, in order.
    pub fn init_with(mut self, mut element: impl FnMut(usize) -> T) -> HostArray<B, T, D, Init> {
        for (i, slot) in self.iter_mut().enumerate() {
            slot.write(element(i));
        }
        // SAFETY: Just written.
        unsafe { self.assume_init() }
    }
}

impl<B: Block<Family = Host>, T: Element, D: Dims, I: InitState> HostArray<B, T, D, I> {
    /// The extents, in elements.
    #[inline]
    pub fn dims(&self) -> &D {
        &self.dims
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.dims.known_len()
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'s, T: Element, D: Dims, I: InitState> CarvedArray<'s, T, D, I> {
    /// The elements, for as long as the carve lives.
    #[inline]
    pub fn into_slice(self) -> &'s mut [I::Slot<T>] {
        let len = self.len();
        let address = self.block.address().cast();
        // SAFETY: The carve gives access to `len` slots for `'s`, and is used up here. The slots
        // are uninitialised as `MaybeUninit`, or written (`InitState`).
        unsafe { slice::from_raw_parts_mut(address.as_ptr(), len) }
    }
}

impl<B: Block<Family = Host>, T: Element, D: Dims, I: InitState> Deref for HostArray<B, T, D, I> {
    type Target = [I::Slot<T>];

    #[inline(always)]
    fn deref(&self) -> &[I::Slot<T>] {
        // SAFETY: The block owns `len` slots at its address; they are uninitialised as
        // `MaybeUninit`, or written (`InitState`). `over`'s caller promised size and alignment.
        unsafe { slice::from_raw_parts(self.block.address().cast().as_ptr(), self.len()) }
    }
}

impl<B: Block<Family = Host>, T: Element, D: Dims, I: InitState> DerefMut
    for HostArray<B, T, D, I>
{
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [I::Slot<T>] {
        // SAFETY: As in `deref`, and the array is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.block.address().cast().as_ptr(), self.len()) }
    }
}

impl<B: Block<Family = Host>, T: Element, D: Dims, I> Shaped for HostArray<B, T, D, I> {
    type Element = T;
    type Dims = D;

    fn shape(&self) -> D {
        self.dims.clone()
    }
}

/// An array that exists already is an entry that passes through untouched.
impl<L: Block, B: Block<Family = Host>, T, D, I> Describe<L> for HostArray<B, T, D, I> {
    type Out = Self;
    type Flat = ();
    type Held = Self;

    #[inline]
    fn flatten(self) -> ((), Self) {
        ((), self)
    }

    #[inline]
    fn finish((): Carved<Self, L>, held: Self) -> Self {
        held
    }
}

impl<B: Block<Family = Host>, T, D, I> Capturing for HostArray<B, T, D, I> {}

impl<B: Block<Family = Host>, T, D: fmt::Debug, I> fmt::Debug for HostArray<B, T, D, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostArray")
            .field("dims", &self.dims)
            .field("address", &self.block.address())
            .finish_non_exhaustive()
    }
}
