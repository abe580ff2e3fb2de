//! Steps that allocate ambiently, captured.

use super::{Array, arena, filled, make};
use crate::kit::{Kit, N, Rig, map_of};
use cuda_buffer::{BufferError, CaptureStep, CudaBuffer, DeviceAmbient, DeviceData, DeviceSpace};
use cuda_runtime::Stream;
use space_core::{AllocError, Scope, capturing, with_scratch, with_space};

/// One step: an ambient result, by way of an ambient temporary.
fn step(kit: &Kit, s: &Stream, x: &CudaBuffer<u32>) -> Result<Array, BufferError> {
    let mut y = make().unwrap();
    DeviceAmbient::new()
        .scratch_bound(|| {
            let mut z = make().unwrap();
            kit.map(s, &mut z, x, 1)?;
            kit.map(s, &mut y, &z, 2)
        })
        .unwrap()?;
    Ok(y)
}

#[test]
fn under_a_capture_an_arena_carves_and_the_pool_refuses() {
    for seed in 0..8 {
        let rig = Rig::seeded(seed, 2);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let mut arena = arena(&rig, 2048);
        let (mut x, mut out) = (
            CudaBuffer::<u32>::new_on(&s, N).unwrap(),
            CudaBuffer::<u32>::new_on(&s, N).unwrap(),
        );
        x.fill(&s, 1).unwrap();
        let scope = Scope::new(DeviceSpace::of(rig.runtime.default_device()));
        let graph = s
            .capture(|_| {
                let refused = scope.enter(|| make().map(drop).unwrap_err());
                let AllocError::CaptureViolation(violation) = refused else {
                    panic!("{refused}");
                };
                let text = violation.to_string();
                assert!(text.contains("u32") && text.contains("[24]"), "{text}");
                with_scratch(&mut arena.frame(), || {
                    let y = step(&kit, &s, &x)?;
                    assert!(capturing(&y));
                    out.copy_from(&y, &s)
                })
            })
            .unwrap();
        for value in 1..4 {
            x.fill(&t, value).unwrap();
            graph.launch(if value == 2 { &t } else { &s }).unwrap();
            let expected = map_of(map_of(value, 1), 2);
            assert_eq!(out.to_vec().unwrap(), [expected; N]);
            // Eager work on the same bytes, in between.
            let eager = with_scratch(&mut arena.frame(), || {
                let y = step(&kit, &t, &x).unwrap();
                let held = graph.launch(&s).unwrap_err();
                assert!(matches!(held, BufferError::ArenaInUse { .. }), "{held}");
                y.to_vec().unwrap()
            });
            assert_eq!(eager, [expected; N]);
        }
        // An array that outlives its block stays in the way of the graph, until it is dropped and its bytes are back.
        let y = with_space(&mut arena.frame(), || step(&kit, &t, &x).unwrap());
        assert!(matches!(
            graph.launch(&s),
            Err(BufferError::ArenaInUse { .. })
        ));
        assert!(arena.reset().is_err());
        drop(y);
        arena.reset().unwrap();
        graph.launch(&s).unwrap();
        assert_eq!(arena.region().quarantined_bytes(), 0);
        drop((x, out, graph, arena, scope, kit, s, t));
        rig.finish();
    }
}

/// An array made under a capture and kept: each replay writes it.
#[test]
fn a_captured_array_that_is_kept_is_written_by_each_replay() {
    let rig = Rig::seeded(3, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    let mut kept = None;
    let graph = s
        .capture(|_| {
            with_space(&mut arena.frame(), || {
                kept = Some(step(&kit, &s, &x)?);
                Ok::<_, BufferError>(())
            })
        })
        .unwrap();
    let kept = kept.unwrap();
    for value in 1..5 {
        x.fill(&t, value).unwrap();
        graph.launch(&s).unwrap();
        assert_eq!(kept.to_vec().unwrap(), [map_of(map_of(value, 1), 2); N]);
    }
    // The graph holds bytes and no array: the arena counts one, not two.
    let refused = arena.reset();
    assert!(matches!(refused, Err(AllocError::StillAlive { arrays: 1 })));
    // The array goes on when the arena is gone, and so does what orders it with the graph.
    drop(arena);
    x.fill(&t, 9).unwrap();
    graph.launch(&s).unwrap();
    let mut out = CudaBuffer::<u32>::new(rig.runtime.default_device(), N).unwrap();
    out.copy_from(&kept, &t).unwrap();
    assert_eq!(out.to_vec().unwrap(), [map_of(map_of(9, 1), 2); N]);
    std::mem::forget(kept.read_synchronized_with(&t).unwrap());
    let held = graph.launch(&s).unwrap_err();
    assert!(matches!(held, BufferError::Access(_)), "{held}");
}

/// Once the last array of an arena that is gone is dropped, nothing is in a graph's way.
#[test]
fn a_graph_outlives_the_arena_and_its_arrays() {
    let rig = Rig::seeded(5, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let (mut x, mut out) = (
        CudaBuffer::<u32>::new_on(&s, N).unwrap(),
        CudaBuffer::<u32>::new_on(&s, N).unwrap(),
    );
    let graph = s
        .capture(|_| {
            with_scratch(&mut arena.frame(), || {
                let y = step(&kit, &s, &x)?;
                out.copy_from(&y, &s)
            })
        })
        .unwrap();
    let y = with_space(&mut arena.frame(), || filled(&t, 1));
    drop(arena);
    let held = graph.launch(&s).unwrap_err();
    assert!(matches!(held, BufferError::ArenaInUse { .. }), "{held}");
    std::thread::spawn(move || drop(y)).join().unwrap();
    x.fill(&t, 2).unwrap();
    graph.launch(&s).unwrap();
    assert_eq!(out.to_vec().unwrap(), [map_of(map_of(2, 1), 2); N]);
    drop((graph, x, out, kit, s, t));
    rig.finish();
}
