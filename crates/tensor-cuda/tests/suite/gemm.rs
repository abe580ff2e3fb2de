//! Matrix products against `ndarray`, and the cases that others got wrong.

use cuda_runtime::{Device, Runtime, Stream};
use cuda_sim::SimDriver;
use ndarray::{Array2, ArrayView2, array};
use proptest::prelude::*;
use tensor_cuda::{Blas, CudaTensor, TensorError, gemm};

struct Setup {
    runtime: Runtime,
    stream: Stream,
}

fn setup(seed: u64) -> Setup {
    let simulation = SimDriver::builder().seed(seed);
    let runtime = Runtime::builder().simulation(simulation).build().unwrap();
    crate::common::small_workspaces(&runtime);
    let stream = runtime.default_device().streams().acquire().unwrap();
    Setup { runtime, stream }
}

impl Setup {
    fn device(&self) -> &Device {
        self.runtime.default_device()
    }

    fn tensor(&self, array: &Array2<f64>) -> CudaTensor<f64, 2> {
        CudaTensor::from_ndarray(self.device(), &array.view()).unwrap()
    }

    fn finish(self) {
        crate::common::assert_no_reports(&self.runtime);
    }
}

fn matrix(rows: usize, columns: usize, seed: usize) -> Array2<f64> {
    Array2::from_shape_fn((rows, columns), |(i, j)| {
        // Small whole numbers, so that sums are exact in any order.
        ((i * 31 + j * 17 + seed * 7) % 13) as f64 - 6.0
    })
}

fn product(
    alpha: f64,
    a: ArrayView2<'_, f64>,
    b: ArrayView2<'_, f64>,
    beta: f64,
    c: &Array2<f64>,
) -> Array2<f64> {
    let scaled = if beta == 0.0 {
        Array2::zeros(c.dim())
    } else {
        c * beta
    };
    scaled + a.dot(&b) * alpha
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(64)))]

    /// Every size, with transposed operands and outputs and parts of larger matrices, equals the host's product.
    #[test]
    fn products_equal_those_of_the_host(
        (m, n, k) in (0_usize..9, 0_usize..9, 0_usize..9),
        turned in prop::array::uniform3(any::<bool>()),
        pad in prop::array::uniform3(0_usize..3),
        alpha in prop::sample::select(vec![0.0, 1.0, -2.0]),
        beta in prop::sample::select(vec![0.0, 1.0, 0.5]),
        seed in any::<u64>(),
    ) {
        let setup = setup(seed);
        // Rows are cut from a taller matrix and columns from a wider one; a turned operand is stored transposed.
        let stored = |rows: usize, columns: usize, i: usize| {
            let (rows, columns) = if turned[i] { (columns, rows) } else { (rows, columns) };
            matrix(rows + pad[i], columns + pad[i], i)
        };
        let hosts = [stored(m, n, 0), stored(m, k, 1), stored(k, n, 2)];
        let cut = |i: usize, rows: usize, columns: usize| {
            let view = hosts[i].slice(ndarray::s![pad[i].., ..hosts[i].ncols() - pad[i]]);
            let view = if turned[i] { view.reversed_axes() } else { view };
            assert_eq!(view.dim(), (rows, columns));
            view
        };
        let mut tensors = hosts.each_ref().map(|host| setup.tensor(host));
        let [c, a, b] = &mut tensors;
        macro_rules! part {
            ($view:expr, $i:literal) => {{
                let view = $view;
                let [rows, columns] = view.extents();
                let view = view.slice(0, pad[$i]..rows).unwrap().slice(1, 0..columns - pad[$i]).unwrap();
                if turned[$i] { view.transposed() } else { view }
            }};
        }
        gemm(&setup.stream, part!(c.view_mut(), 0), alpha, part!(a.view(), 1), part!(b.view(), 2), beta).unwrap();

        let expected = product(alpha, cut(1, m, k), cut(2, k, n), beta, &cut(0, m, n).to_owned());
        let mut whole = hosts[0].clone();
        let columns = whole.ncols() - pad[0];
        let part = whole.slice_mut(ndarray::s![pad[0].., ..columns]);
        let mut part = if turned[0] { part.reversed_axes() } else { part };
        part.assign(&expected);
        // What is not part of the output is untouched.
        prop_assert_eq!(c.to_ndarray().unwrap(), whole);
        setup.finish();
    }
}

/// Case 20 (JuliaGPU/CUDA.jl#2952): an empty inner dimension must scale the output, not zero it.
#[test]
fn case_20_an_empty_inner_dimension_scales_the_output() {
    let setup = setup(0);
    let start = matrix(3, 3, 1);
    let (a, b) = (
        setup.tensor(&matrix(3, 0, 0)),
        setup.tensor(&matrix(0, 3, 0)),
    );
    for beta in [1.0, 2.0] {
        let mut c = setup.tensor(&start);
        gemm(&setup.stream, &mut c, 1.0, &a, &b, beta).unwrap();
        assert_eq!(c.to_ndarray().unwrap(), &start * beta);
    }
    let mut c = setup.tensor(&Array2::from_elem((3, 3), f64::NAN));
    gemm(&setup.stream, &mut c, 1.0, &a, &b, 0.0).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::<f64>::zeros((3, 3)));
    setup.finish();
}

/// Case 20, and huggingface/candle#3756: sizes that don't match are an error though nothing would be written.
#[test]
fn case_20_an_empty_output_is_nothing_to_do_but_is_checked() {
    let setup = setup(0);
    let (a, b) = (
        setup.tensor(&matrix(0, 3, 0)),
        setup.tensor(&matrix(3, 2, 0)),
    );
    let mut c = setup.tensor(&matrix(0, 2, 0));
    for (m, k, n) in [(0, 3, 2), (3, 2, 0), (0, 0, 0), (0, 3, 0), (0, 0, 2)] {
        let (a, b) = (
            setup.tensor(&matrix(m, k, 0)),
            setup.tensor(&matrix(k, n, 0)),
        );
        let mut c = setup.tensor(&matrix(m, n, 0));
        for beta in [0.0, 1.0, 2.0] {
            let before = setup.device().call_counts();
            gemm(&setup.stream, &mut c, 1.0, &a, &b, beta).unwrap();
            assert_eq!((setup.device().call_counts() - before).total(), 0);
        }
        assert_eq!(c.to_ndarray().unwrap().dim(), (m, n));
    }
    assert_eq!(Blas::of(setup.device()).counts().products, 0);
    let wrong = setup.tensor(&matrix(4, 2, 0));
    let error = gemm(&setup.stream, &mut c, 1.0, &a, &wrong, 0.0).unwrap_err();
    assert!(
        matches!(&error, TensorError::ShapeMismatch { operand: "b", expected, given, .. }
            if *expected == [3, 2] && *given == [4, 2]),
        "{error}"
    );
    let narrow = setup.tensor(&matrix(3, 1, 0));
    let error = gemm(&setup.stream, &mut c, 1.0, &a, &narrow, 0.0).unwrap_err();
    assert!(
        matches!(&error, TensorError::ShapeMismatch { .. }),
        "{error}"
    );
    gemm(&setup.stream, &mut c, 1.0, &a, &b, 0.0).unwrap();
    setup.finish();
}

/// Case 21 (flashinfer-ai/flashinfer#4724): with beta = 0 the output is not read, also at sizes that fit no tile.
#[test]
fn case_21_an_output_that_is_not_read_may_be_anything() {
    for beta in [0.0, -0.0] {
        let setup = setup(0);
        let (a, b) = (matrix(33, 5, 1), matrix(5, 17, 2));
        let (a, b) = (a.mapv(|x| x / 3.0), b.mapv(|x| x / 7.0));
        let mut zeros = setup.tensor(&Array2::zeros((33, 17)));
        gemm(
            &setup.stream,
            &mut zeros,
            1.0,
            &setup.tensor(&a),
            &setup.tensor(&b),
            beta,
        )
        .unwrap();
        let bits = |c: &CudaTensor<f64, 2>| c.to_ndarray().unwrap().mapv(f64::to_bits);
        let mut garbage = setup.tensor(&Array2::from_shape_fn((33, 17), |(i, j)| {
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][(i + j) % 3]
        }));
        let mut unwritten = CudaTensor::uninitialized(setup.device(), [33, 17]).unwrap();
        for c in [&mut garbage, &mut unwritten] {
            gemm(
                &setup.stream,
                &mut *c,
                1.0,
                &setup.tensor(&a),
                &setup.tensor(&b),
                beta,
            )
            .unwrap();
            assert_eq!(bits(c), bits(&zeros));
            let off = c.to_ndarray().unwrap() - a.dot(&b);
            assert!(off.iter().all(|off| off.abs() < 1e-12));
        }
        // Also proves that the simulated device saw no read of unwritten elements.
        setup.finish();
    }
    let setup = setup(0);
    let mut c = setup.tensor(&array![[f64::NAN]]);
    let one = setup.tensor(&array![[1.0]]);
    gemm(&setup.stream, &mut c, 1.0, &one, &one, 1.0).unwrap();
    assert!(c.to_ndarray().unwrap()[[0, 0]].is_nan());
}

/// Case 22 (rust-ndarray/ndarray#584): an axis of one element has no stride of its own.
#[test]
fn case_22_a_single_row_has_no_leading_dimension_of_its_own() {
    let setup = setup(0);
    let column = setup.tensor(&array![[1.0], [2.0]]);
    let mut c = setup.tensor(&array![[0.0]]);
    gemm(
        &setup.stream,
        &mut c,
        1.0,
        column.view().transposed(),
        &column,
        0.0,
    )
    .unwrap();
    assert_eq!(c.to_ndarray().unwrap(), array![[5.0]]);
    setup.finish();
}

#[test]
fn one_tensor_may_be_both_operands() {
    let setup = setup(0);
    let mut c = setup.tensor(&matrix(2, 2, 0));
    let a = setup.tensor(&matrix(2, 2, 1));
    gemm(&setup.stream, &mut c, 1.0, &a, &a, 0.0).unwrap();
    let square = matrix(2, 2, 1).dot(&matrix(2, 2, 1));
    assert_eq!(c.to_ndarray().unwrap(), square);
    setup.finish();
}

#[test]
fn a_part_of_an_empty_operand_is_an_empty_operand() {
    let setup = setup(0);
    let (a, b) = (
        setup.tensor(&matrix(4, 0, 0)),
        setup.tensor(&matrix(0, 3, 0)),
    );
    let mut c = setup.tensor(&matrix(1, 3, 1));
    let row = a.view().slice(0, 3..4).unwrap();
    gemm(&setup.stream, &mut c, 1.0, row, &b, 2.0).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), matrix(1, 3, 1) * 2.0);
    setup.finish();
}

#[test]
fn a_failed_launch_leaves_everything_usable() {
    use cuda_driver::{Call, ErrorCode};
    let setup = setup(0);
    let Some(simulated) = setup.runtime.simulation() else {
        return; // Hardware does not fail when it is told to.
    };
    let (a, mut c) = (
        setup.tensor(&matrix(2, 2, 1)),
        setup.tensor(&matrix(2, 2, 0)),
    );
    let faults = simulated.faults();
    faults.fail_nth(Call::LaunchKernel, 1, ErrorCode::LAUNCH_OUT_OF_RESOURCES);
    assert!(gemm(&setup.stream, &mut c, 1.0, &a, &a, 0.0).is_err());
    assert_eq!(c.to_ndarray().unwrap(), matrix(2, 2, 0));
    gemm(&setup.stream, &mut c, 1.0, &a, &a, 0.0).unwrap();
    setup.finish();
}
