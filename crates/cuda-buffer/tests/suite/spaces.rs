//! The terms of spaces, on device memory: what `space-arena` tests on the host, instantiated for the device.

use crate::kit::{Kit, N, Rig, cases};
use cuda_buffer::{
    BufferError, CaptureStep, CudaBuffer, DeviceArena, DeviceArray, DeviceBlock, DeviceCarve,
    DeviceData, DeviceMemory, DeviceSlab, DeviceSpace,
};
use proptest::prelude::*;
use space_arena::{Allocating, Made, MadeInFrame, Meter, Mutate, Shadow, Verb};
use space_core::{
    Alignment, AllocError, ArrayOf, Block, Describe, Element, Entry, In, Mode, Partial, Shaped,
    Similar, Space, Spec, Undef, capturing,
};

fn arena(rig: &Rig, bytes: usize) -> DeviceArena {
    DeviceArena::over(DeviceSlab::new(rig.runtime.default_device(), bytes).unwrap()).unwrap()
}

fn pool(rig: &Rig) -> DeviceSpace {
    DeviceSpace::of(rig.runtime.default_device())
}

fn alive(rig: &Rig) -> usize {
    rig.runtime.default_device().alive().allocations
}

/// One step of a program without marks, for any space.
#[derive(Debug, Clone)]
enum Step {
    Bytes(usize),
    Words(usize),
    Several([usize; 3]),
    Frame(Vec<Step>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop_oneof![
        (0..600_usize).prop_map(Step::Bytes),
        (0..100_usize).prop_map(Step::Words),
        prop::array::uniform3(0..300_usize).prop_map(Step::Several),
    ];
    let step = leaf.prop_recursive(4, 32, 6, |step| {
        prop::collection::vec(step, 0..6).prop_map(Step::Frame)
    });
    prop::collection::vec(step, 0..10)
}

fn run<S: Space<Family = DeviceMemory>>(space: &mut S, steps: &[Step]) -> Result<(), AllocError> {
    for step in steps {
        match step {
            Step::Bytes(len) => drop(space.alloc(Undef::<u8, _>::new([*len]))?),
            Step::Words(len) => drop(space.alloc(Undef::<u64, _>::new([*len, 1]))?),
            Step::Several([a, b, c]) => drop(space.alloc((
                Undef::<f32, _>::new([*a]),
                [Undef::<u8, _>::new(vec![*b]), Undef::<u8, _>::new(vec![*c])],
            ))?),
            Step::Frame(steps) => space.scratch(|frame| run(frame, steps))?,
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases(48))
    })]

    #[test]
    fn a_meter_over_the_pool_tells_the_watermark_of_an_arena(steps in steps(), alignment in 0..9_u32) {
        let rig = Rig::seeded(0, 1);
        let alignment = Alignment::new(1 << alignment).unwrap();
        let mut meter = Meter::aligned(pool(&rig), alignment);
        run(&mut meter, &steps).unwrap();
        prop_assert_eq!(alive(&rig), 0, "what frames and values held is back");

        let slab = DeviceSlab::new(rig.runtime.default_device(), meter.arena_bytes()).unwrap();
        let mut arena = DeviceArena::aligned(slab, alignment).unwrap();
        run(&mut arena.frame(), &steps).unwrap();
        prop_assert_eq!(arena.watermark(), meter.watermark());
        prop_assert_eq!(arena.offset(), meter.offset());
        drop((meter, arena));
        rig.finish();
    }
}

#[derive(Describe)]
struct Layer<M: Mode> {
    weights: M::Of<f32, [usize; 2]>,
    bias: M::Of<f32, [usize; 1]>,
    steps: M::Of<u32, [usize; 1]>,
}

fn layer() -> Layer<Spec> {
    Layer {
        weights: Undef::new([8, 3]),
        bias: Undef::new([3]),
        steps: Undef::new([N]),
    }
}

#[test]
fn one_struct_is_description_arrays_and_partly_given() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let mut arena = arena(&rig, 4096);
    let mut frame = arena.frame();
    let mut made: Layer<In<DeviceCarve<'_>>> = frame.alloc(layer()).unwrap();
    made.steps.fill(&s, 3).unwrap();
    assert_eq!((made.weights.len(), made.bias.dims()), (24, &[3]));
    assert_eq!(made.steps.to_vec().unwrap(), [3; N]);
    let id = made.steps.domain_id();
    let partly: Layer<Partial<DeviceCarve<'_>>> = Layer {
        steps: Entry::Given(made.steps),
        ..layer().into()
    };
    let again = frame.alloc(partly).unwrap();
    assert_eq!(again.steps.domain_id(), id);
    assert_eq!(again.steps.to_vec().unwrap(), [3; N]);
    assert_eq!(frame.offset(), 5 * 256);
    // In the pool, the same; and in a frame over it.
    let owned: Layer<In<DeviceBlock>> = pool(&rig).alloc(layer()).unwrap();
    frame.scratch(|frame| assert_eq!(frame.alloc(layer()).unwrap().weights.shape(), [8, 3]));
    assert_eq!((owned.bias.len(), alive(&rig)), (3, 4));
    drop((again, made.weights, made.bias, owned));
    drop((arena, s));
    rig.finish();
}

#[test]
fn options_and_nested_descriptions_of_any_rank_are_made() {
    let rig = Rig::seeded(0, 1);
    let arena = arena(&rig, 4096);
    let one = Undef::<u32, _>::new([N]);
    let extents = [2_usize, 3, 4, 5];
    let (some, none, (pair, ranked), empty) = arena
        .alloc((
            Some(one),
            None::<Undef<u32, [usize; 1]>>,
            ([one; 2], Undef::<u16, _>::new(&extents[..])),
            Undef::<u32, _>::new([3, 0]),
        ))
        .unwrap();
    assert_eq!(
        (some.unwrap().len(), none.is_none(), pair.len()),
        (N, true, 2)
    );
    assert_eq!((ranked.len(), empty.len(), arena.offset()), (120, 0, 1024));
    assert!(empty.to_vec().unwrap().is_empty());
    drop((pair, ranked, empty));
    drop(arena);
    rig.finish();
}

/// Each refusal names its numbers, and leaves offset, epoch and watermark as they were.
#[test]
fn bad_requests_change_nothing() {
    let rig = Rig::seeded(0, 1);
    let (mut one, two) = (arena(&rig, 2048), arena(&rig, 2048));
    one.alloc(Undef::<u8, _>::new([300])).map(drop).unwrap();
    let state = |arena: &DeviceArena| (arena.offset(), arena.watermark(), arena.epoch());
    let before = state(&one);
    let many = one.alloc((Undef::<u8, _>::new([256]), Undef::<u8, _>::new([2048])));
    assert!(matches!(
        many,
        Err(AllocError::OutOfCapacity {
            wanted_bytes: 2048,
            remaining_bytes: 1280,
            ..
        })
    ));
    let overflow = one
        .alloc(Undef::<u32, _>::new([usize::MAX / 2, 3]))
        .map(drop);
    assert!(matches!(overflow, Err(AllocError::SizeOverflow { .. })));
    let layout = std::alloc::Layout::from_size_align(4, 1 << 20).unwrap();
    let aligned = (&one).block(layout).map(drop);
    assert!(matches!(
        aligned,
        Err(AllocError::BadAlign {
            requested: 0x10_0000,
            max: 256
        })
    ));
    let other = one.retract(two.mark());
    assert!(matches!(other, Err(AllocError::MarkOfOtherArena { .. })));
    assert_eq!(state(&one), before);

    let (low, high) = (one.mark(), {
        one.alloc(Undef::<u8, _>::new([1])).map(drop).unwrap();
        one.mark()
    });
    one.retract(low).unwrap();
    one.retract(low).unwrap();
    assert!(matches!(
        one.retract(high),
        Err(AllocError::MarkAboveOffset {
            mark_bytes: 768,
            offset_bytes: 512
        })
    ));
    one.reset().unwrap();
    assert!(matches!(
        one.retract(low),
        Err(AllocError::StaleMark { .. })
    ));
    assert_eq!(
        (one.offset(), one.watermark(), one.epoch().number()),
        (0, 768, 1)
    );

    let slab = DeviceSlab::new(rig.runtime.default_device(), 0).unwrap();
    let least = DeviceArena::over(slab).unwrap();
    assert_eq!(least.capacity(), 0);
    drop((one, two, least));
    rig.finish();
}

/// A frame over the pool gives each buffer back at the end of its own level, and by a panic, too.
#[test]
fn a_frame_over_the_pool_gives_back_at_its_own_level() {
    let rig = Rig::seeded(0, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let one = Undef::<u32, _>::new([N]);
    let mut space = pool(&rig);
    let mut out = space.alloc(one).unwrap();
    let counts = space.scratch(|outer| {
        let mut a = outer.alloc(one).unwrap();
        a.fill(&s, 1).unwrap();
        let inside = outer.scratch(|inner| {
            let [mut b, mut c] = inner.alloc([one; 2]).unwrap();
            kit.map(&t, &mut b, &a, 1).unwrap();
            kit.map(&s, &mut c, &b, 2).unwrap();
            out.copy_from(&c, &t).unwrap();
            alive(&rig)
        });
        (inside, alive(&rig))
    });
    assert_eq!((counts, alive(&rig)), ((4, 2), 1));
    assert_eq!(out.to_vec().unwrap(), [32; N]);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        space.scratch(|frame| {
            let _lost = frame.alloc([one; 3]).unwrap();
            panic!("the user's own");
        })
    }));
    assert!(caught.is_err());
    assert_eq!(alive(&rig), 1);
    drop((out, space, kit, s, t));
    rig.finish();
}

/// `out = 5 x + 1`, keeping `x`.
struct Keeping<'x, X>(&'x X, &'x Kit, &'x cuda_runtime::Stream);

impl<X: Shaped<Element = u32, Dims = [usize; 1]>> Verb for Keeping<'_, X> {
    type Outputs = Undef<u32, [usize; 1]>;
    type Checkpoints = (Undef<u32, [usize; 1]>,);
    type Scratch = ();

    fn outputs(&self) -> Self::Outputs {
        Undef::like(self.0)
    }

    fn checkpoints(&self) -> Self::Checkpoints {
        (Undef::like(self.0),)
    }

    fn scratch(&self) {}
}

impl<B, X> Mutate<B> for Keeping<'_, X>
where
    B: Block<Family = DeviceMemory, Array<u32, [usize; 1]>: DeviceData<Element = u32>>,
    X: DeviceData<Element = u32> + Shaped<Element = u32, Dims = [usize; 1]>,
{
    type Error = Box<dyn std::error::Error>;

    fn mutate<'f>(
        &self,
        out: &mut Made<Self::Outputs, B>,
        kept: &mut Made<Self::Checkpoints, B>,
        (): MadeInFrame<'f, Self::Scratch, DeviceMemory>,
    ) -> Result<(), Self::Error> {
        let Self(x, kit, stream) = *self;
        kept.0.copy_from(x, stream)?;
        Ok(kit.map(stream, out, x, 1)?)
    }
}

#[test]
fn verbs_and_shadows_are_made_from_any_space_of_the_device() {
    let rig = Rig::seeded(0, 1);
    let kit = Kit::new(rig.runtime.default_device());
    let [s] = rig.streams();
    let mut arena = arena(&rig, 4096);
    let mut x = pool(&rig).alloc(Undef::<u32, _>::new([N])).unwrap();
    x.fill(&s, 2).unwrap();
    {
        let verb = Keeping(&x, &kit, &s);
        let (owned, kept) = Allocating(&verb).run(&mut Similar::to(&x)).unwrap();
        assert_eq!(owned.to_vec().unwrap(), [11; N]);
        assert_eq!(kept.0.to_vec().unwrap(), [2; N]);
        let mut frame = arena.frame();
        let (carved, _) = Allocating(&verb).run(&mut frame).unwrap();
        let (again, _) = Allocating(&verb)
            .run_with(&mut frame, space_core::Given(carved))
            .unwrap();
        assert_eq!(again.to_vec().unwrap(), [11; N]);
        assert_eq!(frame.offset(), 3 * 256);
    }
    let frame = arena.frame();
    let Shadow { primal, gradient } = frame.alloc(Shadow::of(x).element::<f64>()).unwrap();
    assert_eq!(gradient.shape(), primal.shape());
    drop(gradient);
    let x = Similar::to(&primal).alloc(Shadow::of(primal)).unwrap();
    let _: &DeviceArray<'static, u32, _> = &x.gradient;
    drop((x, arena, kit, s));
    rig.finish();
}

/// Only code that names no kind of memory: it serves the device as it does the host.
fn generic<S: Space>(space: &mut S) -> Result<ArrayOf<S, u32, [usize; 1]>, AllocError> {
    fn scratch<T: Element>(n: usize) -> Undef<T, [usize; 1]> {
        Undef::new([n])
    }
    let out = space.alloc(scratch(N))?;
    space.scratch(|frame| frame.alloc((scratch::<f64>(N), scratch::<u8>(3))).map(drop))?;
    Ok(out)
}

#[test]
fn the_space_around_an_array_refuses_under_a_capture_and_says_what() {
    let rig = Rig::seeded(0, 1);
    let kit = Kit::new(rig.runtime.default_device());
    let [s] = rig.streams();
    let mut arena = arena(&rig, 4096);
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    let exemplar = generic(&mut Similar::to(&x)).unwrap();
    assert!(!capturing(&x) && !capturing(&exemplar));
    let graph = s
        .capture(|_| {
            assert!(capturing(&x) && capturing(&exemplar));
            let three = Undef::<f64, _>::new([2, 3, 4]);
            let refused = Similar::to(&exemplar).alloc(three).map(drop).unwrap_err();
            let AllocError::CaptureViolation(_) = &refused else {
                panic!("{refused}");
            };
            let text = refused.to_string();
            for word in ["f64", "[2, 3, 4]", "device 0", "arena"] {
                assert!(text.contains(word), "{word}: {text}");
            }
            // In a frame over it, the same.
            let refused = Similar::to(&exemplar).scratch(|frame| frame.alloc(three).map(drop));
            assert!(refused.unwrap_err().to_string().contains("[2, 3, 4]"));
            let mut out = generic(&mut arena.frame()).unwrap();
            kit.map(&s, &mut out, &x, 1)?;
            Ok::<_, BufferError>(())
        })
        .unwrap();
    assert!(!capturing(&x));
    graph.launch(&s).unwrap();
    drop((graph, x, exemplar, arena, kit, s));
    rig.finish();
}

/// More ledgers than there is memory for: an error with the numbers, and the buffer as it was.
#[test]
fn ledgers_without_end_are_refused_and_the_buffer_comes_back() {
    let rig = Rig::seeded(0, 1);
    let mut buffer = CudaBuffer::<u8>::from_slice(&rig.device(), &[7; 512]).unwrap();
    for ledgers in [usize::MAX, isize::MAX as usize, 1 << 52] {
        let (back, error) = DeviceSlab::from_buffer(buffer, ledgers)
            .unwrap_err()
            .into_parts();
        buffer = back;
        assert!(
            match error {
                BufferError::Space(AllocError::SizeOverflow { len, .. }) => len == ledgers,
                BufferError::Space(AllocError::OutOfMemory { bytes, .. }) => bytes > ledgers,
                _ => false,
            },
            "{error}"
        );
    }
    assert_eq!(buffer.to_vec().unwrap(), [7; 512]);
    let mut none = DeviceArena::over(DeviceSlab::from_buffer(buffer, 0).unwrap()).unwrap();
    let refused = none.frame().alloc(Undef::<u8, _>::new([1])).map(drop);
    assert_eq!(refused, Err(AllocError::OutOfLedgers { capacity: 0 }));
    drop(none);
    rig.finish();
}
