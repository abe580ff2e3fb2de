//! The same bits for the same operands: of products and reductions, on any stream and thread, in any order of the device.

use crate::exact::{C32, C64, Exact, digits};
use crate::workspaces::Noting;
use cuda_buffer::{CaptureStep, DeviceData};
use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::{Schedule, SimDriver};
use half::{bf16, f16};
use ndarray::Array2;
use std::sync::Arc;
use tensor_cuda::{
    Blas, CudaTensor, HostBlas, Norm, TensorError, assign_product, gemm, gemm_batched,
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
    let mut batch = CudaTensor::<T, 3>::uninitialized(device, [3, m, n]).unwrap();
    let (of_a, of_bs) = (
        a.view().broadcast([3, m, k]).unwrap(),
        of_b().broadcast([3, k, n]).unwrap(),
    );
    gemm_strided_batched(&one, &mut batch, alpha, of_a, of_bs, beta).unwrap();
    assert_eq!(bits(&batch), expected.repeat(3));
    let mut pair = [new(), new()];
    gemm_batched(&one, &mut pair, alpha, [&a, &a], [of_b(), of_b()], beta).unwrap();
    pair.iter().for_each(|out| assert_eq!(bits(out), expected));
    let graph = one
        .capture(|_| gemm(&one, &mut third, alpha, &a, of_b(), beta))
        .unwrap();
    for _ in 0..2 {
        tensor_cuda::fill(&other, &mut third, T::ZERO).unwrap();
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
        for sizes in [[1, 1, 300], [33, 17, 65], [5, 1, 40], [64, 64, 9]] {
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
