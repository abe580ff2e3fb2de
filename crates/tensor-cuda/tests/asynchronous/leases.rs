//! Which streams and handles tasks get, and when.

use super::*;

/// A chain of operations of its own stays on its stream: no event is waited for, and none is asked.
#[test]
fn chains_stay_on_their_streams() {
    let runtime = runtime(3, 1, 4);
    let device = runtime.default_device();
    let executor = SeededExecutor::new(3);
    let start = |seed| from_ndarray(&executor, device, matrix(4, seed)).unwrap();
    let step = start(0);
    let chains: Vec<Matrix> = (0..3).map(start).collect();
    let warm = |value: &Matrix| {
        drop(executor.run_until(value.read()).unwrap().unwrap());
        device.streams().acquire_many(4).unwrap();
    };
    for value in chains.iter().chain([&step]) {
        scale(&executor, value, 1.0).unwrap();
        warm(value);
    }
    let before = device.call_counts();
    for _ in 0..20 {
        for value in &chains {
            gemm(&executor, value, 1.0, &step, &step, 1.0).unwrap();
            scale(&executor, value, 0.5).unwrap();
        }
    }
    for value in &chains {
        warm(value);
    }
    let calls = device.call_counts() - before;
    println!("{calls}");
    assert!(calls.of(Call::StreamWaitEvent) <= 8, "{calls}");
    drop((step, chains));
    check(runtime);
}

#[test]
fn a_chain_does_not_overtake_who_waits_for_its_stream() {
    for seed in 0..20 {
        let runtime = runtime(seed, 1, 1);
        let device = runtime.default_device();
        let executor = SeededExecutor::new(seed);
        let a = Async::new(CudaTensor::<f64, 2>::new(device, [4, 4]).unwrap());
        let stream = device.streams().acquire().unwrap();
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (note, value) = (order.clone(), Async::new(()));
        let other = device.clone();
        spawn(&executor, "other", || {
            let write = value.write();
            async move {
                let stream = other.streams().acquire_async().await?;
                note.lock().unwrap().push("other");
                drop(stream);
                write.await.release();
                Ok(())
            }
        })
        .unwrap();
        while executor.step() {}
        let mut guard = a.try_write().unwrap();
        tensor_cuda::fill(&stream, guard.get_mut().unwrap(), 3.0).unwrap();
        guard.release();
        let note = order.clone();
        let leaf = move |stream: &_, (mut a,): (async_value::WriteGuard<CudaTensor<f64, 2>>,)| {
            note.lock().unwrap().push("chain");
            tensor_cuda::scale(stream, a.get_mut()?, 2.0)?;
            a.release();
            Ok(())
        };
        device_task(&executor, "chain", || (a.write(),), leaf).unwrap();
        // It wakes the one, and its latest work is what the other one goes on with.
        drop(stream);
        drop(executor.run_until(a.read()).unwrap().unwrap());
        assert_eq!(*order.lock().unwrap(), ["other", "chain"], "seed {seed}");
        let host = a.try_read().unwrap().to_ndarray().unwrap();
        assert_eq!(host, Array2::from_elem((4, 4), 6.0));
        drop((a, value));
        check(runtime);
    }
}

#[test]
fn leases_are_given_first_come_first_served_and_none_is_held_while_a_value_is_awaited() {
    let runtime = runtime(3, 1, 1);
    let device = runtime.default_device();
    let executor = SeededExecutor::new(3);
    let a = from_ndarray(&executor, device, matrix(4, 0)).unwrap();
    executor
        .run_until(async { a.read().await.map(drop) })
        .unwrap()
        .unwrap();
    let gate: Matrix = Async::empty();
    let first = gate.write();
    // This one waits for a value; it must not keep the only stream from those that come later.
    let (waits, goes): (Matrix, Matrix) = (Async::empty(), Async::empty());
    assign_product(&executor, &waits, &a, &gate).unwrap();
    assign_product(&executor, &goes, &a, &a).unwrap();
    drop(executor.run_until(goes.read()).unwrap().unwrap());
    assert!(waits.try_read().is_err());
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let lease = device.streams().acquire().unwrap();
    let values: Vec<_> = (0..5).map(|_| Async::new(())).collect();
    for (number, value) in values.iter().enumerate() {
        let (order, device) = (order.clone(), device.clone());
        spawn(&executor, "in turn", || {
            let write = value.write();
            async move {
                let stream = device.streams().acquire_async().await?;
                order.lock().unwrap().push(number);
                drop(stream);
                write.await.release();
                Ok(())
            }
        })
        .unwrap();
        // Its first poll takes its place.
        while executor.step() {}
    }
    drop(lease);
    for value in &values {
        drop(executor.run_until(value.read()).unwrap().unwrap());
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    drop(first);
    executor
        .run_until(async { waits.read().await.is_err() })
        .unwrap();
    drop((a, waits, goes));
    check(runtime);
}

#[test]
fn tasks_run_under_threads_as_well() {
    let runtime = Runtime::builder().streams_per_device(2).build().unwrap();
    let device = runtime.default_device();
    let pool = |task| {
        std::thread::spawn(move || block_on(task));
    };
    let a = from_ndarray(&pool, device, matrix(4, 0)).unwrap();
    let c: Matrix = Async::empty();
    assign_product(&pool, &c, &a, &a).unwrap();
    for _ in 0..10 {
        scale(&pool, &c, 2.0).unwrap();
        device_task(
            &pool,
            "again",
            || (c.write(),),
            |stream, (mut c,): (async_value::WriteGuard<_>,)| {
                tensor_cuda::scale(stream, c.get_mut()?, 0.5)?;
                c.release();
                Ok(())
            },
        )
        .unwrap();
    }
    let host = to_ndarray(&pool, &c).unwrap();
    assert_eq!(*host.wait().unwrap(), matrix(4, 0).dot(&matrix(4, 0)));
}
