//! Executable graphs: replays in turn on any stream, updates, what they keep alive, and captures that others don't disturb.

use crate::kit::{Rig, raw, touch};
use cuda_driver::{Call, CaptureMode, Driver, ErrorCode, GraphUpdate, Pattern};
use cuda_runtime::{Allocation, Capture, Completion, Graph, RuntimeError, Stream};
use cuda_sim::SimDriver;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

fn fill(stream: &Stream, memory: &Allocation, byte: u8, bytes: usize) {
    let device = stream.device().id();
    // SAFETY: the simulated device checks range and order.
    let call = |driver: &dyn Driver, raw| unsafe {
        driver.fill_async(device, memory.address(), Pattern::U8(byte), bytes, raw)
    };
    // SAFETY: the fill goes to the stream, and the test orders it.
    unsafe { stream.enqueue(call) }.unwrap();
}

fn captured(stream: &Stream, step: impl FnOnce(&Capture)) -> Graph {
    let capture = Capture::begin(stream, CaptureMode::ThreadLocal).unwrap();
    step(&capture);
    capture.end().unwrap().graph
}

fn launch<'c>(
    graph: &Graph,
    stream: &Stream,
    before: impl IntoIterator<Item = &'c Completion>,
) -> Completion {
    // SAFETY: the tests keep the memory, and name its uses.
    unsafe { graph.launch_after(stream, before) }.unwrap()
}

/// So many handles that they can't be counted are refused before anything is launched.
#[test]
fn a_launch_for_too_many_does_nothing() {
    let rig = Rig::new(1);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, first) = device.allocate_on(64, &stream).unwrap();
    let graph = captured(&stream, |_| fill(&stream, &memory, 7, 64));
    let before = device.call_counts();
    for handles in [usize::MAX, usize::MAX - 1, 1 << 48] {
        // SAFETY: nothing is launched.
        let launch = || unsafe { graph.launch_for(handles, &stream, &first) }.map(drop);
        assert!(catch_unwind(AssertUnwindSafe(launch)).is_err(), "{handles}");
    }
    assert_eq!((device.call_counts() - before).total(), 0);
    let done = launch(&graph, &stream, &first);
    drop(graph);
    memory.reclaim([done]);
    drop((stream, first, device));
    rig.finish();
}

/// The driver orders the replays of one graph, so that none waits for an earlier one, nor for what that came after.
#[test]
fn a_replay_does_not_wait_for_the_replays_of_its_own_graph() {
    for seed in 0..30 {
        let rig = Rig::with(SimDriver::builder().seed(seed), |builder| {
            builder.streams_per_device(3)
        });
        let device = rig.device();
        let streams = device.streams().acquire_many(3).unwrap();
        let (memory, first) = device.allocate_on(64, &streams[0]).unwrap();
        let graph = captured(&streams[1], |_| fill(&streams[1], &memory, 7, 64));
        let order = device.order_counts();
        let mut last = launch(&graph, &streams[1], &first);
        for turn in 0..9 {
            last = launch(&graph, &streams[turn % 3], first.iter().chain([&last]));
        }
        assert_eq!(
            (device.order_counts() - order).waits_issued,
            1,
            "that for the allocation"
        );
        // Later work of the streams comes after all replays so far, by itself where the last one ran.
        touch(&streams[2], &memory);
        let used = streams[2].record().unwrap();
        // Other work in between is waited for, once.
        let order = device.order_counts();
        last = launch(&graph, &streams[0], [&used, &last]);
        assert_eq!((device.order_counts() - order).waits_issued, 1);
        touch(&streams[0], &memory);
        memory.reclaim([streams[0].record().unwrap()]);
        drop((last, used, first, graph, streams, device));
        rig.finish();
    }
}

/// Memory that is allocated behind a replay is not there yet where the next replay was launched, though that waited for nothing.
#[test]
fn an_allocation_behind_a_replay_is_no_part_of_it() {
    let rig = Rig::new(2);
    let device = rig.device();
    let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
    let (memory, first) = device.allocate_on(64, &s).unwrap();
    let graph = captured(&s, |_| fill(&s, &memory, 7, 64));
    let one = launch(&graph, &s, &first);
    let two = launch(&graph, &t, [&one]);
    let (new, made) = device.allocate_on(64, &s).unwrap();
    let made = made.unwrap();
    assert_ne!(made.point(), one.point());
    t.wait_for(&made).unwrap();
    touch(&t, &new);
    new.reclaim([t.record().unwrap()]);
    memory.reclaim([two, t.record().unwrap()]);
    drop((one, made, first, graph, s, t, device));
    rig.finish();
}

#[test]
fn a_graph_takes_other_parameters_or_is_made_anew() {
    let rig = Rig::new(2);
    let device = rig.device();
    let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
    let (memory, first) = device.allocate_on(64, &s).unwrap();
    let mut graph = captured(&s, |_| fill(&s, &memory, 1, 64));
    let mut done = launch(&graph, &s, &first);

    // The same work with another byte.
    let before = rig.sim.counters().snapshot();
    let capture = Capture::begin(&t, CaptureMode::ThreadLocal).unwrap();
    fill(&t, &memory, 2, 64);
    assert_eq!(
        capture.end_into(&mut graph).unwrap().update,
        GraphUpdate::Updated
    );
    let made = rig.sim.counters().snapshot() - before;
    assert_eq!(
        (
            made.of(Call::GraphExecUpdate),
            made.of(Call::GraphInstantiate)
        ),
        (1, 0)
    );
    done = launch(&graph, &t, [&done]);
    done.wait().unwrap();
    assert_eq!(read(&rig, &s, &memory, 64), [2; 64]);

    // Other work.
    let capture = Capture::begin(&t, CaptureMode::ThreadLocal).unwrap();
    fill(&t, &memory, 3, 32);
    fill(&t, &memory, 4, 16);
    let (update, ()) = capture.end_into(&mut graph).unwrap().into_parts();
    assert_ne!(update, GraphUpdate::Updated);
    assert_eq!((graph.nodes(), device.alive().graphs), (2, 1));
    // Nothing but events orders the replays of two executable graphs.
    done = launch(&graph, &s, [&done]);
    done.wait().unwrap();
    let bytes = read(&rig, &s, &memory, 64);
    assert_eq!((bytes[0], bytes[16], bytes[32]), (4, 3, 2));

    // A failure leaves it as it was.
    for call in [
        Call::GraphExecUpdate,
        Call::GraphGetNodes,
        Call::StreamEndCapture,
    ] {
        let capture = Capture::begin(&t, CaptureMode::ThreadLocal).unwrap();
        fill(&t, &memory, 9, 32);
        fill(&t, &memory, 9, 16);
        rig.sim.faults().fail_nth(call, 1, ErrorCode::NOT_PERMITTED);
        let error = capture.end_into(&mut graph).map(drop).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::NOT_PERMITTED), "{call}");
        assert!(!t.is_capturing());
    }
    done = launch(&graph, &s, [&done]);
    assert_eq!(read(&rig, &s, &memory, 64)[0], 4);
    memory.reclaim([done]);
    drop((graph, s, t, first, device));
    rig.finish();
}

fn read(rig: &Rig, stream: &Stream, memory: &Allocation, bytes: usize) -> Vec<u8> {
    stream.synchronize().unwrap();
    let mut host = vec![0; bytes];
    let device = stream.device().id();
    // SAFETY: the memory has as many bytes, and all work on it was waited for.
    unsafe {
        cuda_driver::Copies::copy_to_host(
            &rig.sim,
            device,
            host.as_mut_ptr(),
            memory.address(),
            bytes,
        )
    }
    .unwrap();
    host
}

struct Kept(Arc<AtomicBool>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What a graph keeps lives until its last replay is over, also when the graph goes before.
#[test]
fn what_replays_need_outlives_them() {
    for updated in [false, true] {
        let rig = Rig::new(1);
        let device = rig.device();
        let s = device.streams().acquire().unwrap();
        let (memory, first) = device.allocate_on(64, &s).unwrap();
        let gone = Arc::new(AtomicBool::new(false));
        let mut graph = Some(captured(&s, |capture| {
            fill(&s, &memory, 1, 64);
            capture.session().keep(Arc::new(Kept(gone.clone())));
        }));
        assert!(rig.sim.hold_stream(raw(&s)));
        let done = launch(graph.as_ref().unwrap(), &s, &first);
        if updated {
            let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
            fill(&s, &memory, 2, 64);
            drop(capture.end_into(graph.as_mut().unwrap()).unwrap());
        } else {
            graph = None;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(!gone.load(Ordering::Acquire), "the replay needs it");
        rig.sim.release_stream(raw(&s));
        done.wait().unwrap();
        device.drain_frees().unwrap();
        assert!(gone.load(Ordering::Acquire));
        drop(graph);
        memory.reclaim([done]);
        drop((s, first, device));
        rig.finish();
    }
}

/// Graphs, memory, streams, completions and the runtime go in any order.
#[test]
fn every_drop_order_is_safe() {
    for order in 0..120_usize {
        let rig = Rig::new(2);
        let device = rig.device();
        let s = device.streams().acquire().unwrap();
        let (memory, first) = device.allocate_on(64, &s).unwrap();
        let graph = captured(&s, |capture| {
            fill(&s, &memory, 1, 64);
            capture.session().keep(Arc::new(device.clone()));
        });
        let done = launch(&graph, &s, &first);
        let Rig { runtime, sim } = rig;
        drop((device, first));
        let mut parts: Vec<Box<dyn FnOnce()>> = vec![
            Box::new(move || drop(runtime)),
            Box::new(move || drop(s)),
            Box::new({
                let done = done.clone();
                move || memory.reclaim([done])
            }),
            Box::new(move || drop(graph)),
            Box::new(move || drop(done)),
        ];
        let mut rest = order;
        while !parts.is_empty() {
            let at = rest % parts.len();
            rest /= parts.len();
            parts.swap_remove(at)();
        }
        crate::kit::until(|| sim.leak_report().is_empty());
        sim.shutdown();
        sim.assert_no_reports();
    }
}

/// The thread of late frees may give up the last handle of the device: what waits behind that goes all the same, and is not kept for a
/// device that is no more.
#[test]
fn what_waits_when_the_last_handle_goes_is_freed() {
    for (pools, kept_bytes) in [(true, 0), (true, 1024), (false, 1024)] {
        let rig = Rig::with(SimDriver::builder().pools(pools), |builder| {
            builder.streams_per_device(2).host_pool_bytes(kept_bytes)
        });
        let device = rig.device();
        let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
        let (memory, first) = device.allocate_on(64, &s).unwrap();
        let (other, _) = device.allocate_on(64, &t).unwrap();
        let graph = captured(&s, |capture| {
            fill(&s, &memory, 1, 64);
            capture.session().keep(Arc::new(device.clone()));
        });
        let names = [raw(&s), raw(&t)];
        assert!(names.iter().all(|name| rig.sim.hold_stream(*name)));
        let done = launch(&graph, &s, &first);
        fill(&t, &other, 1, 64);
        let later = t.record().unwrap();
        let pinned = device.allocate_pinned(64).unwrap();
        memory.reclaim([done.clone()]);
        other.reclaim([later.clone()]);
        drop(graph);
        // SAFETY: the memory is of this device and size, and nobody uses it later.
        unsafe { device.free_pinned(pinned, 64, [later]) };
        let Rig { runtime, sim } = rig;
        drop((runtime, device, s, t, first, done));
        sim.release_stream(names[0]);
        std::thread::sleep(std::time::Duration::from_millis(2));
        sim.release_stream(names[1]);
        crate::kit::until(|| sim.leak_report().is_empty());
        sim.shutdown();
        sim.assert_no_reports();
    }
}

/// A global capture is invalidated by unsafe calls of any thread; Carve's are not such.
#[test]
fn a_global_capture_is_not_disturbed_by_other_threads() {
    for pools in [true, false] {
        let rig = Rig::with(SimDriver::builder().pools(pools).seed(5), |builder| {
            builder.streams_per_device(4)
        });
        let device = rig.device();
        let s = device.streams().acquire().unwrap();
        let (memory, first) = device.allocate_on(64, &s).unwrap();
        let begun = Barrier::new(2);
        let rounds = AtomicUsize::new(0);
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begun.wait();
                while !end.load(Ordering::Acquire) {
                    let stream = device.streams().acquire().unwrap();
                    let (other, first) = device.allocate_on(64, &stream).unwrap();
                    touch(&stream, &other);
                    let done = stream.record().unwrap();
                    // Waiting instead could meet the very moment at which the capture begins.
                    crate::kit::until(|| done.is_complete().unwrap());
                    other.reclaim(first.into_iter().chain([done.clone()]));
                    let pinned = device.allocate_pinned(64).unwrap();
                    // SAFETY: the memory is of this device and size, and unused.
                    unsafe { device.free_pinned(pinned, 64, [done]) };
                    drop(stream);
                    rounds.fetch_add(1, Ordering::Release);
                }
            });
            begun.wait();
            for _ in 0..20 {
                let capture = Capture::begin(&s, CaptureMode::Global).unwrap();
                let now = rounds.load(Ordering::Acquire);
                for _ in 0..5 {
                    fill(&s, &memory, 1, 64);
                    std::thread::yield_now();
                }
                while rounds.load(Ordering::Acquire) < now + 2 {
                    std::thread::yield_now();
                }
                drop(capture.end().unwrap());
            }
            end.store(true, Ordering::Release);
        });
        memory.reclaim(first.into_iter().chain([s.record().unwrap()]));
        drop((s, device));
        rig.finish();
    }
}

/// Frees that have to wait for a capture's end do; those in the order of a stream never go to one that captures.
#[test]
fn memory_goes_back_while_its_stream_is_captured() {
    for seed in 0..20 {
        let rig = Rig::with(SimDriver::builder().seed(seed), |builder| {
            builder.streams_per_device(2)
        });
        let device = rig.device();
        let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
        let (memory, _) = device.allocate_on(64, &s).unwrap();
        let (other, _) = device.allocate_on(64, &s).unwrap();
        touch(&s, &other);
        let done = s.record().unwrap();
        let capture = Capture::begin(&s, CaptureMode::ThreadLocal).unwrap();
        capture.join(&t).unwrap();
        fill(&t, &memory, 1, 64);
        let before = rig.sim.counters().snapshot();
        other.reclaim([done]);
        let made = rig.sim.counters().snapshot() - before;
        assert_eq!(
            (made.of(Call::MemFreeAsync), made.of(Call::StreamWaitEvent)),
            (1, 1)
        );
        assert!(matches!(
            device.drain_frees(),
            Err(RuntimeError::CaptureActive { .. })
        ));
        // Another thread may drain meanwhile.
        std::thread::scope(|scope| {
            scope
                .spawn(|| device.drain_frees().unwrap())
                .join()
                .unwrap()
        });
        drop(capture.end().unwrap());
        memory.reclaim([s.record().unwrap(), t.record().unwrap()]);
        drop((s, t, device));
        rig.finish();
    }
}

/// The next replay, on another stream, comes after the last one; not after what another thread has queued behind that.
#[test]
fn a_replay_stands_for_nothing_that_is_queued_behind_it() {
    let rig = Rig::new(2);
    let device = rig.device();
    let [s, t] = [(); 2].map(|()| device.streams().acquire().unwrap());
    let (memory, _) = device.allocate_on(64, &s).unwrap();
    let (other, _) = device.allocate_on(64, &s).unwrap();
    t.wait_for(&s.record().unwrap()).unwrap();
    let graph = captured(&s, |_| fill(&s, &memory, 7, 64));
    let turn = Barrier::new(2);
    let turns = 0..600_u32;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in turns.clone() {
                turn.wait();
                launch(&graph, &s, []);
                launch(&graph, &t, []);
                turn.wait();
            }
        });
        for pause in turns.clone() {
            turn.wait();
            // At any moment of the launches.
            (0..50 * (pause % 60)).for_each(|_| std::hint::spin_loop());
            touch(&s, &other);
            let done = s.record().unwrap();
            turn.wait();
            t.wait_for(&done).unwrap();
            touch(&t, &other);
            s.wait_for(&t.record().unwrap()).unwrap();
        }
    });
    let done = [&s, &t].map(|stream| stream.record().unwrap());
    other.reclaim(done.clone());
    memory.reclaim(done);
    drop((graph, s, t, device));
    rig.finish();
}

struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("for the test");
    }
}

/// What a graph keeps may be anything. Its panic ends no thread of the runtime, and others are given up after it.
#[test]
fn a_panic_of_what_a_graph_keeps_holds_up_no_free() {
    let rig = Rig::new(1);
    let device = rig.device();
    let s = device.streams().acquire().unwrap();
    let (memory, first) = device.allocate_on(64, &s).unwrap();
    let gone = Arc::new(AtomicBool::new(false));
    let kept: [Arc<dyn std::any::Any + Send + Sync>; 2] =
        [Arc::new(Panics), Arc::new(Kept(gone.clone()))];
    for kept in kept {
        let graph = captured(&s, |capture| {
            fill(&s, &memory, 1, 64);
            capture.session().keep(kept);
        });
        assert!(rig.sim.hold_stream(raw(&s)));
        launch(&graph, &s, &first);
        drop(graph);
        rig.sim.release_stream(raw(&s));
        s.synchronize().unwrap();
        device.drain_frees().unwrap();
    }
    assert!(gone.load(Ordering::Acquire));
    memory.reclaim([s.record().unwrap()]);
    drop((s, first, device));
    rig.finish();
}
