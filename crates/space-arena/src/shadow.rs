//! A primal and its gradient.

use std::marker::PhantomData;

use space_core::{Block, Carved, Describe, Element, Shaped, Undef};

/// An array and a buffer of the same extents for what is known of it: a primal and its gradient.
///
/// Made from any space, alone or as an entry of a larger description:
///
/// ```
/// use space_arena::{Arena, Shadow};
/// use space_core::{AllocError, Heap, Space, Zeroed};
///
/// let x = Heap.alloc(Zeroed::<f32, _>::new([2, 3]))?;
/// let mut arena = Arena::with_capacity(1 << 12)?;
/// let x = arena.frame().alloc(Shadow::of(x))?; // the primal owns, the gradient is carved
/// assert_eq!(x.gradient.dims(), x.primal.dims());
///
/// let x = Heap.alloc(Shadow::of(x.primal).element::<f64>())?; // in another element type
/// let gradient = x.gradient.filled(0.5);
/// assert_eq!(gradient.iter().sum::<f64>(), 3.0);
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Shadow<P, G> {
    /// The array.
    pub primal: P,
    /// The buffer of the same extents.
    pub gradient: G,
}

impl<P: Shaped> Shadow<P, Undef<P::Element, P::Dims>> {
    /// Describes the pair of `primal`, which passes through, and a gradient to be made.
    pub fn of(primal: P) -> ShadowOf<P, P::Element> {
        ShadowOf {
            primal,
            element: PhantomData,
        }
    }
}

/// The description of a [`Shadow`]: the primal is there, and a gradient of `T` is to be made.
#[derive(Debug, Clone, Copy)]
pub struct ShadowOf<P, T> {
    primal: P,
    element: PhantomData<fn() -> T>,
}

impl<P: Shaped, T: Element> ShadowOf<P, T> {
    /// The same with a gradient of `U`.
    pub fn element<U: Element>(self) -> ShadowOf<P, U> {
        ShadowOf {
            primal: self.primal,
            element: PhantomData,
        }
    }
}

impl<B: Block, P: Shaped, T: Element> Describe<B> for ShadowOf<P, T> {
    type Out = Shadow<P, B::Array<T, P::Dims>>;
    type Flat = Undef<T, P::Dims>;
    type Held = P;

    fn flatten(self) -> (Self::Flat, P) {
        (Undef::new(self.primal.shape()), self.primal)
    }

    fn finish(gradient: Carved<Self, B>, primal: P) -> Self::Out {
        Shadow { primal, gradient }
    }
}
