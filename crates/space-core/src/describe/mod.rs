//! What to materialise, as data.

mod compound;
mod entry;
mod mode;
mod undef;

pub use entry::{Entry, Given};
pub use mode::{In, Mode, Partial, Spec, ToPartial};
pub use undef::{Shaped, Undef};

use crate::{AllocError, Block, FrameBlock, Space};

/// A description of an array, or of several, to be materialised in a space whose leaf hands out
/// `B`.
///
/// [`Undef`] describes one array. Tuples, arrays, options and structs of descriptions describe
/// several; [`Entry`] and [`Given`] let one that exists already stand in their midst.
///
/// Materialising runs in three stages: [`flatten`](Describe::flatten), the carving, which is
/// sealed, and [`finish`](Describe::finish). An implementation converts in the first and the last
/// and never carves, so it needs no `unsafe` and can do no harm. Delegate to a tuple:
///
/// ```
/// use space_core::{AllocError, Block, Describe, Element, Heap, Shaped, Space, Undef};
///
/// struct Pair { x: Undef<f32, [usize; 1]>, y: Undef<f32, [usize; 1]> }
/// struct Arrays<B: Block> { x: B::Array<f32, [usize; 1]>, y: B::Array<f32, [usize; 1]> }
/// type Parts = (Undef<f32, [usize; 1]>, Undef<f32, [usize; 1]>);
///
/// impl<B: Block> Describe<B> for Pair {
///     type Out = Arrays<B>;
///     type Flat = <Parts as Describe<B>>::Flat;
///     type Held = <Parts as Describe<B>>::Held;
///     fn flatten(self) -> (Self::Flat, Self::Held) {
///         Describe::<B>::flatten((self.x, self.y))
///     }
///     fn finish(arrays: space_core::Carved<Self, B>, held: Self::Held) -> Arrays<B> {
///         let (x, y) = <Parts as Describe<B>>::finish(arrays, held);
///         Arrays { x, y }
///     }
/// }
///
/// let pair = Heap.alloc(Pair { x: Undef::new([3]), y: Undef::new([4]) })?;
/// assert_eq!((pair.x.len(), pair.y.len()), (3, 4));
/// # Ok::<(), AllocError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not describe arrays over blocks of type `{B}`",
    note = "describe an array by `Undef`, several by a tuple, an array, an option, or a struct \
            with `#[derive(Describe)]`; wrap what is there already in `Given`"
)]
pub trait Describe<B: Block> {
    /// What the description becomes.
    type Out;

    /// What is to be carved.
    type Flat: Flat<B>;

    /// What passes through untouched.
    type Held;

    /// Takes the description apart.
    fn flatten(self) -> (Self::Flat, Self::Held);

    /// Puts the result together.
    fn finish(arrays: Carved<Self, B>, held: Self::Held) -> Self::Out;
}

/// What the carving stage of a description `D` yields.
pub type Carved<D, B> = <<D as Describe<B>>::Flat as Flat<B>>::Arrays;

/// What is carved between checkpoint and roll-back. Sealed: no code of a caller runs in it.
pub trait Flat<B: Block>: sealed::Sealed {
    /// The arrays that come of it.
    type Arrays;

    /// The most arrays that are carved, where 2 stands for any larger number as well.
    const ENTRIES: usize;

    /// Carves in order; on an error the arrays made so far are dropped.
    #[doc(hidden)]
    fn carve<S: Space<Block = B>>(self, space: &S) -> Result<Self::Arrays, AllocError>;
}

mod sealed {
    pub trait Sealed {}
}

/// A description of scratch: it can be materialised only where blocks die with a frame.
///
/// ```compile_fail
/// # use space_core::{Heap, Scratch, Space, Undef};
/// Heap.alloc(Scratch(Undef::<f32, _>::new([3])));
/// ```
///
/// ```
/// # use space_core::{AllocError, Heap, Scratch, Space, Undef};
/// Heap.scratch(|frame| frame.alloc(Scratch(Undef::<f32, _>::new([3]))).map(drop))?;
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Scratch<D>(
    /// What the scratch is made of.
    pub D,
);

impl<B: FrameBlock, D: Describe<B>> Describe<B> for Scratch<D> {
    type Out = D::Out;
    type Flat = D::Flat;
    type Held = D::Held;

    #[inline(always)]
    fn flatten(self) -> (D::Flat, D::Held) {
        self.0.flatten()
    }

    #[inline(always)]
    fn finish(arrays: Carved<D, B>, held: D::Held) -> D::Out {
        D::finish(arrays, held)
    }
}
