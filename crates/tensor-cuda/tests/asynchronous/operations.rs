//! What operations make of their values.

use super::*;

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
