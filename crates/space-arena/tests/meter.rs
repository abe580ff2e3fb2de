//! A meter's number is the watermark of a real arena.

mod support;

use std::{
    alloc::Layout,
    panic::{AssertUnwindSafe, catch_unwind},
};

use proptest::prelude::*;
use space_arena::{Allocating, Arena, HostSlab, Made, MadeInFrame, Meter, Mutate, Verb};
use space_core::{
    Alignment, AllocError, Heap, Host, HostBlock, HostLeaf, Similar, Space, Undef, Zeroed,
    ambient_alloc, ambient_scratch, ambient_space, with_scratch,
};
use support::{
    alignment, ambient, cases, framed,
    program::{Kind, Step, Wide},
};

/// Runs a program against any space: the same code for the meter and for the arena.
fn run<S: Space<Family = Host>>(space: &mut S, program: &[Step]) -> Result<(), AllocError> {
    for step in program {
        match step {
            Step::Carve(kind, len) => match kind {
                Kind::U8 => drop(space.alloc(Undef::<u8, _>::new([*len]))?),
                Kind::Triple => drop(space.alloc(Undef::<[u16; 3], _>::new([*len]))?),
                Kind::F32 => drop(space.alloc(Undef::<f32, _>::new([*len]))?),
                Kind::Quad => drop(space.alloc(Undef::<[f32; 4], _>::new([*len]))?),
                Kind::Wide => drop(space.alloc(Undef::<Wide, _>::new([*len]))?),
                Kind::Empty => drop(space.alloc(Undef::<(), _>::new([*len]))?),
            },
            Step::Several([a, b, c]) => drop(space.alloc((
                Undef::<f32, _>::new([*a]),
                Undef::<u8, _>::new([*b]),
                Undef::<u64, _>::new([*c]),
            ))?),
            Step::Frame(steps) => space.scratch(|frame| run(frame, steps))?,
            Step::Mark | Step::Retract(_) | Step::Reset => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_meter_tells_the_watermark_of_an_arena(
        program in prop::collection::vec(framed(), 0..30),
        alignment in alignment(),
    ) {
        let mut meter = Meter::aligned(Heap, alignment);
        run(&mut meter, &program).unwrap();

        let slab = HostSlab::new(meter.arena_bytes()).unwrap();
        let mut arena = Arena::aligned(slab, alignment).unwrap();
        run(&mut arena.frame(), &program).unwrap();
        prop_assert_eq!(arena.watermark(), meter.watermark());
        prop_assert_eq!(arena.offset(), meter.offset());
    }
}

/// What a program left behind: offset, watermark and pinned bytes after each of its parts.
type Numbers = Vec<(usize, usize, usize)>;

/// Runs the parts of a program, each by `bound`, which binds a space meanwhile and tells its
/// numbers. The arrays that are alive after one part may be dropped by the next.
fn run_ambiently(
    parts: &[Vec<ambient::Step>],
    mut bound: impl FnMut(&mut dyn FnMut()) -> (usize, usize, usize),
) -> Numbers {
    let (mut alive, mut made) = (Vec::new(), 0);
    let each = parts.iter().map(|steps| {
        let numbers = bound(&mut || ambient::run(steps, &mut alive, &mut made));
        ambient::check(&alive);
        numbers
    });
    each.collect()
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_meter_measures_what_is_made_ambiently(
        parts in prop::collection::vec(prop::collection::vec(ambient::step(), 0..12), 1..5),
        alignment in alignment(),
    ) {
        let mut meter = Meter::aligned(Heap, alignment);
        let measured = run_ambiently(&parts, |part| {
            with_scratch(&mut meter, part);
            (meter.offset(), meter.watermark(), meter.pinned_bytes())
        });

        let slab = HostSlab::new(meter.arena_bytes()).unwrap();
        let mut arena = Arena::aligned(slab, alignment).unwrap();
        let needed = run_ambiently(&parts, |part| {
            with_scratch(&mut arena.frame(), part);
            (arena.offset(), arena.watermark(), arena.pinned_bytes())
        });
        prop_assert_eq!(measured, needed);
    }
}

/// A meter over a meter: both count, each for its own alignment.
#[test]
fn meters_nest() {
    let inner = Meter::aligned(Heap, Alignment::new(1).unwrap());
    let mut outer = Meter::new(inner);
    let kept = with_scratch(&mut outer, || {
        let _dropped = ambient_scratch(|| ambient::bytes(3, 1).unwrap()).unwrap();
        let kept = ambient_scratch(|| ambient::bytes(3, 2).unwrap()).unwrap();
        let refused = ambient_alloc((Undef::<u8, _>::new([1]), Undef::<u64, _>::new([1 << 60])));
        assert!(matches!(
            refused,
            Err(AllocError::OutOfMemory { .. } | AllocError::SizeOverflow { .. })
        ));
        kept
    });
    assert_eq!(
        (outer.offset(), outer.pinned_bytes(), outer.watermark()),
        (512, 512, 512)
    );
    let inner = outer.inner();
    assert_eq!(
        (inner.offset(), inner.pinned_bytes(), inner.watermark()),
        (6, 6, 6)
    );
    drop(kept);
    outer.scratch(|_| ());
    assert_eq!((outer.offset(), outer.pinned_bytes()), (512, 512));
}

/// A space that panics when it is asked for 13 bytes.
struct Unlucky;

impl Space for Unlucky {
    type Family = Host;
    type Block = HostBlock;

    fn block(&self, layout: Layout) -> Result<HostBlock, AllocError> {
        assert_ne!(layout.size(), 13, "the space's own");
        Heap.block(layout)
    }
}

#[test]
fn a_panic_of_the_space_is_not_counted() {
    let mut meter = Meter::new(Unlucky);
    let kept = with_scratch(&mut meter, || {
        let kept = ambient::bytes(1, 7).unwrap();
        for program in [
            || drop(ambient::bytes(13, 0)),
            || {
                drop(ambient_scratch(|| {
                    drop(ambient_alloc((
                        Undef::<u8, _>::new([300]),
                        Undef::<u8, _>::new([13]),
                    )))
                }));
            },
        ] {
            assert!(catch_unwind(AssertUnwindSafe(program)).is_err());
            assert!(ambient_space().is_ok());
        }
        let next = ambient::bytes(1, 8).unwrap();
        assert_eq!((&*kept, &*next), (&[7][..], &[8][..]));
        kept
    });
    // 512 more were taken in the block that the second panic ended.
    assert_eq!(
        (meter.offset(), meter.pinned_bytes(), meter.watermark()),
        (512, 512, 768)
    );
    drop(kept);
}

/// A verb that runs ambiently is measured like any other code.
#[test]
fn a_verb_that_runs_ambiently_is_measured() {
    let program = || Allocating(&Ones(100)).run_ambient().map(drop);
    let mut meter = Meter::new(Heap);
    with_scratch(&mut meter, program).unwrap();
    let mut arena = Arena::with_capacity(meter.watermark()).unwrap();
    with_scratch(&mut arena.frame(), program).unwrap();
    assert_eq!((arena.watermark(), meter.watermark()), (1280, 1280));
}

/// Makes some of its arrays ambiently, and says so of others.
struct Ones(usize);

impl Verb for Ones {
    type Outputs = Zeroed<u8, [usize; 1]>;
    type Checkpoints = ();
    type Scratch = Undef<f32, [usize; 1]>;

    fn outputs(&self) -> Self::Outputs {
        Zeroed::new([self.0])
    }

    fn checkpoints(&self) {}

    fn scratch(&self) -> Self::Scratch {
        Undef::new([self.0])
    }
}

impl<B: HostLeaf> Mutate<B> for Ones {
    type Error = AllocError;

    fn mutate<'f>(
        &self,
        ones: &mut Made<Self::Outputs, B>,
        (): &mut (),
        _: MadeInFrame<'f, Self::Scratch, Host>,
    ) -> Result<(), AllocError> {
        let one = ambient::bytes(self.0, 1)?;
        let more = ambient_scratch(|| ambient::bytes(self.0, 2))??;
        ones.copy_from_slice(&one);
        drop(more);
        Ok(())
    }
}

#[test]
fn what_is_given_is_not_counted() {
    let exemplar = vec![0.0_f32; 100];
    let meter = Meter::new(Similar::to(&exemplar));
    let mine = Heap.alloc(Undef::like(&exemplar[..])).unwrap();
    let address = mine.as_ptr();
    let (mine, made) = meter.alloc((mine, Undef::like(&exemplar[..]))).unwrap();
    assert_eq!((mine.as_ptr(), made.len()), (address, 100));
    assert_eq!(meter.watermark(), 512);
}

#[test]
fn what_fails_is_not_counted() {
    let arena = Arena::with_capacity(1 << 10).unwrap();
    let meter = Meter::new(&arena);
    let one = Undef::<u8, _>::new([300]);
    let _kept = meter.alloc(one).unwrap();
    assert!(meter.alloc((one, Undef::<u8, _>::new([1 << 12]))).is_err());
    assert_eq!((meter.offset(), meter.watermark()), (512, 512));
    assert_eq!((arena.offset(), arena.watermark()), (512, 512));
}

#[test]
fn a_meter_refuses_what_the_arena_would() {
    #[derive(Clone, Copy)]
    #[repr(align(512))]
    #[expect(dead_code, reason = "there for its alignment")]
    struct Sector(u8);
    let refused = Meter::new(Heap).alloc(Undef::<Sector, _>::new([1]));
    assert!(matches!(
        refused,
        Err(AllocError::BadAlign {
            requested: 512,
            max: 256
        })
    ));
}
