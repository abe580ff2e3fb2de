//! A meter's number is the watermark of a real arena.

mod support;

use proptest::prelude::*;
use space_arena::{Arena, HostSlab, Meter};
use space_core::{AllocError, Heap, Host, Similar, Space, Undef};
use support::{
    alignment, cases, framed,
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
