//! Launches with data: accesses, launch and completion in one call.

use crate::fault_kit::in_time;
use crate::kit::{Kit, N, Rig, elements, join_of, step_of};
use cuda_buffer::{
    AccessKind, BufferError, BufferResult, CaptureStep, CudaBuffer, DeviceArena, DeviceData,
    DeviceSlab, Launch, SharedCudaBuffer,
};
use cuda_driver::{Call, Driver, ErrorCode};
use cuda_runtime::{RuntimeError, Stream};
use space_core::{Space, Undef};
use std::thread;

fn full(stream: &Stream, value: u32) -> CudaBuffer<u32> {
    let mut buffer = CudaBuffer::new_on(stream, N).unwrap();
    buffer.fill(stream, value).unwrap();
    buffer
}

/// Streams take turns, values have a home here and there, and one of them is read twice by one launch.
#[test]
fn each_comes_after_what_it_needs_on_any_stream() {
    let rig = Rig::seeded(3, 3);
    let kit = Kit::new(rig.runtime.default_device());
    let streams: [Stream; 3] = rig.streams();
    let (mut out, mut x) = (full(&streams[0], 0), full(&streams[0], 1));
    let (mut out_model, mut x_model) = (0, 1);
    for turn in 0..60 {
        // Long enough on one stream for values to settle there, then in turns.
        let stream = &streams[if turn % 20 < 8 { turn / 20 } else { turn % 3 }];
        kit.join(stream, &mut out, &x, &x).unwrap();
        kit.join_under_guards(&streams[turn % 2], &mut x, &out, &out)
            .unwrap();
        out_model = join_of(x_model, x_model);
        x_model = join_of(out_model, out_model);
    }
    assert_eq!(out.to_vec().unwrap(), [out_model; N]);
    assert_eq!(x.to_vec().unwrap(), [x_model; N]);
    drop((out, x, kit, streams));
    rig.finish();
}

/// Parts of values, and carves of an arena.
#[test]
fn parts_and_carves_are_data_too() {
    let rig = Rig::seeded(4, 2);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let [s, t] = rig.streams();
    let mut x = full(&s, 5);
    let part = x.write().slice(4..10).unwrap();
    kit.step
        .launch_with(&t, elements(6), (6_u32, 2_u32, part))
        .unwrap();
    let slab = DeviceSlab::new(&device, 4096).unwrap();
    let mut arena = DeviceArena::over(slab).unwrap();
    arena
        .frame()
        .scratch(|frame| -> BufferResult<()> {
            let mut carve = frame.alloc(Undef::<u32, _>::new([N])).expect("room");
            kit.join(&s, &mut carve, &x, &x)?;
            x.copy_from(&carve, &t)
        })
        .unwrap();
    let stepped = |i| {
        if (4..10).contains(&i) {
            step_of(5, 2)
        } else {
            5
        }
    };
    let model: Vec<_> = (0..N).map(|i| join_of(stepped(i), stepped(i))).collect();
    assert_eq!(x.to_vec().unwrap(), model);
    drop((x, arena, kit, device, s, t));
    rig.finish();
}

/// What does not fit is refused before anything is held or queued.
#[test]
fn a_launch_that_does_not_fit_holds_nothing() {
    let rig = Rig::seeded(5, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let (x, y) = (full(&s, 1), SharedCudaBuffer::from(full(&s, 2)));
    let launches = || rig.sim.counters().snapshot().of(Call::LaunchKernel);
    let before = launches();
    let (n, config) = (N as u32, elements(N));
    let refused = |result: BufferResult<()>| result.unwrap_err();

    let error = refused(
        kit.join
            .launch_with(&t, config, (n, y.write(), x.read(), x.read(), n)),
    );
    assert!(matches!(error, BufferError::Launch(_)), "{error}");
    let error = refused(
        kit.join
            .launch_with(&t, config, (n + 1, y.write(), x.read(), x.read())),
    );
    let end = 4 * u64::from(n + 1);
    assert!(
        matches!(error, BufferError::OperandBounds { argument: 1, end: past, bytes, .. }
            if past == end as i64 && bytes == 4 * u64::from(n)),
        "{error}"
    );
    let error = refused(
        kit.join
            .launch_with(&t, config, (n, y.read(), x.read(), x.read())),
    );
    assert!(
        matches!(error, BufferError::ReadOnlyOperand { argument: 1, .. }),
        "{error}"
    );
    // One value cannot be written and read at a time.
    let error = refused(
        kit.join
            .launch_with(&t, config, (n, y.write(), x.read(), y.read())),
    );
    let BufferError::Access(error) = error else {
        panic!("{error}")
    };
    assert_eq!(error.holders, 1);
    // Somebody else reads.
    let read = y.read().synchronized_with(&s).unwrap();
    let error = refused(
        kit.join
            .launch_with(&t, config, (n, y.write(), x.read(), x.read())),
    );
    let BufferError::Access(error) = error else {
        panic!("{error}")
    };
    assert_eq!((error.held, error.stream), (AccessKind::Read, Some(s.id())));
    drop(read);
    assert_eq!(launches(), before);

    // Nothing of all this is left.
    kit.join
        .launch_with(&t, config, (n, y.write(), x.read(), x.read()))
        .unwrap();
    assert_eq!(launches(), before + 1);
    drop((x, y, kit, s, t));
    rig.finish();
}

/// In a capture it is a node like any, and what it accesses is the graph's.
#[test]
fn a_capture_takes_it_like_any_other_launch() {
    let rig = Rig::seeded(6, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let (mut out, x) = (full(&s, 0), full(&t, 3));
    let graph = s
        .capture(|capture| {
            capture.join(&t)?;
            kit.join(&t, &mut out, &x, &x)?;
            kit.step(&s, &mut out, 4)
        })
        .unwrap();
    graph.launch(&t).unwrap();
    graph.launch(&s).unwrap();
    let model = step_of(join_of(3, 3), 4);
    assert_eq!(out.to_vec().unwrap(), [model; N]);
    drop((graph, out, x, kit, s, t));
    rig.finish();
}

/// A launch that the driver refuses leaves the values as they were; one that loses the device keeps them for ever.
#[test]
fn a_failed_launch_gives_the_accesses_back() {
    let rig = Rig::seeded(7, 1);
    let kit = Kit::new(rig.runtime.default_device());
    let [s] = rig.streams();
    let (mut out, x) = (full(&s, 8), full(&s, 9));
    rig.sim
        .faults()
        .fail_nth(Call::LaunchKernel, 1, ErrorCode::OUT_OF_MEMORY);
    let error = kit.join(&s, &mut out, &x, &x).unwrap_err();
    assert!(matches!(error, BufferError::Runtime(_)), "{error}");
    assert_eq!(out.to_vec().unwrap(), [8; N]);
    kit.join(&s, &mut out, &x, &x).unwrap();
    assert_eq!(out.to_vec().unwrap(), [join_of(9, 9); N]);

    rig.sim
        .faults()
        .fail_nth(Call::LaunchKernel, 1, ErrorCode::ILLEGAL_ADDRESS);
    kit.join(&s, &mut out, &x, &x).unwrap_err();
    let error = kit.join(&s, &mut out, &x, &x).unwrap_err();
    assert!(
        matches!(error, BufferError::Runtime(RuntimeError::Poisoned { .. })),
        "{error}"
    );
    // What the lost device does with the memory may go on for ever.
    let device = rig.device();
    drop((out, x));
    assert_eq!(device.alive().leaked_bytes, 2 * 4 * N);
    drop((kit, s, device));
    assert!(rig.runtime.shutdown().is_err());
    rig.sim.assert_no_reports();
}

/// Two threads, each on a stream of its own.
#[test]
fn two_threads_share_what_they_read() {
    let rig = Rig::seeded(8, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let streams: [Stream; 2] = rig.streams();
    let x = SharedCudaBuffer::from(full(&streams[0], 6));
    let outs = streams.each_ref().map(|stream| full(stream, 0));
    let outs = thread::scope(|scope| {
        let threads: Vec<_> = outs
            .into_iter()
            .zip(&streams)
            .map(|(mut out, stream)| {
                let (kit, x) = (&kit, &x);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let args = (N as u32, out.write(), x.read(), x.read());
                        kit.join.launch_with(stream, elements(N), args).unwrap();
                    }
                    out
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    for out in &outs {
        assert_eq!(out.to_vec().unwrap(), [join_of(6, 6); N]);
    }
    drop((outs, x, kit, streams));
    rig.finish();
}

/// What a thread does with a stream, a value and a launch.
type Turn = fn(&Stream, &SharedCudaBuffer<u32>, &dyn Fn() -> BufferResult<()>) -> BufferResult<()>;

/// Three threads share streams and values, some at home here and some there. Every access is given back, whatever `other` does in between.
fn take_turns(seed: u64, other: Turn, may_be: fn(&BufferError) -> bool) {
    in_time(&format!("threads take turns, seed {seed}"), move || {
        let rig = Rig::seeded(seed, 3);
        let kit = Kit::new(rig.runtime.default_device());
        let streams: [Stream; 3] = rig.streams();
        let values = streams
            .each_ref()
            .map(|stream| SharedCudaBuffer::from(full(stream, 1)));
        let turns = &|id: usize| {
            for turn in 0..150 {
                let stream = &streams[(id + turn / 10) % 3];
                let [a, b, c] = [0, 1, 2].map(|i| &values[(id + turn + i) % 3]);
                let launch = || {
                    let args = (N as u32, a.write(), c.read(), b.read());
                    kit.join.launch_with(stream, elements(N), args)
                };
                let done = match turn % 7 {
                    6 => other(stream, c, &launch),
                    5 => b.write().copy_from(c.read(), stream),
                    _ => launch(),
                };
                assert!(done.as_ref().err().is_none_or(may_be), "{done:?}");
            }
        };
        thread::scope(|scope| {
            for id in 0..3 {
                scope.spawn(move || turns(id));
            }
        });
        for value in &values {
            for stream in &streams {
                let access = value.write().synchronized_with(stream).unwrap();
                access.release().unwrap();
            }
        }
        drop((values, kit, streams));
        rig.finish();
    });
}

/// Each launch is made or excluded.
#[test]
fn threads_that_share_streams_and_values_take_turns() {
    for seed in 0..6 {
        let read = |stream: &Stream, value: &SharedCudaBuffer<u32>, _: &dyn Fn() -> _| {
            value.read().synchronized_with(stream).map(drop)
        };
        take_turns(seed, read, |error| matches!(error, BufferError::Access(_)));
    }
}

/// No capture ends another thread's, which would leave the stream captured where everybody takes it for free: then a record poisons the
/// device.
#[test]
fn captures_of_other_threads_end_by_themselves() {
    for seed in 0..4 {
        let capture = |stream: &Stream, _: &_, launch: &dyn Fn() -> BufferResult<()>| {
            stream.capture(|_| launch()).map(drop)
        };
        take_turns(seed, capture, |error| {
            !matches!(
                error,
                BufferError::Runtime(RuntimeError::Poisoned { .. } | RuntimeError::Driver(_))
            )
        });
    }
}
