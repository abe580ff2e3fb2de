//! Waiting in every form: awaited, with a limit, for one of several; for completions and for streams.

use crate::kit::{Rig, raw};
use cuda_driver::{DeviceId, Pattern, RawStream};
use cuda_runtime::{Allocation, Completion, Device, RuntimeError, Stream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

struct Unpark(Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unpark();
    }
}

fn unpark() -> Arc<Unpark> {
    Arc::new(Unpark(std::thread::current(), AtomicUsize::new(0)))
}

/// The simplest executor there is.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(unpark());
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

struct Held {
    rig: Rig,
    device: Device,
    memory: Allocation,
}

impl Held {
    fn new(streams: usize) -> Self {
        let rig = Rig::new(streams);
        let device = rig.device();
        let (memory, allocated) = device.allocate(64).unwrap();
        allocated.unwrap().wait().unwrap();
        Self {
            rig,
            device,
            memory,
        }
    }

    /// A stream that stands still, and a completion on it.
    fn stuck(&self) -> (Stream, RawStream, Completion) {
        let stream = self.device.streams().acquire().unwrap();
        let raw = self.hold(&stream);
        let done = self.work(&stream);
        (stream, raw, done)
    }

    fn hold(&self, stream: &Stream) -> RawStream {
        let raw = raw(stream);
        assert!(self.rig.sim.hold_stream(raw));
        raw
    }

    fn work(&self, stream: &Stream) -> Completion {
        let address = self.memory.address();
        let fill = |driver: &dyn cuda_driver::Driver, raw| {
            // SAFETY: the memory is alive to the end of the test; the tests order its uses, or use one stream.
            unsafe { driver.fill_async(DeviceId(0), address, Pattern::U8(1), 64, raw) }
        };
        // SAFETY: `fill` queues that fill.
        unsafe { stream.enqueue(fill) }.unwrap();
        stream.record().unwrap()
    }

    fn release_later(&self, raw: RawStream) {
        let sim = self.rig.sim.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            sim.release_stream(raw);
        });
    }

    fn finish(self, outstanding: impl IntoIterator<Item = Completion>) {
        let Self {
            rig,
            device,
            memory,
        } = self;
        memory.reclaim(outstanding);
        drop(device);
        rig.finish();
    }
}

#[test]
fn a_completion_is_awaited() {
    let held = Held::new(1);
    let (stream, raw, done) = held.stuck();
    held.release_later(raw);
    block_on(async { (&done).await }).unwrap();
    assert!(done.is_known_complete());
    block_on(done.clone().into_future()).unwrap();
    drop(stream);
    held.finish([done]);
}

#[test]
fn a_dropped_future_leaves_no_trace() {
    let held = Held::new(1);
    let (stream, raw, done) = held.stuck();
    let counting = unpark();
    let waker = Waker::from(counting.clone());
    {
        let mut future = pin!(done.clone().into_future());
        let mut context = Context::from_waker(&waker);
        assert!(future.as_mut().poll(&mut context).is_pending());
        // A second poll replaces the first watch.
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    held.rig.sim.release_stream(raw);
    done.wait().unwrap();
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(counting.1.load(Ordering::Relaxed), 0);
    drop(waker);
    assert_eq!(Arc::strong_count(&counting), 1, "no watch holds the waker");
    drop(stream);
    held.finish([done]);
}

#[test]
fn waits_have_limits_and_end_with_the_first_of_several() {
    let held = Held::new(2);
    let (one, raw_one, first) = held.stuck();
    let two = held.device.streams().acquire().unwrap();
    let raw_two = held.hold(&two);
    let second = two.record().unwrap();
    assert!(!first.wait_within(Duration::from_millis(5)).unwrap());
    assert!(!first.wait_within(Duration::ZERO).unwrap());
    held.release_later(raw_two);
    assert_eq!(Completion::wait_any([&first, &second]).unwrap(), 1);
    held.release_later(raw_one);
    assert!(first.wait_within(Duration::from_secs(60)).unwrap());
    assert_eq!(Completion::wait_any([&first, &second]).unwrap(), 0);
    assert_eq!(
        Completion::wait_any([]),
        Err(RuntimeError::NothingToWaitFor)
    );
    drop((one, two));
    held.finish([first, second]);
}

#[test]
fn a_stream_is_awaited_and_given_in_the_order_of_the_queue() {
    let held = Held::new(1);
    let (stream, raw, done) = held.stuck();
    let streams = held.device.streams();
    let (mut first, mut second) = (streams.acquire_async(), streams.acquire_async());
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut second).is_pending());
    drop(stream);
    held.rig.sim.release_stream(raw);
    done.wait().unwrap();
    // The stream is idle now, but nobody is overtaken.
    assert!(poll_once(&mut second).is_pending());
    let empty = streams.try_acquire().unwrap_err();
    assert!(matches!(empty, RuntimeError::PoolEmpty { .. }), "{empty}");
    let got = block_on(first).unwrap();
    assert!(poll_once(&mut second).is_pending());
    drop(got);
    drop(block_on(second).unwrap());
    held.finish([done]);
}

#[test]
fn a_dropped_waiter_makes_room_for_the_next() {
    let held = Held::new(1);
    let (stream, raw, done) = held.stuck();
    let streams = held.device.streams();
    let mut first = streams.acquire_async();
    assert!(poll_once(&mut first).is_pending());
    held.release_later(raw);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| block_on(streams.acquire_async()));
        std::thread::sleep(Duration::from_millis(5));
        drop(stream);
        drop(first);
        drop(second.join().unwrap().unwrap());
    });
    drop(streams.try_acquire().unwrap());
    held.finish([done]);
}

#[test]
fn a_lease_is_waited_for_no_longer_than_asked() {
    let held = Held::new(1);
    let (stream, raw, done) = held.stuck();
    let streams = held.device.streams();
    let error = streams
        .acquire_within(Duration::from_millis(5))
        .unwrap_err();
    assert!(
        matches!(
            error,
            RuntimeError::PoolEmpty {
                leased: 1,
                size: 1,
                ..
            }
        ),
        "{error}"
    );
    drop(stream);
    held.release_later(raw);
    let stream = streams.acquire_within(Duration::from_secs(60)).unwrap();
    assert!(streams.acquire_within(Duration::ZERO).is_err());
    drop(stream);
    held.finish([done]);
}

#[test]
fn several_streams_are_leased_all_at_once() {
    let held = Held::new(3);
    let (stream, raw, done) = held.stuck();
    let streams = held.device.streams();
    assert!(streams.try_acquire_many(3).is_err());
    assert_eq!(streams.counts().leased, 1, "none is kept by a failed try");
    held.release_later(raw);
    std::thread::scope(|scope| {
        let many = scope.spawn(|| streams.acquire_many(3).unwrap().len());
        std::thread::sleep(Duration::from_millis(5));
        // One alone would be there, but who came first is served first.
        assert!(streams.try_acquire().is_err());
        drop(stream);
        assert_eq!(many.join().unwrap(), 3);
    });
    assert_eq!(
        block_on(streams.acquire_many_async(2).unwrap())
            .unwrap()
            .len(),
        2
    );
    let error = streams.acquire_many_async(4).map(drop).unwrap_err();
    assert!(
        matches!(
            error,
            RuntimeError::PoolTooSmall {
                wanted: 4,
                size: 3,
                ..
            }
        ),
        "{error}"
    );
    held.finish([done]);
}

#[test]
fn whoever_waits_hears_of_a_poisoned_device() {
    let held = Held::new(1);
    let (stream, raw, done) = held.stuck();
    let device = held.device.clone();
    let poison = cuda_driver::CudaError::new(
        cuda_driver::ErrorCode::ILLEGAL_ADDRESS,
        cuda_driver::Call::LaunchKernel,
        Some(DeviceId(0)),
    );
    std::thread::scope(|scope| {
        let leased = scope.spawn(|| block_on(device.streams().acquire_async()));
        let awaited = scope.spawn(|| block_on((&done).into_future()));
        std::thread::sleep(Duration::from_millis(5));
        device.poison(poison);
        let heard = [leased.join().unwrap().map(drop), awaited.join().unwrap()];
        for result in heard {
            let error = result.unwrap_err();
            assert!(matches!(error, RuntimeError::Poisoned { .. }), "{error}");
        }
    });
    held.rig.sim.release_stream(raw);
    drop(stream);
}

#[test]
fn the_last_handle_may_go_with_a_waker() {
    struct Last(std::sync::Mutex<Option<Device>>, Thread);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            self.1.unpark();
        }
    }
    let held = Held::new(1);
    let (stream, raw, done) = held.stuck();
    let Held {
        rig,
        device,
        memory,
    } = held;
    let Rig { runtime, sim, .. } = rig;
    let last = Arc::new(Last(
        std::sync::Mutex::new(Some(device.clone())),
        std::thread::current(),
    ));
    let waker = Waker::from(last.clone());
    let mut future = Box::pin(done.into_future());
    assert!(
        future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(stream);
    memory.reclaim([]);
    drop((device, runtime));
    sim.release_stream(raw);
    // The notifier drops the last handle of the device while it wakes: it must not wait for itself.
    while last.0.lock().unwrap().is_some() {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
