//! Graphs over arenas, and guards on either side of a capture.

use super::arena;
use crate::kit::{Kit, N, Rig, elements, map_of, step_of};
use cuda_buffer::{
    AccessCompletion, BufferError, CaptureStep, CudaBuffer, DeviceData, Launch, copy_slice,
};
use space_core::{Space, Undef};

/// A graph's replay and an eager carve over the same bytes exclude each other.
#[test]
fn a_graph_is_not_launched_over_a_live_carve() {
    let rig = Rig::seeded(0, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    let graph = s
        .capture(|_| {
            arena.frame().scratch(|frame| {
                let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                kit.map(&s, &mut carve, &x, 1)?;
                x.copy_from(&carve, &s)
            })
        })
        .unwrap();
    arena.frame().scratch(|frame| {
        let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
        carve.fill(&t, 9).unwrap();
        let error = graph.launch(&s).unwrap_err();
        assert!(matches!(error, BufferError::ArenaInUse { .. }), "{error}");
        assert_eq!(carve.to_vec().unwrap(), [9; N]);
    });
    graph.launch(&s).unwrap();
    assert_eq!(x.to_vec().unwrap(), [6; N]);
    drop((x, graph, arena, kit, s, t));
    rig.finish();
}

/// A carve that nobody gave back ends with its arena, and a graph over its bytes goes on.
#[test]
fn a_graph_outlives_its_arena_and_the_carves_there() {
    let rig = Rig::seeded(0, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    let graph = s
        .capture(|_| {
            arena.frame().scratch(|frame| {
                let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                kit.map(&s, &mut carve, &x, 1)?;
                x.copy_from(&carve, &s)
            })
        })
        .unwrap();
    let mut left = arena.frame().alloc(Undef::<u32, _>::new([N])).unwrap();
    left.fill(&t, 9).unwrap();
    drop(left);
    assert!(matches!(
        graph.launch(&s),
        Err(BufferError::ArenaInUse { .. })
    ));
    drop(arena);
    graph.launch(&s).unwrap(); // after the fill on the other stream
    assert_eq!(x.to_vec().unwrap(), [6; N]);
    drop((x, graph, kit, s, t));
    rig.finish();
}

/// A step may reuse scratch bytes for what it returns: its own carve does not stand in its way.
#[test]
fn a_graph_may_write_a_carve_over_its_own_scratch() {
    for seed in 0..8 {
        let rig = Rig::seeded(seed, 2);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let mut arena = arena(&rig, 2048);
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        x.fill(&s, 1).unwrap();
        arena.frame().scratch(|frame| {
            let mut kept = None;
            let graph = s
                .capture(|_| {
                    frame.scratch(|frame| {
                        let mut scratch = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                        kit.map(&s, &mut scratch, &x, 1)?;
                        x.copy_from(&scratch, &s)
                    })?;
                    // The same bytes, in a new life.
                    let mut out = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                    kit.map(&s, &mut out, &x, 2)?;
                    kept = Some(out);
                    Ok::<_, BufferError>(())
                })
                .unwrap();
            let mut kept = kept.unwrap();
            for (round, value) in [(0, 32), (1, 157)] {
                graph.launch(if round == 0 { &s } else { &t }).unwrap();
                assert_eq!(kept.to_vec().unwrap(), [value; N]);
                kit.step(&t, &mut kept, 1).unwrap();
            }
        });
        assert_eq!(arena.region().quarantined_bytes(), 0);
        drop((x, arena, kit, s, t));
        rig.finish();
    }
}

/// Guards belong to a stream, and to one side of a capture's border.
#[test]
fn guards_of_another_stream_or_another_side_of_a_capture_are_refused() {
    let rig = Rig::seeded(0, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let (mut x, mut y) = (
        CudaBuffer::<u32>::new_on(&s, N).unwrap(),
        CudaBuffer::<u32>::new_on(&t, N).unwrap(),
    );
    x.fill(&s, 1).unwrap();
    y.fill(&t, 1).unwrap();
    let config = elements(N);
    let wrong = |result: Result<(), BufferError>| {
        assert!(
            matches!(result, Err(BufferError::WrongStream { .. })),
            "{result:?}"
        );
    };
    {
        let (mut out, input) = (
            x.write_synchronized_with(&s).unwrap(),
            y.read_synchronized_with(&t).unwrap(),
        );
        wrong(
            kit.map
                .launch(&s, config, (N as u32, 1_u32, &mut out, &input)),
        );
        wrong(copy_slice(&t, out.as_slice_mut(), input.as_slice()));
        // Nothing is lost: each is released on its own stream.
        wrong(AccessCompletion::new(&s).release((out, input)));
    }
    {
        // Begun outside, used and ended inside.
        let mut access = x.write_synchronized_with(&s).unwrap();
        kit.step
            .launch(&s, config, (N as u32, 1_u32, &mut access))
            .unwrap();
        let graph = s
            .capture(|_| {
                wrong(kit.step.launch(&s, config, (N as u32, 2_u32, &mut access)));
                drop(access);
                Ok::<_, BufferError>(())
            })
            .unwrap();
        assert_eq!(graph.nodes(), 0);
        kit.step(&t, &mut x, 3).unwrap(); // comes after the eager launch
        assert_eq!(x.to_vec().unwrap(), [3 * 4 + 3; N]);
    }
    {
        // Begun inside, ended outside.
        let mut escaped = None;
        let result = s.capture(|_| {
            escaped = Some(x.write_synchronized_with(&s)?);
            Ok::<_, BufferError>(())
        });
        assert_eq!(
            result.map(drop).unwrap_err(),
            BufferError::GuardsAlive { guards: 1 }
        );
        let mut access = escaped.unwrap();
        wrong(kit.step.launch(&s, config, (N as u32, 1_u32, &mut access)));
        access.release().unwrap();
    }
    drop((x, y, kit, s, t));
    rig.finish();
}

/// A graph is given other work: from the next launch on it does that, its earlier launches go on, and what it does no more
/// is free. A capture that fails changes nothing.
#[test]
fn a_graph_can_be_given_other_work() {
    for seed in 0..30 {
        let rig = Rig::seeded(seed, 3);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let buffer = |v: u32| {
            let mut buffer = CudaBuffer::<u32>::new_on(&s, N).unwrap();
            buffer.fill(&s, v).unwrap();
            buffer
        };
        let (mut x, mut y, mut z) = (buffer(1), buffer(2), buffer(3));
        let mut graph = s.capture(|_| kit.map(&s, &mut y, &x, 4)).unwrap();
        graph.launch(&s).unwrap();
        assert_eq!(rig.device().alive().graphs, 1);
        // Other buffers and values: the same graph, updated.
        let update = t.recapture(&mut graph, |_| kit.map(&t, &mut z, &y, 5));
        assert_eq!(update, Ok(true));
        // What it does no more is not held, and still written by the launch under way.
        x.fill(&t, 9).unwrap();
        drop(x);
        graph.launch(&t).unwrap();
        let expected = map_of(map_of(1, 4), 5);
        assert_eq!(z.to_vec().unwrap(), [expected; N]);
        // Other work altogether: made anew.
        let update = s.recapture(&mut graph, |_| {
            kit.step(&s, &mut y, 1)?;
            kit.step(&s, &mut y, 2)
        });
        assert_eq!(update, Ok(false));
        assert_eq!((graph.nodes(), graph.accesses()), (2, 1));
        let failed = s.recapture(&mut graph, |_| {
            kit.step(&s, &mut z, 1)?;
            z.to_vec().map(drop)
        });
        assert!(failed.is_err());
        graph.launch(&t).unwrap();
        assert_eq!(z.to_vec().unwrap(), [expected; N]);
        let stepped = step_of(step_of(map_of(1, 4), 1), 2);
        assert_eq!(y.to_vec().unwrap(), [stepped; N]);
        drop((kit, s, t, y, z, graph));
        rig.finish();
    }
}
