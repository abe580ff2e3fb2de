//! Products of views that others got wrong, and what a product costs.

use crate::common::{Setup, setup};
use crate::exact::C64;
use cuda_buffer::DeviceData;
use cuda_driver::Call;
use cuda_runtime::Runtime;
use ndarray::{Array1, Array2, array};
use tensor_cuda::{
    Blas, CudaTensor, Layout, TensorError, assign_product, gemm, gemm_batched,
    gemm_strided_batched, gemv, matmul,
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
        .map_err(|(_, error)| error)
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
        .1;
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
    tensor_cuda::fill(&setup.stream, &mut c, C64::new(f64::NAN, 0.0)).unwrap();
    gemm_strided_batched(&setup.stream, &mut c, zero, &nan, &nan, zero).unwrap();
    assert!(
        c.to_ndarray()
            .unwrap()
            .iter()
            .all(|&x| x == C64::new(0.0, 0.0))
    );
    // beta = 1: what is there stays.
    tensor_cuda::fill(&setup.stream, &mut c, C64::new(f64::NAN, 0.0)).unwrap();
    gemm_strided_batched(&setup.stream, &mut c, one, &ones, &ones, one).unwrap();
    assert!(c.to_ndarray().unwrap().iter().all(|x| x.re.is_nan()));
    drop((nan, ones, c));
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
    let simulated = runtime.simulation().unwrap().clone();
    let stream = runtime.default_device().streams().acquire().unwrap();
    drop(runtime);
    let a = CudaTensor::full(&stream, [2, 2], 1.0_f32).unwrap();
    let c = matmul(&stream, &a, &a).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 2), 2.0));
    drop((a, c, stream));
    simulated.assert_no_reports();
    assert!(simulated.shutdown().is_empty());
}
