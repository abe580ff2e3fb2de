//! Faults that people met in systems like this one.

#![cfg(not(loom))]

use async_value::{Async, AsyncError, SeededExecutor, spawn};
use std::sync::Arc;

/// huggingface/candle#3227: write and read access to the same storage on one thread block for ever.
#[test]
fn case_13_conflicting_accesses_of_one_thread_are_an_error_at_once() {
    let a = Arc::new(Async::new(1));
    let write = a.try_write().unwrap();
    assert!(matches!(a.try_read(), Err(AsyncError::Pending { .. })));
    assert!(matches!(a.try_write(), Err(AsyncError::Pending { .. })));
    write.release();
    // A second read of somebody who reads already is granted, also when a writer waits: it is in program order before the
    // writer, or it is not asked for now.
    let (first, second) = (a.read(), a.read());
    let waiting = a.write();
    let first = first.wait().unwrap();
    assert_eq!((*first, *second.wait().unwrap()), (1, 1));
    assert!(
        matches!(a.try_read(), Err(AsyncError::Pending { .. })),
        "the writer comes first"
    );
    drop(first);
    waiting.wait().unwrap().set(2);
    assert_eq!(*a.try_read().unwrap(), 2);
    // In a task it is a wait that can't end, which is reported.
    let (executor, inner) = (SeededExecutor::new(0), a.clone());
    spawn(&executor, "both", || async move {
        let write = inner.write().await;
        let read = inner.read().await?;
        write.set(*read);
        Ok(())
    })
    .unwrap();
    let Err(AsyncError::Stalled(dump)) = executor.run() else {
        panic!()
    };
    assert_eq!(dump.circle.len(), 1);
}

/// NVlabs/cutile-rs#272: forgetting a pending operation, then dropping its inputs, frees what is still used.
#[test]
fn case_14_a_forgotten_guard_is_held_for_ever_and_frees_nothing() {
    let value = Arc::new(5);
    let a = Async::new(value.clone());
    std::mem::forget(a.try_read().unwrap());
    assert!(matches!(a.try_write(), Err(AsyncError::Pending { .. })));
    assert_eq!(**a.try_read().unwrap(), 5);
    let held = a.dump().to_string();
    assert!(held.contains("holds it"), "{held}");
    drop(a);
    assert_eq!(Arc::strong_count(&value), 2, "leaked, not freed");
    let b = Async::new(value.clone());
    std::mem::forget(b.try_write().unwrap());
    assert!(matches!(b.try_read(), Err(AsyncError::Pending { .. })));
    drop(b);
    assert_eq!(Arc::strong_count(&value), 3);
    let c = Async::new(value.clone());
    std::mem::forget(c.read());
    drop(c);
    assert_eq!(Arc::strong_count(&value), 4);
}

/// NVlabs/cuda-oxide#99: aborting a task after its first poll frees what is still used.
#[test]
fn case_16_aborting_a_task_keeps_its_values_for_those_who_read_them() {
    let executor = SeededExecutor::new(0);
    let value = Arc::new(7);
    let (a, gate) = (Async::new(value.clone()), Async::new(()));
    let held = gate.write();
    spawn(&executor, "launch", || {
        let (a, gate) = (a.read(), gate.read());
        async move {
            let _a = a.await?;
            gate.await.map(drop)?;
            Ok(())
        }
    })
    .unwrap();
    let other = a.read();
    drop(a);
    assert!(executor.step());
    assert!(executor.abort(executor.tasks()[0]));
    let other = other.wait().unwrap();
    assert_eq!((**other, Arc::strong_count(&value)), (7, 2));
    drop(other);
    assert_eq!(
        Arc::strong_count(&value),
        1,
        "freed with the last who could use it"
    );
    held.wait().unwrap().release();
    executor.run().unwrap();
}
