//! Dropping tasks and tickets at every point where they wait.

#![cfg(not(loom))]

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_value::{
    Async, AsyncError, Limited, SeededExecutor, Spawn, Task, TaskResult, all, spawn,
};

/// Drops the future of a task after a number of polls, as if it were aborted there.
struct AbortAfter {
    task: Option<Task>,
    polls: usize,
}

impl Future for AbortAfter {
    type Output = TaskResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TaskResult> {
        let polls = self.polls;
        let Some(task) = self.task.as_mut().filter(|_| polls > 0) else {
            self.task = None;
            return Poll::Ready(Ok(()));
        };
        let ended = Pin::new(task).poll(context).map(Ok);
        self.polls -= 1;
        if self.polls == 0 && ended.is_pending() {
            self.task = None;
            return Poll::Ready(Ok(()));
        }
        ended
    }
}

/// An executor that aborts the `victim`-th task after `polls` polls.
struct Aborting<'e> {
    executor: &'e SeededExecutor,
    next: std::cell::Cell<usize>,
    victim: usize,
    polls: usize,
}

impl Spawn for Aborting<'_> {
    fn spawn(&self, task: Task) {
        let number = self.next.replace(self.next.get() + 1);
        if number != self.victim {
            return self.executor.spawn(task);
        }
        let (task, polls) = (Some(task), self.polls);
        spawn(self.executor, "abort", || AbortAfter { task, polls }).unwrap();
    }
}

/// A value that is counted.
#[derive(Clone)]
struct Counted(u64, Arc<()>);

const TASKS: usize = 5;

/// A scenario that waits in every way there is: for reads, writes, several at once, places under a limit, with guards held.
fn scenario(executor: &impl Spawn, alive: &Arc<()>) -> Vec<Arc<Async<Counted>>> {
    let new = |number| Arc::new(Async::new(Counted(number, alive.clone())));
    let values: Vec<_> = (0..4).map(new).collect();
    let [a, b, c, d] = &values[..] else {
        unreachable!()
    };
    spawn(executor, "write a", || {
        let a = a.write();
        async move {
            let mut a = a.await;
            yield_now().await;
            a.get_mut()?.0 += 10;
            yield_now().await;
            a.release();
            Ok(())
        }
    })
    .unwrap();
    spawn(executor, "a to b", || {
        let (from, to) = (a.read(), b.write());
        async move {
            let from = from.await?;
            yield_now().await;
            let mut to = to.await;
            to.get_mut()?.0 += from.0;
            from.release();
            yield_now().await;
            to.release();
            Ok(())
        }
    })
    .unwrap();
    spawn(executor, "a and b to c", || {
        let tickets = (a.read(), b.read(), c.write());
        async move {
            let (a, b, c) = all(tickets).await?;
            yield_now().await;
            c.set(Counted(a.0 + b.0, a.1.clone()));
            Ok(())
        }
    })
    .unwrap();
    let limited = Arc::new(Limited::new(SeededExecutor::new(0), 1));
    let (inner, d2) = (limited.clone(), d.clone());
    spawn(executor, "limited", || {
        let c = c.read();
        async move {
            let first = inner.place().await;
            let value = c.await?.0;
            // Full: this waits until the place is given back.
            let mut second = Box::pin(inner.place());
            let waited = futures::poll!(second.as_mut()).is_pending();
            assert!(waited);
            drop(first);
            yield_now().await;
            drop(second.await);
            let mut d = d2.write().await;
            d.get_mut()?.0 += value;
            d.release();
            Ok(())
        }
    })
    .unwrap();
    spawn(executor, "last a", || {
        let (tickets, many) = (vec![a.read(), c.read()], vec![d.write()]);
        async move {
            let from = all(tickets).await?;
            let mut to = all(many).await?;
            yield_now().await;
            to[0].get_mut()?.0 += from[0].0 + from[1].0;
            for guard in to {
                guard.release();
            }
            Ok(())
        }
    })
    .unwrap();
    values
}

async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn a_task_may_be_dropped_wherever_it_waits() {
    let mut runs = 0;
    for seed in 0..20 {
        for victim in 0..TASKS {
            for polls in 0.. {
                let (executor, alive) = (SeededExecutor::new(seed), Arc::new(()));
                let next = std::cell::Cell::new(0);
                let aborting = Aborting {
                    executor: &executor,
                    next,
                    victim,
                    polls,
                };
                let values = scenario(&aborting, &alive);
                executor.run().unwrap();
                let mut failed = 0;
                for value in &values {
                    match value.try_read().map(drop) {
                        Ok(()) => {}
                        Err(AsyncError::Failed(failure)) => {
                            failed += 1;
                            assert!(failure.to_string().contains("cancelled"), "{failure}");
                        }
                        Err(error) => panic!("seed {seed}, task {victim}, {polls} polls: {error}"),
                    }
                    value.try_write().unwrap().set(Counted(0, alive.clone()));
                    assert!(
                        value
                            .dump()
                            .values
                            .iter()
                            .all(|value| value.epochs.is_empty())
                    );
                }
                runs += 1;
                drop(values);
                assert_eq!(Arc::strong_count(&alive), 1, "nothing is leaked");
                if failed == 0 && polls > 12 {
                    break;
                }
                assert!(polls < 40, "the task ends");
            }
        }
    }
    assert!(runs > 1000);
}

#[test]
fn one_of_two_that_are_awaited_may_win() {
    use futures::future::{Either, select};
    let executor = SeededExecutor::new(2);
    let (a, b) = (Async::<u8>::empty(), Async::new(2));
    let never = a.write();
    let (a_read, b_read) = (a.read(), b.read());
    spawn(&executor, "first of two", || async move {
        match select(a_read, b_read).await {
            Either::Right((value, _)) => assert_eq!(*value?, 2),
            Either::Left(_) => panic!("not written yet"),
        }
        Ok(())
    })
    .unwrap();
    executor.run().unwrap();
    // The ticket that lost holds nothing up.
    never.wait().unwrap().set(1);
    a.try_write().unwrap().set(3);
}
