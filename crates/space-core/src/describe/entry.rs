//! Entries of a description that exist already.

use std::fmt;

use super::{Carved, Describe, Undef};
use crate::{Block, Dims, Element};

/// Stands in a description for something that is there already and passes through untouched.
/// Arrays in host memory need no such wrapper: they are entries as they are.
///
/// ```
/// use space_core::{AllocError, Given, Heap, Space, Undef};
/// let mine = vec![1.0, 2.0];
/// let (made, mine) = Heap.alloc((Undef::<f32, _>::new([2]), Given(mine)))?;
/// assert_eq!((made.len(), mine), (2, vec![1.0, 2.0]));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Given<X>(
    /// What passes through.
    pub X,
);

impl<B: Block, X> Describe<B> for Given<X> {
    type Out = X;
    type Flat = ();
    type Held = X;

    #[inline(always)]
    fn flatten(self) -> ((), X) {
        ((), self.0)
    }

    #[inline(always)]
    fn finish((): (), held: X) -> X {
        held
    }
}

/// An entry that is to be made, or is given: the caller decides at run time.
pub enum Entry<T: Element, D: Dims, B: Block> {
    /// To be made.
    Make(Undef<T, D>),
    /// There already.
    Given(B::Array<T, D>),
}

impl<T: Element, D: Dims, B: Block> From<Undef<T, D>> for Entry<T, D, B> {
    fn from(description: Undef<T, D>) -> Self {
        Self::Make(description)
    }
}

impl<T: Element, D: Dims, B: Block> fmt::Debug for Entry<T, D, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(description) => f.debug_tuple("Make").field(description).finish(),
            Self::Given(_) => f.debug_tuple("Given").finish_non_exhaustive(),
        }
    }
}

impl<T: Element, D: Dims, B: Block> Describe<B> for Entry<T, D, B> {
    type Out = B::Array<T, D>;
    type Flat = Option<Undef<T, D>>;
    type Held = Option<B::Array<T, D>>;

    #[inline]
    fn flatten(self) -> (Self::Flat, Self::Held) {
        match self {
            Self::Make(description) => (Some(description), None),
            Self::Given(array) => (None, Some(array)),
        }
    }

    #[inline]
    fn finish(made: Carved<Self, B>, given: Self::Held) -> Self::Out {
        given
            .or(made)
            .expect("flatten yields one of the two, and carving keeps its variant")
    }
}
