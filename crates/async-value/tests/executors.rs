//! The same program under every executor that there is an adapter for.

#![cfg(not(loom))]

use async_value::{Async, AsyncError, SeededExecutor, Spawn, compute, spawn};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// Fibonacci numbers by additions in place, with readers of each.
fn program(executor: &(impl Spawn + ?Sized)) -> (Vec<Async<u64>>, Async<u64>) {
    let (a, b) = (Async::new(0_u64), Async::new(1_u64));
    let mut seen = Vec::new();
    for step in 0..40 {
        let (from, to) = if step % 2 == 0 { (&b, &a) } else { (&a, &b) };
        spawn(executor, "add", || {
            let (from, to) = (from.read(), to.write());
            async move {
                let mut to = to.await;
                *to.get_mut()? += *from.await?;
                to.release();
                Ok(())
            }
        })
        .unwrap();
        let number = compute(executor, "look", || {
            let to = to.read();
            async move { Ok(*to.await?) }
        });
        seen.push(number.unwrap());
    }
    let failed = compute(executor, "fail", || {
        let a = a.read();
        async move {
            let _a = a.await?;
            Err(AsyncError::Full { limit: 0 }.into())
        }
    });
    (seen, failed.unwrap())
}

async fn check((seen, failed): (Vec<Async<u64>>, Async<u64>)) {
    let (mut a, mut b) = (0, 1);
    for (step, value) in seen.iter().enumerate() {
        let expected = if step % 2 == 0 {
            a += b;
            a
        } else {
            b += a;
            b
        };
        assert_eq!(*value.read().await.unwrap(), expected);
    }
    let error = failed.read().await.map(drop).unwrap_err();
    assert!(error.to_string().contains("`fail`"), "{error}");
}

#[test]
fn under_tokio_on_one_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let queued = program(&runtime);
    runtime.block_on(check(queued));
    runtime.block_on(async { check(program(&tokio::runtime::Handle::current())).await });
}

#[test]
fn under_tokio_on_several_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for _ in 0..50 {
        let queued = program(&runtime);
        runtime.block_on(check(queued));
    }
    let (seen, _) = program(&runtime);
    assert_eq!(*seen[39].wait().unwrap(), 165_580_141);
}

#[test]
fn under_smol() {
    let executor = Arc::new(smol::Executor::new());
    let queued = program(&*executor);
    smol::block_on(executor.run(check(queued)));
    let local = smol::LocalExecutor::new();
    let queued = program(&local);
    smol::block_on(local.run(check(queued)));
    let on_threads = |task| smol::spawn(task).detach();
    smol::block_on(check(program(&on_threads)));
}

#[test]
fn under_futures() {
    let pool = futures_executor::ThreadPool::builder()
        .pool_size(2)
        .create()
        .unwrap();
    let queued = program(&pool);
    futures::executor::block_on(check(queued));
    let mut local = futures::executor::LocalPool::new();
    let queued = program(&local.spawner());
    local.run_until(check(queued));
}

#[test]
fn under_the_executor_of_tests() {
    let order = |seed| {
        let (executor, order) = (SeededExecutor::new(seed), Arc::new(Mutex::new(Vec::new())));
        for number in 0..10 {
            let order = order.clone();
            let note = move || async move {
                order.lock().unwrap().push(number);
                Ok(())
            };
            spawn(&executor, "note", note).unwrap();
        }
        let queued = program(&executor);
        executor.run_until(check(queued)).unwrap();
        executor.run().unwrap();
        let order = std::mem::take(&mut *order.lock().unwrap());
        (order, executor.polls())
    };
    let orders: HashSet<_> = (0..20).map(order).collect();
    assert!(orders.len() > 15, "other seeds give others");
    assert_eq!(order(3), order(3), "the same seed gives the same order");
    // It waits for what other threads do.
    let (executor, value) = (SeededExecutor::new(0), Async::new(0));
    let (write, read) = (value.write(), value.read());
    let thread = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        write.wait().unwrap().set(5);
    });
    assert_eq!(*executor.run_until(read).unwrap().unwrap(), 5);
    thread.join().unwrap();
}

#[test]
fn an_executor_that_is_shut_down_fails_what_it_has_not_done() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (seen, _) = program(&runtime);
    drop(runtime);
    let error = seen[39].wait().unwrap_err();
    assert!(
        error.to_string().contains("was cancelled before its end"),
        "{error}"
    );
}

#[test]
fn two_threads_may_run_the_executor_of_tests() {
    for seed in 0..20 {
        let executor = SeededExecutor::new(seed);
        let queued = program(&executor);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        executor.step();
                    }
                });
            }
            futures::executor::block_on(check(queued));
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

/// Two threads wait for futures of their own; the one that began later ends, and then a task of the other one can go on.
#[test]
fn a_thread_that_stops_running_the_executor_leaves_the_others_awake() {
    let executor = SeededExecutor::new(1);
    let (gate, first, second) = (Async::empty(), Async::empty(), Async::new(()));
    let (opens, sets) = (gate.write(), second.write());
    spawn(&executor, "follow", || {
        let (gate, first) = (gate.read(), first.write());
        async move {
            first.await.set(*gate.await? + 1);
            Ok(())
        }
    })
    .unwrap();
    let begin = |mut future: std::pin::Pin<Box<dyn Future<Output = i32> + Send>>| {
        let (polled, waits) = std::sync::mpsc::channel::<()>();
        let (executor, mut polled) = (executor.clone(), Some(polled));
        let future = std::future::poll_fn(move |context| {
            let poll = future.as_mut().poll(context);
            drop(polled.take());
            poll
        });
        let thread = std::thread::spawn(move || executor.run_until(future).unwrap());
        // Until it has been polled, and then some time for it to park.
        waits.recv().unwrap_err();
        std::thread::sleep(std::time::Duration::from_millis(50));
        thread
    };
    let read = first.read();
    let one = begin(Box::pin(async move { *read.await.unwrap() }));
    let read = second.read();
    let other = begin(Box::pin(async move { read.await.map(|_| 7).unwrap() }));
    futures::executor::block_on(sets).release();
    assert_eq!(other.join().unwrap(), 7);
    futures::executor::block_on(opens).set(1);
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(one.join().unwrap()));
    assert_eq!(
        ended.recv_timeout(std::time::Duration::from_secs(30)),
        Ok(2)
    );
}
