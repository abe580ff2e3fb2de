//! Completions and leases are awaited under the executors that people use: a waker is a waker.

use crate::kit::{Rig, raw, stall, touch};
use cuda_runtime::{Allocation, Completion, Device, RuntimeResult};
use cuda_sim::{Schedule, SimDriver};
use std::pin::Pin;
use std::time::Duration;

/// Ten tasks share two streams, each in several steps: lease, work, give back, await.
async fn tasks<S, H>(device: Device, spawn: S)
where
    S: Fn(Pin<Box<dyn Future<Output = RuntimeResult<()>> + Send>>) -> H,
    H: Future<Output = RuntimeResult<()>>,
{
    let task = |device: Device| async move {
        let (memory, mut done): (Allocation, Option<Completion>) = device.allocate(64)?;
        for _ in 0..5 {
            let stream = match &done {
                Some(done) => device.streams().acquire_after_async(done).await?,
                None => device.streams().acquire_async().await?,
            };
            touch(&stream, &memory);
            let next = stream.record()?;
            drop(stream);
            (&next).await?;
            assert!(next.is_known_complete());
            done = Some(next);
        }
        memory.reclaim(done);
        let both = device.streams().acquire_many_async(2)?.await?;
        assert_eq!(both.len(), 2);
        Ok(())
    };
    let started: Vec<_> = (0..10)
        .map(|_| spawn(Box::pin(task(device.clone()))))
        .collect();
    for task in started {
        task.await.unwrap();
    }
}

fn on_rigs(run: impl Fn(Device)) {
    for schedule in [Schedule::Stepped { seed: 3 }, Schedule::Threaded] {
        let rig = Rig::with(SimDriver::builder().schedule(schedule), |builder| {
            builder.streams_per_device(2)
        });
        run(rig.device());
        rig.finish();
    }
}

#[test]
fn under_futures() {
    on_rigs(|device| {
        futures::executor::block_on(tasks(device, |task| task));
    });
    // Side by side on one thread, too.
    on_rigs(|device| {
        let pool = futures::future::join_all((0..3).map(|_| tasks(device.clone(), |task| task)));
        futures::executor::block_on(pool);
        drop(device);
    });
}

#[test]
fn under_tokio_on_one_thread_and_on_several() {
    let single = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let multi = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap()
    };
    for make in [&single as &dyn Fn() -> tokio::runtime::Runtime, &multi] {
        on_rigs(|device| {
            let runtime = make();
            runtime.block_on(tasks(device, |task| {
                let task = tokio::spawn(task);
                async { task.await.unwrap() }
            }));
        });
    }
}

#[test]
fn under_smol() {
    on_rigs(|device| {
        smol::block_on(tasks(device, smol::spawn));
    });
}

/// A task that is aborted while it awaits leaves no watch, no place in the queue, and no lease.
#[test]
fn an_aborted_task_leaves_no_trace() {
    let rig = Rig::new(1);
    let device = rig.device();
    let stream = device.streams().acquire().unwrap();
    let (memory, _) = device.allocate_on(64, &stream).unwrap();
    let name = raw(&stream);
    let done = stall(&rig.sim, &stream, &memory);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let awaiting = tokio::spawn(done.clone().into_future());
        let leasing = tokio::spawn(device.streams().acquire_async());
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        awaiting.abort();
        leasing.abort();
        assert!(awaiting.await.unwrap_err().is_cancelled());
        assert!(leasing.await.unwrap_err().is_cancelled());
    });
    drop(stream);
    rig.sim.release_stream(name);
    done.wait().unwrap();
    drop(
        device
            .streams()
            .acquire_within(Duration::from_secs(10))
            .unwrap(),
    );
    memory.reclaim([done]);
    drop(device);
    rig.finish();
}
