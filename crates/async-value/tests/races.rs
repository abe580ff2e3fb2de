//! Threads that do all at the same time. Made for ThreadSanitizer, see `cargo xtask sanitize`; what is asserted holds without it.
//!
//! Threads are joined one by one: a sanitizer sees the end of one where it is joined. What they share beside the crate are atomics
//! and references, since locks and counts of the standard library are out of its sight.

#![cfg(not(loom))]

use async_value::{
    Async, AsyncError, Batch, Cause, Limited, Read, SeededExecutor, Spawn, Write, all, compute,
    spawn,
};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::thread;

/// What is written and read: plain memory, all of it the same number.
type Block = Vec<u64>;

fn block(number: u64) -> Block {
    vec![number; 16]
}

fn number(block: &Block) -> u64 {
    let first = block[0];
    assert!(block.iter().all(|&number| number == first), "{block:?}");
    first
}

fn add(block: &mut Block, more: u64) {
    for number in block {
        *number += more;
    }
}

/// Runs `work` on threads of their own, and `beside` again and again on one more until they have ended.
fn together<W: FnOnce() + Send>(work: impl IntoIterator<Item = W>, beside: impl Fn() + Sync) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !done.load(Relaxed) {
                beside();
            }
        });
        let work: Vec<_> = work.into_iter().map(|work| scope.spawn(work)).collect();
        let ended: Vec<_> = work.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Relaxed);
        watch.join().unwrap();
        for thread in ended {
            thread.unwrap();
        }
    });
}

/// Polls a ticket once, so that it has a waker to lose or to change.
fn poll_once<F: Future + Unpin>(ticket: &mut F) -> Poll<F::Output> {
    Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop()))
}

fn is_dropped(error: &AsyncError) -> bool {
    matches!(error, AsyncError::Failed(failure) if matches!(failure.cause(), Cause::Dropped))
}

const ROUNDS: u64 = if cfg!(miri) {
    3
} else if cfg!(carve_tsan) {
    240
} else {
    30
};

/// Tickets in program order, of which each thread has its share.
#[test]
fn epochs_go_from_thread_to_thread() {
    const THREADS: usize = 4;
    enum Access {
        Add(Write<Block>),
        /// The ticket and what it reads.
        Look(Read<Block>, u64),
        /// Releases early, and goes on with the next value.
        HandOn(Read<Block>, Write<Block>, u64),
        GiveUp(Read<Block>),
    }
    for round in 0..ROUNDS {
        let (x, y) = (Async::new(block(0)), Async::new(block(0)));
        let mut shares: [Vec<Access>; THREADS] = Default::default();
        let mut next = round as usize;
        let mut deal = |access| {
            next += 1;
            shares[next % THREADS].push(access);
        };
        let mut expected = 0;
        for step in 0..12 {
            deal(Access::Add(x.write()));
            expected += 1;
            for _ in 0..2 {
                deal(Access::Look(x.read(), expected));
            }
            match step % 3 {
                0 => deal(Access::HandOn(x.read(), y.write(), expected)),
                1 => deal(Access::GiveUp(x.read())),
                _ => {}
            }
        }
        let work = shares.map(|share| {
            || {
                for access in share {
                    match access {
                        Access::Add(ticket) => {
                            let mut guard = ticket.wait().unwrap();
                            add(guard.get_mut().unwrap(), 1);
                            guard.release();
                        }
                        Access::Look(mut ticket, expected) => {
                            let guard = match poll_once(&mut ticket) {
                                Poll::Ready(guard) => guard,
                                Poll::Pending => ticket.wait(),
                            };
                            assert_eq!(number(&guard.unwrap()), expected);
                        }
                        Access::HandOn(read, write, expected) => {
                            let from = read.wait().unwrap();
                            assert_eq!(number(&from), expected);
                            from.release();
                            write.wait().unwrap().set(block(expected));
                        }
                        Access::GiveUp(mut ticket) => drop(poll_once(&mut ticket)),
                    }
                }
            }
        });
        together(work, || assert!(!x.dump().to_string().is_empty()));
        assert_eq!(number(&x.try_read().unwrap()), 12);
        assert_eq!(number(&y.try_read().unwrap()), 10);
    }
}

/// Threads that take their tickets as they like, and lose some.
#[test]
fn threads_take_and_lose_tickets_of_one_value() {
    let value = Async::new(block(0));
    let lost = AtomicUsize::new(0);
    let repair = |mut guard: async_value::WriteGuard<Block>| {
        if guard.get().is_err() {
            lost.fetch_add(1, Relaxed);
            drop(guard.put(block(7)));
        }
        add(guard.get_mut().unwrap(), 1);
        guard.release();
    };
    let work = (0..4_u64).map(|thread| {
        let (value, repair) = (&value, &repair);
        move || {
            for step in 0..ROUNDS * 8 {
                match (step * 7 + thread * 3) % 11 {
                    0..3 => match value.read().wait() {
                        Ok(guard) => drop(number(&guard)),
                        Err(error) => assert!(is_dropped(&error), "{error}"),
                    },
                    3..6 => repair(value.write().wait().unwrap()),
                    6 => drop(value.write()),
                    7 => {
                        // Half done, and given up.
                        let mut guard = value.write().wait().unwrap();
                        if let Some(block) = guard.overwrite() {
                            block[0] += 1;
                        }
                    }
                    8 => drop(poll_once(&mut value.read())),
                    9 => match value.try_read() {
                        Ok(guard) => drop(number(&guard)),
                        Err(AsyncError::Pending { .. }) => {}
                        Err(error) => assert!(is_dropped(&error), "{error}"),
                    },
                    _ => {
                        if let Ok(guard) = value.try_write() {
                            repair(guard);
                        }
                    }
                }
            }
        }
    });
    together(work, || drop(value.dump().to_string()));
    repair(value.try_write().unwrap());
    assert!(lost.into_inner() > 0 || cfg!(miri), "some writes were lost");
    assert!(value.dump().values[0].epochs.is_empty());
}

#[derive(Debug, thiserror::Error)]
#[error("made to fail")]
struct Made;

/// Queues what can happen to tasks, and says what the sum has to be.
fn queue(executor: &(impl Spawn + ?Sized), sum: &Async<Block>) {
    let made = compute(executor, "make", || async { Ok(block(1)) }).unwrap();
    spawn(executor, "add", || {
        let tickets = (made.read(), sum.write());
        async move {
            let (one, mut sum) = all(tickets).await?;
            let one = { number(&one) };
            add(sum.get_mut()?, one);
            sum.release();
            Ok(())
        }
    })
    .unwrap();
    let failed = compute(executor, "fail", || {
        let read = made.read();
        async move {
            read.await?.release();
            Err::<Block, _>(Made.into())
        }
    })
    .unwrap();
    let panicked = compute(executor, "panic", || {
        let read = failed.read();
        async move {
            let failed = read.await;
            assert!(failed.is_err());
            // Without the hook, which prints.
            std::panic::resume_unwind(Box::new("made to panic")) as async_value::TaskResult<Block>
        }
    })
    .unwrap();
    spawn(executor, "told", || {
        let (made, read) = (made.write(), panicked.read());
        async move {
            let Err(AsyncError::Failed(failure)) = read.await else {
                panic!("it panics");
            };
            assert!(matches!(failure.cause(), Cause::Panic(_)), "{failure}");
            made.await.fail(failure);
            Ok(())
        }
    })
    .unwrap();
}

/// Threads that queue operations while others run them.
#[test]
fn an_executor_is_shared_by_threads() {
    for seed in 0..ROUNDS / 3 {
        let executor = SeededExecutor::new(seed);
        let sum = Async::new(block(0));
        let queued = AtomicUsize::new(0);
        let queues = |times: u64| {
            let (executor, sum, queued) = (&executor, &sum, &queued);
            move || {
                for _ in 0..times {
                    queue(executor, sum);
                }
                queued.fetch_add(1, Relaxed);
            }
        };
        let runs = || {
            let (executor, queued) = (&executor, &queued);
            move || {
                while queued.load(Relaxed) < 2 || !executor.is_empty() {
                    executor.step();
                }
            }
        };
        let waits = || {
            let (executor, sum) = (&executor, &sum);
            move || {
                // It parks whenever nothing can go on.
                let read = sum.read();
                let seen = executor.run_until(async move { number(&read.await.unwrap()) });
                assert!(seen.unwrap() <= 8);
            }
        };
        let work: [Box<dyn FnOnce() + Send>; 6] = [
            Box::new(queues(5)),
            Box::new(queues(3)),
            Box::new(runs()),
            Box::new(runs()),
            Box::new(waits()),
            Box::new(waits()),
        ];
        together(work, || drop(executor.dump().to_string()));
        assert_eq!(number(&sum.try_read().unwrap()), 8);
    }
}

/// Tasks are dropped where they wait, by a thread that does not run them.
#[test]
fn tasks_are_cancelled_while_others_run() {
    for seed in 0..ROUNDS {
        let executor = SeededExecutor::new(seed);
        let value = Async::new(block(0));
        let gate = value.write();
        for _ in 0..10 {
            spawn(&executor, "add", || {
                let (read, write) = (value.read(), value.write());
                async move {
                    let before = number(&*read.await?);
                    let mut guard = write.await;
                    assert_eq!(number(guard.get()?), before);
                    add(guard.get_mut()?, 1);
                    guard.release();
                    Ok(())
                }
            })
            .unwrap();
        }
        let last = value.read();
        let opens = || {
            let mut guard = gate.wait().unwrap();
            add(guard.get_mut().unwrap(), 1);
            guard.release();
        };
        let cancels = || {
            for task in executor.tasks().into_iter().step_by(3) {
                executor.abort(task);
            }
        };
        let runs = || {
            while !executor.is_empty() {
                executor.step();
            }
        };
        let waits = || match last.wait() {
            Ok(guard) => assert!(number(&guard) <= 11),
            Err(AsyncError::Failed(failure)) => {
                assert!(matches!(failure.cause(), Cause::Cancelled))
            }
            Err(error) => panic!("{error}"),
        };
        let work: [Box<dyn FnOnce() + Send>; 5] = [
            Box::new(opens),
            Box::new(cancels),
            Box::new(runs),
            Box::new(runs),
            Box::new(waits),
        ];
        together(work, || drop(value.dump().to_string()));
        value.try_write().unwrap().set(block(0));
    }
}

/// Places under a limit go from thread to thread, and a batch is filled while it is polled.
#[test]
fn places_and_batches_are_shared_by_threads() {
    let executor = SeededExecutor::new(1);
    let limited = Limited::new(executor.clone(), 2);
    let (batch, value) = (Batch::new(), Async::new(block(0)));
    let left = AtomicUsize::new(3);
    let increment = |on: &dyn Spawn| {
        let write = || {
            let write = value.write();
            async move {
                let mut guard = write.await;
                add(guard.get_mut()?, 1);
                guard.release();
                Ok(())
            }
        };
        spawn(on, "add", write)
    };
    let (batch, increment) = (&batch, &increment);
    let work = (0..3).map(|_| {
        let (limited, executor, left) = (&limited, &executor, &left);
        move || {
            for step in 0..ROUNDS {
                if step % 4 == 0 {
                    increment(batch).unwrap();
                    continue;
                }
                let queued = executor.run_until(async {
                    // A place that is asked for and given up.
                    drop(poll_once(&mut Box::pin(limited.place())));
                    increment(&limited.place().await)
                });
                queued.unwrap().unwrap();
            }
            left.fetch_sub(1, Relaxed);
            while left.load(Relaxed) > 0 || !executor.is_empty() || !batch.is_empty() {
                executor.step();
                thread::yield_now();
            }
        }
    });
    together(work, || assert!(batch.poll_each().is_ok()));
    assert_eq!(number(&value.try_read().unwrap()), 3 * ROUNDS);
}

/// What the sanitizer has to find: guards of two readers, who both write. Run by the test below, in a process of its own.
#[test]
#[ignore = "a race on purpose"]
fn planted_race() {
    struct Racy(std::cell::UnsafeCell<u64>);
    // SAFETY: There is none: this is what a sanitizer is asked to report.
    unsafe impl Sync for Racy {}

    // More than once: accesses at the very same time may miss each other in the sanitizer.
    for _ in 0..20 {
        let value = Async::new(Racy(std::cell::UnsafeCell::new(0)));
        let holding = AtomicUsize::new(0);
        let work = [value.read(), value.read()].map(|ticket| {
            || {
                let guard = ticket.wait().unwrap();
                holding.fetch_add(1, Relaxed);
                while holding.load(Relaxed) < 2 {
                    thread::yield_now();
                }
                for _ in 0..10 {
                    // SAFETY: As above.
                    unsafe { *guard.0.get() += 1 };
                    thread::yield_now();
                }
            }
        });
        together(work, || {});
    }
}

/// A run under ThreadSanitizer is worth what it can find.
#[cfg(carve_tsan)]
#[test]
fn a_planted_race_is_reported() {
    let itself = std::env::current_exe().unwrap();
    let arguments = ["--ignored", "--exact", "planted_race", "--nocapture"];
    let run = std::process::Command::new(itself).args(arguments).output();
    let run = run.unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success(), "{told}");
    assert!(
        told.contains("WARNING: ThreadSanitizer: data race"),
        "{told}"
    );
    assert!(told.contains("races::planted_race"), "{told}");
}
