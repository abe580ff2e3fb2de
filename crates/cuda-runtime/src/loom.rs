//! The state machines of streams under all interleavings of two or three threads.
//!
//! What runs is the crate's own code over a simulated device, whose checkers say whether the order that results is enough. Each
//! model is run again with a fault in the code that it is there for, and has to find it.

use crate::completion::Completion;
use crate::core::DeviceCore;
use crate::counted::Sole;
use crate::homed::Homed;
use crate::latch::Latch;
use crate::policy::Behaviour;
use crate::pool::Pool;
use crate::primitive::Fault;
use crate::primitive::modelled::{BUSY, FAULT};
use crate::runtime::Runtime;
use crate::slot::Slot;
use crate::standing::Standing;
use crate::stream::Lease;
use cuda_driver::{
    Call, Capture, CaptureMode, DeviceId, DevicePtr, Devices, Driver, Graphs, Memory, Pattern,
};
use cuda_sim::{Schedule, SimDriver};
use loom::cell::UnsafeCell;
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

const DEVICE: DeviceId = DeviceId(0);

/// Runs a model as the code is, then with each fault, which it has to find; each time with locks that are free to who asks for them
/// without waiting, and with ones that are not.
fn check(faults: &[Fault], model: fn()) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let run = || {
        for busy in [false, true] {
            BUSY.store(busy, Ordering::Relaxed);
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(model);
        }
    };
    run();
    for &fault in faults {
        *FAULT.lock().unwrap() = Some(fault);
        let found = catch_unwind(AssertUnwindSafe(run)).is_err();
        *FAULT.lock().unwrap() = None;
        assert!(found, "the model does not find {fault:?}");
    }
}

/// A device with some streams and one allocation.
struct Rig {
    sim: SimDriver,
    core: Arc<DeviceCore>,
    slots: Vec<Arc<Slot>>,
    memory: DevicePtr,
}

impl Rig {
    fn new(streams: usize) -> Arc<Self> {
        let sim = SimDriver::builder().schedule(Schedule::Eager).build();
        let properties = sim.device_properties(DEVICE).unwrap();
        let core = DeviceCore::new(sim.as_driver(), DEVICE, properties, Behaviour::default(), 0);
        let slots = (0..streams).map(|_| Slot::new(&core, 0).unwrap()).collect();
        let memory = sim.mem_alloc(DEVICE, 64).unwrap();
        Arc::new(Self {
            sim,
            core,
            slots,
            memory,
        })
    }

    fn fill(&self, slot: usize) {
        let call = |driver: &dyn Driver, raw| {
            // SAFETY: the simulated device checks range and order.
            unsafe { driver.fill_async(DEVICE, self.memory, Pattern::U8(1), 64, raw) }
        };
        self.slots[slot].enqueue(call).unwrap();
    }

    fn nothing(&self, slot: usize) {
        self.slots[slot].enqueue(|_, _| Ok(())).unwrap();
    }

    fn records(&self) -> u64 {
        self.sim.counters().snapshot().of(Call::EventRecord)
    }

    /// Nothing was wrong, and every event comes back, once.
    fn finish(self: Arc<Self>) {
        self.slots.iter().for_each(|slot| slot.destroy());
        let created = self.sim.counters().snapshot().of(Call::EventCreate);
        self.core.close_events();
        let destroyed = self.sim.counters().snapshot().of(Call::EventDestroy);
        assert_eq!(created, destroyed);
        self.sim.assert_no_reports();
    }
}

/// Two others need the event of a place while its stream gets more to do: it is recorded once, before that.
#[test]
fn loom_a_late_event_is_recorded_once_and_stands_for_its_place() {
    check(&[Fault::WeakRecord, Fault::Unsettled], || {
        let rig = Rig::new(3);
        rig.fill(0);
        let done = rig.slots[0].record().unwrap();
        let waiter = thread::spawn({
            let (rig, done) = (rig.clone(), done.clone());
            move || rig.slots[1].wait_for(&done).unwrap()
        });
        let worker = thread::spawn({
            let rig = rig.clone();
            move || {
                let recorded = |_: &dyn Driver, _| {
                    assert_eq!(rig.records(), 1, "before more is queued");
                    Ok(())
                };
                rig.slots[0].enqueue(recorded).unwrap();
            }
        });
        rig.slots[2].wait_for(&done).unwrap();
        waiter.join().unwrap();
        worker.join().unwrap();
        assert_eq!(rig.records(), 1);
        rig.fill(2);
        drop(done);
        rig.finish();
    });
}

/// Another stream comes after a replay by itself, and waits for what another thread has queued behind that.
#[test]
fn loom_a_replay_stands_for_nothing_that_is_queued_behind_it() {
    check(&[Fault::OpenReplay], || {
        let rig = Rig::new(2);
        let (sim, raw) = (&rig.sim, rig.slots[0].raw);
        sim.capture_begin(DEVICE, raw, CaptureMode::Relaxed)
            .unwrap();
        let graph = sim.capture_end(DEVICE, raw).unwrap();
        let exec = sim.graph_instantiate(DEVICE, graph).unwrap();
        let worker = thread::spawn({
            let rig = rig.clone();
            move || {
                rig.fill(0);
                rig.slots[0].record().unwrap()
            }
        });
        // SAFETY: the graph touches nothing.
        let launch = |driver: &dyn Driver, raw| unsafe { driver.graph_launch(DEVICE, exec, raw) };
        let first = rig.slots[0].replay(None, 0, 1, launch).unwrap().take();
        rig.slots[1].replay(Some(&first), 0, 1, launch).unwrap();
        let done = worker.join().unwrap();
        rig.slots[1].wait_for(&done).unwrap();
        rig.fill(1);
        drop((first, done));
        rig.finish();
    });
}

/// Who sees a completion whose stream has waited for something is ordered after that, or waits for it: a clock never runs ahead of
/// its wait.
#[test]
fn loom_what_a_clock_says_was_waited_for_was() {
    check(&[Fault::EarlyClock], || {
        let rig = Rig::new(3);
        rig.fill(0);
        let first = rig.slots[0].record().unwrap();
        let between = thread::spawn({
            let (rig, first) = (rig.clone(), first.clone());
            move || rig.slots[1].wait_for(&first).unwrap()
        });
        let seen = rig.slots[1].record().unwrap();
        seen.ensure_event().unwrap();
        rig.slots[2].wait_for(&seen).unwrap();
        let mut standing = Standing::of(&rig.slots[2]).unwrap();
        let covered = !standing.needs(&first).unwrap();
        drop(standing);
        if covered {
            rig.fill(2);
        }
        between.join().unwrap();
        drop((first, seen));
        rig.finish();
    });
}

/// Tokens of one place drop on several threads while its stream makes another: nodes and events come back once, and none is
/// used again while somebody refers to it.
#[test]
fn loom_nodes_and_events_are_recycled_once() {
    check(&[Fault::CountedAlone], || {
        let rig = Rig::new(2);
        rig.nothing(0);
        let done = rig.slots[0].record().unwrap();
        let point = done.point();
        done.ensure_event().unwrap();
        let other = thread::spawn({
            let done = done.clone();
            move || {
                assert_eq!(done.point(), point);
                drop(done);
            }
        });
        let more = thread::spawn({
            let rig = rig.clone();
            move || {
                for _ in 0..2 {
                    rig.nothing(0);
                    drop(rig.slots[0].record().unwrap());
                }
            }
        });
        assert_eq!(done.point(), point);
        drop(done);
        other.join().unwrap();
        more.join().unwrap();
        rig.finish();
    });
}

struct Unpark(Mutex<thread::Thread>);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().unpark();
    }
}

fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(Mutex::new(thread::current()))))
}

/// Waits for a stream as a thread or a task does.
fn lease(pool: &Pool) -> Sole<Lease> {
    let (mut ticket, waker) = (None, waker());
    loop {
        if let Some(mut leases) = pool.poll_take(&mut ticket, 1, &waker).unwrap() {
            return leases.pop().unwrap();
        }
        thread::park();
    }
}

fn end(rig: Arc<Rig>, pool: Arc<Pool>) {
    pool.destroy();
    rig.core.notifier.close();
    drop(pool);
    rig.finish();
}

/// A stream goes to whoever waits for it, however the end of the lease and the wait meet.
#[test]
fn loom_a_stream_that_comes_back_wakes_who_waits() {
    check(&[Fault::SilentReturn], || {
        let rig = Rig::new(0);
        let pool = Pool::new(&rig.core, 0, 0, 1).unwrap();
        let held = pool.take(1).unwrap().pop().unwrap();
        let waiter = thread::spawn({
            let pool = pool.clone();
            move || {
                let lease = lease(&pool);
                pool.give_back(lease);
            }
        });
        pool.give_back(held);
        waiter.join().unwrap();
        let counts = pool.counts();
        assert_eq!((counts.idle, counts.leased), (1, 0));
        end(rig, pool);
    });
}

/// Who gives up waiting leaves no trace: the next in the queue is woken in its place.
#[test]
fn loom_a_dropped_waiter_keeps_nobody_waiting() {
    check(&[Fault::SilentLeave], || {
        let rig = Rig::new(0);
        let pool = Pool::new(&rig.core, 0, 0, 1).unwrap();
        let held = pool.take(1).unwrap().pop().unwrap();
        // First in the queue, and never looks again.
        let mut ticket = None;
        assert!(
            pool.poll_take(&mut ticket, 1, Waker::noop())
                .unwrap()
                .is_none()
        );
        let second = thread::spawn({
            let pool = pool.clone();
            move || {
                let lease = lease(&pool);
                pool.give_back(lease);
            }
        });
        let leaver = thread::spawn({
            let pool = pool.clone();
            move || pool.leave(ticket.unwrap())
        });
        pool.give_back(held);
        leaver.join().unwrap();
        second.join().unwrap();
        assert_eq!(pool.counts().idle, 1);
        end(rig, pool);
    });
}

/// The poll of a completion and the enqueue of more meet: the answer is about the place alone.
#[test]
fn loom_a_place_is_asked_about_while_its_stream_goes_on() {
    check(&[], || {
        let rig = Rig::new(1);
        rig.nothing(0);
        let done: Completion = rig.slots[0].record().unwrap();
        let more = thread::spawn({
            let rig = rig.clone();
            move || {
                rig.nothing(0);
                rig.slots[0].record().unwrap()
            }
        });
        assert!(done.is_complete_in_cleanup().unwrap());
        let next = more.join().unwrap();
        assert!(done.is_known_complete());
        drop((done, next));
        rig.finish();
    });
}

/// Memory ends on one thread while the lease of its stream ends on another: the last of them ends the device.
#[test]
fn loom_memory_ends_with_the_lease_of_its_stream() {
    check(&[Fault::OpenStock], || {
        let sim = SimDriver::builder().schedule(Schedule::Eager).build();
        let runtime = Runtime::builder()
            .driver(sim.as_driver())
            .streams_per_device(1)
            .build()
            .unwrap();
        let device = runtime.default_device();
        let stream = device.streams().acquire().unwrap();
        let (memory, first_use) = device.allocate_on(64, &stream).unwrap();
        drop(runtime);
        let other = thread::spawn(move || drop(stream));
        memory.reclaim(first_use);
        other.join().unwrap();
        assert!(sim.leak_report().is_empty(), "the device is gone");
        sim.shutdown();
        sim.assert_no_reports();
    });
}

/// A latch lets in one at a time, who sees what the one before did, also when it is handed on.
#[test]
fn loom_a_latch_lets_in_one_at_a_time() {
    check(&[Fault::WeakLatch], || {
        let latch = Arc::new(Latch::new(UnsafeCell::new(0)));
        let add = |latch: &Latch<UnsafeCell<u32>>| {
            let value = latch.lock();
            // SAFETY: the latch is held; loom reports it if somebody else is in.
            value.with_mut(|value| unsafe { *value += 1 });
        };
        let others = [(); 2].map(|()| {
            let latch = latch.clone();
            thread::spawn(move || add(&latch))
        });
        add(&latch);
        others.into_iter().for_each(|other| other.join().unwrap());
        // SAFETY: as above.
        let sum = latch.lock().with(|value| unsafe { *value });
        assert_eq!(sum, 3);
    });
}

/// Two streams use a value, and somebody comes to it from elsewhere: one at a time, who sees what the others did, also while the
/// value settles on a stream and leaves it.
#[test]
fn loom_a_value_lets_in_one_at_a_time_wherever_it_is_at_home() {
    fn add(value: &UnsafeCell<u32>) {
        // SAFETY: the value is guarded; loom reports it if somebody else is in.
        value.with_mut(|value| unsafe { *value += 1 });
    }
    fn use_on(slot: &Arc<Slot>, value: &Homed<UnsafeCell<u32>>) {
        loop {
            value.expect_visit(slot.id);
            let mut standing = Standing::of(slot).unwrap();
            if let Some((value, _)) = standing.at_home(value) {
                return add(value);
            }
            if let Some(visited) = standing.visit(value) {
                add(&visited);
                return standing.settle(visited, true);
            }
        }
    }
    check(&[Fault::UnlockedLeave, Fault::BlindVisit], || {
        let rig = Rig::new(2);
        let value = Arc::new(Homed::new(UnsafeCell::new(0)));
        use_on(&rig.slots[0], &value);
        let other = thread::spawn({
            let (rig, value) = (rig.clone(), value.clone());
            move || use_on(&rig.slots[1], &value)
        });
        let third = thread::spawn({
            let value = value.clone();
            move || add(&value.lock())
        });
        use_on(&rig.slots[0], &value);
        use_on(&rig.slots[0], &value);
        other.join().unwrap();
        third.join().unwrap();
        // SAFETY: as above.
        let sum = value.lock().with(|value| unsafe { *value });
        assert_eq!(sum, 5);
        drop(value);
        rig.finish();
    });
}

/// A stream waits for another one's place while that stream gets more to do, and whether or not its lock is free: the event
/// is recorded before that, and two that wait for each other come to an end. (If one waited for the other's lock, loom would
/// abort here.)
#[test]
fn loom_streams_that_wait_for_each_other_do() {
    check(&[], || {
        let rig = Rig::new(2);
        rig.fill(0);
        let done = rig.slots[0].record().unwrap();
        rig.nothing(1);
        let back = rig.slots[1].record().unwrap();
        let other = thread::spawn({
            let rig = rig.clone();
            move || {
                rig.slots[0].wait_for(&back).unwrap();
                rig.nothing(0);
            }
        });
        rig.slots[1].wait_for(&done).unwrap();
        rig.fill(1);
        other.join().unwrap();
        drop(done);
        rig.finish();
    });
}
