//! Verbs against every kind of space: what is carved, where, and when it dies.

use std::cell::Cell;

use space_arena::{
    Allocating, Arena, Made, MadeInFrame, Meter, Mutate, Verb, checkpoints, outputs, scratch,
};
use space_core::{
    AllocError, Describe, Entry, Heap, Host, HostCarve, HostLeaf, In, Mode, Observer, Partial,
    Space, Spec, Undef, Zeroed,
};

#[derive(Describe)]
struct Outputs<M: Mode> {
    y: M::Of<u32, [usize; 1]>,
    z: M::Of<u32, [usize; 1]>,
}

/// y = x + 1 and z = 2 (x + 1), by way of a temporary; remembers x + 1.
struct Twice<'x>(&'x [u32]);

impl Verb for Twice<'_> {
    type Outputs = Outputs<Spec>;
    type Checkpoints = Zeroed<u32, [usize; 1]>;
    type Scratch = (Undef<u32, [usize; 1]>, [Undef<u8, [usize; 1]>; 2]);

    fn outputs(&self) -> Self::Outputs {
        Outputs {
            y: Undef::like(self.0),
            z: Undef::like(self.0),
        }
    }

    fn checkpoints(&self) -> Self::Checkpoints {
        Zeroed::like(self.0)
    }

    fn scratch(&self) -> Self::Scratch {
        (Undef::like(self.0), [Undef::new([100]), Undef::new([200])])
    }
}

impl<B: HostLeaf> Mutate<B> for Twice<'_> {
    type Error = AllocError;

    fn mutate<'f>(
        &self,
        outputs: &mut Outputs<In<B>>,
        kept: &mut Made<Self::Checkpoints, B>,
        (next, _): MadeInFrame<'f, Self::Scratch, Host>,
    ) -> Result<(), AllocError> {
        let next = next.init_with(|i| self.0[i] + 1);
        kept.copy_from_slice(&next);
        for (i, &next) in next.iter().enumerate() {
            B::host_mut(&mut outputs.y)[i].write(next);
            B::host_mut(&mut outputs.z)[i].write(2 * next);
        }
        Ok(())
    }
}

/// A verb without scratch.
struct Fill(u8);

impl Verb for Fill {
    type Outputs = Undef<u8, [usize; 1]>;
    type Checkpoints = ();
    type Scratch = ((), [Undef<u8, [usize; 1]>; 0]);

    fn outputs(&self) -> Self::Outputs {
        Undef::new([3])
    }

    fn checkpoints(&self) {}

    fn scratch(&self) -> Self::Scratch {
        ((), [])
    }
}

impl<B: HostLeaf> Mutate<B> for Fill {
    type Error = AllocError;

    fn mutate<'f>(
        &self,
        outputs: &mut Made<Self::Outputs, B>,
        (): &mut (),
        ((), []): MadeInFrame<'f, Self::Scratch, Host>,
    ) -> Result<(), AllocError> {
        B::host_mut(outputs).fill(std::mem::MaybeUninit::new(self.0));
        Ok(())
    }
}

const X: [u32; 3] = [1, 2, 3];

#[test]
fn outputs_outlive_the_frame_of_the_scratch() -> Result<(), AllocError> {
    let mut arena = Arena::with_capacity(1 << 14)?;
    let mut frame = arena.frame();
    let (outputs, kept) = Allocating(&Twice(&X)).run(&mut frame)?;
    assert_eq!(frame.offset(), 3 * 256);
    let z = outputs.z;
    // SAFETY: The verb writes all of it.
    assert_eq!(*unsafe { z.assume_init() }, [4, 6, 8]);
    assert_eq!(*kept, [2, 3, 4]);
    assert_eq!(arena.watermark(), 6 * 256);
    Ok(())
}

#[test]
fn a_meter_sizes_the_arena_of_a_verb() -> Result<(), AllocError> {
    let mut meter = Meter::new(Heap);
    Allocating(&Twice(&X)).run(&mut meter)?;
    let mut arena = Arena::with_capacity(meter.watermark())?;
    Allocating(&Twice(&X)).run(&mut arena.frame())?;
    assert_eq!(
        (arena.watermark(), arena.remaining()),
        (meter.watermark(), 3 * 256)
    );
    Ok(())
}

#[test]
fn single_outputs_are_overridden() -> Result<(), AllocError> {
    let mut arena = Arena::with_capacity(1 << 14)?;
    let mut frame = arena.frame();
    let mine = frame.alloc(Undef::<u32, _>::new([3]))?;
    let address = mine.as_ptr();
    let partly = Outputs::<Partial<HostCarve<'_>>> {
        z: Entry::Given(mine),
        ..Twice(&X).outputs().into()
    };
    let (outputs, _) = Allocating(&Twice(&X)).run_with(&mut frame, partly)?;
    assert_eq!(outputs.z.as_ptr(), address);
    assert_eq!(frame.offset(), 3 * 256);
    // SAFETY: The verb writes all of it.
    assert_eq!(*unsafe { outputs.z.assume_init() }, [4, 6, 8]);
    Ok(())
}

#[test]
fn the_three_declarations_are_materialised_one_by_one() -> Result<(), AllocError> {
    let verb = Twice(&X);
    let mut outputs = outputs(&Heap, &verb)?;
    let mut kept = checkpoints(&Heap, &verb)?;
    Heap.scratch(|frame| {
        let scratch = scratch(frame, &verb)?;
        verb.mutate(&mut outputs, &mut kept, scratch)
    })?;
    assert_eq!(*kept, [2, 3, 4]);
    Ok(())
}

/// Counts the frames over it.
#[derive(Default)]
struct Frames(Cell<usize>);

impl Space for Frames {
    type Family = Host;
    type Block = space_core::HostBlock;

    fn block(&self, layout: std::alloc::Layout) -> Result<Self::Block, AllocError> {
        Heap.block(layout)
    }

    fn observer(&self) -> Option<&dyn Observer> {
        Some(self)
    }
}

impl Observer for Frames {
    fn frame_opened(&self) {
        self.0.set(self.0.get() + 1);
    }

    fn frame_closed(&self) {}
}

#[test]
fn a_verb_without_scratch_opens_no_frame() -> Result<(), AllocError> {
    let mut frames = Frames::default();
    let (outputs, ()) = Allocating(&Fill(7)).run(&mut frames)?;
    // SAFETY: The verb writes all of it.
    assert_eq!(*unsafe { outputs.assume_init() }, [7; 3]);
    assert_eq!(frames.0.get(), 0);
    Allocating(&Twice(&X)).run(&mut frames)?;
    assert_eq!(frames.0.get(), 1);
    Ok(())
}
