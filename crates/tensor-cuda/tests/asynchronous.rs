//! Operations on tensors whose producer may not have run yet.

use async_value::{Async, AsyncError, Cause, Limited, SeededExecutor, Spawn, spawn};
use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::{Schedule, SimDriver};
use ndarray::{Array2, array};
use std::sync::Arc;
use tensor_cuda::asynchronous::{
    Recording, add, add_bias, argmax, assign_product, axpy, cast, copy, device_task, fill,
    from_ndarray, gemm, gemm_batched, gemm_strided_batched, gemv, linear, map, map_in_place, max,
    min, multiply, multiply_in_place, norm, scale, sum, to_device, to_ndarray,
};
use tensor_cuda::{Activation, CudaTensor, Map, Norm, TensorError, TensorResult};

type Matrix = Async<CudaTensor<f64, 2>>;

fn runtime(seed: u64, devices: u32, streams: usize) -> Runtime {
    let simulation = SimDriver::builder()
        .devices(devices)
        .schedule(Schedule::Stepped { seed });
    let builder = Runtime::builder().streams_per_device(streams);
    let runtime = builder.simulation(simulation).build().unwrap();
    small_workspaces(&runtime);
    runtime
}

/// Makes workspaces of cuBLAS small, where the loader finds a driver and cuBLAS: an emulated driver fills whatever is allocated.
fn small_workspaces(runtime: &Runtime) {
    #[cfg(feature = "cuda")]
    if runtime.simulation().is_none()
        && let Ok(cublas) = tensor_cuda::Cublas::builder().workspace_bytes(4096).open()
    {
        for device in runtime.devices() {
            tensor_cuda::Blas::of(device).set_provider(Arc::new(cublas));
        }
    }
    let _ = runtime;
}

fn check(runtime: Runtime) {
    match runtime.simulation() {
        Some(simulated) => simulated.assert_no_reports(),
        // Where the loader finds a driver. All runtimes on the emulated one share its simulation.
        #[cfg(feature = "cuda")]
        None => assert_eq!(cuda_contract::emulated::take_reports(), 0),
        #[cfg(not(feature = "cuda"))]
        None => unreachable!("there is no other driver"),
    }
    for (_, alive) in runtime.shutdown().unwrap() {
        assert_eq!(alive, Default::default());
    }
}

fn matrix(size: usize, seed: usize) -> Array2<f64> {
    Array2::from_shape_fn((size, size), |(i, j)| {
        ((i * 7 + j * 3 + seed) % 11) as f64 - 5.0
    })
}

#[test]
fn operations_equal_those_on_the_host() {
    for seed in 0..10 {
        let runtime = runtime(seed, 1, 3);
        let device = runtime.default_device();
        let executor = SeededExecutor::new(seed);
        let (x, y) = (matrix(4, 0), matrix(4, 5));
        let a = from_ndarray(&executor, device, x.clone()).unwrap();
        let b = from_ndarray(&executor, device, y.clone()).unwrap();
        let out: Vec<Matrix> = (0..8).map(|_| Async::empty()).collect();
        assign_product(&executor, &out[0], &a, &b).unwrap();
        add(&executor, &out[1], &out[0], &b).unwrap();
        linear(&executor, &out[2], 2.0, &a, -1.0, &b).unwrap();
        multiply(&executor, &out[3], &out[2], &a).unwrap();
        map(&executor, &out[4], Map::Absolute, &b).unwrap();
        copy(&executor, &out[5], &a).unwrap();
        // In place, with writes of inputs between: later ones don't change what earlier operations read.
        scale(&executor, &a, 3.0).unwrap();
        axpy(&executor, &out[5], 2.0, &a).unwrap();
        multiply_in_place(&executor, &b, &out[1]).unwrap();
        map_in_place(&executor, &b, Map::Negate).unwrap();
        gemm(&executor, &out[0], 0.5, &a, &out[2], -1.0).unwrap();
        gemm(&executor, &out[6], 1.0, &a, &a, 0.0).unwrap();
        fill(&executor, &out[2], 7.0).unwrap();
        copy(&executor, &out[7], &out[2]).unwrap();

        let product = x.dot(&y);
        let first = &x * 2.0 - &y;
        let sum = &product + &y;
        let tripled = &x * 3.0;
        let expected = [
            (&out[0], tripled.dot(&first) * 0.5 - &product),
            (&out[1], sum.clone()),
            (&out[2], Array2::from_elem((4, 4), 7.0)),
            (&out[3], &first * &x),
            (&out[4], y.mapv(f64::abs)),
            (&out[5], &x + &tripled * 2.0),
            (&out[6], tripled.dot(&tripled)),
            (&out[7], Array2::from_elem((4, 4), 7.0)),
            (&a, tripled.clone()),
            (&b, -(&y * &sum)),
        ];
        let hosts: Vec<_> = expected
            .into_iter()
            .map(|(value, expected)| (to_ndarray(&executor, value).unwrap(), expected))
            .collect();
        for (at, (host, expected)) in hosts.iter().enumerate() {
            let host = executor.run_until(host.read()).unwrap().unwrap();
            assert_eq!(*host, *expected, "seed {seed}, value {at}");
        }
        drop((a, b, out));
        check(runtime);
    }
}

#[test]
fn products_of_vectors_and_batches_and_reductions_equal_those_on_the_host() {
    for seed in 0..10 {
        let runtime = runtime(seed, 1, 3);
        let device = runtime.default_device();
        let executor = SeededExecutor::new(seed);
        let (x, y) = (matrix(3, 0), matrix(3, 5));
        let row = array![1.0, -2.0, 3.0];
        let a = from_ndarray(&executor, device, x.clone()).unwrap();
        let b = from_ndarray(&executor, device, y.clone()).unwrap();
        let v = from_ndarray(&executor, device, row.clone()).unwrap();
        let cube = ndarray::stack![ndarray::Axis(0), x, y];
        let both = from_ndarray(&executor, device, cube.clone()).unwrap();
        // What they make, and what they change; all of it before anything has run.
        let (w, sums, largest, smallest): (Async<CudaTensor<f64, 1>>, _, _, _) = (
            Async::empty(),
            Async::empty(),
            Async::empty(),
            Async::empty(),
        );
        let (total, length) = (Async::empty(), Async::empty());
        let (first, second): (Matrix, Matrix) = (Async::empty(), Async::empty());
        let (squares, at) = (Async::empty(), Async::empty());
        let narrow: Async<CudaTensor<f32, 2>> = Async::empty();
        gemv(&executor, &w, 2.0, &a, &v, 0.0).unwrap();
        gemv(&executor, &w, 1.0, &b, &v, -1.0).unwrap();
        gemm_strided_batched(&executor, &squares, 1.0, &both, &both, 0.0).unwrap();
        gemm_batched(
            &executor,
            &[&first, &second],
            1.0,
            &[&a, &b],
            &[&b, &b],
            0.0,
        )
        .unwrap();
        sum(&executor, &sums, &first, [1]).unwrap();
        sum(&executor, &total, &second, [0, 1]).unwrap();
        max(&executor, &largest, &first, [0]).unwrap();
        min(&executor, &smallest, &first, [0]).unwrap();
        norm(&executor, &length, Norm::One, &a, [0, 1]).unwrap();
        argmax(&executor, &at, &second, 1).unwrap();
        cast(&executor, &narrow, &second).unwrap();
        add_bias(&executor, &first, &v, Activation::Relu).unwrap();
        // Changes nothing of what was asked for before.
        fill(&executor, &a, 9.0).unwrap();
        fill(&executor, &second, 9.0).unwrap();

        macro_rules! equal {
            ($value:expr, $expected:expr) => {
                let host = to_ndarray(&executor, $value).unwrap();
                let host = executor.run_until(host.read()).unwrap().unwrap();
                assert_eq!(*host, $expected, "seed {seed}");
            };
        }
        let (xy, yy) = (x.dot(&y), y.dot(&y));
        let fold = |axis, f: fn(f64, f64) -> f64, start| {
            xy.fold_axis(ndarray::Axis(axis), start, move |&a, &b| f(a, b))
        };
        equal!(&w, y.dot(&row) - x.dot(&row) * 2.0);
        equal!(&squares, ndarray::stack![ndarray::Axis(0), x.dot(&x), yy]);
        equal!(&sums, xy.sum_axis(ndarray::Axis(1)));
        equal!(&total, ndarray::arr0(yy.sum()));
        equal!(&largest, fold(0, f64::max, f64::NEG_INFINITY));
        equal!(&smallest, fold(0, f64::min, f64::INFINITY));
        equal!(&length, ndarray::arr0(x.mapv(f64::abs).sum()));
        let largest_at = |row: ndarray::ArrayView1<'_, f64>| {
            let most = row.fold(f64::NEG_INFINITY, |most, &x| most.max(x));
            row.iter().position(|&x| x == most).unwrap() as u32
        };
        equal!(&at, yy.map_axis(ndarray::Axis(1), largest_at));
        equal!(&narrow, yy.mapv(|x| x as f32));
        equal!(&first, (&xy + &row).mapv(|x| x.max(0.0)));
        equal!(&second, Array2::from_elem((3, 3), 9.0));
        drop((a, b, v, both, w, sums, largest, smallest, total, length));
        drop((first, second, squares, narrow, at));
        check(runtime);
    }
}

#[test]
fn a_reduction_of_an_axis_that_is_not_there_fails_its_output() {
    let runtime = runtime(0, 1, 2);
    let device = runtime.default_device();
    let executor = SeededExecutor::new(0);
    let a = from_ndarray(&executor, device, matrix(3, 0)).unwrap();
    let out: Async<CudaTensor<f64, 1>> = Async::empty();
    sum(&executor, &out, &a, [7]).unwrap();
    let failed = executor.run_until(out.read()).unwrap();
    let Err(AsyncError::Failed(failure)) = failed else {
        panic!()
    };
    let error = failure.error::<TensorError>().unwrap();
    assert!(
        matches!(error, TensorError::BadAxes { axes, rank: 2, .. } if axes == &[7]),
        "{error}"
    );
    sum(&executor, &out, &a, [1]).unwrap();
    drop(executor.run_until(out.read()).unwrap().unwrap());
    drop((a, out));
    check(runtime);
}

#[test]
fn a_batch_says_which_operand_is_wrong_and_fails_as_a_whole() {
    let runtime = runtime(0, 1, 2);
    let device = runtime.default_device();
    let executor = SeededExecutor::new(0);
    let a = from_ndarray(&executor, device, matrix(3, 0)).unwrap();
    let wide = from_ndarray(&executor, device, matrix(2, 0)).unwrap();
    let (b, c): (Matrix, Matrix) = (Async::empty(), Async::empty());
    let on = &executor;
    let none = gemm_batched::<_, f64>(on, &[], 1.0, &[], &[], 0.0);
    assert!(matches!(none, Err(TensorError::NoOperand)));
    let short = gemm_batched(on, &[&b, &c], 1.0, &[&a], &[&a, &a], 0.0).unwrap_err();
    assert!(
        matches!(&short, TensorError::ShapeMismatch { operand: "a", given, .. } if given == &[1]),
        "{short}"
    );
    for (out, a, operand) in [([&b, &b], [&a, &a], "out"), ([&b, &c], [&a, &b], "a")] {
        let aliased = gemm_batched(on, &out, 1.0, &a, &a, 0.0);
        assert!(
            matches!(aliased, Err(TensorError::Aliased { operand: found, .. }) if found == operand)
        );
    }
    // None of these has taken a ticket.
    executor
        .run_until(async { a.read().await.map(drop) })
        .unwrap()
        .unwrap();
    assert!(matches!(b.try_read(), Err(AsyncError::Empty { .. })));
    gemm_batched(on, &[&b, &c], 1.0, &[&a, &a], &[&a, &wide], 0.0).unwrap();
    for value in [&b, &c] {
        let failed = executor.run_until(value.read()).unwrap();
        let Err(AsyncError::Failed(failure)) = failed else {
            panic!()
        };
        assert_eq!(failure.operation(), "gemm_batched");
        assert!(matches!(
            failure.error(),
            Some(TensorError::ShapeMismatch { operand: "b", .. })
        ));
    }
    drop((a, b, c, wide));
    check(runtime);
}

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

/// Once page-locked memory is there, copies between host and device ask for no more of it, and free none.
#[test]
fn copies_to_and_from_the_host_keep_their_memory() {
    for seed in 0..10 {
        let runtime = runtime(seed, 1, 3);
        let device = runtime.default_device();
        let executor = SeededExecutor::new(seed);
        let round = |number: usize| {
            let values: Vec<_> = (0..3)
                .map(|seed| from_ndarray(&executor, device, matrix(5, number + seed)).unwrap())
                .collect();
            let hosts: Vec<_> = values
                .iter()
                .map(|value| to_ndarray(&executor, value).unwrap())
                .collect();
            drop(values);
            for (seed, host) in hosts.iter().enumerate() {
                let host = executor.run_until(host.read()).unwrap().unwrap();
                assert_eq!(
                    *host,
                    matrix(5, number + seed),
                    "seed {seed}, round {number}"
                );
            }
        };
        round(0);
        let before = device.call_counts();
        for number in 1..10 {
            round(number);
        }
        let calls = device.call_counts() - before;
        assert!(calls.of(Call::MemHostAlloc) <= 5, "{calls}");
        assert_eq!(calls.of(Call::MemFreeHost), 0, "{calls}");
        check(runtime);
    }
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
fn a_tensor_is_ready_for_the_device_once_its_work_is_queued() {
    let runtime = runtime(0, 1, 4);
    let device = runtime.default_device();
    let executor = SeededExecutor::new(0);
    let a = from_ndarray(&executor, device, matrix(4, 0)).unwrap();
    executor.run().unwrap();
    // The write of the input is queued on a stream that does not run.
    let Some(simulation) = runtime.simulation() else {
        return; // Hardware holds no stream on request.
    };
    let stuck = device.streams().acquire().unwrap();
    // SAFETY: The name is used for nothing but to hold the stream.
    let name = unsafe { stuck.raw() };
    assert!(simulation.hold_stream(name));
    let mut input = a.try_write().unwrap();
    tensor_cuda::fill(&stuck, input.get_mut().unwrap(), 2.0).unwrap();
    input.release();
    let (b, c): (Matrix, Matrix) = (Async::empty(), Async::empty());
    assign_product(&executor, &b, &a, &a).unwrap();
    assign_product(&executor, &c, &b, &a).unwrap();
    let host = to_ndarray(&executor, &c).unwrap();
    for value in [&b, &c] {
        drop(executor.run_until(value.read()).unwrap().unwrap());
    }
    while executor.step() {}
    assert!(
        matches!(host.try_read(), Err(AsyncError::Pending { .. })),
        "queued, not done"
    );
    assert!(simulation.release_stream(name));
    drop(stuck);
    let x = Array2::from_elem((4, 4), 2.0);
    let host = executor.run_until(host.read()).unwrap().unwrap();
    assert_eq!(*host, x.dot(&x).dot(&x));
    drop((a, b, c));
    check(runtime);
}

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

#[test]
fn a_computation_goes_on_where_it_was_moved_to() {
    for seed in 0..10 {
        let runtime = runtime(seed, 2, 2);
        let [first, second] = runtime.devices() else {
            panic!()
        };
        let executor = SeededExecutor::new(seed);
        let a = from_ndarray(&executor, first, matrix(4, 1)).unwrap();
        let b: Matrix = Async::empty();
        assign_product(&executor, &b, &a, &a).unwrap();
        let moved = to_device(&executor, &b, second).unwrap();
        scale(&executor, &b, 0.0).unwrap();
        scale(&executor, &moved, 2.0).unwrap();
        // Operands of two devices are not brought together behind the caller's back.
        let wrong: Matrix = Async::empty();
        add(&executor, &wrong, &moved, &b).unwrap();
        let host = to_ndarray(&executor, &moved).unwrap();
        let host = executor.run_until(host.read()).unwrap().unwrap();
        assert_eq!(*host, matrix(4, 1).dot(&matrix(4, 1)) * 2.0);
        assert!(moved.try_read().unwrap().device().same(second));
        executor
            .run_until(async { wrong.read().await.is_err() })
            .unwrap();
        let Err(AsyncError::Failed(failure)) = wrong.try_read() else {
            panic!()
        };
        assert!(
            matches!(failure.error(), Some(TensorError::WrongDevice { .. })),
            "{failure}"
        );
        drop((a, b, moved, wrong));
        check(runtime);
    }
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

fn block_on(task: impl Future<Output = ()>) {
    let executor = SeededExecutor::new(0);
    executor.run_until(task).unwrap();
}

#[test]
fn a_recording_is_captured_without_waiting_or_is_refused_before() {
    for seed in 0..10 {
        let runtime = runtime(seed, 1, 4);
        let device = runtime.default_device();
        let executor = SeededExecutor::new(seed);
        let new = |seed| from_ndarray(&executor, device, matrix(4, seed)).unwrap();
        let (a, x, y, z) = (new(0), new(1), new(2), new(3));
        let program = |on: &dyn Spawn| {
            assign_product(on, &y, &a, &x).unwrap();
            scale(on, &y, 2.0).unwrap();
            add(on, &z, &y, &x).unwrap();
        };
        program(&executor);
        executor
            .run_until(async { z.read().await.map(drop) })
            .unwrap()
            .unwrap();
        let expected = a_times(&matrix(4, 0), &matrix(4, 1)) * 2.0 + &matrix(4, 1);

        // Behind an access that is not recorded: refused before the capture begins, and nothing has changed.
        let held = x.write();
        let recording = Recording::new();
        program(&recording);
        let lease = Arc::new(tensor_cuda::Blas::of(device).lease().unwrap());
        let captures = device.call_counts().of(Call::StreamBeginCapture);
        let Err(TensorError::Value(AsyncError::Pending {
            operation: None, ..
        })) = recording.capture(&lease)
        else {
            panic!("somebody else comes first")
        };
        assert_eq!(
            (
                recording.len(),
                device.call_counts().of(Call::StreamBeginCapture)
            ),
            (3, captures)
        );
        let mut guard = held.wait().unwrap();
        tensor_cuda::copy(
            lease.stream(),
            guard.get_mut().unwrap(),
            &*a.try_read().unwrap(),
        )
        .unwrap();
        guard.release();

        let graph = recording.capture(&lease).unwrap();
        assert!(recording.is_empty());
        graph.launch(lease.stream()).unwrap();
        let twice = a_times(&matrix(4, 0), &matrix(4, 0)) * 2.0 + &matrix(4, 0);
        assert_eq!(z.try_read().unwrap().to_ndarray().unwrap(), twice);
        // Replays are ordered with eager work on other streams.
        let other = device.streams().acquire().unwrap();
        let back = CudaTensor::from_ndarray(device, &matrix(4, 1).view()).unwrap();
        let mut guard = x.try_write().unwrap();
        tensor_cuda::copy(&other, guard.get_mut().unwrap(), &back).unwrap();
        guard.release();
        graph.launch(lease.stream()).unwrap();
        assert_eq!(z.try_read().unwrap().to_ndarray().unwrap(), expected);

        // What waits for something that is no value is refused before as well, and may be tried again.
        let recording = Recording::new();
        scale(&recording, &y, 1.0).unwrap();
        let open = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let gate = open.clone();
        spawn(&recording, "timer", || async move {
            std::future::poll_fn(|_| match gate.load(std::sync::atomic::Ordering::Relaxed) {
                true => std::task::Poll::Ready(Ok(())),
                false => std::task::Poll::Pending,
            })
            .await
        })
        .unwrap();
        let captures = device.call_counts().of(Call::StreamBeginCapture);
        let refused = recording.capture(&lease).unwrap_err();
        assert!(
            matches!(refused, TensorError::Suspended { left: 1 }),
            "{refused}"
        );
        assert_eq!(
            (
                recording.len(),
                device.call_counts().of(Call::StreamBeginCapture)
            ),
            (2, captures)
        );
        open.store(true, std::sync::atomic::Ordering::Relaxed);
        recording.capture(&lease).unwrap();
        // Also behind a value that is there.
        let late = Recording::new();
        spawn(&late, "late", || {
            let y = y.write();
            async move {
                let y = y.await;
                std::future::pending::<()>().await;
                y.release();
                Ok(())
            }
        })
        .unwrap();
        let refused = late.capture(&lease).unwrap_err();
        assert!(
            matches!(refused, TensorError::Suspended { left: 1 }),
            "{refused}"
        );
        drop(late);
        y.try_write()
            .unwrap()
            .set(CudaTensor::new(device, [4, 4]).unwrap());

        // An operation that fails takes the capture with it, and the stream stays usable.
        let wrong = Async::new(CudaTensor::<f64, 2>::new(device, [1, 3]).unwrap());
        let recording = Recording::new();
        scale(&recording, &y, 2.0).unwrap();
        add(&recording, &wrong, &y, &x).unwrap();
        let Err(TensorError::Value(AsyncError::Failed(failure))) = recording.capture(&lease) else {
            panic!("shapes differ")
        };
        assert_eq!(failure.operation(), "add");
        tensor_cuda::fill(
            lease.stream(),
            y.try_write().unwrap().get_mut().unwrap(),
            1.0,
        )
        .unwrap();
        drop((a, x, y, z, wrong, back, graph, lease, other, recording));
        check(runtime);
    }
}

fn a_times(a: &Array2<f64>, b: &Array2<f64>) -> Array2<f64> {
    a.dot(b)
}

#[expect(dead_code, reason = "asserts at compile time")]
fn executors_are_objects(executor: &dyn Spawn, a: &Matrix) -> TensorResult<()> {
    scale(executor, a, 1.0)
}
