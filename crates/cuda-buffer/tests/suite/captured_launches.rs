//! Launches of graphs that are given other values.

use crate::cases::raw;
use crate::kit::{Kit, N, Rig, cases, elements, map_of, step_of};
use cuda_buffer::{
    BufferError, BufferResult, CaptureStep, CapturedLaunch, CudaBuffer, DeviceArena, DeviceData,
    DeviceSlab, Graph, Kept, Launch,
};
use cuda_driver::{Call, Driver, ErrorCode, LaunchConfig, LaunchError};
use cuda_runtime::{RuntimeError, Stream};
use cuda_sim::{Finding, LeakedObject};
use space_core::{Space, Undef};

/// A graph of one step over the first `n` elements of `x`, and its launch.
fn step_graph(
    kit: &Kit,
    stream: &Stream,
    x: &mut CudaBuffer<u32>,
    n: usize,
    a: u32,
) -> BufferResult<(Graph, CapturedLaunch)> {
    let mut launch = None;
    let graph = stream.capture(|_| {
        let mut x = x.write_synchronized_with(stream)?;
        let part = x.slice_mut(0..n)?;
        launch = Some(
            kit.step
                .launch_captured(stream, elements(n), (n as u32, a, part))?,
        );
        Ok::<_, BufferError>(x.release()?)
    })?;
    Ok((graph, launch.unwrap()))
}

/// Values, sizes and configurations change from the next replay on, ordered with everything else as before.
#[test]
fn a_replay_does_what_its_launches_were_given_last() {
    for seed in 0..u64::from(cases(50)) {
        let rig = Rig::seeded(seed, 2);
        let device = rig.device();
        let kit = Kit::new(&device);
        let [s, t] = rig.streams();
        let mut x = CudaBuffer::<u32>::new(&device, N).unwrap();
        let mut y = CudaBuffer::<u32>::new(&device, N).unwrap();
        let mut launches = Vec::new();
        let mut graph = s
            .capture(|capture| {
                capture.join(&t)?;
                let mut out = x.write_synchronized_with(&s)?;
                let args = (N as u32, 1_u32, &mut out);
                launches.push(kit.step.launch_captured(&s, elements(N), args)?);
                out.release()?;
                let (mut out, x) = cuda_buffer::acquire_all(&t, (y.write(), x.read()))?;
                let args = (N as u32, 2_u32, &mut out, &x);
                launches.push(kit.map.launch_captured(&t, elements(N), args)?);
                drop((out, x));
                kit.step(&s, &mut y, 3)
            })
            .unwrap();
        assert_eq!((graph.nodes(), graph.accesses()), (3, 2));
        let (mut model_x, mut model_y) = ([5_u32; N], [6_u32; N]);
        x.fill(&t, 5).unwrap();
        y.fill(&s, 6).unwrap();
        let (mut a, mut b, mut n) = (1, 2, N);
        for round in 0..6_u32 {
            let on = if round % 2 == 0 { &s } else { &t };
            graph.launch(on).unwrap();
            model_x.iter_mut().for_each(|x| *x = step_of(*x, a));
            for i in 0..n {
                model_y[i] = map_of(model_x[i], b);
            }
            model_y.iter_mut().for_each(|y| *y = step_of(*y, 3));
            (a, b, n) = (10 * round, 20 + round, N - round as usize);
            // The replay before may not have begun: it keeps what it was given.
            graph
                .set_launch(&launches[0], elements(N), (Kept, a, Kept))
                .unwrap();
            // What stays is what it was given last.
            let size = (n as u32, Kept, Kept, Kept);
            graph.set_launch(&launches[1], elements(n), size).unwrap();
            let value = (Kept, b, Kept, Kept);
            graph.set_launch(&launches[1], elements(n), value).unwrap();
            if round == 3 {
                x.fill(&t, 7).unwrap();
                model_x = [7; N];
            }
        }
        assert_eq!(x.to_vec().unwrap(), model_x, "seed {seed}");
        assert_eq!(y.to_vec().unwrap(), model_y, "seed {seed}");
        drop((graph, x, y, kit, s, t, device));
        rig.finish();
    }
}

/// Replays that have not begun keep the values that they were launched with.
#[test]
fn replays_under_way_keep_their_values() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let kit = Kit::new(&device);
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new(&device, N).unwrap();
    let (mut graph, launch) = step_graph(&kit, &s, &mut x, N, 1).unwrap();
    x.fill(&s, 1).unwrap();
    rig.sim.hold_stream(raw(&s));
    let mut expected = 1;
    for a in [1, 2, 3] {
        graph
            .set_launch(&launch, elements(N), (Kept, a, Kept))
            .unwrap();
        graph.launch(&s).unwrap();
        expected = step_of(expected, a);
    }
    rig.sim.release_stream(raw(&s));
    assert_eq!(x.to_vec().unwrap(), [expected; N]);
    drop((graph, x, kit, s, device));
    rig.finish();
}

/// Launches over carves, whose memory only the graph has by now.
#[test]
fn launches_over_carves_change_too() {
    let rig = Rig::seeded(3, 2);
    let device = rig.device();
    let kit = Kit::new(&device);
    let [s, t] = rig.streams();
    let mut x = CudaBuffer::<u32>::new(&device, N).unwrap();
    let mut arena = DeviceArena::over(DeviceSlab::new(&device, 1024).unwrap()).unwrap();
    let mut launch = None;
    let mut graph = s
        .capture(|_| {
            arena.frame().scratch(|frame| {
                let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                carve.copy_from(&x, &s)?;
                let mut access = carve.write_synchronized_with(&s)?;
                let args = (N as u32, 1_u32, &mut access);
                launch = Some(kit.step.launch_captured(&s, elements(N), args)?);
                access.release()?;
                x.copy_from(&carve, &s)
            })
        })
        .unwrap();
    x.fill(&t, 1).unwrap();
    let launch = launch.unwrap();
    graph
        .set_launch(&launch, elements(N), (Kept, 5_u32, Kept))
        .unwrap();
    graph.launch(&t).unwrap();
    assert_eq!(x.to_vec().unwrap(), [step_of(1, 5); N]);
    let error = graph
        .set_launch(&launch, elements(N + 1), (N as u32 + 1, Kept, Kept))
        .unwrap_err();
    assert!(
        matches!(error, BufferError::OperandBounds { .. }),
        "{error}"
    );
    drop((graph, arena, x, kit, s, t, device));
    rig.finish();
}

/// What does not fit is refused before the driver hears of it, and changes nothing.
#[test]
fn changes_that_do_not_fit_are_refused() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let kit = Kit::new(&device);
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new(&device, N).unwrap();
    let mut y = CudaBuffer::<u32>::new(&device, N).unwrap();
    let half = N / 2;
    let (mut graph, launch) = step_graph(&kit, &s, &mut x, half, 1).unwrap();
    let (mut other, of_other) = step_graph(&kit, &s, &mut y, N, 1).unwrap();
    let made = |rig: &Rig| {
        let calls = rig.sim.counters().snapshot();
        calls.of(Call::GraphExecKernelNodeSetParams)
    };
    let config = elements(half);
    let more = half as u32 + 1;

    // More than the operand, although it is within the buffer.
    let error = graph
        .set_launch(&launch, elements(N), (more, Kept, Kept))
        .unwrap_err();
    let bounds = |error: &BufferError| {
        matches!(
            error,
            BufferError::OperandBounds {
                kernel: "step",
                argument: 2,
                bytes: 48,
                end: 52,
                ..
            }
        )
    };
    assert!(bounds(&error), "{error}");
    // A value in the place of an operand, a value of another size, too few, and a grid that is none.
    let launch_error = |error: BufferError| match error {
        BufferError::Launch(error) => error,
        error => panic!("{error}"),
    };
    let error = graph
        .set_launch(&launch, config, (Kept, Kept, 7_u64))
        .unwrap_err();
    assert!(matches!(
        launch_error(error),
        LaunchError::ArgumentType { index: 2, .. }
    ));
    let error = graph
        .set_launch(&launch, config, (Kept, 7_u64, Kept))
        .unwrap_err();
    assert!(matches!(
        launch_error(error),
        LaunchError::ArgumentType { index: 1, .. }
    ));
    let error = graph
        .set_launch(&launch, config, (Kept, 7_u32))
        .unwrap_err();
    assert!(matches!(
        launch_error(error),
        LaunchError::ArgumentCount {
            expected: 3,
            given: 2,
            ..
        }
    ));
    let empty = LaunchConfig::new([0; 3], [1; 3]);
    let error = graph
        .set_launch(&launch, empty, (Kept, 7_u32, Kept))
        .unwrap_err();
    assert!(matches!(
        launch_error(error),
        LaunchError::Grid { blocks: 0, .. }
    ));
    // A launch of another graph.
    let stale = |error: BufferError| {
        assert!(
            matches!(error, BufferError::StaleLaunch { kernel: "step" }),
            "{error}"
        )
    };
    stale(
        graph
            .set_launch(&of_other, config, (Kept, 7_u32, Kept))
            .unwrap_err(),
    );
    stale(
        other
            .set_launch(&launch, config, (Kept, 7_u32, Kept))
            .unwrap_err(),
    );
    assert_eq!(made(&rig), 0);

    // Nothing changed; nor does it when the driver refuses.
    rig.sim.faults().fail_nth(
        Call::GraphExecKernelNodeSetParams,
        1,
        ErrorCode::INVALID_VALUE,
    );
    let error = graph
        .set_launch(&launch, config, (4_u32, 7_u32, Kept))
        .unwrap_err();
    assert!(
        matches!(error, BufferError::Runtime(error) if error.code() == Some(ErrorCode::INVALID_VALUE))
    );
    x.fill(&s, 1).unwrap();
    graph.launch(&s).unwrap();
    graph
        .set_launch(&launch, config, (Kept, Kept, Kept))
        .unwrap();
    graph.launch(&s).unwrap();
    let value = step_of(step_of(1, 1), 1);
    let model: Vec<_> = (0..N).map(|i| if i < half { value } else { 1 }).collect();
    assert_eq!(x.to_vec().unwrap(), model);

    // Outside of a capture there is nothing to change later, and nothing is queued.
    let mut access = x.write_synchronized_with(&s).unwrap();
    let args = (N as u32, 1_u32, &mut access);
    let error = kit.step.launch_captured(&s, elements(N), args).unwrap_err();
    assert!(
        matches!(error, BufferError::Runtime(RuntimeError::NotCapturing)),
        "{error}"
    );
    drop(access);
    assert_eq!(x.to_vec().unwrap(), model);
    drop((graph, other, x, y, kit, s, device));
    rig.finish();
}

/// Other work has launches of its own; those of the work before are known no more.
#[test]
fn a_graph_that_is_given_other_work_has_other_launches() {
    let rig = Rig::seeded(1, 1);
    let device = rig.device();
    let kit = Kit::new(&device);
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new(&device, N).unwrap();
    x.fill(&s, 1).unwrap();
    let (mut graph, first) = step_graph(&kit, &s, &mut x, N, 1).unwrap();
    let mut second = None;
    let updated = s
        .recapture(&mut graph, |_| {
            let mut access = x.write_synchronized_with(&s)?;
            let args = (N as u32, 2_u32, &mut access);
            second = Some(kit.step.launch_captured(&s, elements(N), args)?);
            Ok::<_, BufferError>(access.release()?)
        })
        .unwrap();
    assert!(
        !updated,
        "nodes are of the graph that the executable one was made of"
    );
    let second = second.unwrap();
    let error = graph
        .set_launch(&first, elements(N), (Kept, 9_u32, Kept))
        .unwrap_err();
    assert!(matches!(error, BufferError::StaleLaunch { .. }), "{error}");
    graph
        .set_launch(&second, elements(N), (Kept, 4_u32, Kept))
        .unwrap();
    graph.launch(&s).unwrap();
    assert_eq!(x.to_vec().unwrap(), [step_of(1, 4); N]);
    // A step that notes nothing updates what is there, and ends what was known.
    assert!(
        s.recapture(&mut graph, |_| kit.step(&s, &mut x, 5))
            .unwrap()
    );
    let error = graph
        .set_launch(&second, elements(N), (Kept, 9_u32, Kept))
        .unwrap_err();
    assert!(matches!(error, BufferError::StaleLaunch { .. }), "{error}");
    graph.launch(&s).unwrap();
    assert_eq!(x.to_vec().unwrap(), [step_of(step_of(1, 4), 5); N]);
    drop((graph, x, kit, s, device));
    rig.finish();
}

/// A capture that fails to end leaves no graph behind, noted launches or not; neither does one that is given up.
#[test]
fn a_capture_that_ends_without_a_graph_leaves_none() {
    for fails in [
        Some(Call::GraphInstantiate),
        Some(Call::StreamGetCaptureInfo),
        None,
    ] {
        let rig = Rig::seeded(0, 1);
        let device = rig.device();
        let kit = Kit::new(&device);
        let [s] = rig.streams();
        let mut x = CudaBuffer::<u32>::new(&device, N).unwrap();
        match fails {
            Some(call) => {
                rig.sim.faults().fail_nth(call, 1, ErrorCode::OUT_OF_MEMORY);
                let error = step_graph(&kit, &s, &mut x, N, 1).unwrap_err();
                assert!(
                    matches!(error, BufferError::Runtime(error) if error.code() == Some(ErrorCode::OUT_OF_MEMORY))
                );
            }
            None => {
                s.capture(|_| {
                    let mut access = x.write_synchronized_with(&s)?;
                    let args = (N as u32, 2_u32, &mut access);
                    kit.step.launch_captured(&s, elements(N), args)?;
                    drop(access);
                    Err::<(), _>(BufferError::Captured)
                })
                .unwrap_err();
            }
        }
        let graphs = rig.sim.leak_report();
        let graphs = graphs.iter().filter(|leak| {
            matches!(
                leak.finding,
                Finding::Leak {
                    object: LeakedObject::Graph { .. } | LeakedObject::GraphExec { .. },
                    ..
                }
            )
        });
        assert_eq!(graphs.count(), 0, "{fails:?}");
        x.fill(&s, 1).unwrap();
        drop((x, kit, s, device));
        rig.finish();
    }
}
