//! Completions as places: events are recorded for those who need them, and stand for no more than they say.

use crate::busy::{self, Busy};
use crate::kit::{Rig, raw, stall, touch};
use cuda_driver::{
    Call, CallCounts, DeviceId, Driver, ErrorCode, EventFlags, Events, Kernels, Streams,
};
use cuda_runtime::{Completion, RuntimeResult, Stream};
use cuda_sim::SimDriver;
use std::collections::HashMap;
use std::time::Duration;

fn made(rig: &Rig, body: impl FnOnce()) -> CallCounts {
    let before = rig.sim.counters().snapshot();
    body();
    rig.sim.counters().snapshot() - before
}

fn calls(made: CallCounts) -> Vec<(Call, u64)> {
    made.iter().collect()
}

#[test]
fn a_completion_that_nobody_needs_costs_no_call() {
    let rig = Rig::new(2);
    let device = rig.device();
    let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
    let (memory, _) = device.allocate_on(64, &s).unwrap();
    let chain = made(&rig, || {
        for _ in 0..10 {
            touch(&s, &memory);
            s.record().unwrap();
        }
    });
    assert_eq!(calls(chain), [(Call::MemsetD8Async, 10)]);
    // One that is still held gets its event before the stream has more to do.
    let held = made(&rig, || {
        touch(&s, &memory);
        let done = s.record().unwrap();
        touch(&s, &memory);
        t.wait_for(&done).unwrap();
    });
    let one = [
        (Call::StreamWaitEvent, 1),
        (Call::EventCreate, 1),
        (Call::EventRecord, 1),
        (Call::MemsetD8Async, 2),
    ];
    assert_eq!(calls(held), one);
    // Waits are work of the stream, too.
    touch(&s, &memory);
    let first = s.record().unwrap();
    let other = t.record().unwrap();
    let wait = made(&rig, || s.wait_for(&other).unwrap());
    assert_eq!(
        wait.of(Call::EventRecord),
        2,
        "the place before the wait, and what is waited for"
    );
    let order = device.order_counts();
    assert!(order.completions > order.completions_recorded);
    let done = s.record().unwrap();
    memory.reclaim([done]);
    drop((s, t, first, other, device));
    rig.finish();
}

/// Allocations on a stream share the place at its end, whatever they come after.
#[test]
fn allocations_record_nothing_and_end_no_place() {
    let rig = Rig::new(2);
    let device = rig.device();
    let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
    let mut kept = Vec::new();
    let allocated = made(&rig, || {
        for _ in 0..5 {
            kept.push(device.allocate_on(64, &s).unwrap());
        }
    });
    assert_eq!(calls(allocated), [(Call::MemAllocFromPoolAsync, 5)]);
    touch(&s, &kept[0].0);
    let done = s.record().unwrap();
    let after_work = made(&rig, || kept.push(device.allocate_on(64, &s).unwrap()));
    assert_eq!(calls(after_work), [(Call::MemAllocFromPoolAsync, 1)]);
    assert_eq!(kept[5].1.as_ref().unwrap().point(), done.point());
    // Once an event stands for the place, or the host waits for it, it takes nothing more.
    for wait in [false, true] {
        match wait {
            false => t.wait_for(&done).unwrap(),
            true => drop(s.synchronize().unwrap()),
        }
        let (memory, first) = device.allocate_on(64, &s).unwrap();
        let first = first.unwrap();
        assert!(!first.is_known_complete() && first.point() != done.point());
        t.wait_for(&first).unwrap();
        touch(&t, &memory);
        memory.reclaim([t.record().unwrap()]);
    }
    for (memory, first) in kept {
        memory.reclaim([first.unwrap(), s.record().unwrap()]);
    }
    drop((s, t, done, device));
    rig.finish();
}

/// The pool asks the stream itself, so that a stream whose work is long over is found idle at once.
#[test]
fn a_lease_may_end_without_an_event() {
    let rig = Rig::new(1);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    touch(&stream, &memory);
    let ended = made(&rig, || drop(stream));
    assert_eq!(ended.total(), 0);
    rig.sim.run_all();
    let again = made(&rig, || drop(device.streams().try_acquire().unwrap()));
    assert_eq!(calls(again), [(Call::StreamQuery, 1)]);
    memory.reclaim([]);
    drop(device);
    rig.finish();
}

/// What makes an event necessary.
type Need<'a> = &'a dyn Fn(&Completion, &Stream) -> RuntimeResult<()>;

#[test]
fn a_late_record_that_fails_has_waited_instead() {
    for (call, poisons) in [
        (Call::EventCreate, false),
        (Call::EventRecord, false),
        (Call::EventRecord, true),
    ] {
        let rig = Rig::new(2);
        let device = rig.device();
        let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
        let (memory, _) = device.allocate_on(64, &s).unwrap();
        let faults = rig.sim.faults();
        let code = ErrorCode::NOT_PERMITTED;
        // Each of the calls that may make the record.
        let needs: [Need<'_>; 3] = [
            &|done, _| done.wait(),
            &|done, other| other.wait_for(done),
            &|_, _| {
                device
                    .allocate_on(64, &s)
                    .map(|(more, first)| more.reclaim(first))
                    // SAFETY: nothing is queued.
                    .and_then(|()| unsafe { s.enqueue(|_, _| Ok(())) })
            },
        ];
        for need in needs {
            touch(&s, &memory);
            let done = s.record().unwrap();
            faults.fail_nth(call, 1, code);
            if poisons {
                faults.fail_nth(Call::StreamSynchronize, 1, ErrorCode::LAUNCH_FAILED);
            }
            let error = need(&done, &t).unwrap_err();
            if poisons {
                assert_eq!(error.code(), Some(code));
                let error = done.wait().unwrap_err();
                assert_eq!(
                    error.code(),
                    Some(ErrorCode::LAUNCH_FAILED),
                    "the origin of the poison"
                );
                break;
            }
            faults.clear();
            assert_eq!(error.code(), Some(code));
            assert!(done.is_known_complete());
            need(&done, &t).unwrap();
        }
        if poisons {
            continue;
        }
        memory.reclaim([s.record().unwrap()]);
        drop((s, t, device));
        rig.finish();
    }
}

/// Everybody may need the event of a place at once, and the stream may have more to do at that moment.
#[test]
fn an_event_is_recorded_once_whoever_needs_it() {
    for seed in 0..20 {
        let rig = Rig::with(SimDriver::builder().seed(seed), |builder| {
            builder.streams_per_device(4)
        });
        let device = rig.device();
        let streams = device.streams().acquire_many(4).unwrap();
        let (memory, _) = device.allocate_on(64, &streams[0]).unwrap();
        for _ in 0..20 {
            touch(&streams[0], &memory);
            let done = streams[0].record().unwrap();
            let before = device.order_counts();
            std::thread::scope(|scope| {
                for stream in &streams[1..] {
                    let done = done.clone();
                    scope.spawn(move || stream.wait_for(&done).unwrap());
                }
                scope.spawn(|| touch(&streams[0], &memory));
            });
            let made = device.order_counts() - before;
            assert!(made.completions_recorded <= 1, "{made:?}");
            done.wait().unwrap();
        }
        memory.reclaim([streams[0].record().unwrap()]);
        drop((streams, device));
        rig.finish();
    }
}

/// A small generator of numbers: the tests need many, not good ones.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Operations, each with its stream, its length and the earlier ones that it comes after.
fn graph(seed: u64, operations: usize, streams: usize) -> Vec<(usize, u32, Vec<usize>)> {
    let mut dice = Dice(seed);
    (0..operations)
        .map(|at| {
            let before = (0..dice.below(4))
                .filter(|_| at > 0)
                .map(|_| at - 1 - dice.below(at.min(40)));
            let before = before.collect();
            (dice.below(streams), 1 + dice.below(50) as u32, before)
        })
        .collect()
}

/// How long a graph takes with one event for each operation, recorded at once, and one wait for each dependency.
fn exact(graph: &[(usize, u32, Vec<usize>)], streams: usize) -> Duration {
    let (device, sim) = (DeviceId(0), busy::simulation().build());
    let streams: Vec<_> = (0..streams)
        .map(|_| sim.stream_create(device, 0).unwrap())
        .collect();
    let module = sim.module_load(device, &busy::MODULE).unwrap();
    let function = sim.module_function(device, module, "busy").unwrap();
    let mut events = Vec::new();
    for (on, micros, before) in graph {
        for &before in before {
            sim.stream_wait_event(device, streams[*on], events[before])
                .unwrap();
        }
        let (config, args) = busy::launch(*micros);
        // SAFETY: the kernel touches nothing.
        unsafe { sim.launch(device, function, &config, streams[*on], &args) }.unwrap();
        let event = sim.event_create(device, EventFlags::default()).unwrap();
        sim.event_record(device, event, streams[*on]).unwrap();
        events.push(event);
    }
    sim.timeline().spans().map(|span| span.end).max().unwrap()
}

/// No false edges: the time that a random graph takes is that of its exact dependencies, under the same assignment of
/// streams and the same order of submission.
#[test]
fn random_graphs_take_as_long_as_their_exact_dependencies() {
    for seed in 0..12 {
        let graph = graph(seed, 500, 8);
        let rig = Rig::with(busy::simulation(), |builder| builder.streams_per_device(8));
        let device = rig.device();
        let kernel = Busy::on(&device);
        let streams = device.streams().acquire_many(8).unwrap();
        let mut dice = Dice(seed);
        let mut done: Vec<Completion> = Vec::new();
        let mut memory = HashMap::new();
        for (at, (on, micros, before)) in graph.iter().enumerate() {
            let stream = &streams[*on];
            stream
                .wait_for_all(before.iter().map(|&before| &done[before]))
                .unwrap();
            // What a program does besides, and what must not show. Each allocation is larger than those before, so that
            // it gets no memory that it would have to wait for.
            match dice.below(4) {
                0 => drop(memory.insert(at, device.allocate_on(256 * (1 + at), stream).unwrap())),
                1 => {
                    let some = dice.below(at + 1);
                    if graph[some].0 == *on
                        && let Some((some, first)) = memory.remove(&some)
                    {
                        some.reclaim([first.unwrap(), stream.record().unwrap()]);
                    }
                }
                2 => drop(done.get(dice.below(at + 1)).cloned()),
                _ => {}
            }
            kernel.micros(stream, *micros);
            done.push(stream.record().unwrap());
        }
        let makespan = exact(&graph, 8);
        let spans: Vec<_> = rig.sim.timeline().spans().collect();
        let taken = spans.iter().map(|span| span.end).max().unwrap();
        assert_eq!(taken, makespan, "seed {seed}");
        for (_, (some, first)) in memory {
            some.reclaim([first.unwrap()]);
        }
        drop((kernel, done, streams, device));
        rig.finish();
    }
}

/// Frees that wait long hold up no other, whatever they wait for.
#[test]
fn a_free_that_must_wait_long_holds_up_no_other() {
    let rig = Rig::with(SimDriver::builder(), |builder| {
        builder.streams_per_device(8)
    });
    let device = rig.device();
    let streams = device.streams().acquire_many(8).unwrap();
    let (slow, fast) = streams.split_at(6);
    let allocate = || device.allocate(1 << 12).unwrap();
    let mut held = Vec::new();
    for stream in slow {
        let (memory, first) = allocate();
        stream.wait_for(&first.unwrap()).unwrap();
        held.push((stall(&rig.sim, stream, &memory), memory));
    }
    // Each pair of slow streams has a free that waits for both.
    for pair in slow.chunks(2) {
        let (memory, first) = allocate();
        pair.iter()
            .for_each(|stream| stream.wait_for(first.as_ref().unwrap()).unwrap());
        memory.reclaim(pair.iter().map(|stream| stream.record().unwrap()));
    }
    let (memory, first) = allocate();
    let address = memory.address();
    let done = [0, 1].map(|i| {
        fast[i].wait_for(first.as_ref().unwrap()).unwrap();
        fast[i].record().unwrap()
    });
    memory.reclaim(done);
    drop(first);
    rig.sim.run_all();
    let (again, first) = allocate();
    assert_eq!(again.address(), address, "its free is over");
    again.reclaim(first);
    for (stream, (done, memory)) in slow.iter().zip(held) {
        rig.sim.release_stream(raw(stream));
        memory.reclaim([done]);
    }
    drop((streams, device));
    rig.finish();
}
