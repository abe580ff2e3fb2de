//! The epochs under all interleavings of a few threads.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};
use loom::{model::Builder, thread};

use crate::permits::Permits;
use crate::{Async, AsyncError, Cause};

/// Wakes a thread of loom.
struct Bell {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.bell.notify_one();
    }
}

/// Loom's time never runs out: a lost wake-up is a deadlock.
fn block_on<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(Bell {
        rung: Mutex::new(false),
        bell: Condvar::new(),
    });
    let waker = Waker::from(bell.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut rung = bell.rung.lock().unwrap();
        while !*rung {
            rung = bell.bell.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// All interleavings in which threads are stopped, where they could go on, at most this often; all there are took hours.
fn model(stops: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(stops);
    builder.check(test);
}

#[test]
fn loom_readers_get_what_the_writer_before_them_left() {
    model(3, || {
        let value = Async::new(0);
        let (first, between, second, last) =
            (value.write(), value.read(), value.write(), value.read());
        drop(value);
        let writer = thread::spawn(move || block_on(async { first.await.set(1) }));
        let other = thread::spawn(move || {
            block_on(async {
                let mut guard = second.await;
                *guard.get_mut().unwrap() += 1;
                guard.release();
            });
        });
        assert_eq!(*block_on(between).unwrap(), 1);
        assert_eq!(*block_on(last).unwrap(), 2);
        writer.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn loom_a_writer_is_alone_after_two_readers() {
    model(3, || {
        let value = Async::new(1);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let ticket = value.read();
                thread::spawn(move || assert_eq!(*block_on(ticket).unwrap(), 1))
            })
            .collect();
        let mut guard = block_on(value.write());
        *guard.get_mut().unwrap() = 2;
        guard.release();
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(*value.try_read().unwrap(), 2);
    });
}

#[test]
fn loom_a_ticket_given_up_does_not_hold_up_others() {
    model(3, || {
        let value = Async::new(0);
        let (first, given_up, lost, last) =
            (value.write(), value.read(), value.write(), value.read());
        let writer = thread::spawn(move || block_on(async { first.await.set(1) }));
        let quitter = thread::spawn(move || {
            // Polled once, so that it has a waker to lose.
            let mut ticket = pin!(given_up);
            let _ = ticket
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        });
        let other = thread::spawn(move || drop(lost));
        let Err(AsyncError::Failed(failure)) = block_on(last) else {
            panic!("the write before it was given up");
        };
        assert!(matches!(failure.cause(), Cause::Dropped));
        writer.join().unwrap();
        quitter.join().unwrap();
        other.join().unwrap();
        block_on(value.write()).set(3);
        assert_eq!(*value.try_read().unwrap(), 3);
    });
}

#[test]
fn loom_a_failure_is_told_up_to_the_next_write() {
    model(3, || {
        let value = Async::new(0);
        let (first, between, second, last) =
            (value.write(), value.read(), value.write(), value.read());
        // A guard that is dropped without a release.
        let loser = thread::spawn(move || drop(block_on(first)));
        let repairer = thread::spawn(move || {
            let mut guard = block_on(second);
            assert!(matches!(guard.get(), Err(AsyncError::Failed(_))));
            *guard.overwrite().unwrap() = 2;
            guard.release();
        });
        let Err(AsyncError::Failed(failure)) = block_on(between) else {
            panic!("the write before it was lost");
        };
        assert!(matches!(failure.cause(), Cause::Dropped));
        assert_eq!(*block_on(last).unwrap(), 2);
        loser.join().unwrap();
        repairer.join().unwrap();
    });
}

#[test]
fn loom_a_reader_that_releases_early_lets_the_writer_on() {
    model(3, || {
        let (value, done) = (Async::new(1), Async::empty());
        let (early, finish) = (value.read(), done.write());
        let write = value.write();
        let reader = thread::spawn(move || {
            let guard = block_on(early).unwrap();
            let seen = *guard;
            guard.release();
            // Whoever writes the value may have to come before this goes on.
            block_on(finish).set(seen);
        });
        let mut guard = block_on(write);
        *guard.get_mut().unwrap() = 2;
        assert_eq!(*block_on(done.read()).unwrap(), 1);
        guard.release();
        reader.join().unwrap();
        assert_eq!(*value.try_read().unwrap(), 2);
    });
}

#[test]
fn loom_a_ticket_may_change_its_waker() {
    model(3, || {
        let value = Async::new(0);
        let (first, last) = (value.write(), value.read());
        let writer = thread::spawn(move || block_on(async { first.await.set(1) }));
        let mut last = pin!(last);
        let early = last.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if early.is_pending() {
            assert_eq!(*block_on(last.as_mut()).unwrap(), 1);
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_permits_are_handed_on() {
    model(3, || {
        let permits = Permits::new(1);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let permits = permits.clone();
                thread::spawn(move || drop(block_on(permits.take())))
            })
            .collect();
        {
            // One who gives up must pass on what was meant for it.
            let mut quitter = pin!(permits.take());
            let _ = quitter
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(permits.try_take().is_some());
    });
}
