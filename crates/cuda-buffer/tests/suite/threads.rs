//! Several host threads on one device: no deadlock, no race on the device, right results.

use crate::kit::{Kit, N, Rig, cases, elements, map_of, step_of};
use cuda_buffer::{
    BufferError, BufferResult, CaptureStep, CudaBuffer, DeviceArena, DeviceData, DeviceSlab, Launch,
};
use cuda_runtime::RuntimeError;
use space_core::{Space, Undef};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// Readers on several threads share a buffer by `&`, between writes of its owner.
#[test]
fn threads_share_a_buffer_by_reference() {
    for seed in 0..u64::from(cases(10)) {
        let rig = Rig::seeded(seed, 4);
        let kit = Kit::new(rig.runtime.default_device());
        let [own, ..] = rig.streams::<1>();
        let mut x = CudaBuffer::<u32>::new_on(&own, N).unwrap();
        for round in 0..4 {
            x.fill(&own, round).unwrap();
            std::thread::scope(|scope| {
                for a in 0..3 {
                    let (x, kit) = (&x, &kit);
                    scope.spawn(move || {
                        for _ in 0..4 {
                            let stream = x.device().streams().acquire().unwrap();
                            let mut out = CudaBuffer::<u32>::new_on(&stream, N).unwrap();
                            kit.map(&stream, &mut out, x, a).unwrap();
                            drop(stream);
                            let stream = x.device().streams().acquire().unwrap();
                            kit.step(&stream, &mut out, 1).unwrap();
                            assert_eq!(out.to_vec().unwrap(), [step_of(map_of(round, a), 1); N]);
                        }
                    });
                }
            });
            kit.step(&own, &mut x, 5).unwrap();
        }
        drop((x, kit, own));
        rig.finish();
    }
}

/// Buffers move between threads, each of which has streams of its own.
#[test]
fn threads_hand_buffers_on() {
    for seed in 0..u64::from(cases(10)) {
        let rig = Rig::seeded(seed, 5);
        let kit = Kit::new(rig.runtime.default_device());
        let (first, mut last) = std::sync::mpsc::channel::<(CudaBuffer<u32>, u32)>();
        std::thread::scope(|scope| {
            for a in 0..4 {
                let (send, receive) = std::sync::mpsc::channel();
                let (kit, device) = (&kit, rig.device());
                let input = std::mem::replace(&mut last, receive);
                scope.spawn(move || {
                    let stream = device.streams().acquire().unwrap();
                    for (mut x, expected) in input {
                        kit.step(&stream, &mut x, a).unwrap();
                        send.send((x, step_of(expected, a))).unwrap();
                    }
                });
            }
            let device = rig.device();
            let stream = device.streams().acquire().unwrap();
            for value in 0..20 {
                let mut x = CudaBuffer::<u32>::new(&device, N).unwrap();
                x.fill(&stream, value).unwrap();
                first.send((x, value)).unwrap();
            }
            drop(first);
            for (x, expected) in last {
                assert_eq!(x.to_vec().unwrap(), [expected; N]);
            }
        });
        drop(kit);
        rig.finish();
    }
}

/// Graphs over the same arena bytes are launched from several threads, while the arena's owner carves there.
#[test]
fn threads_launch_graphs_over_the_same_arena() {
    for seed in 0..u64::from(cases(10)) {
        let rig = Rig::seeded(seed, 6);
        let kit = Kit::new(rig.runtime.default_device());
        let device = rig.device();
        let stream = device.streams().acquire().unwrap();
        let mut arena = DeviceArena::over(DeviceSlab::new(&device, 2048).unwrap()).unwrap();
        let mut outs: Vec<_> = (0..3)
            .map(|a| {
                let mut out = CudaBuffer::<u32>::new_on(&stream, N).unwrap();
                out.fill(&stream, a).unwrap();
                out
            })
            .collect();
        let graphs: Vec<_> = outs
            .iter_mut()
            .map(|out| {
                stream
                    .capture(|_| {
                        arena.frame().scratch(|frame| {
                            let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                            kit.map(&stream, &mut carve, out, 1)?;
                            out.copy_from(&carve, &stream)
                        })
                    })
                    .unwrap()
            })
            .collect();
        const ROUNDS: usize = 40;
        std::thread::scope(|scope| {
            for graph in &graphs {
                let device = device.clone();
                scope.spawn(move || {
                    let stream = device.streams().acquire().unwrap();
                    let mut launched = 0;
                    while launched < ROUNDS {
                        match graph.launch(&stream) {
                            Ok(()) => launched += 1,
                            Err(BufferError::ArenaInUse { .. }) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            // The owner's frames come and go between the launches.
            for round in 0..ROUNDS as u32 {
                arena.frame().scratch(|frame| {
                    let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                    carve.fill(&stream, round).unwrap();
                    kit.step(&stream, &mut carve, 1).unwrap();
                });
            }
        });
        assert_eq!(arena.region().quarantined_bytes(), 0);
        for (a, out) in outs.iter().enumerate() {
            let expected = (0..ROUNDS).fold(a as u32, |x, _| map_of(x, 1));
            assert_eq!(out.to_vec().unwrap(), [expected; N]);
        }
        drop((graphs, outs, arena, kit, stream, device));
        rig.finish();
    }
}

/// A live carve that a graph writes ends on one thread while another launches the graph.
#[test]
fn a_frame_that_ends_under_a_launch_loses_nothing() {
    for seed in 0..u64::from(cases(20)) {
        let rig = Rig::seeded(seed, 3);
        let kit = Kit::new(rig.runtime.default_device());
        let device = rig.device();
        let [s, t] = rig.streams();
        let mut arena = DeviceArena::over(DeviceSlab::new(&device, 2048).unwrap()).unwrap();
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        x.fill(&s, 1).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            arena.frame().scratch(|frame| {
                let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                let graph = s.capture(|_| kit.map(&s, &mut carve, &x, 1)).unwrap();
                let (t, stop) = (&t, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        graph.launch(t).unwrap();
                    }
                });
                std::thread::yield_now();
            });
            // The bytes' next life, while the graph is still being launched.
            for _ in 0..20 {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(arena.region().quarantined_bytes(), 0);
        drop((x, arena, kit, s, t, device));
        rig.finish();
    }
}

/// Ends a thread's work also when the test fails.
struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One thread captures on a stream that another one works on: the other is refused, and what it queued before is not
/// forgotten.
#[test]
fn a_capture_on_a_shared_stream_loses_no_work_of_other_threads() {
    for seed in 0..u64::from(cases(10)) {
        let rig = Rig::seeded(seed, 3);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let mut x = CudaBuffer::<u32>::new_on(&t, N).unwrap();
        x.fill(&t, 0).unwrap();
        let mut expected = 0;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = StopOnDrop(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let graph = s.capture(|_| Ok::<_, BufferError>(())).unwrap();
                    graph.launch(&s).unwrap();
                }
            });
            for round in 0..150 {
                let refused = |result: BufferResult<()>| match result {
                    Ok(()) => false,
                    // Captured before the access was acquired, or between that and the launch.
                    Err(BufferError::Runtime(RuntimeError::CaptureWrongThread)) => true,
                    Err(BufferError::WrongStream { .. }) => true,
                    Err(error) => panic!("{error}"),
                };
                // On the shared stream, then on one that only the ledger orders with it.
                if !refused(kit.step(&s, &mut x, round)) {
                    expected = step_of(expected, round);
                }
                kit.step(&t, &mut x, 1).unwrap();
                expected = step_of(expected, 1);
            }
        });
        assert_eq!(x.to_vec().unwrap(), [expected; N]);
        drop((x, kit, s, t));
        rig.finish();
    }
}

/// Threads that take the same buffers in any order don't wait for each other for ever: they don't wait at all.
#[test]
fn threads_replay_and_copy_around_each_other() {
    for seed in 0..u64::from(cases(5)) {
        let rig = Rig::seeded(seed, 4);
        let kit = Kit::new(rig.runtime.default_device());
        let device = rig.device();
        let [s, ..] = rig.streams::<1>();
        let (mut x, mut y) = (
            CudaBuffer::<u32>::new_on(&s, N).unwrap(),
            CudaBuffer::<u32>::new_on(&s, N).unwrap(),
        );
        x.fill(&s, 1).unwrap();
        y.fill(&s, 2).unwrap();
        let one = s.capture(|_| kit.map(&s, &mut y, &x, 1)).unwrap();
        let two = s.capture(|_| kit.map(&s, &mut x, &y, 1)).unwrap();
        std::thread::scope(|scope| {
            for graph in [&one, &two] {
                let device = device.clone();
                scope.spawn(move || {
                    let stream = device.streams().acquire().unwrap();
                    let mut launched = 0;
                    while launched < 100 {
                        match graph.launch(&stream) {
                            Ok(()) => launched += 1,
                            // The other one is being launched at this moment.
                            Err(BufferError::Access(_)) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        drop((one, two, x, y, kit, device, s));
        rig.finish();
    }
}

/// An access that ends while another thread captures on its stream: its work came before the capture.
#[test]
fn an_access_may_end_under_a_capture_of_another_thread() {
    for seed in 0..16 {
        let rig = Rig::seeded(seed, 3);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        let mut y = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        x.fill(&s, 1).unwrap();
        let point = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                point.wait();
                let graph = s.capture(|_| {
                    point.wait();
                    point.wait();
                    Ok::<_, BufferError>(())
                });
                assert_eq!(graph.unwrap().nodes(), 0);
            });
            let n = N as u32;
            let mut access = x.write_synchronized_with(&s).unwrap();
            kit.step
                .launch(&s, elements(N), (n, 1_u32, &mut access))
                .unwrap();
            let mut other = y.write_synchronized_with(&s).unwrap();
            kit.map
                .launch(&s, elements(N), (n, 1_u32, &mut other, &access))
                .unwrap();
            point.wait();
            point.wait();
            // From here on the stream belongs to the capture.
            let more = kit.step.launch(&s, elements(N), (n, 1_u32, &mut access));
            assert!(more.is_err(), "the access is of the time before");
            access.release().unwrap();
            drop(other);
            kit.step(&t, &mut x, 1).unwrap(); // after the launches, by the ledgers alone
            kit.step(&t, &mut y, 1).unwrap();
            point.wait();
        });
        assert_eq!(x.to_vec().unwrap(), [13; N]);
        assert_eq!(y.to_vec().unwrap(), [step_of(map_of(4, 1), 1); N]);
        drop((x, y, kit, s, t));
        rig.finish();
    }
}

/// Captures of several threads don't disturb each other, nor the eager work between them, over the same buffer.
#[test]
fn threads_capture_at_once() {
    for seed in 0..u64::from(cases(10)) {
        let rig = Rig::seeded(seed, 5);
        let kit = Kit::new(rig.runtime.default_device());
        let device = rig.device();
        let [s] = rig.streams();
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        x.fill(&s, 5).unwrap();
        let together = Barrier::new(3);
        std::thread::scope(|scope| {
            for a in 0..3_u32 {
                let (x, kit, device, together) = (&x, &kit, &device, &together);
                scope.spawn(move || {
                    let stream = device.streams().acquire().unwrap();
                    let mut out = CudaBuffer::<u32>::new(device, N).unwrap();
                    let mut eager = CudaBuffer::<u32>::new(device, N).unwrap();
                    let other = (a == 0).then(|| device.streams().acquire().unwrap());
                    together.wait();
                    let graph = stream.capture(|_| {
                        kit.map(&stream, &mut out, x, a)?;
                        together.wait();
                        if let Some(other) = &other {
                            kit.map(other, &mut eager, x, 9)?;
                        }
                        kit.step(&stream, &mut out, a)
                    });
                    let graph = graph.unwrap();
                    for _ in 0..3 {
                        graph.launch(&stream).unwrap();
                    }
                    assert_eq!(out.to_vec().unwrap(), [step_of(map_of(5, a), a); N]);
                    if other.is_some() {
                        assert_eq!(eager.to_vec().unwrap(), [map_of(5, 9); N]);
                    }
                });
            }
        });
        kit.step(&s, &mut x, 1).unwrap();
        drop((x, kit, device, s));
        rig.finish();
    }
}
