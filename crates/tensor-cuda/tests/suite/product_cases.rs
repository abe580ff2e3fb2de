//! Products of views that others got wrong, and what a product costs.

use crate::common::{Setup, setup};
use crate::exact::{C32, C64, Exact};
use cuda_buffer::{CaptureStep, DeviceArena, DeviceData, DeviceSlab};
use cuda_driver::Call;
use cuda_runtime::Runtime;
use half::{bf16, f16};
use ndarray::{Array1, Array2, array};
use space_core::{Alignment, Undef};
use tensor_cuda::{
    Blas, CudaTensor, IntoViewMut, Layout, TensorError, TensorResult, TensorView, assign_product,
    fill, gemm, gemm_batched, gemm_strided_batched, gemv, matmul, to_ndarray,
};

fn matrix(setup: &Setup, host: &Array2<f64>) -> CudaTensor<f64, 2> {
    CudaTensor::from_ndarray(setup.device(), &host.view()).unwrap()
}

/// Case 23 (rust-ndarray/ndarray#173): rows or columns backwards, in operands and in the output; copied, and counted.
#[test]
fn case_23_negative_strides_give_the_right_product() {
    let setup = setup(0);
    let (a, one) = (
        matrix(&setup, &array![[1.0, 2.0], [3.0, 4.0]]),
        matrix(&setup, &array![[1.0, 0.0], [0.0, 1.0]]),
    );
    let mut c = matrix(&setup, &array![[9.0, 9.0], [9.0, 9.0]]);
    let rows = a.view().reversed(0).unwrap();
    let columns = a.view().reversed(1).unwrap();
    let blas = Blas::of(setup.device());
    assign_product(&setup.stream, &mut c, rows, &one).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), array![[3.0, 4.0], [1.0, 2.0]]);
    assert_eq!((blas.counts().copies, blas.counts().copied_bytes), (1, 32));
    assign_product(&setup.stream, &mut c, columns, &one).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), array![[2.0, 1.0], [4.0, 3.0]]);
    assert_eq!(blas.counts().copies, 2);
    assign_product(&setup.stream, c.view_mut().reversed(0).unwrap(), &a, &one).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), array![[3.0, 4.0], [1.0, 2.0]]);
    gemm(
        &setup.stream,
        c.view_mut().reversed(1).unwrap(),
        1.0,
        &a,
        &one,
        1.0,
    )
    .unwrap();
    assert_eq!(c.to_ndarray().unwrap(), array![[5.0, 5.0], [5.0, 5.0]]);
    assert_eq!(blas.counts().copies, 4);
    // Transposes, and a row or column with any stride, need none.
    let wide = a.view().slice_step(1, 0..2, 2).unwrap();
    let mut one_column = CudaTensor::<f64, 2>::uninitialized(setup.device(), [2, 1]).unwrap();
    assign_product(&setup.stream, &mut one_column, a.view().transposed(), wide).unwrap();
    assert_eq!(one_column.to_ndarray().unwrap(), array![[10.0], [14.0]]);
    assert_eq!(blas.counts().copies, 4);
    drop((a, one, c, one_column, blas));
    setup.finish();
}

/// Case 22 (rust-ndarray/ndarray#584): padded rows and columns, whose padding is not touched.
#[test]
fn case_22_padded_matrices_keep_their_padding() {
    let setup = setup(0);
    let ones = matrix(&setup, &Array2::ones((2, 2)));
    for layout in [
        Layout::column_major_padded([2, 2], 5),
        Layout::row_major_padded([2, 2], 3),
    ] {
        let layout = layout.unwrap();
        let mut c = CudaTensor::from_buffer(
            cuda_buffer::CudaBuffer::from_slice(setup.device(), &[7.0; 8]).unwrap(),
            layout,
        )
        .map_err(|refused| refused.error)
        .unwrap();
        assign_product(&setup.stream, &mut c, &ones, &ones).unwrap();
        assert_eq!(c.to_ndarray().unwrap(), array![[2.0, 2.0], [2.0, 2.0]]);
        let memory = c.to_vec().unwrap();
        assert_eq!(
            memory.iter().filter(|&&x| x == 7.0).count(),
            4,
            "{memory:?}"
        );
    }
    let short = cuda_buffer::CudaBuffer::<f64>::new(setup.device(), 6).unwrap();
    let error = CudaTensor::from_buffer(short, Layout::column_major_padded([2, 2], 5).unwrap())
        .unwrap_err()
        .error;
    assert!(
        matches!(
            error,
            TensorError::PastMemory {
                operand: "a tensor",
                end: 7,
                len: 6,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(Blas::of(setup.device()).counts().copies, 0);
    drop(ones);
    setup.finish();
}

/// Cases 20 and 21 (JuliaGPU/CUDA.jl#2952, flashinfer-ai/flashinfer#4724), for batches and other types.
#[test]
fn case_21_what_is_not_read_can_be_anything() {
    let setup = setup(0);
    let device = setup.device();
    let nan =
        CudaTensor::full(&setup.stream, [2, 3, 3], C64::new(f64::NAN, f64::INFINITY)).unwrap();
    let ones = CudaTensor::full(&setup.stream, [2, 3, 3], C64::new(1.0, 0.0)).unwrap();
    let mut c = CudaTensor::<C64, 3>::uninitialized(device, [2, 3, 3]).unwrap();
    let (one, zero) = (C64::new(1.0, 0.0), C64::new(0.0, -0.0));
    gemm_strided_batched(&setup.stream, &mut c, one, &ones, &ones, zero).unwrap();
    assert!(
        c.to_ndarray()
            .unwrap()
            .iter()
            .all(|&x| x == C64::new(3.0, 0.0))
    );
    // alpha = 0: only scaled.
    gemm_strided_batched(&setup.stream, &mut c, zero, &nan, &nan, C64::new(2.0, 0.0)).unwrap();
    assert!(
        c.to_ndarray()
            .unwrap()
            .iter()
            .all(|&x| x == C64::new(6.0, 0.0))
    );
    gemm_strided_batched(&setup.stream, &mut c, zero, &nan, &nan, one).unwrap();
    assert!(
        c.to_ndarray()
            .unwrap()
            .iter()
            .all(|&x| x == C64::new(6.0, 0.0))
    );
    // No products either: neither is the provider called.
    assert_eq!(Blas::of(device).counts().products, 1);
    fill(&setup.stream, &mut c, C64::new(f64::NAN, 0.0)).unwrap();
    gemm_strided_batched(&setup.stream, &mut c, zero, &nan, &nan, zero).unwrap();
    assert!(
        c.to_ndarray()
            .unwrap()
            .iter()
            .all(|&x| x == C64::new(0.0, 0.0))
    );
    // beta = 1: what is there stays.
    fill(&setup.stream, &mut c, C64::new(f64::NAN, 0.0)).unwrap();
    gemm_strided_batched(&setup.stream, &mut c, one, &ones, &ones, one).unwrap();
    assert!(c.to_ndarray().unwrap().iter().all(|x| x.re.is_nan()));
    drop((nan, ones, c));
    setup.finish();
}

/// m, n or k of 0, alpha = 0, and beta = 0 with NaN in what is not read: the right value, of every type.
#[test]
fn empty_products_and_factors_of_zero() {
    fn check<T: Exact>() {
        let setup = setup(0);
        let s = &setup.stream;
        let number = |x: f64| T::of(x, 0.0);
        let full = |extents, x: f64| CudaTensor::<T, 2>::full(s, extents, number(x)).unwrap();
        let all = |tensor: &CudaTensor<T, 2>| {
            tensor
                .to_vec()
                .unwrap()
                .into_iter()
                .map(|x| x.exact().re)
                .collect::<Vec<_>>()
        };
        let nan = full([2, 2], f64::NAN);
        // k = 0: C becomes beta C, and 0 for beta = 0 whatever it held.
        let (a, b) = (full([2, 0], 0.0), full([0, 2], 0.0));
        for (start, beta, end) in [
            (3.0, 1.0, 3.0),
            (3.0, 2.0, 6.0),
            (f64::NAN, 0.0, 0.0),
            (f64::NAN, -0.0, 0.0),
        ] {
            let mut c = full([2, 2], start);
            gemm(s, &mut c, number(1.0), &a, &b, number(beta)).unwrap();
            assert_eq!(all(&c), [end; 4]);
        }
        // alpha = 0: the operands are not read.
        for (start, beta, end) in [(3.0, 1.0, 3.0), (3.0, 2.0, 6.0), (f64::NAN, 0.0, 0.0)] {
            let mut c = full([2, 2], start);
            gemm(s, &mut c, number(0.0), &nan, &nan, number(beta)).unwrap();
            assert_eq!(all(&c), [end; 4]);
        }
        // beta = 0: the output is not; with 1 a NaN stays.
        let ones = full([2, 2], 1.0);
        for (beta, end) in [(0.0, 2.0), (1.0, f64::NAN)] {
            let mut c = full([2, 2], f64::NAN);
            gemm(s, &mut c, number(1.0), &ones, &ones, number(beta)).unwrap();
            assert!(
                all(&c)
                    .iter()
                    .all(|x| *x == end || (x.is_nan() && end.is_nan()))
            );
        }
        // m or n = 0: nothing to do, and no call of anything.
        setup.stream.synchronize().unwrap();
        let (none, other) = (full([0, 2], 0.0), full([2, 0], 0.0));
        let (mut rows, mut columns) = (full([0, 2], 0.0), full([2, 0], 0.0));
        let before = setup.device().call_counts();
        gemm(s, &mut rows, number(1.0), &none, &ones, number(0.0)).unwrap();
        gemm(s, &mut columns, number(1.0), &ones, &other, number(1.0)).unwrap();
        assert_eq!((setup.device().call_counts() - before).total(), 0);
        drop((nan, a, b, ones, none, other, rows, columns));
        setup.finish();
    }
    check::<f32>();
    check::<f64>();
    check::<f16>();
    check::<bf16>();
    check::<C32>();
    check::<C64>();
}

/// Strides of 0, backwards, or of 1 in neither direction: the right value by way of a copy, which is counted; in an operand and in
/// the output, of matrices and of batches.
#[test]
fn strides_that_blas_cant_take() {
    let setup = setup(0);
    let s = &setup.stream;
    let device = setup.device();
    let blas = Blas::of(device);
    let host = array![[1.0_f64, 2.0], [3.0, 4.0]];
    let m = CudaTensor::from_ndarray(device, &host.view()).unwrap();
    let large = CudaTensor::from_ndarray(
        device,
        &Array2::from_shape_fn((4, 4), |(i, j)| (i * 4 + j) as f64).view(),
    )
    .unwrap();
    let spread = || {
        large
            .view()
            .slice_step(0, 0..4, 2)
            .unwrap()
            .slice_step(1, 0..4, 2)
            .unwrap()
    };
    let spread_host = array![[0.0, 2.0], [8.0, 10.0]];
    let repeated = || m.view().slice(0, 1..2).unwrap().broadcast([2, 2]).unwrap();
    let repeated_host = array![[3.0, 4.0], [3.0, 4.0]];
    let mut c = CudaTensor::<f64, 2>::uninitialized(device, [2, 2]).unwrap();
    let mut product = |a: TensorView<'_, f64, 2>, b: TensorView<'_, f64, 2>| {
        assign_product(s, &mut c, a, b).unwrap();
        c.to_ndarray().unwrap()
    };
    assert_eq!(product(spread(), m.view()), spread_host.dot(&host));
    assert_eq!(product(m.view(), spread()), host.dot(&spread_host));
    assert_eq!(product(repeated(), m.view()), repeated_host.dot(&host));
    assert_eq!(
        product(m.view(), repeated().transposed()),
        host.dot(&repeated_host.t())
    );
    assert_eq!(
        product(m.view().reversed(0).unwrap(), m.view().reversed(1).unwrap()),
        array![[3.0, 4.0], [1.0, 2.0]].dot(&array![[2.0, 1.0], [4.0, 3.0]])
    );
    assert_eq!(
        (blas.counts().copies, blas.counts().copied_bytes),
        (6, 6 * 32)
    );
    // The output: what lies between its elements stays.
    let mut out = large.duplicate(s).unwrap();
    let to = out
        .view_mut()
        .slice_step(0, 0..4, 2)
        .unwrap()
        .slice_step(1, 0..4, -2)
        .unwrap();
    gemm(s, to, 1.0, &m, &m, 1.0).unwrap();
    let squared = host.dot(&host);
    let mut expected = Array2::from_shape_fn((4, 4), |(i, j)| (i * 4 + j) as f64);
    for ((i, j), x) in squared.indexed_iter() {
        expected[[2 * i, 3 - 2 * j]] += x;
    }
    assert_eq!(out.to_ndarray().unwrap(), expected);
    assert_eq!(blas.counts().copies, 7);
    // Batches that go backwards.
    let batch = CudaTensor::from_ndarray(
        device,
        &ndarray::arr3(&[[[1.0_f64]], [[2.0]], [[3.0]]]).view(),
    )
    .unwrap();
    let mut products = CudaTensor::<f64, 3>::uninitialized(device, [3, 1, 1]).unwrap();
    let backwards = batch.view().reversed(0).unwrap();
    gemm_strided_batched(s, &mut products, 1.0, backwards, &batch, 0.0).unwrap();
    assert_eq!(products.to_vec().unwrap(), [3.0, 4.0, 3.0]);
    gemm_strided_batched(
        s,
        products.view_mut().reversed(0).unwrap(),
        1.0,
        &batch,
        &batch,
        0.0,
    )
    .unwrap();
    assert_eq!(
        to_ndarray(&products).unwrap().into_raw_vec_and_offset().0,
        [9.0, 4.0, 1.0]
    );
    assert_eq!(blas.counts().copies, 9);
    drop((m, large, c, out, batch, products, blas));
    setup.finish();
}

#[test]
fn separate_matrices_of_any_size_in_one_batch() {
    let setup = setup(0);
    let device = setup.device();
    let host = |m: usize, n: usize, s: usize| {
        Array2::from_shape_fn((m, n), |(i, j)| ((i * 3 + j * 5 + s) % 7) as f64)
    };
    let sizes = [(2, 3, 4), (1, 1, 1), (0, 2, 2), (3, 3, 0)];
    let a: Vec<_> = sizes
        .iter()
        .map(|&(m, _, k)| matrix(&setup, &host(m, k, 1)))
        .collect();
    let b: Vec<_> = sizes
        .iter()
        .map(|&(_, n, k)| matrix(&setup, &host(k, n, 2)))
        .collect();
    let mut c: Vec<_> = sizes
        .iter()
        .map(|&(m, n, _)| CudaTensor::<f64, 2>::uninitialized(device, [m, n]).unwrap())
        .collect();
    gemm_batched(&setup.stream, &mut c, 1.0, &a, &b, 0.0).unwrap();
    for (&(m, n, k), c) in sizes.iter().zip(&c) {
        assert_eq!(c.to_ndarray().unwrap(), host(m, k, 1).dot(&host(k, n, 2)));
    }
    let x = CudaTensor::from_ndarray(device, &Array1::<f64>::ones(4).view()).unwrap();
    let mut y = CudaTensor::<f64, 1>::uninitialized(device, [2]).unwrap();
    gemv(&setup.stream, &mut y, 1.0, &a[0], &x, 0.0).unwrap();
    assert_eq!(y.to_ndarray().unwrap(), host(2, 4, 1).dot(&Array1::ones(4)));
    drop((a, b, c, x, y));
    setup.finish();
}

#[test]
fn a_product_is_one_launch_and_one_event() {
    let setup = setup(0);
    // What a library launches it launches by itself.
    Blas::of(setup.device()).set_provider(std::sync::Arc::new(tensor_cuda::HostBlas::default()));
    let (device, stream) = (setup.device(), &setup.stream);
    let a = CudaTensor::full(stream, [4, 4], 1.0_f32).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized_on(stream, [4, 4]).unwrap();
    for _ in 0..4 {
        gemm(stream, &mut c, 1.0, &a, a.view().transposed(), 0.0).unwrap();
    }
    let before = device.call_counts();
    gemm(stream, &mut c, 1.0, &a, a.view().transposed(), 0.0).unwrap();
    let made = device.call_counts() - before;
    assert_eq!(made.of(Call::LaunchKernel), 1);
    assert!(
        made.of(Call::EventRecord) <= 1 && made.total() <= 2,
        "{made}"
    );
    drop((a, c));
    setup.finish();
}

/// The products of a device go on when the runtime is gone, and keep nothing alive.
#[test]
fn products_outlive_the_runtime_handle() {
    let runtime = Runtime::builder().build().unwrap();
    let simulated = runtime.simulation().cloned();
    let stream = runtime.default_device().streams().acquire().unwrap();
    drop(runtime);
    let a = CudaTensor::full(&stream, [2, 2], 1.0_f32).unwrap();
    let c = matmul(&stream, &a, &a).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 2), 2.0));
    drop((a, c, stream));
    if let Some(simulated) = simulated {
        simulated.assert_no_reports();
        assert!(simulated.shutdown().is_empty());
    }
}

/// Libraries take a complex number at once, which in Rust is aligned as its parts are.
#[test]
fn complex_elements_at_no_multiple_of_their_size_are_refused() {
    fn check<T: Exact>(setup: &Setup) {
        let (device, stream) = (setup.device(), &setup.stream);
        let slab = DeviceSlab::new(device, 4096).unwrap();
        // Each carve at its element type's own alignment.
        let arena = DeviceArena::aligned(slab, Alignment::new(1).unwrap()).unwrap();
        let new = || arena.alloc(Undef::<T, _>::new([2, 2])).unwrap();
        let (mut even, _odd) = (
            new(),
            arena.alloc(Undef::<T::Magnitude, _>::new([1])).unwrap(),
        );
        let mut odd = new();
        let (one, zero) = (T::of(1.0, 0.0), T::of(0.0, 0.0));
        let a = CudaTensor::full(stream, [2, 2], one).unwrap();
        fill(stream, &mut odd, one).unwrap();
        let blas = Blas::of(device);
        let products = blas.counts().products;
        let told = |refused: TensorResult<()>, name: &str| match refused.unwrap_err() {
            TensorError::Misaligned {
                operand,
                align_bytes,
                ..
            } => assert_eq!((operand, align_bytes), (name, size_of::<T>() as u64)),
            error => panic!("{error}"),
        };
        told(gemm(stream, &mut odd, one, &a, &a, zero), "out");
        told(gemm(stream, &mut even, one, &odd, &a, zero), "a");
        told(gemm(stream, &mut even, one, &a, &odd, zero), "b");
        // None of a batch is queued.
        let outs = [(&mut even).into_view_mut(), (&mut odd).into_view_mut()];
        told(
            gemm_batched(stream, outs, one, [&a, &a], [&a, &a], zero),
            "out",
        );
        assert_eq!(blas.counts().products, products);
        // What is aligned less by itself is scaled and copied as ever, and multiplied where it lies well.
        gemm(stream, &mut odd, zero, &a, &a, one).unwrap();
        gemm(stream, &mut even, one, &a, &a, zero).unwrap();
        let two = T::of(2.0, 0.0);
        assert!(to_ndarray(&even).unwrap().iter().all(|x| *x == two));
        assert!(to_ndarray(&odd).unwrap().iter().all(|x| *x == one));
    }
    let setup = setup(0);
    check::<C32>(&setup);
    check::<C64>(&setup);
    setup.finish();
}

/// Not of this list of cases (ml-explore/mlx#2748): a graph that was given other products by an update computed zeros on some devices,
/// though the update had succeeded.
#[test]
fn a_graph_that_is_captured_anew_computes_its_new_products() {
    let setup = setup(0);
    let stream = &setup.stream;
    // One row or column, as of a product of a matrix and a vector, and more.
    for [m, n, k] in [[1, 64, 48], [64, 1, 48], [24, 16, 40]] {
        let new = |extents: [usize; 2], value: f32| {
            CudaTensor::full(stream, extents, f16::from_f32(value)).unwrap()
        };
        let (first, second) = (
            (new([m, k], 1.0), new([k, n], 0.5)),
            (new([m, k], 2.0), new([k, n], 0.25)),
        );
        let (mut out, mut other) = (new([m, n], 7.0), new([m, n], 9.0));
        let zero = f16::ZERO;
        // Both have been computed before.
        gemm(stream, &mut out, f16::ONE, &first.0, &first.1, zero).unwrap();
        let mut graph = stream
            .capture(|_| gemm(stream, &mut out, f16::ONE, &first.0, &first.1, zero))
            .unwrap();
        graph.launch(stream).unwrap();
        let is = |tensor: &CudaTensor<f16, 2>, value: f32| {
            let found = tensor.to_vec().unwrap();
            assert!(found.iter().all(|x| x.to_f32() == value), "{found:?}");
        };
        is(&out, 0.5 * k as f32);
        // Other operands, another output, other factors, which the graph has by value.
        fill(stream, &mut out, f16::from_f32(7.0)).unwrap();
        stream
            .recapture(&mut graph, |_| {
                gemm(
                    stream,
                    &mut other,
                    f16::from_f32(3.0),
                    &second.0,
                    &second.1,
                    zero,
                )
            })
            .unwrap();
        for _ in 0..2 {
            fill(stream, &mut other, f16::from_f32(9.0)).unwrap();
            graph.launch(stream).unwrap();
            is(&other, 1.5 * k as f32);
        }
        is(&out, 7.0);
        drop(graph);
    }
    setup.finish();
}
