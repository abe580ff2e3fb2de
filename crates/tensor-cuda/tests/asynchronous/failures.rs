//! What goes wrong, and what is refused.

use super::*;

#[test]
fn an_error_of_a_leaf_fails_its_output_with_the_place_of_the_call() {
    let runtime = runtime(0, 1, 2);
    let device = runtime.default_device();
    let executor = SeededExecutor::new(0);
    let a = from_ndarray(&executor, device, array![[1.0, 2.0]]).unwrap();
    let (b, c): (Matrix, Matrix) = (Async::empty(), Async::empty());
    let line = line!() + 1;
    assign_product(&executor, &b, &a, &a).unwrap();
    scale(&executor, &b, 2.0).unwrap();
    add(&executor, &c, &b, &b).unwrap();
    executor
        .run_until(async { c.read().await.is_err() })
        .unwrap();
    let Err(AsyncError::Failed(failure)) = c.try_read() else {
        panic!()
    };
    assert_eq!(
        (failure.operation(), failure.site().line()),
        ("assign_product", line)
    );
    let error = failure.error::<TensorError>().unwrap();
    assert!(
        matches!(error, TensorError::ShapeMismatch { operand: "b", .. }),
        "{error}"
    );
    // The next writer finds it usable, and so are the leases.
    let d = from_ndarray(&executor, device, array![[1.0], [2.0]]).unwrap();
    drop((b, c));
    let e: Matrix = Async::empty();
    assign_product(&executor, &e, &a, &d).unwrap();
    drop(executor.run_until(e.read()).unwrap().unwrap());
    assert_eq!(e.try_read().unwrap().to_ndarray().unwrap(), array![[5.0]]);
    // In place there is nothing to change yet.
    let nothing: Matrix = Async::empty().named("nothing");
    scale(&executor, &nothing, 2.0).unwrap();
    executor
        .run_until(async { nothing.read().await.is_err() })
        .unwrap();
    let Err(AsyncError::Failed(failure)) = nothing.try_read() else {
        panic!()
    };
    assert!(
        failure.to_string().contains("nothing has no value"),
        "{failure}"
    );
    drop((a, d, e));
    check(runtime);
}

#[test]
fn an_operation_that_would_wait_for_itself_is_refused() {
    let executor = SeededExecutor::new(0);
    let (a, b): (Matrix, Matrix) = (Async::empty(), Async::empty());
    let aliased = |result: TensorResult<()>, name: &str| {
        let Err(TensorError::Aliased { operand, .. }) = result else {
            panic!("{result:?}")
        };
        assert_eq!(operand, name);
    };
    aliased(assign_product(&executor, &a, &b, &a), "b");
    aliased(gemm(&executor, &a, 1.0, &a, &b, 1.0), "a");
    aliased(axpy(&executor, &a, 1.0, &a), "x");
    aliased(copy(&executor, &a, &a), "a");
    aliased(linear(&executor, &b, 1.0, &a, 1.0, &b), "b");
    assert!(executor.is_empty() && a.dump().values.iter().all(|value| value.epochs.is_empty()));
}

#[test]
fn what_is_not_admitted_takes_no_ticket() {
    let limited = Limited::new(SeededExecutor::new(0), 0);
    let (a, b): (Matrix, Matrix) = (Async::empty(), Async::empty());
    let full = assign_product(&limited, &a, &b, &b);
    assert!(matches!(
        full,
        Err(TensorError::Value(AsyncError::Full { limit: 0 }))
    ));
    assert!(matches!(a.try_read(), Err(AsyncError::Empty { .. })));
}

/// NVlabs/cuda-oxide#99: a task that is aborted after it has queued work.
#[test]
fn case_16_an_aborted_task_frees_nothing_that_its_work_still_uses() {
    for seed in 0..10 {
        let runtime = runtime(seed, 1, 3);
        let device = runtime.default_device();
        let executor = SeededExecutor::new(seed);
        let a = from_ndarray(&executor, device, matrix(8, 0)).unwrap();
        let gate = Async::new(());
        let held = gate.write();
        let c: Matrix = Async::empty();
        spawn(&executor, "launch and wait", || {
            let (a, c, gate, device) = (a.read(), c.write(), gate.read(), device.clone());
            async move {
                let (a, mut c) = async_value::all((a, c)).await?;
                let stream = device.streams().acquire_async().await?;
                let mut out = CudaTensor::uninitialized_on(&stream, a.extents())?;
                tensor_cuda::assign_product(&stream, &mut out, &*a, &*a)?;
                c.put(out);
                drop((a, stream));
                gate.await.map(drop)?;
                c.release();
                Ok(())
            }
        })
        .unwrap();
        assert!(matches!(
            executor.run_until(async { a.read().await.map(drop) }),
            Ok(Ok(()))
        ));
        while executor.step() {}
        let task = executor.tasks()[0];
        assert!(executor.abort(task));
        let Err(AsyncError::Failed(failure)) = c.try_read() else {
            panic!()
        };
        assert!(matches!(failure.cause(), Cause::Cancelled));
        // The output and the input go while the product may still be queued; new tensors of the same size are intact.
        drop((a, c));
        let other = device.streams().acquire().unwrap();
        let fresh: Vec<_> = (0..3)
            .map(|n| CudaTensor::full(&other, [8, 8], f64::from(n)).unwrap())
            .collect();
        for (n, tensor) in fresh.iter().enumerate() {
            assert!(
                tensor
                    .to_ndarray()
                    .unwrap()
                    .iter()
                    .all(|&value| value == n as f64)
            );
        }
        drop((fresh, other, held));
        check(runtime);
    }
}

/// NVlabs/cutile-rs#272: forgetting what was polled once.
#[test]
fn case_14_a_forgotten_guard_keeps_its_tensor() {
    let runtime = runtime(1, 1, 2);
    let device = runtime.default_device();
    let executor = SeededExecutor::new(1);
    let a = from_ndarray(&executor, device, matrix(4, 0)).unwrap();
    let guard = executor.run_until(a.read()).unwrap().unwrap();
    std::mem::forget(guard);
    scale(&executor, &a, 2.0).unwrap();
    let stuck = executor.run();
    let Err(AsyncError::Stalled(dump)) = stuck else {
        panic!()
    };
    assert!(dump.to_string().contains("holds it"), "{dump}");
    assert!(matches!(a.try_write(), Err(AsyncError::Pending { .. })));
    drop((a, executor));
    // Leaked, and never reused.
    let (_, alive) = runtime.shutdown().unwrap().remove(0);
    assert_ne!(alive, Default::default());
}
