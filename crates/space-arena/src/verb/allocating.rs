//! The form of a verb that brings its own arrays.

use std::{alloc::Layout, marker::PhantomData};

use space_core::{
    AllocError, AmbientBlock, AmbientFamily, AmbientOf, Describe, Family, Flat, Host, Space,
    with_space,
};

use super::{Made, Mutate, Verb, scratch};

/// The allocating form of a mutating verb.
///
/// ```
/// use space_arena::{Allocating, Arena, Made, MadeInFrame, Mutate, Verb};
/// use space_core::{AllocError, Given, Heap, HostLeaf, Space, Undef, Zeroed};
///
/// /// y = (x + 1)², by way of a temporary.
/// struct Squares<'x>(&'x [f32]);
///
/// impl Verb for Squares<'_> {
///     type Outputs = Zeroed<f32, [usize; 1]>;
///     type Checkpoints = ();
///     type Scratch = Undef<f32, [usize; 1]>;
///     fn outputs(&self) -> Self::Outputs { Zeroed::like(self.0) }
///     fn checkpoints(&self) {}
///     fn scratch(&self) -> Self::Scratch { Undef::like(self.0) }
/// }
///
/// impl<B: HostLeaf> Mutate<B> for Squares<'_> {
///     type Error = AllocError;
///     fn mutate<'f>(
///         &self,
///         y: &mut Made<Self::Outputs, B>,
///         (): &mut (),
///         scratch: MadeInFrame<'f, Self::Scratch, B::Family>,
///     ) -> Result<(), AllocError> {
///         let shifted = scratch.init_with(|i| self.0[i] + 1.0);
///         y.iter_mut().zip(&*shifted).for_each(|(y, x)| *y = x * x);
///         Ok(())
///     }
/// }
///
/// let x = [1.0, 2.0];
/// let (y, ()) = Allocating(&Squares(&x)).run(&mut Heap)?;
/// assert_eq!(*y, [4.0, 9.0]);
///
/// // In an arena: `y` outlives the frame that the scratch dies in.
/// let mut arena = Arena::with_capacity(1 << 12)?;
/// let mut frame = arena.frame();
/// let (y, ()) = Allocating(&Squares(&x)).run(&mut frame)?;
/// assert_eq!((frame.offset(), y[1]), (256, 9.0));
///
/// // With the caller's own array for the output.
/// let (again, ()) = Allocating(&Squares(&x)).run_with(&mut frame, Given(y))?;
/// assert_eq!((frame.offset(), again[1]), (256, 9.0));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Allocating<'v, V>(
    /// The verb.
    pub &'v V,
);

/// Outputs and checkpoints of a verb over blocks `B`.
type Results<V, B> = (
    Made<<V as Verb>::Outputs, B>,
    Made<<V as Verb>::Checkpoints, B>,
);

impl<V: Verb> Allocating<'_, V> {
    /// Materialises outputs and checkpoints in `space` and scratch in a frame over it, does what
    /// the verb does, and returns the outputs and checkpoints. A verb without scratch opens no
    /// frame.
    ///
    /// # Errors
    ///
    /// Those of the allocations, and the verb's own. In an arena, outputs that were carved before
    /// the error stay carved until their frame ends.
    pub fn run<S: Space>(
        &self,
        space: &mut S,
    ) -> Result<Results<V, S::Block>, <V as Mutate<S::Block>>::Error>
    where
        V: Mutate<S::Block>,
    {
        let outputs = self.0.outputs();
        self.run_with(space, outputs)
    }

    /// As [`run`](Allocating::run), with another description of the outputs: one in which single
    /// outputs are given, and whose result is the same.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Allocating::run).
    pub fn run_with<S: Space, D>(
        &self,
        space: &mut S,
        outputs: D,
    ) -> Result<Results<V, S::Block>, <V as Mutate<S::Block>>::Error>
    where
        V: Mutate<S::Block>,
        D: Describe<S::Block, Out = Made<V::Outputs, S::Block>>,
    {
        let (mut outputs, mut checkpoints) = space.alloc((outputs, self.0.checkpoints()))?;
        if no_entries::<S::Family, V::Scratch>() {
            let nothing = Nowhere::<S::Family>(PhantomData).alloc(self.0.scratch())?;
            self.0.mutate(&mut outputs, &mut checkpoints, nothing)?;
        } else {
            space.scratch(|frame| {
                let scratch = scratch(frame, self.0)?;
                self.0.mutate(&mut outputs, &mut checkpoints, scratch)
            })?;
        }
        Ok((outputs, checkpoints))
    }
}

impl<V: Mutate<AmbientBlock>> Allocating<'_, V> {
    /// As [`run`](Allocating::run), in the ambient space, which stays bound while the verb does
    /// what it does: what it makes ambiently comes from the frame that its scratch dies in.
    ///
    /// # Errors
    ///
    /// [`AllocError::Unbound`], as the verb's own error, and those of [`run`](Allocating::run).
    pub fn run_ambient(&self) -> Result<Results<V, AmbientBlock>, V::Error> {
        self.run_ambient_of::<Host>()
    }
}

impl<V> Allocating<'_, V> {
    /// As [`run_ambient`](Allocating::run_ambient), in memory of any family.
    ///
    /// # Errors
    ///
    /// Those of [`run_ambient`](Allocating::run_ambient).
    pub fn run_ambient_of<F: AmbientFamily>(
        &self,
    ) -> Result<Results<V, AmbientBlock<F>>, <V as Mutate<AmbientBlock<F>>>::Error>
    where
        V: Mutate<AmbientBlock<F>>,
    {
        let descriptions = (self.0.outputs(), self.0.checkpoints());
        let (mut outputs, mut checkpoints) = AmbientOf::<F>::bound()?.alloc(descriptions)?;
        if no_entries::<F, V::Scratch>() {
            let nothing = Nowhere::<F>(PhantomData).alloc(self.0.scratch())?;
            self.0.mutate(&mut outputs, &mut checkpoints, nothing)?;
        } else {
            AmbientOf::<F>::new().scratch(|frame| {
                let scratch = scratch(frame, self.0)?;
                let mutate = || self.0.mutate(&mut outputs, &mut checkpoints, scratch);
                // An arena's binding is suspended while its frame is open; a scope's is not.
                match AmbientOf::<F>::bound() {
                    Ok(_) => mutate(),
                    Err(_) => with_space(frame, mutate),
                }
            })?;
        }
        Ok((outputs, checkpoints))
    }
}

/// Whether a description of scratch has no entries, whatever its value.
fn no_entries<F: Family, D: Describe<F::Carve<'static>>>() -> bool {
    <D::Flat as Flat<F::Carve<'static>>>::ENTRIES == 0
}

/// The space of descriptions without entries.
struct Nowhere<'f, F>(PhantomData<fn(&'f F)>);

impl<'f, F: Family> Space for Nowhere<'f, F> {
    type Family = F;
    type Block = F::Carve<'f>;

    fn block(&self, layout: Layout) -> Result<Self::Block, AllocError> {
        Err(AllocError::OutOfCapacity {
            wanted_bytes: layout.size(),
            align: layout.align(),
            remaining_bytes: 0,
            capacity_bytes: 0,
        })
    }
}
