//! Verbs: what a pass needs, declared as data.

mod allocating;

pub use allocating::Allocating;

use space_core::{AllocError, Block, Describe, Family, FrameBlock, Scratch, Space};

/// A step of a computation that writes into arrays it is given, and says which.
///
/// The three declarations are descriptions, so the caller decides where each lives, and can add
/// them up before anything runs:
///
/// - *outputs* are the results: they live where the caller's space is;
/// - *checkpoints* are what a later pass (a reverse one) needs of this one, and live there too;
/// - *scratch* dies with the step, in a frame.
///
/// A declaration that is empty is `()`. [`Mutate`] says what the verb does, and [`Allocating`]
/// makes the form of it that brings its own arrays.
pub trait Verb {
    /// Description of the results.
    type Outputs;

    /// Description of what a later pass needs.
    type Checkpoints;

    /// Description of what dies with the step.
    type Scratch;

    /// The results.
    fn outputs(&self) -> Self::Outputs;

    /// What a later pass needs.
    fn checkpoints(&self) -> Self::Checkpoints;

    /// What dies with the step.
    fn scratch(&self) -> Self::Scratch;
}

/// What a description `D` becomes over blocks `B`.
pub type Made<D, B> = <D as Describe<B>>::Out;

/// What a description `D` becomes in a frame of family `F`.
pub type MadeInFrame<'f, D, F> = Made<D, <F as Family>::Carve<'f>>;

/// The mutating form of a verb, for outputs and checkpoints over blocks `B`.
///
/// Written once for a family, generic over `B`, it serves arrays that own their memory and carves
/// alike. In host memory the bound is `B: HostLeaf`.
pub trait Mutate<B: Block>:
    Verb<
        Outputs: Describe<B>,
        Checkpoints: Describe<B>,
        Scratch: for<'f> Describe<<B::Family as Family>::Carve<'f>>,
    >
{
    /// What can go wrong, allocation included.
    type Error: From<AllocError>;

    /// Does it: reads what the verb holds, and writes all of `outputs` and `checkpoints`.
    ///
    /// # Errors
    ///
    /// Whatever keeps the verb from it; then the contents of the arrays are unspecified.
    fn mutate<'f>(
        &self,
        outputs: &mut Made<Self::Outputs, B>,
        checkpoints: &mut Made<Self::Checkpoints, B>,
        scratch: MadeInFrame<'f, Self::Scratch, B::Family>,
    ) -> Result<(), Self::Error>;
}

/// Materialises a verb's outputs.
///
/// # Errors
///
/// Those of [`Space::alloc`].
pub fn outputs<S: Space, V: Verb<Outputs: Describe<S::Block>>>(
    space: &S,
    verb: &V,
) -> Result<Made<V::Outputs, S::Block>, AllocError> {
    space.alloc(verb.outputs())
}

/// Materialises a verb's checkpoints.
///
/// # Errors
///
/// Those of [`Space::alloc`].
pub fn checkpoints<S: Space, V: Verb<Checkpoints: Describe<S::Block>>>(
    space: &S,
    verb: &V,
) -> Result<Made<V::Checkpoints, S::Block>, AllocError> {
    space.alloc(verb.checkpoints())
}

/// Materialises a verb's scratch, in a frame and nowhere else.
///
/// # Errors
///
/// Those of [`Space::alloc`].
pub fn scratch<S, V>(frame: &S, verb: &V) -> Result<Made<V::Scratch, S::Block>, AllocError>
where
    S: Space<Block: FrameBlock>,
    V: Verb<Scratch: Describe<S::Block>>,
{
    frame.alloc(Scratch(verb.scratch()))
}
