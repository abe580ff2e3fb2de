//! Waiting, not waiting, and waiting for ever.

#![cfg(not(loom))]

use async_value::{Async, AsyncError, Limited, SeededExecutor, all, compute, spawn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn accesses_now_say_who_comes_first() {
    let a = Async::new(1).named("a");
    let read = a.try_read().unwrap();
    let other = a.try_read().unwrap();
    assert!(matches!(
        a.try_write(),
        Err(AsyncError::Pending { value: "a", .. })
    ));
    let line = line!() + 1;
    let write = a.write();
    // Behind a write that waits; but those that read have their turn.
    let Err(AsyncError::Pending { site, .. }) = a.try_read() else {
        panic!()
    };
    assert!(site.line() < line, "the reads come first");
    drop((read, other));
    let Err(AsyncError::Pending {
        site,
        operation: None,
        ..
    }) = a.try_read()
    else {
        panic!()
    };
    assert_eq!(site.line(), line);
    drop(write);
    a.try_write().unwrap().set(2);
    assert_eq!(*a.wait().unwrap(), 2);
}

#[test]
fn a_thread_waits_for_what_another_one_writes() {
    let a = Async::empty();
    let write = a.write();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        write.wait().unwrap().set(1);
    });
    assert_eq!(*a.wait().unwrap(), 1);
    thread.join().unwrap();
}

#[test]
fn a_task_may_not_block() {
    let executor = SeededExecutor::new(0);
    let a = Arc::new(Async::new(1));
    let inner = a.clone();
    let refused = compute(&executor, "blocks", || async move {
        // Nor while it prepares another one.
        let nested = SeededExecutor::new(0);
        let other = inner.clone();
        let mut inside = None;
        spawn(&nested, "nested", || {
            inside = Some(other.wait().is_err());
            async { Ok(()) }
        })?;
        assert!(matches!(
            nested.run_until(async {}),
            Err(AsyncError::InsideTask { .. })
        ));
        assert_eq!(inside, Some(true));
        inner.write().wait().map(drop)?;
        Ok(())
    })
    .unwrap();
    executor.run().unwrap();
    let Err(AsyncError::Failed(failure)) = refused.try_read() else {
        panic!()
    };
    assert!(matches!(
        failure.error(),
        Some(AsyncError::InsideTask {
            operation: "blocks",
            ..
        })
    ));
    let text = failure.to_string();
    assert!(text.contains("await the ticket instead"), "{text}");
}

/// With the feature `futures` it is known where an executor of that crate runs.
#[test]
fn an_executor_of_futures_may_not_be_blocked() {
    let a = Async::new(1);
    let inside = || {
        let (read, write) = (a.wait().map(drop), a.write().wait().map(drop));
        let run = SeededExecutor::new(0).run_until(async {});
        [read, write, run]
    };
    let all_refused = |results: [Result<(), AsyncError>; 3]| {
        let refused = |result| matches!(result, Err(AsyncError::InsideExecutor));
        results.into_iter().all(refused)
    };
    assert!(all_refused(futures::executor::block_on(async { inside() })));
    let mut pool = futures::executor::LocalPool::new();
    assert!(all_refused(pool.run_until(async { inside() })));
    // The write that was refused is given up, and the next one finds the value usable.
    a.try_write().unwrap().set(2);
    assert_eq!(*a.wait().unwrap(), 2);
}

/// Two operations that take their tickets in turn, as two threads might.
fn circle(executor: &SeededExecutor) -> (Async<i32>, Async<i32>) {
    let (a, b) = (Async::new(1).named("a"), Async::new(2).named("b"));
    let mut late = None;
    spawn(executor, "first", || {
        let write = a.write();
        spawn(executor, "second", || {
            let (write, read) = (b.write(), a.read());
            async move {
                let value = *read.await?;
                write.await.set(value);
                Ok(())
            }
        })
        .unwrap();
        late = Some(b.read());
        let read = late.take().unwrap();
        async move {
            let value = *read.await?;
            write.await.set(value);
            Ok(())
        }
    })
    .unwrap();
    (a, b)
}

#[test]
fn a_circle_is_reported_with_the_chain() {
    let executor = SeededExecutor::new(3);
    let (a, b) = circle(&executor);
    let Err(AsyncError::Stalled(dump)) = executor.run() else {
        panic!()
    };
    assert_eq!(dump.circle.len(), 2);
    let mut waits: Vec<_> = dump
        .circle
        .iter()
        .map(|task| (task.operation, task.waits.as_ref().unwrap().value))
        .collect();
    waits.sort_unstable();
    assert_eq!(waits, [("first", "b"), ("second", "a")]);
    let text = AsyncError::Stalled(dump).to_string();
    assert!(
        text.contains("each waits for the next") && text.contains("waits to read b"),
        "{text}"
    );
    assert!(text.lines().count() <= 15, "{text}");
    assert_eq!(a.dump().circle.len(), 2);
    // One that is aborted frees the other.
    let first = executor.tasks()[0];
    executor.abort(first);
    executor.run().unwrap();
    assert!(a.try_read().is_err() != b.try_read().is_err() || b.try_read().is_err());
}

#[test]
fn a_thread_that_waits_behind_a_circle_is_told() {
    let executor = SeededExecutor::new(3);
    let (a, _b) = circle(&executor);
    while executor.step() {}
    let Err(AsyncError::Stalled(dump)) = a.wait() else {
        panic!()
    };
    assert_eq!(dump.circle.len(), 2);
    assert!(matches!(
        executor.run_until(async { a.read().await.map(drop) }),
        Err(AsyncError::Stalled(_))
    ));
}

#[test]
fn a_task_that_waits_for_itself_is_a_circle() {
    let executor = SeededExecutor::new(0);
    let a = Arc::new(Async::new(1));
    let inner = a.clone();
    let task = compute(&executor, "self", || async move {
        let _guard = inner.write().await;
        Ok(*inner.read().await?)
    })
    .unwrap();
    let Err(AsyncError::Stalled(dump)) = executor.run() else {
        panic!()
    };
    assert_eq!((dump.circle.len(), dump.circle[0].operation), (1, "self"));
    drop(executor);
    // Its executor is gone, and with it the task.
    assert!(matches!(task.try_read(), Err(AsyncError::Failed(_))));
    a.try_write().unwrap().set(1);
}

#[test]
fn a_dump_shows_who_waits_for_what_at_any_time() {
    let executor = SeededExecutor::new(0);
    let (a, b) = (
        Async::<i32>::empty().named("a"),
        Async::<i32>::empty().named("b"),
    );
    let held = a.write();
    for _ in 0..20 {
        spawn(&executor, "add", || {
            let (a, b) = (a.read(), b.write());
            async move {
                let (a, b) = all((a, b)).await?;
                b.set(*a);
                Ok(())
            }
        })
        .unwrap();
    }
    assert!(matches!(executor.run(), Err(AsyncError::Stalled(dump)) if dump.circle.is_empty()));
    let dump = b.dump();
    let text = dump.to_string();
    assert_eq!(dump.tasks.len(), 20);
    assert!(
        text.contains("value a") && text.contains("outside of tasks"),
        "{text}"
    );
    assert!(text.contains("and 12 more"), "{text}");
    assert!(executor.dump().to_string().contains("waits to read a"));
    held.wait().unwrap().set(1);
    executor.run().unwrap();
    let quiet = b.dump();
    assert!(quiet.tasks.is_empty() && quiet.to_string().contains("nobody accesses"));
}

#[test]
fn long_chains_are_walked_without_a_deep_stack() {
    let executor = SeededExecutor::new(0);
    let first = Async::<u64>::empty();
    let held = first.write();
    let mut last = first;
    for _ in 0..20_000 {
        last = compute(&executor, "next", || {
            let before = last.read();
            async move { Ok(*before.await? + 1) }
        })
        .unwrap();
    }
    while executor.step() {}
    let dump = last.dump();
    assert_eq!((dump.tasks.len(), dump.circle.len()), (20_000, 0));
    held.wait().unwrap().set(0);
    executor.run().unwrap();
    assert_eq!(*last.try_read().unwrap(), 20_000);
}

#[test]
fn a_copy_has_a_timeline_of_its_own() {
    let executor = SeededExecutor::new(5);
    let a = Async::new(1);
    spawn(&executor, "two", || {
        let a = a.write();
        async move {
            a.await.set(2);
            Ok(())
        }
    })
    .unwrap();
    let copy = a.copy(&executor).unwrap();
    for value in [&a, &copy] {
        spawn(&executor, "times ten", || {
            let value = value.write();
            async move {
                let mut value = value.await;
                *value.get_mut()? *= 10;
                value.release();
                Ok(())
            }
        })
        .unwrap();
    }
    let only = copy.write();
    executor
        .run_until(async { assert_eq!(*a.read().await.unwrap(), 20) })
        .unwrap();
    drop(a);
    executor.run().unwrap();
    assert_eq!(*only.wait().unwrap().get().unwrap(), 20);
}

#[test]
fn a_limit_is_awaited_in_order_and_never_exceeded() {
    let executor = SeededExecutor::new(11);
    let limited = Arc::new(Limited::new(executor.clone(), 3));
    let (queued, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let order = Async::new(Vec::new());
    let producer = {
        let (limited, queued, most) = (limited.clone(), queued.clone(), most.clone());
        let executor = executor.clone();
        async move {
            for number in 0..100 {
                let place = limited.place().await;
                most.fetch_max(
                    queued.fetch_add(1, Ordering::Relaxed) + 1,
                    Ordering::Relaxed,
                );
                assert!(executor.tasks().len() <= 3);
                let queued = queued.clone();
                spawn(&place, "push", || {
                    let order = order.write();
                    async move {
                        let mut order = order.await;
                        order.get_mut()?.push(number);
                        order.release();
                        queued.fetch_sub(1, Ordering::Relaxed);
                        Ok(())
                    }
                })?;
            }
            Ok::<_, AsyncError>(order)
        }
    };
    let order = executor.run_until(producer).unwrap().unwrap();
    executor.run().unwrap();
    assert_eq!(*order.try_read().unwrap(), (0..100).collect::<Vec<_>>());
    assert_eq!(
        (queued.load(Ordering::Relaxed), most.load(Ordering::Relaxed)),
        (0, 3)
    );
    // A place that is not used goes back; one that is dropped while it waits, too.
    let places: Vec<_> = (0..3)
        .map(|_| executor.run_until(limited.place()).unwrap())
        .collect();
    assert!(spawn(&*limited, "no", || async { Ok(()) }).is_err());
    let mut waiting = Box::pin(limited.place());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop(waiting);
    drop(places);
    assert!(spawn(&*limited, "yes", || async { Ok(()) }).is_ok());
    executor.run().unwrap();
}
