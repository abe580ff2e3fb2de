//! Device memory as the ambient space: what is bound, what is pinned, and what orders the next use.

mod captures;
mod programs;

use crate::kit::{Kit, N, Rig, map_of, step_of};
use cuda_buffer::{
    AmbientDeviceArray, BufferError, CudaBuffer, DeviceAmbient, DeviceArena, DeviceBlock,
    DeviceData, DeviceMemory, DeviceSlab, DeviceSpace, HeldArray,
};
use cuda_runtime::Stream;
use space_arena::{Allocating, Made, MadeInFrame, Meter, Mutate, Verb};
use space_core::{
    AllocError, AmbientBlock, AmbientOrBlock, Heap, InScope, Scope, Shaped, Similar, Space, Undef,
    ambient_alloc, ambient_space, ambient_space_or, capturing, with_scratch, with_space,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

type Array = AmbientDeviceArray<u32, [usize; 1]>;

fn arena(rig: &Rig, bytes: usize) -> DeviceArena {
    DeviceArena::over(DeviceSlab::new(rig.runtime.default_device(), bytes).unwrap()).unwrap()
}

fn make() -> Result<Array, AllocError> {
    DeviceAmbient::new().alloc(Undef::new([N]))
}

/// An array of one value, by work on `stream` that nobody has waited for.
fn filled(stream: &Stream, value: u32) -> Array {
    let mut array = make().unwrap();
    array.fill(stream, value).unwrap();
    array
}

#[test]
fn the_families_have_bindings_of_their_own() {
    let rig = Rig::seeded(0, 1);
    let mut device = arena(&rig, 2048);
    assert!(matches!(make(), Err(AllocError::Unbound)));
    assert!(matches!(DeviceAmbient::bound(), Err(AllocError::Unbound)));
    let scratch = DeviceAmbient::new().scratch_bound(|| ());
    assert!(matches!(scratch, Err(AllocError::Unbound)));
    assert!(matches!(
        DeviceAmbient::new().scope(),
        Err(AllocError::Unbound)
    ));
    let unbound =
        DeviceAmbient::new().scratch(|frame| frame.alloc(Undef::<u8, _>::new([1])).map(drop));
    assert!(matches!(unbound, Err(AllocError::Unbound)));

    with_space(&mut device.frame(), || {
        assert!(make().is_ok());
        assert!(ambient_space().is_err(), "that of the host is not bound");
        Scope::new(Heap).enter(|| {
            let host = ambient_alloc(Undef::<u32, _>::new([3])).unwrap().filled(1);
            assert_eq!((&*host, make().unwrap().len()), (&[1; 3][..], N));
        });
        assert!(ambient_space().is_err() && DeviceAmbient::bound().is_ok());
    });
    assert!(make().is_err());
    assert_eq!(device.offset(), 512);
    device.reset().unwrap();
    drop(device);
    rig.finish();
}

/// An array that outlives its block pins its bytes, its ledger goes on, and the next life of the bytes comes after it.
#[test]
fn an_array_that_outlives_its_block_pins_its_bytes() {
    for seed in 0..8 {
        let rig = Rig::seeded(seed, 2);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let mut arena = arena(&rig, 2048);
        let mut frame = arena.frame();
        let mut escaped = with_scratch(&mut frame, || {
            let _first = filled(&s, 1);
            let escaped = filled(&s, 2);
            let _last = filled(&t, 3);
            escaped
        });
        // The level's token is held, so all three carves stay.
        assert_eq!(frame.offset(), 768);
        let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
        carve.fill(&t, 9).unwrap();
        kit.step(&t, &mut escaped, 5).unwrap();
        assert_eq!(escaped.to_vec().unwrap(), [step_of(2, 5); N]);
        assert_eq!(carve.to_vec().unwrap(), [9; N]);
        drop(carve);

        assert_eq!(arena.pinned_bytes(), 768);
        let refused = arena.reset();
        assert!(matches!(refused, Err(AllocError::StillAlive { arrays: 1 })));
        assert_eq!((arena.offset(), arena.epoch().number()), (1024, 0));
        kit.step(&s, &mut escaped, 6).unwrap();
        std::thread::spawn(move || drop(escaped)).join().unwrap();
        arena.reset().unwrap();
        assert_eq!(
            (arena.offset(), arena.pinned_bytes(), arena.watermark()),
            (0, 0, 1024)
        );
        // Ordered after all of that, on whatever stream.
        let again = arena.frame().scratch(|frame| {
            let mut all = frame.alloc(Undef::<u32, _>::new([256])).unwrap();
            all.fill(&t, 7).unwrap();
            all.to_vec().unwrap()
        });
        assert_eq!(again, [7; 256]);
        assert_eq!(arena.region().quarantined_bytes(), 0);
        drop((arena, kit, s, t));
        rig.finish();
    }
}

/// What is dropped in a block comes back at its end, with its work still queued: the next array waits for it.
#[test]
fn bytes_that_are_used_again_are_ordered() {
    for seed in 0..16 {
        let rig = Rig::seeded(seed, 2);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let mut arena = arena(&rig, 2048);
        let mut x = CudaBuffer::<u32>::new(rig.runtime.default_device(), N).unwrap();
        x.fill(&s, 1).unwrap();
        let mut frame = arena.frame();
        let mut expected = 1;
        with_space(&mut frame, || {
            for round in 0..6 {
                let (one, other) = if round % 2 == 0 { (&s, &t) } else { (&t, &s) };
                DeviceAmbient::new()
                    .scratch_bound(|| {
                        let mut y = make().unwrap();
                        kit.map(one, &mut y, &x, round).unwrap();
                        kit.step(other, &mut y, round).unwrap();
                        x.copy_from(&y, one).unwrap();
                    })
                    .unwrap();
                expected = step_of(map_of(expected, round), round);
            }
        });
        assert_eq!(frame.offset(), 0);
        assert_eq!(x.to_vec().unwrap(), [expected; N]);
        assert_eq!(arena.watermark(), 256);
        drop((x, arena, kit, s, t));
        rig.finish();
    }
}

#[test]
fn an_array_keeps_the_slab_when_the_arena_is_gone() {
    let rig = Rig::seeded(0, 2);
    let [s, t] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let (array, empty) = with_space(&mut arena.frame(), || {
        let empty = DeviceAmbient::new().alloc(Undef::<u32, _>::new([0]));
        (filled(&s, 4), empty.unwrap())
    });
    let block = with_space(&mut arena.frame(), || {
        DeviceAmbient::new().block(std::alloc::Layout::new::<()>())
    });
    drop(arena);
    let mut x = CudaBuffer::<u32>::new(rig.runtime.default_device(), N).unwrap();
    x.copy_from(&array, &t).unwrap();
    assert_eq!(x.to_vec().unwrap(), [4; N]);
    assert!(empty.to_vec().unwrap().is_empty());
    drop((array, x, empty, block, s, t));
    rig.finish();
}

/// A guard that was forgotten is not forgotten by the arena, whoever drops the array.
#[test]
fn a_forgotten_guard_costs_its_bytes() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let mut frame = arena.frame();
    with_scratch(&mut frame, || {
        let mut array = filled(&s, 4);
        std::mem::forget(array.write_synchronized_with(&s).unwrap());
        let held = array.to_vec().unwrap_err();
        assert!(matches!(held, BufferError::Access(_)), "{held}");
    });
    assert_eq!(frame.offset(), 0);
    assert_eq!(arena.region().quarantined_bytes(), 4 * N);
    arena.reset().unwrap();
}

#[test]
fn the_binding_is_restored_on_panic_and_on_early_return() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let mut frame = arena.frame();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        with_space(&mut frame, || {
            DeviceAmbient::new().scratch_bound(|| {
                let _dropped = filled(&s, 1);
                panic!("the user's own");
            })
        })
    }));
    assert!(caught.is_err() && make().is_err());
    assert_eq!(frame.offset(), 0);
    let early: Result<(), AllocError> = with_space(&mut frame, || {
        DeviceAmbient::new().alloc(Undef::<u32, _>::new([1 << 20]))?;
        unreachable!("there is no such room");
    });
    assert!(matches!(early, Err(AllocError::OutOfCapacity { .. })));
    assert!(make().is_err());
    drop((arena, s));
    rig.finish();
}

#[test]
fn a_specification_is_all_or_nothing_and_ledgers_come_back() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let buffer = CudaBuffer::new(rig.runtime.default_device(), 4096).unwrap();
    let mut arena = DeviceArena::over(DeviceSlab::from_buffer(buffer, 4).unwrap()).unwrap();
    let one = Undef::<u32, _>::new([N]);
    with_space(&mut arena.frame(), || {
        let kept = filled(&s, 1);
        for _ in 0..100 {
            let much =
                DeviceAmbient::new().alloc((one, [one, one], Undef::<u8, _>::new([1 << 20])));
            assert!(matches!(much, Err(AllocError::OutOfCapacity { .. })));
            let many = DeviceAmbient::new().alloc([one; 4]);
            assert!(matches!(
                many,
                Err(AllocError::OutOfLedgers { capacity: 4 })
            ));
        }
        let [_, _, mut last] = DeviceAmbient::new().alloc([one; 3]).unwrap();
        last.copy_from(&kept, &s).unwrap();
        assert_eq!(last.to_vec().unwrap(), [1; N]);
    });
    assert_eq!(arena.offset(), 1024);
    arena.reset().unwrap();
    drop((arena, s));
    rig.finish();
}

#[test]
fn a_frame_of_the_bound_arena_suspends_the_binding_and_another_arena_rebinds() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let (mut one, mut two) = (arena(&rig, 2048), arena(&rig, 2048));
    let (mut first, mut second) = (one.frame(), two.frame());
    with_space(&mut first, || {
        let here = filled(&s, 1);
        DeviceAmbient::new().scratch(|inner| {
            let mut carve = inner.alloc(Undef::<u32, _>::new([N])).unwrap();
            carve.copy_from(&here, &s).unwrap();
            assert!(matches!(make(), Err(AllocError::Unbound)));
            let other = with_space(inner, || filled(&s, 2));
            assert_eq!(carve.to_vec().unwrap(), [1; N]);
            assert_eq!(other.to_vec().unwrap(), [2; N]);
        });
        with_scratch(&mut second, || drop(filled(&s, 3)));
        // Where one is bound, the default is not asked.
        let mut like = ambient_space_or(Similar::to(&here))
            .alloc(Undef::like(&here))
            .unwrap();
        like.copy_from(&here, &s).unwrap();
        assert_eq!(like.to_vec().unwrap(), [1; N]);
        assert!(!capturing(&like));
    });
    assert_eq!(
        (first.offset(), second.offset(), two.watermark()),
        (512, 0, 256)
    );

    let pooled = ambient_space_or(DeviceSpace::of(rig.runtime.default_device()));
    let mut own = pooled.alloc(Undef::<u32, _>::new([N])).unwrap();
    own.fill(&s, 5).unwrap();
    assert_eq!(own.to_vec().unwrap(), [5; N]);
    drop((own, pooled, one, two, s));
    rig.finish();
}

/// Arrays of a frame over the pool own their memory, so a meter over the pool sizes an arena for them.
#[test]
fn a_frame_over_the_pool_backs_arrays_that_a_meter_counts() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let step = || {
        let kept = DeviceAmbient::new()
            .scratch_bound(|| {
                let _dropped = filled(&s, 1);
                filled(&s, 2)
            })
            .unwrap();
        let more = filled(&s, 3);
        assert_eq!(more.to_vec().unwrap(), [3; N]);
        kept
    };
    let mut meter = Meter::new(DeviceSpace::of(rig.runtime.default_device()));
    let kept = with_scratch(&mut meter, step);
    assert_eq!(kept.to_vec().unwrap(), [2; N]);
    let mut arena = arena(&rig, meter.watermark());
    let again = with_scratch(&mut arena.frame(), step);
    assert_eq!(again.to_vec().unwrap(), [2; N]);
    assert_eq!(
        (arena.offset(), arena.watermark(), arena.pinned_bytes()),
        (meter.offset(), meter.watermark(), meter.pinned_bytes())
    );
    assert!(arena.pinned_bytes() > 0);
    drop((kept, again, meter, arena, s));
    rig.finish();
}

/// The pooled space is shared; an arena is of one thread.
#[test]
fn the_pooled_space_crosses_threads_and_an_arena_does_not() {
    let rig = Rig::seeded(0, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let mut arena = arena(&rig, 2048);
    with_space(&mut arena.frame(), || {
        let ambient = DeviceAmbient::new();
        assert!(matches!(ambient.scope(), Err(AllocError::TaskLocalScope)));
        let spawned = ambient.spawn(|| ());
        assert!(matches!(spawned, Err(AllocError::TaskLocalScope)));
    });
    let scope = Scope::new(DeviceSpace::of(rig.runtime.default_device()));
    scope.enter(|| {
        let x = filled(&s, 3);
        let (kit, stream) = (kit.clone(), t.clone());
        let there = DeviceAmbient::new().spawn(move || {
            let mut y = make().unwrap();
            kit.map(&stream, &mut y, &x, 1).unwrap();
            DeviceAmbient::new()
                .scratch_bound(|| {
                    let mut z = make().unwrap();
                    kit.map(&stream, &mut z, &y, 2).unwrap();
                    y.copy_from(&z, &stream).unwrap();
                })
                .unwrap();
            y
        });
        let y = there.unwrap().join().unwrap();
        assert_eq!(y.to_vec().unwrap(), [map_of(map_of(3, 1), 2); N]);
        assert!(std::thread::spawn(|| make().is_err()).join().unwrap());
    });

    // A future takes its scope along.
    let future = async { make().map(|array| array.len()) };
    let polled = with_space(&mut arena.frame(), || {
        let mut context = Context::from_waker(Waker::noop());
        pin!(InScope::new(scope.clone(), future)).poll(&mut context)
    });
    assert!(matches!(polled, Poll::Ready(Ok(N))));
    assert_eq!(arena.offset(), 0);
    drop((scope, arena, kit, s, t));
    rig.finish();
}

#[test]
fn what_may_cross_threads() {
    fn both<T: Send + Sync>() {}
    both::<Array>();
    both::<AmbientBlock<DeviceMemory>>();
    both::<HeldArray<AmbientOrBlock<DeviceBlock>, u32, [usize; 1]>>();
    both::<Scope<DeviceMemory>>();
}

/// `y = 5 x + 1`, twice over, by way of a scratch array.
struct Twice<'x>(&'x CudaBuffer<u32>, &'x Kit, &'x Stream);

impl Verb for Twice<'_> {
    type Outputs = Undef<u32, [usize; 1]>;
    type Checkpoints = ();
    type Scratch = Undef<u32, [usize; 1]>;

    fn outputs(&self) -> Self::Outputs {
        Undef::new([self.0.len()])
    }

    fn checkpoints(&self) {}

    fn scratch(&self) -> Self::Scratch {
        self.outputs()
    }
}

impl<B> Mutate<B> for Twice<'_>
where
    B: space_core::Block<Family = DeviceMemory, Array<u32, [usize; 1]>: DeviceData<Element = u32>>,
{
    type Error = Box<dyn std::error::Error>;

    fn mutate<'f>(
        &self,
        y: &mut Made<Self::Outputs, B>,
        (): &mut (),
        mut z: MadeInFrame<'f, Self::Scratch, DeviceMemory>,
    ) -> Result<(), Self::Error> {
        let Self(x, kit, stream) = *self;
        kit.map(stream, &mut z, x, 1)?;
        Ok(kit.map(stream, y, &z, 1)?)
    }
}

#[test]
fn a_verb_allocates_ambiently_from_an_arena_and_from_the_pool() {
    let rig = Rig::seeded(0, 1);
    let kit = Kit::new(rig.runtime.default_device());
    let [s] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let mut x = CudaBuffer::<u32>::new(rig.runtime.default_device(), N).unwrap();
    x.fill(&s, 2).unwrap();
    let verb = Twice(&x, &kit, &s);
    let expected = [map_of(map_of(2, 1), 1); N];
    let run = || {
        Allocating(&verb)
            .run_ambient_of::<DeviceMemory>()
            .unwrap()
            .0
    };
    let y = with_space(&mut arena.frame(), run);
    assert_eq!(y.to_vec().unwrap(), expected);
    assert_eq!((arena.offset(), arena.watermark()), (256, 512));
    let scope = Scope::new(DeviceSpace::of(rig.runtime.default_device()));
    let pooled = scope.enter(run);
    assert_eq!(pooled.to_vec().unwrap(), expected);
    let mut default = ambient_space_or(DeviceSpace::of(rig.runtime.default_device()));
    let (z, ()) = Allocating(&verb).run(&mut default).unwrap();
    assert_eq!((z.shape(), z.to_vec().unwrap()), ([N], expected.to_vec()));
    drop((y, z, pooled, scope, default));
    drop((arena, x, kit, s));
    rig.finish();
}
