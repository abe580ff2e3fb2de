//! What operations cost in driver calls: the promises, counted.

use crate::kit::{Kit, N, Rig};
use cuda_buffer::{CaptureStep, CudaBuffer, DeviceArena, DeviceData, DeviceSlab};
use cuda_driver::{Call, CallCounts, Driver};
use cuda_sim::SimDriver;
use space_core::{Space, Undef};

fn made(rig: &Rig, body: impl FnOnce()) -> CallCounts {
    let before = rig.sim.counters().snapshot();
    body();
    rig.sim.counters().snapshot() - before
}

/// But for events that are created: the first rounds do, and the test of the steady state says that later ones don't.
#[track_caller]
fn assert_calls(made: CallCounts, expected: &[(Call, u64)]) {
    let calls = made.iter().filter(|&(call, _)| call != Call::EventCreate);
    assert_eq!(calls.collect::<Vec<_>>(), expected, "{made}");
}

#[test]
fn an_operation_on_the_same_stream_is_a_launch_and_a_record() {
    let rig = Rig::seeded(1, 1);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let [s] = rig.streams();
    let mut out = CudaBuffer::new_on(&s, N).unwrap();
    let (mut x, mut y) = (
        CudaBuffer::new_on(&s, N).unwrap(),
        CudaBuffer::new_on(&s, N).unwrap(),
    );
    x.fill(&s, 1).unwrap();
    y.fill(&s, 2).unwrap();
    // Two of them circulate: one is recorded while the other is what buffers refer to.
    kit.join(&s, &mut out, &x, &y).unwrap();
    kit.step(&s, &mut x, 1).unwrap();
    let events = device.events_created();
    let order = device.order_counts();
    for _ in 0..10 {
        let calls = made(&rig, || kit.join(&s, &mut out, &x, &y).unwrap());
        assert_calls(calls, &[(Call::EventRecord, 1), (Call::LaunchKernel, 1)]);
        let under_guards = || kit.join_under_guards(&s, &mut out, &x, &y).unwrap();
        let calls = made(&rig, under_guards);
        assert_calls(calls, &[(Call::EventRecord, 1), (Call::LaunchKernel, 1)]);
        let calls = made(&rig, || kit.step(&s, &mut x, 1).unwrap());
        assert_calls(calls, &[(Call::EventRecord, 1), (Call::LaunchKernel, 1)]);
    }
    assert_eq!((device.order_counts() - order).waits_issued, 0);
    assert_eq!(device.events_created(), events);
    drop((device, kit, s, out, x, y));
    rig.finish();
}

#[test]
fn each_producer_stream_costs_one_wait_and_none_the_second_time() {
    let rig = Rig::seeded(2, 3);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t, u] = rig.streams();
    let mut out = CudaBuffer::new_on(&u, N).unwrap();
    let (mut x, mut y) = (
        CudaBuffer::new_on(&s, N).unwrap(),
        CudaBuffer::new_on(&t, N).unwrap(),
    );
    x.fill(&s, 1).unwrap();
    y.fill(&t, 2).unwrap();
    // The events of both producers are recorded now that somebody needs them, and that of the allocation.
    let both = [
        (Call::StreamWaitEvent, 2),
        (Call::EventRecord, 3),
        (Call::LaunchKernel, 1),
    ];
    assert_calls(
        made(&rig, || kit.join(&u, &mut out, &x, &y).unwrap()),
        &both,
    );
    kit.join(&u, &mut out, &x, &y).unwrap();
    let again = [(Call::EventRecord, 1), (Call::LaunchKernel, 1)];
    assert_calls(
        made(&rig, || kit.join(&u, &mut out, &x, &y).unwrap()),
        &again,
    );

    // Two values of one producer: one wait for both, since the later point comes after the earlier one.
    x.fill(&s, 3).unwrap();
    let mut z = CudaBuffer::new_on(&s, N).unwrap();
    z.fill(&s, 4).unwrap();
    let one = [
        (Call::StreamWaitEvent, 1),
        (Call::EventRecord, 1),
        (Call::LaunchKernel, 1),
    ];
    assert_calls(made(&rig, || kit.join(&u, &mut out, &x, &z).unwrap()), &one);
    drop((kit, s, t, u, out, x, y, z));
    rig.finish();
}

/// Case 11 (torch/cutorch#222): readers are kept one by one, not in a single event.
#[test]
fn case_11_a_write_waits_for_each_reading_stream_and_for_nothing_else() {
    let rig = Rig::seeded(3, 3);
    let kit = Kit::new(rig.runtime.default_device());
    let [s1, s2, s3] = rig.streams();
    let mut x = CudaBuffer::new_on(&s3, N).unwrap();
    let (mut a, mut b) = (
        CudaBuffer::new_on(&s1, N).unwrap(),
        CudaBuffer::new_on(&s2, N).unwrap(),
    );
    for round in 0..4 {
        x.fill(&s3, round).unwrap();
        kit.map(&s1, &mut a, &x, 1).unwrap();
        kit.map(&s1, &mut a, &x, 2).unwrap(); // replaces the first stream's entry
        kit.map(&s2, &mut b, &x, 3).unwrap();
        let calls = made(&rig, || x.fill(&s3, 9).unwrap());
        // One event for each of the reading streams.
        let two = [
            (Call::StreamWaitEvent, 2),
            (Call::EventRecord, 2),
            (Call::MemsetD32Async, 1),
        ];
        assert_calls(calls, &two);
        let calls = made(&rig, || x.fill(&s3, 9).unwrap());
        let again = [(Call::EventRecord, 1), (Call::MemsetD32Async, 1)];
        assert_calls(calls, &again);
    }
    assert_eq!(a.to_vec().unwrap(), vec![3 * 5 + 2; N]);
    assert_eq!(b.to_vec().unwrap(), vec![3 * 5 + 3; N]);
    drop((kit, s1, s2, s3, x, a, b));
    rig.finish();
}

#[test]
fn a_steady_state_creates_no_event() {
    let rig = Rig::seeded(4, 4);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let streams = rig.streams::<4>();
    let mut buffers: Vec<CudaBuffer<u32>> = (0..4)
        .map(|_| CudaBuffer::new(&device, N).unwrap())
        .collect();
    for (buffer, stream) in buffers.iter_mut().zip(&streams) {
        buffer.fill(stream, 1).unwrap();
    }
    let mut settled = None;
    for round in 0..200_usize {
        let (out, rest) = buffers.split_first_mut().unwrap();
        kit.join(
            &streams[round % 4],
            out,
            &rest[round % 3],
            &rest[(round / 2) % 3],
        )
        .unwrap();
        buffers.rotate_left(1);
        if round == 100 {
            settled = Some((device.events_created(), rig.sim.counters().snapshot()));
        }
    }
    let (events, calls) = settled.unwrap();
    assert_eq!(device.events_created(), events);
    let calls = rig.sim.counters().snapshot() - calls;
    assert_eq!(
        calls.of(Call::EventCreate) + calls.of(Call::EventDestroy),
        0
    );
    assert_eq!(
        (calls.of(Call::EventRecord), calls.of(Call::LaunchKernel)),
        (99, 99)
    );
    drop((device, kit, streams, buffers));
    rig.finish();
}

#[test]
fn an_allocation_is_one_call_and_a_drop_a_wait_per_stream_and_a_free() {
    let rig = Rig::seeded(5, 3);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let [s, t, u] = rig.streams();
    // Neither records an event of its own, nor makes the stream record that of its last work.
    let allocation = [(Call::MemAllocFromPoolAsync, 1)];
    let (mut x, mut a, mut b) = (None, None, None);
    assert_calls(
        made(&rig, || x = CudaBuffer::<u32>::new_on(&s, N).ok()),
        &allocation,
    );
    assert_calls(
        made(&rig, || a = CudaBuffer::<u32>::new_on(&t, N).ok()),
        &allocation,
    );
    assert_calls(
        made(&rig, || b = CudaBuffer::<u32>::new(&device, N).ok()),
        &allocation,
    );
    let [mut x, mut a, mut b] = [x, a, b].map(Option::unwrap);
    x.fill(&s, 1).unwrap();
    kit.map(&t, &mut a, &x, 1).unwrap();
    kit.map(&u, &mut b, &x, 1).unwrap();
    // Read on two streams since the write that both came after: two waits, on a stream for it, for the events of both.
    let calls = made(&rig, || drop(x));
    assert_calls(
        calls,
        &[
            (Call::StreamWaitEvent, 2),
            (Call::EventRecord, 2),
            (Call::MemFreeAsync, 1),
        ],
    );
    // Each goes on the stream of its only user.
    let calls = made(&rig, || drop((a, b)));
    assert_calls(calls, &[(Call::MemFreeAsync, 2)]);
    let mut y = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    y.fill(&s, 1).unwrap();
    s.synchronize().unwrap();
    let calls = made(&rig, || drop(y));
    assert_calls(calls, &[(Call::MemFreeAsync, 1)]);
    drop((device, kit, s, t, u));
    rig.finish();
}

#[test]
fn a_replay_is_a_launch_and_a_record_and_allocates_nothing() {
    let rig = Rig::seeded(6, 2);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let [s, t] = rig.streams();
    let (mut x, mut y) = (
        CudaBuffer::new(&device, N).unwrap(),
        CudaBuffer::new(&device, N).unwrap(),
    );
    x.fill(&s, 0).unwrap();
    y.fill(&s, 0).unwrap();
    let mut arena = DeviceArena::over(DeviceSlab::new(&device, 2048).unwrap()).unwrap();
    let graph = s
        .capture(|_| {
            arena.frame().scratch(|frame| {
                let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                kit.map(&s, &mut carve, &x, 1)?;
                kit.join(&s, &mut y, &carve, &x)
            })?;
            kit.step(&s, &mut x, 2)
        })
        .unwrap();
    graph.launch(&s).unwrap();
    graph.launch(&s).unwrap();
    let held = device.pool_usage().unwrap().unwrap();
    for _ in 0..100 {
        let calls = made(&rig, || graph.launch(&s).unwrap());
        assert_calls(calls, &[(Call::EventRecord, 1), (Call::GraphLaunch, 1)]);
    }
    // The event is that of the last replay, which nobody had waited for.
    // The driver runs the replays of one graph in turn, so that one on another stream needs no wait.
    let calls = made(&rig, || graph.launch(&t).unwrap());
    assert_calls(calls, &[(Call::GraphLaunch, 1)]);
    let after = device.pool_usage().unwrap().unwrap();
    assert_eq!(
        (after.used_bytes, after.reserved_bytes),
        (held.used_bytes, held.reserved_bytes)
    );
    drop((device, kit, s, t, x, y, arena, graph));
    rig.finish();
}

/// Carves cost no driver call, on the stream that had the bytes before; elsewhere one wait.
#[test]
fn a_carve_makes_no_call_of_its_own() {
    let rig = Rig::seeded(7, 2);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let [s, t] = rig.streams();
    let mut arena = DeviceArena::over(DeviceSlab::new(&device, 2048).unwrap()).unwrap();
    let mut frame = |stream: &_| {
        arena.frame().scratch(|frame| {
            let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
            carve.fill(stream, 1).unwrap();
            kit.step(stream, &mut carve, 1).unwrap();
        });
    };
    frame(&s);
    frame(&s);
    for _ in 0..5 {
        let calls = made(&rig, || frame(&s));
        let work = [
            (Call::EventRecord, 2),
            (Call::MemsetD32Async, 1),
            (Call::LaunchKernel, 1),
        ];
        assert_calls(calls, &work);
    }
    let calls = made(&rig, || frame(&t));
    let other = [
        (Call::StreamWaitEvent, 1),
        (Call::EventRecord, 2),
        (Call::MemsetD32Async, 1),
        (Call::LaunchKernel, 1),
    ];
    assert_calls(calls, &other);
    drop((device, kit, s, t, arena));
    rig.finish();
}

/// What a program costs is decided by the program.
#[test]
fn what_is_called_does_not_depend_on_the_schedule() {
    let mut first = None;
    for seed in 0..20 {
        let rig = Rig::new(SimDriver::builder().seed(seed), 2);
        let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
        let [s, t] = rig.streams();
        let calls = made(&rig, || {
            let mut x = CudaBuffer::new(&device, N).unwrap();
            let mut y = CudaBuffer::new(&device, N).unwrap();
            for round in 0..10 {
                x.fill(&s, round).unwrap();
                kit.map(&t, &mut y, &x, 1).unwrap();
                kit.step(&s, &mut y, 1).unwrap();
            }
        });
        assert_eq!(*first.get_or_insert(calls), calls);
        drop((device, kit, s, t));
        rig.finish();
    }
}
