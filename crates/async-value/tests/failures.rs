//! What readers learn when a write does not happen.

#![cfg(not(loom))]

use async_value::{
    Admission, Async, AsyncError, Cause, Failure, SeededExecutor, Spawn, Task, all, compute, spawn,
};
use std::sync::Mutex;

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("no memory for {0} bytes")]
struct NoMemory(usize);

/// An error of another layer, which may carry one of ours.
#[derive(Debug, thiserror::Error)]
enum Outer {
    #[error(transparent)]
    Value(#[from] AsyncError),
    #[error("wrapped")]
    Wrapped(#[source] AsyncError),
}

fn failure<T: std::fmt::Debug>(value: &Async<T>) -> Failure {
    match value.try_read() {
        Err(AsyncError::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_reaches_every_reader_downstream_with_its_origin() {
    let executor = SeededExecutor::new(1);
    let a = Async::<i32>::empty().named("a");
    let line = line!() + 1;
    spawn(&executor, "load", || {
        let a = a.write();
        async move {
            let _a = a.await;
            Err(NoMemory(64).into())
        }
    })
    .unwrap();
    let b = compute(&executor, "double", || {
        let a = a.read();
        async move { Ok(*a.await? * 2) }
    })
    .unwrap();
    // Also when the layers between wrap it.
    let c = compute(&executor, "wrap", || {
        let b = b.read();
        async move { Ok(*b.await.map_err(Outer::Value)? + 1) }
    })
    .unwrap();
    let d = compute(&executor, "wrap again", || {
        let c = c.read();
        async move { Ok(*c.await.map_err(Outer::Wrapped)? + 1) }
    })
    .unwrap();
    executor.run().unwrap();
    for value in [&a, &b, &c, &d] {
        let failure = failure(value);
        assert_eq!((failure.operation(), failure.site().line()), ("load", line));
        assert!(failure.site().file().ends_with("failures.rs"));
        assert_eq!(failure.error(), Some(&NoMemory(64)));
        let text = AsyncError::Failed(failure).to_string();
        assert!(
            text.contains("`load`") && text.ends_with("failed: no memory for 64 bytes"),
            "{text}"
        );
    }
    // The value is usable for the next writer.
    spawn(&executor, "load again", || {
        let a = a.write();
        async move {
            a.await.set(5);
            Ok(())
        }
    })
    .unwrap();
    executor.run().unwrap();
    assert_eq!(*a.try_read().unwrap(), 5);
}

#[test]
fn a_panic_reaches_readers_with_its_message() {
    let executor = SeededExecutor::new(1);
    let (a, b) = (Async::new(1), Async::new(2));
    spawn(&executor, "divide", || {
        let (a, b) = (a.read(), b.write());
        async move {
            let (_, mut b) = all((a, b)).await?;
            *b.get_mut()? = 3;
            panic!("planned: {}", 7);
        }
    })
    .unwrap();
    executor.run().unwrap();
    let failure = failure(&b);
    assert!(
        matches!(failure.cause(), Cause::Panic(text) if text == "planned: 7"),
        "{failure}"
    );
    assert_eq!(failure.operation(), "divide");
    // What is half done is not read, but can be overwritten.
    let mut guard = b.try_write().unwrap();
    assert!(matches!(guard.get(), Err(AsyncError::Failed(_))));
    *guard.overwrite().unwrap() = 4;
    guard.release();
    assert_eq!(*b.try_read().unwrap(), 4);
}

#[test]
fn a_panic_that_no_value_would_tell_is_the_executors() {
    let executor = SeededExecutor::new(1);
    spawn(&executor, "nothing written", || async { panic!("planned") }).unwrap();
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| executor.run()));
    assert!(run.is_err());
    assert_eq!(executor.tasks().len(), 0);
    executor.run().unwrap();
}

#[test]
fn a_panic_while_an_operation_is_prepared_reaches_its_values_and_its_caller() {
    let executor = SeededExecutor::new(1);
    let a = Async::new(1);
    let spawned = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        spawn(&executor, "prepare", || {
            let _a = a.write();
            if a.name() != "never" {
                panic!("planned");
            }
            async { Ok(()) }
        })
    }));
    assert!(spawned.is_err());
    assert_eq!(failure(&a).operation(), "prepare");
    assert!(executor.tasks().is_empty());
}

#[test]
fn a_dropped_ticket_and_a_dropped_guard_fail_their_readers() {
    let a = Async::new(1);
    let line = line!() + 1;
    drop(a.write());
    let lost = failure(&a);
    assert!(matches!(lost.cause(), Cause::Dropped));
    assert_eq!((lost.operation(), lost.site().line()), ("write", line));
    drop(a.try_write().unwrap());
    assert_ne!(failure(&a).site(), lost.site());
    a.try_write().unwrap().set(2);
    assert_eq!(*a.try_read().unwrap(), 2);
    // A guard that is released as it is changes nothing.
    a.try_write().unwrap().release();
    assert_eq!(*a.try_read().unwrap(), 2);
    a.try_write().unwrap().fail(lost.clone());
    assert_eq!(failure(&a).site(), lost.site());
    a.try_write().unwrap().release();
    assert_eq!(failure(&a).site(), lost.site());
}

#[test]
fn a_thread_that_panics_fails_the_write_that_it_holds() {
    let a = Async::new(1);
    let ticket = a.write();
    let thread = std::thread::spawn(move || {
        let _guard = ticket.wait().unwrap();
        panic!("planned");
    });
    thread.join().unwrap_err();
    assert!(matches!(failure(&a).cause(), Cause::Panic(_)));
}

#[test]
fn a_cancelled_task_is_told_to_its_readers() {
    let executor = SeededExecutor::new(1);
    let (a, b) = (Async::<i32>::empty(), Async::<i32>::empty());
    let held = a.write();
    spawn(&executor, "follow", || {
        let (a, b) = (a.read(), b.write());
        async move {
            let a = a.await?;
            b.await.set(*a);
            Ok(())
        }
    })
    .unwrap();
    assert!(matches!(executor.run(), Err(AsyncError::Stalled(_))));
    let [task] = executor.tasks()[..] else {
        panic!()
    };
    assert!(executor.abort(task) && !executor.abort(task));
    let lost = failure(&b);
    assert!(matches!(lost.cause(), Cause::Cancelled));
    assert_eq!(lost.operation(), "follow");
    drop(held);
}

#[test]
fn an_executor_that_drops_tasks_fails_their_values() {
    let executor = drop::<Task>;
    let a = compute(&executor, "never", || async { Ok(1) }).unwrap();
    assert!(matches!(failure(&a).cause(), Cause::Cancelled));
}

#[test]
fn nothing_is_read_before_the_first_write_was_asked_for() {
    let a = Async::<i32>::empty().named("a");
    let early = a.read();
    let write = a.write();
    let late = a.read();
    let Err(AsyncError::Empty { value: "a", site }) = early.wait() else {
        panic!("the read came before the write")
    };
    assert!(site.file().ends_with("failures.rs"));
    write.wait().unwrap().set(3);
    assert_eq!(*late.wait().unwrap(), 3);
    assert_eq!(a.try_write().unwrap().take().unwrap(), 3);
    // Taken and not released: a write that did not happen.
    assert!(matches!(failure(&a).cause(), Cause::Dropped));
    let guard = a.try_write().unwrap();
    assert!(matches!(guard.get(), Err(AsyncError::Failed(_))));
    guard.set(4);
    let mut guard = a.try_write().unwrap();
    assert_eq!(guard.take().unwrap(), 4);
    assert!(matches!(guard.get_mut(), Err(AsyncError::Empty { .. })));
    guard.release();
    assert!(matches!(a.try_read(), Err(AsyncError::Empty { .. })));
}

/// An executor that is always full.
struct Busy(Mutex<usize>);

impl Spawn for Busy {
    fn spawn(&self, _: Task) {
        panic!("nothing was admitted");
    }

    fn admit(&self) -> Result<Admission, AsyncError> {
        *self.0.lock().unwrap() += 1;
        Err(AsyncError::Full { limit: 0 })
    }
}

#[test]
fn what_is_not_admitted_has_changed_nothing() {
    let (busy, a) = (Busy(Mutex::new(0)), Async::new(1));
    let queued = spawn(&busy, "no", || {
        let a = a.write();
        async move {
            a.await.set(2);
            Ok(())
        }
    });
    assert!(matches!(queued, Err(AsyncError::Full { limit: 0 })));
    assert!(a.copy(&busy).is_err());
    assert_eq!((*a.try_read().unwrap(), *busy.0.lock().unwrap()), (1, 2));
}

/// An error that accesses a value when it is dropped.
struct Meddler(std::sync::Arc<Async<i32>>);

impl Drop for Meddler {
    fn drop(&mut self) {
        let _ = self.0.try_read();
        drop(self.0.dump());
    }
}

impl std::fmt::Debug for Meddler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meddler")
    }
}

impl std::fmt::Display for Meddler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("meddler")
    }
}

impl std::error::Error for Meddler {}

#[test]
fn errors_may_do_what_they_like_when_they_are_dropped() {
    let executor = SeededExecutor::new(0);
    let a = std::sync::Arc::new(Async::new(1));
    for held in [false, true] {
        let front = held.then(|| a.write());
        for _ in 0..3 {
            spawn(&executor, "meddle", || {
                let (write, error) = (a.write(), Meddler(a.clone()));
                async move {
                    drop(write);
                    Err(error.into())
                }
            })
            .unwrap();
        }
        executor.run().unwrap();
        drop(front);
        assert_eq!(failure(&a).operation(), "meddle");
        a.try_write().unwrap().set(2);
    }
    assert_eq!(*a.try_read().unwrap(), 2);
}

/// An error that panics when it is dropped.
#[derive(Debug)]
struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        panic!("planned");
    }
}

impl std::fmt::Display for Fuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("fuse")
    }
}

impl std::error::Error for Fuse {}

#[test]
fn an_error_that_panics_when_it_is_dropped_keeps_no_access_from_its_end() {
    let executor = SeededExecutor::new(0);
    let (a, b) = (Async::new(1), Async::new(2));
    spawn(&executor, "first", || {
        let a = a.write();
        async move {
            let _a = a.await;
            Err(Fuse.into())
        }
    })
    .unwrap();
    executor.run().unwrap();
    assert_eq!(failure(&a).operation(), "first");
    // The failure of this task takes the place of the first one, which nobody else has.
    spawn(&executor, "second", || {
        let tickets = (a.write(), b.write());
        async move {
            let _guards = all(tickets).await?;
            Ok(())
        }
    })
    .unwrap();
    executor.run().unwrap();
    assert_eq!(failure(&a).operation(), "second");
    assert_eq!(failure(&b).operation(), "second");
}

struct Bomb;

impl std::task::Wake for Bomb {
    fn wake(self: std::sync::Arc<Self>) {
        panic!("planned");
    }
}

#[test]
fn a_waker_that_panics_keeps_nobody_else_waiting() {
    let a = Async::new(1);
    let write = a.write();
    let mut bombed = Box::pin(a.read());
    let bomb = std::task::Waker::from(std::sync::Arc::new(Bomb));
    let mut context = std::task::Context::from_waker(&bomb);
    assert!(bombed.as_mut().poll(&mut context).is_pending());
    let waits = a.read();
    let thread = std::thread::spawn(move || *waits.wait().unwrap());
    while a.dump().values[0].epochs[1]
        .tickets
        .iter()
        .any(|ticket| !ticket.awaited)
    {
        std::thread::yield_now();
    }
    write.wait().unwrap().set(2);
    assert_eq!(thread.join().unwrap(), 2);
}
