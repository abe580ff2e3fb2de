//! The same bits for the same operands: of products and reductions, on any stream and thread, in any order of the device.

use crate::exact::{C32, C64, Exact, digits};
use crate::workspaces::Noting;
use cuda_buffer::{CaptureStep, DeviceData, Graph};
use cuda_driver::Call;
use cuda_runtime::{Runtime, Stream};
use cuda_sim::{Schedule, SimDriver};
use half::{bf16, f16};
use ndarray::Array2;
use std::sync::Arc;
use tensor_cuda::{
    Blas, CudaTensor, HostBlas, Norm, TensorError, assign_product, fill, gemm, gemm_batched,
    gemm_strided_batched, norm, sum,
};

fn runtime(schedule: Schedule) -> Runtime {
    let simulation = SimDriver::builder().schedule(schedule);
    let runtime = Runtime::builder().simulation(simulation).build().unwrap();
    crate::common::small_workspaces(&runtime);
    Blas::of(runtime.default_device()).set_deterministic(true);
    runtime
}

fn matrix<T: Exact>(runtime: &Runtime, extents: (usize, usize), seed: u64) -> CudaTensor<T, 2> {
    let value =
        |(i, j): (usize, usize)| T::of(digits(i * 131 + j, seed), digits(i * 131 + j, seed + 1));
    CudaTensor::from_ndarray(
        runtime.default_device(),
        &Array2::from_shape_fn(extents, value).view(),
    )
    .unwrap()
}

fn bits<T: Exact, const N: usize>(tensor: &CudaTensor<T, N>) -> Vec<u8> {
    bytemuck::cast_slice(&tensor.to_vec().unwrap()).to_vec()
}

/// Three matrices of these extents, with rows below that are left out: each begins at a multiple of 16 bytes, as matrices alone do.
/// Kernels may be chosen by that.
fn batch_of<T: Exact>(stream: &Stream, [m, n]: [usize; 2]) -> CudaTensor<T, 3> {
    CudaTensor::full(stream, [3, m.next_multiple_of(8), n], T::of(0.0, 0.0)).unwrap()
}

/// The bits of each.
fn matrices<T: Exact>(batch: &CudaTensor<T, 3>, [m, n]: [usize; 2]) -> Vec<Vec<u8>> {
    let (bits, bytes) = (bits(batch), n * size_of::<T>());
    let padded = bits.chunks(m.next_multiple_of(8) * bytes);
    padded.map(|matrix| matrix[..m * bytes].to_vec()).collect()
}

/// Sizes to try. On a GPU also such that its library has more than one way to add: many terms, few or many elements.
fn sizes() -> Vec<[usize; 3]> {
    let mut sizes = vec![[1, 1, 300], [33, 17, 65], [5, 1, 40], [64, 64, 9]];
    if crate::common::on_gpu() {
        sizes.extend([
            [64, 64, 8192],
            [1, 4096, 4096],
            [1024, 512, 2048],
            [1023, 257, 4097],
        ]);
    }
    sizes
}

/// A product in all the ways that must not matter, and sums and norms of it: the bits of each.
fn results<T: Exact<Magnitude: Exact>>(schedule: Schedule, [m, n, k]: [usize; 3]) -> Vec<Vec<u8>> {
    let runtime = runtime(schedule);
    let device = runtime.default_device();
    let (one, other) = (
        device.streams().acquire().unwrap(),
        device.streams().acquire().unwrap(),
    );
    let (a, b) = (
        matrix::<T>(&runtime, (m, k), 1),
        matrix::<T>(&runtime, (n, k), 2),
    );
    let of_b = || b.view().transposed();
    let (alpha, beta) = (T::of(0.7, 0.1), T::of(0.0, 0.0));
    let new = || CudaTensor::<T, 2>::uninitialized(device, [m, n]).unwrap();

    // Alone, on another stream while this one is busy, on a lease, from two threads.
    let mut first = new();
    gemm(&one, &mut first, alpha, &a, of_b(), beta).unwrap();
    let expected = bits(&first);
    let (mut busy, mut second) = (new(), new());
    gemm(&one, &mut busy, alpha, &a, of_b(), beta).unwrap();
    gemm(&other, &mut second, alpha, &a, of_b(), beta).unwrap();
    assert_eq!(bits(&second), expected);
    let lease = Blas::of(device).lease().unwrap();
    let mut third = new();
    gemm(&lease, &mut third, alpha, &a, of_b(), beta).unwrap();
    assert_eq!(bits(&third), expected);
    std::thread::scope(|scope| {
        for stream in [&one, &other] {
            let (a, b, expected) = (&a, &b, &expected);
            scope.spawn(move || {
                let mut out = CudaTensor::<T, 2>::uninitialized(stream.device(), [m, n]).unwrap();
                for _ in 0..3 {
                    gemm(stream, &mut out, alpha, a, b.view().transposed(), beta).unwrap();
                    assert_eq!(&bits(&out), expected);
                }
            });
        }
    });
    // As one of a batch, strided or not, and replayed by a graph.
    let mut batch = batch_of::<T>(&one, [m, n]);
    let (of_a, of_bs) = (
        a.view().broadcast([3, m, k]).unwrap(),
        of_b().broadcast([3, k, n]).unwrap(),
    );
    let outs = batch.view_mut().slice(1, 0..m).unwrap();
    gemm_strided_batched(&one, outs, alpha, of_a, of_bs, beta).unwrap();
    for matrix in matrices(&batch, [m, n]) {
        assert_eq!(matrix, expected);
    }
    let mut pair = [new(), new()];
    gemm_batched(&one, &mut pair, alpha, [&a, &a], [of_b(), of_b()], beta).unwrap();
    pair.iter().for_each(|out| assert_eq!(bits(out), expected));
    let graph = one
        .capture(|_| gemm(&one, &mut third, alpha, &a, of_b(), beta))
        .unwrap();
    for _ in 0..2 {
        fill(&other, &mut third, T::ZERO).unwrap();
        graph.launch(&other).unwrap();
        assert_eq!(bits(&third), expected);
    }

    let mut all = vec![expected];
    for stream in [&one, &other] {
        let mut columns = CudaTensor::<T, 1>::uninitialized(device, [n]).unwrap();
        let mut total = CudaTensor::<T, 0>::uninitialized(device, []).unwrap();
        let mut length = CudaTensor::<T::Magnitude, 0>::uninitialized(device, []).unwrap();
        sum(stream, &mut columns, &first, [0]).unwrap();
        sum(stream, &mut total, &first, [0, 1]).unwrap();
        norm(stream, &mut length, Norm::Two, &first, [0, 1]).unwrap();
        all.extend([bits(&columns), bits(&total), bits(&length)]);
    }
    let [_, of_one @ .., _, _, _] = &all[..] else {
        unreachable!()
    };
    assert_eq!(of_one, &all[4..], "of two streams");
    crate::common::assert_no_reports(&runtime);
    all
}

#[test]
fn the_same_operands_give_the_same_bits() {
    fn check<T: Exact<Magnitude: Exact>>() {
        for sizes in sizes() {
            let first = results::<T>(Schedule::Stepped { seed: 1 }, sizes);
            for schedule in [
                Schedule::Stepped { seed: 77 },
                Schedule::Eager,
                Schedule::Threaded,
            ] {
                assert_eq!(results::<T>(schedule, sizes), first);
            }
        }
    }
    check::<f32>();
    check::<f64>();
    check::<f16>();
    check::<bf16>();
    check::<C32>();
    check::<C64>();
}

/// Without the mode a batch may be computed by other kernels than its products alone; but each call gives the same bits on every stream
/// and handle, and in every replay.
#[test]
fn without_the_mode_a_call_gives_the_same_bits_in_every_run() {
    fn check<T: Exact>([m, n, k]: [usize; 3]) {
        let runtime = runtime(Schedule::Stepped { seed: 3 });
        let device = runtime.default_device();
        Blas::of(device).set_deterministic(false);
        let (one, other) = (
            device.streams().acquire().unwrap(),
            device.streams().acquire().unwrap(),
        );
        let (a, b) = (
            matrix::<T>(&runtime, (m, k), 5),
            matrix::<T>(&runtime, (k, n), 6),
        );
        let (alpha, beta) = (T::of(0.7, 0.1), T::of(0.3, 0.2));
        let of_a = || a.view().broadcast([3, m, k]).unwrap();
        let of_b = || b.view().broadcast([3, k, n]).unwrap();
        let start = T::of(1.0, 2.0);
        let mut alone = CudaTensor::<T, 2>::full(&one, [m, n], start).unwrap();
        let mut strided = batch_of::<T>(&one, [m, n]);
        let mut pair = [0, 1].map(|_| CudaTensor::<T, 2>::full(&one, [m, n], start).unwrap());
        let mut all = |stream: &Stream, graph: Option<&Graph>| {
            fill(stream, &mut alone, start).unwrap();
            fill(stream, &mut strided, start).unwrap();
            pair.iter_mut()
                .for_each(|out| fill(stream, out, start).unwrap());
            let mut step = || {
                gemm(stream, &mut alone, alpha, &a, &b, beta)?;
                let outs = strided.view_mut().slice(1, 0..m)?;
                gemm_strided_batched(stream, outs, alpha, of_a(), of_b(), beta)?;
                gemm_batched(stream, &mut pair, alpha, [&a, &a], [&b, &b], beta)
            };
            let captured = match graph {
                Some(graph) => {
                    graph.launch(stream).unwrap();
                    None
                }
                None => {
                    step().unwrap();
                    Some(stream.capture(|_| step()).unwrap())
                }
            };
            let [first, last] = pair.each_ref().map(bits);
            let mut results = vec![bits(&alone), first, last];
            results.extend(matrices(&strided, [m, n]));
            (captured, results)
        };
        let (graph, expected) = all(&one, None);
        let (_, again) = all(&other, None);
        assert_eq!(again, expected, "on another stream, by another handle");
        for stream in [&other, &one, &one] {
            let (_, replayed) = all(stream, graph.as_ref());
            assert_eq!(replayed, expected, "replayed");
        }
        crate::common::assert_no_reports(&runtime);
    }
    for sizes in sizes() {
        check::<f32>(sizes);
        check::<f16>(sizes);
        check::<bf16>(sizes);
        check::<C64>(sizes);
    }
}

#[test]
fn a_provider_that_does_not_promise_it_is_refused() {
    let runtime = runtime(Schedule::Stepped { seed: 0 });
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let a = matrix::<f32>(&runtime, (2, 2), 1);
    let mut c = CudaTensor::<f32, 2>::full(&stream, [2, 2], 5.0).unwrap();
    let blas = Blas::of(device);
    blas.set_provider(Arc::new(Noting::default()));
    stream.synchronize().unwrap();
    let before = device.call_counts();
    let refused = [
        assign_product(&stream, &mut c, &a, &a),
        gemm_batched(&stream, [&mut c], 1.0, [&a], [&a], 0.0),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(
            matches!(
                error,
                TensorError::NotDeterministic {
                    provider: "noting",
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("set_deterministic"), "{error}");
    }
    assert_eq!((device.call_counts() - before).of(Call::LaunchKernel), 0);
    assert_eq!(
        (c.to_vec().unwrap(), blas.counts().products),
        (vec![5.0; 4], 0)
    );
    // Without the mode, or with a provider that can.
    blas.set_deterministic(false);
    assign_product(&stream, &mut c, &a, &a).unwrap();
    blas.set_deterministic(true);
    assert!(assign_product(&stream, &mut c, &a, &a).is_err());
    blas.set_provider(Arc::new(HostBlas::default()));
    assign_product(&stream, &mut c, &a, &a).unwrap();
    assert_eq!(blas.counts().products, 2);
}
