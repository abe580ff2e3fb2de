//! Products of every type against sums in higher precision, with the standard error bound; leases, workspaces, captures.

use crate::common::{Setup, cut, numbered, pair, setup};
use cuda_buffer::{CaptureStep, DeviceArena, DeviceData, DeviceSlab, SharedCudaBuffer};
use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use half::{bf16, f16};
use ndarray::{Array1, Array2, array};
use num_complex::Complex;
use proptest::prelude::*;
use space_core::with_space;
use std::sync::Arc;
use tensor_cuda::{
    Blas, CudaTensor, HostBlas, Layout, Lease, MatrixHandle, MatrixProduct, MatrixProvider, Number,
    TensorError, TensorResult, TensorView, TensorViewMut, assign_product, gemm, gemm_batched,
    gemm_strided_batched, gemv, matmul, to_ndarray,
};

type C32 = Complex<f32>;
type C64 = Complex<f64>;

/// How the tests know a number type: exactly, as a complex number of double precision.
trait Exact: Number {
    /// The unit round-off of its sums, and of the type itself.
    const ROUND_OFF: [f64; 2];
    /// Whether arithmetic is complex: then each product and sum takes several roundings.
    const COMPLEX: bool;
    fn exact(self) -> C64;
    fn of(re: f64, im: f64) -> Self;
    /// The view as its conjugate, where there is one.
    fn conjugate<'a, const N: usize>(view: TensorView<'a, Self, N>) -> TensorView<'a, Self, N>;
}

macro_rules! exact {
    ($($type:ty, $sum:expr, $own:expr, |$x:ident| $exact:expr, |$re:ident| $of:expr;)+) => { $(
        impl Exact for $type {
            const ROUND_OFF: [f64; 2] = [$sum, $own];
            const COMPLEX: bool = false;
            fn exact(self) -> C64 {
                let $x = self;
                C64::new($exact, 0.0)
            }
            fn of($re: f64, _: f64) -> Self {
                $of
            }
            fn conjugate<'a, const N: usize>(view: TensorView<'a, Self, N>) -> TensorView<'a, Self, N> {
                view
            }
        }
    )+ };
}

const SINGLE: f64 = f32::EPSILON as f64 / 2.0;
const DOUBLE: f64 = f64::EPSILON / 2.0;

exact! {
    f32, SINGLE, SINGLE, |x| x.into(), |re| re as f32;
    f64, DOUBLE, DOUBLE, |x| x, |re| re;
    f16, SINGLE, 1.0 / 2048.0, |x| x.into(), |re| f16::from_f64(re);
    bf16, SINGLE, 1.0 / 256.0, |x| x.into(), |re| bf16::from_f64(re);
}

macro_rules! exact_complex {
    ($($type:ty, $part:ty, $round_off:expr;)+) => { $(
        impl Exact for $type {
            const ROUND_OFF: [f64; 2] = [$round_off; 2];
            const COMPLEX: bool = true;
            fn exact(self) -> C64 {
                C64::new(self.re.into(), self.im.into())
            }
            fn of(re: f64, im: f64) -> Self {
                Complex::new(re as $part, im as $part)
            }
            fn conjugate<'a, const N: usize>(view: TensorView<'a, Self, N>) -> TensorView<'a, Self, N> {
                view.conjugated()
            }
        }
    )+ };
}

exact_complex! {
    C32, f32, SINGLE;
    C64, f64, DOUBLE;
}

/// A number with more digits than any type has.
fn digits(i: usize, seed: u64) -> f64 {
    let mixed =
        (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64 * 4.0 - 2.0
}

/// The sum of products, and that of the absolute values, each with an error of a square of the double round-off.
fn reference(terms: impl Iterator<Item = C64>) -> (C64, f64) {
    // Neumaier's sum of both parts.
    let (mut sum, mut error, mut magnitude) = ([0.0_f64; 2], [0.0_f64; 2], 0.0);
    let mut add = |part: usize, x: f64| {
        let next = sum[part] + x;
        error[part] += match sum[part].abs() >= x.abs() {
            true => (sum[part] - next) + x,
            false => (x - next) + sum[part],
        };
        sum[part] = next;
    };
    for term in terms {
        add(0, term.re);
        add(1, term.im);
        magnitude += term.norm();
    }
    (C64::new(sum[0] + error[0], sum[1] + error[1]), magnitude)
}

/// The products of two numbers as terms that add up to it exactly in double precision arithmetic (by fused steps).
fn exact_product(a: C64, b: C64) -> [C64; 4] {
    let split = |x: f64, y: f64| (x * y, x.mul_add(y, -(x * y)));
    let ((rr, e1), (ii, e2)) = (split(a.re, b.re), split(a.im, b.im));
    let ((ri, e3), (ir, e4)) = (split(a.re, b.im), split(a.im, b.re));
    [
        C64::new(rr, ri),
        C64::new(-ii, ir),
        C64::new(e1, e3),
        C64::new(-e2, e4),
    ]
}

/// One product of a type, of cut operands, against the bound gamma of k + 2 operations, and the rounding of the type.
fn check<T: Exact>(
    [m, n, k]: [usize; 3],
    cuts: &[crate::common::Cut; 3],
    conjugate: [bool; 2],
    [alpha, beta]: [T; 2],
    seed: u64,
) {
    let setup = setup(seed);
    let value = |i: usize, which: u64| T::of(digits(i, seed ^ which), digits(i, seed ^ which ^ 77));
    let whole = |cut: &crate::common::Cut, extents: [usize; 2], which: u64| {
        pair(
            setup.device(),
            numbered(&cut.of(&extents), |i| value(i, which)),
        )
    };
    let mut c = whole(&cuts[0], [m, n], 1);
    let (a, b) = (whole(&cuts[1], [m, k], 2), whole(&cuts[2], [k, n], 3));
    let layout = |cut: &crate::common::Cut, tensor: &tensor_cuda::DynTensor<T>| {
        Layout::<2>::try_from(&cut.layout(tensor.layout())).unwrap()
    };
    let (of_c, of_a, of_b) = (
        layout(&cuts[0], &c.tensor),
        layout(&cuts[1], &a.tensor),
        layout(&cuts[2], &b.tensor),
    );
    let of = |view, conjugate: bool| if conjugate { T::conjugate(view) } else { view };
    gemm(
        &setup.stream,
        TensorViewMut::over(c.tensor.write(), of_c).unwrap(),
        alpha,
        of(
            TensorView::over(a.tensor.read(), of_a).unwrap(),
            conjugate[0],
        ),
        of(
            TensorView::over(b.tensor.read(), of_b).unwrap(),
            conjugate[1],
        ),
        beta,
    )
    .unwrap();
    let got = to_ndarray(TensorView::over(c.tensor.read(), of_c).unwrap()).unwrap();
    let (before, a_host, b_host) = (
        cuts[0].view(c.host.view()),
        cuts[1].view(a.host.view()),
        cuts[2].view(b.host.view()),
    );
    let exact = |x: T, conjugate: bool| match conjugate {
        true if T::COMPLEX => x.exact().conj(),
        _ => x.exact(),
    };
    for ((i, j), got) in got.indexed_iter() {
        let scaled = |x: C64, factor: C64| exact_product(x, factor);
        let product = (0..k).flat_map(|l| {
            let (a, b) = (
                exact(a_host[[i, l]], conjugate[0]),
                exact(b_host[[l, j]], conjugate[1]),
            );
            exact_product(a, b)
        });
        let (sum, magnitude) = reference(product);
        let terms = scaled(sum, alpha.exact())
            .into_iter()
            .chain(scaled(before[[i, j]].exact(), beta.exact()));
        let (expected, _) = reference(terms);
        let magnitude =
            magnitude * alpha.exact().norm() + before[[i, j]].exact().norm() * beta.exact().norm();
        // gamma_n = n u / (1 - n u); a complex product rounds about four times as often.
        let operations = (k + 3) as f64 * if T::COMPLEX { 4.0 } else { 1.0 };
        let [sum, own] = T::ROUND_OFF;
        let gamma = operations * sum / (1.0 - operations * sum);
        let bound: f64 = gamma * magnitude
            + own * (expected.norm() + gamma * magnitude)
            + f64::from(f16::MIN_POSITIVE_SUBNORMAL) * f64::from(u8::from(own > 1e-4));
        let error: f64 = (got.exact() - expected).norm();
        assert!(
            error <= bound,
            "({i}, {j}): {got:?}, not {expected}: {error:e} > {bound:e}"
        );
    }
    // What is not part of the output is untouched.
    let positions = numbered(&cuts[0].of(&[m, n]), |i| i);
    let outputs: std::collections::HashSet<_> =
        cuts[0].view(positions.view()).iter().copied().collect();
    for (i, (before, after)) in c.host.iter().zip(c.tensor.to_vec().unwrap()).enumerate() {
        assert!(
            outputs.contains(&i) || *before == after,
            "element {i} was {before:?} and is {after:?}"
        );
    }
    drop((a, b, c));
    setup.finish();
}

fn factors() -> impl Strategy<Value = [f64; 2]> {
    let factor = || prop::sample::select(vec![0.0, 1.0, -0.5, 0.3]);
    [factor(), factor()]
}

macro_rules! types {
    ($($name:ident $type:ty;)+) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(40))]
            $(
                #[test]
                fn $name(
                    sizes in prop::array::uniform3(prop_oneof![4 => 0_usize..8, 1 => 15_usize..40]),
                    cuts in [cut(2), cut(2), cut(2)],
                    conjugate in any::<[bool; 2]>(),
                    [alpha, beta] in factors(),
                    seed in any::<u64>(),
                ) {
                    let factors = [<$type>::of(alpha, alpha / 3.0), <$type>::of(beta, -beta)];
                    check::<$type>(sizes, &cuts, conjugate, factors, seed);
                }
            )+
        }
    };
}

types! {
    products_of_f32 f32;
    products_of_f64 f64;
    products_of_f16 f16;
    products_of_bf16 bf16;
    products_of_c32 C32;
    products_of_c64 C64;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Batches of any layout, repeated operands included, are as many products.
    #[test]
    fn batches_are_as_many_products(
        (batch, m, n, k) in (0_usize..4, 0_usize..5, 0_usize..5, 0_usize..5),
        cuts in [cut(3), cut(3), cut(3)],
        repeated in any::<[bool; 2]>(),
        beta in prop::sample::select(vec![0.0, 1.0, 2.0]),
        seed in any::<u64>(),
    ) {
        let setup = setup(seed);
        let value = |i: usize| ((i * 29 + 3) % 11) as f64 - 5.0;
        let mut c = pair(setup.device(), numbered(&cuts[0].of(&[batch, m, n]), value));
        let of_a = [if repeated[0] { 1 } else { batch }, m, k];
        let of_b = [if repeated[1] { 1 } else { batch }, k, n];
        let a = pair(setup.device(), numbered(&cuts[1].of(&of_a), |i| value(i + 5)));
        let b = pair(setup.device(), numbered(&cuts[2].of(&of_b), |i| value(i + 9)));
        let layout = |cut: &crate::common::Cut, tensor: &tensor_cuda::DynTensor<f64>| {
            Layout::<3>::try_from(&cut.layout(tensor.layout())).unwrap()
        };
        let of_c = layout(&cuts[0], &c.tensor);
        let a_view = TensorView::over(a.tensor.read(), layout(&cuts[1], &a.tensor)).unwrap().broadcast([batch, m, k]).unwrap();
        let b_view = TensorView::over(b.tensor.read(), layout(&cuts[2], &b.tensor)).unwrap().broadcast([batch, k, n]).unwrap();
        let out = TensorViewMut::over(c.tensor.write(), of_c).unwrap();
        gemm_strided_batched(&setup.stream, out, 2.0, a_view, b_view, beta).unwrap();
        let got = to_ndarray(TensorView::over(c.tensor.read(), of_c).unwrap()).unwrap();
        let before = cuts[0].view(c.host.view());
        for i in 0..batch {
            let matrix = |view: ndarray::ArrayViewD<'_, f64>, i: usize| {
                view.index_axis(ndarray::Axis(0), i).to_owned().into_dimensionality::<ndarray::Ix2>().unwrap()
            };
            let a = matrix(cuts[1].view(a.host.view()), if repeated[0] { 0 } else { i });
            let b = matrix(cuts[2].view(b.host.view()), if repeated[1] { 0 } else { i });
            let expected = a.dot(&b) * 2.0 + matrix(before.clone(), i) * beta;
            prop_assert_eq!(got.index_axis(ndarray::Axis(0), i), expected);
        }
        drop((a, b, c));
        setup.finish();
    }

    #[test]
    fn matrix_times_vector(
        (m, n) in (0_usize..6, 0_usize..6),
        cuts in (cut(1), cut(2), cut(1)),
        beta in prop::sample::select(vec![0.0, 1.0, -1.0]),
        seed in any::<u64>(),
    ) {
        let setup = setup(seed);
        let value = |i: usize| ((i * 29 + 3) % 11) as f32 - 5.0;
        let mut y = pair(setup.device(), numbered(&cuts.0.of(&[m]), value));
        let a = pair(setup.device(), numbered(&cuts.1.of(&[m, n]), |i| value(i + 2)));
        let x = pair(setup.device(), numbered(&cuts.2.of(&[n]), |i| value(i + 7)));
        let of_y = Layout::<1>::try_from(&cuts.0.layout(y.tensor.layout())).unwrap();
        let of_a = Layout::<2>::try_from(&cuts.1.layout(a.tensor.layout())).unwrap();
        let of_x = Layout::<1>::try_from(&cuts.2.layout(x.tensor.layout())).unwrap();
        let out = TensorViewMut::over(y.tensor.write(), of_y).unwrap();
        let (av, xv) = (TensorView::over(a.tensor.read(), of_a).unwrap(), TensorView::over(x.tensor.read(), of_x).unwrap());
        gemv(&setup.stream, out, 3.0, av, xv, beta).unwrap();
        let got = to_ndarray(TensorView::over(y.tensor.read(), of_y).unwrap()).unwrap();
        let host = |cut: &crate::common::Cut, array: &ndarray::ArrayD<f32>| cut.view(array.view()).to_owned();
        let a_host = host(&cuts.1, &a.host).into_dimensionality::<ndarray::Ix2>().unwrap();
        let x_host = host(&cuts.2, &x.host).into_dimensionality::<ndarray::Ix1>().unwrap();
        let before = host(&cuts.0, &y.host).into_dimensionality::<ndarray::Ix1>().unwrap();
        prop_assert_eq!(got, a_host.dot(&x_host) * 3.0 + before * beta);
        drop((y, a, x));
        setup.finish();
    }
}

fn matrix(setup: &Setup, host: &Array2<f64>) -> CudaTensor<f64, 2> {
    CudaTensor::from_ndarray(setup.device(), &host.view()).unwrap()
}

// rust-ndarray/ndarray#173: rows or columns backwards, in operands and in the output; copied, and counted.
#[test]
fn negative_strides_give_the_right_product() {
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

// rust-ndarray/ndarray#584: padded rows and columns, whose padding is not touched.
#[test]
fn padded_matrices_keep_their_padding() {
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

// JuliaGPU/CUDA.jl#2952 and flashinfer-ai/flashinfer#4724, for batches and other types.
#[test]
fn what_is_not_read_can_be_anything() {
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
fn bad_products_name_their_operand() {
    let simulation = SimDriver::builder().devices(2);
    let runtime = Runtime::builder().simulation(simulation).build().unwrap();
    let [here, there] = runtime.devices() else {
        panic!()
    };
    let stream = here.streams().acquire().unwrap();
    let a = CudaTensor::<f32, 2>::zeros(&stream, [2, 3]).unwrap();
    let b = CudaTensor::<f32, 2>::zeros(&stream, [3, 4]).unwrap();
    let mut c = CudaTensor::<f32, 2>::zeros(&stream, [2, 4]).unwrap();
    let far = CudaTensor::<f32, 2>::uninitialized(there, [3, 4]).unwrap();
    let mut far_out = CudaTensor::<f32, 2>::uninitialized(there, [2, 4]).unwrap();
    let error = assign_product(&stream, &mut c, &a, &far).unwrap_err();
    assert!(
        matches!(error, TensorError::WrongDevice { operand: "b", .. }),
        "{error}"
    );
    assert!(error.to_string().contains("is on device 1"), "{error}");
    let error = assign_product(&stream, &mut far_out, &a, &b).unwrap_err();
    assert!(
        matches!(error, TensorError::WrongDevice { operand: "out", .. }),
        "{error}"
    );
    let error = assign_product(&stream, &mut c, a.view().transposed(), &b).unwrap_err();
    assert!(
        matches!(error, TensorError::ShapeMismatch { operand: "a", .. }),
        "{error}"
    );
    let row = c
        .view_mut()
        .slice(0, 0..1)
        .unwrap()
        .broadcast([2, 4])
        .unwrap();
    let error = assign_product(&stream, row, &a, &b).unwrap_err();
    assert!(
        matches!(error, TensorError::OverlappingWrite { operand: "out", .. }),
        "{error}"
    );
    let shared = SharedCudaBuffer::from(
        CudaTensor::<f32, 2>::zeros(&stream, [3, 3])
            .unwrap()
            .into_buffer(),
    );
    let square = Layout::row_major([3, 3]).unwrap();
    let view = || TensorView::over(shared.read(), square).unwrap();
    let out = || TensorViewMut::over(shared.write(), square).unwrap();
    let other = CudaTensor::<f32, 2>::zeros(&stream, [3, 3]).unwrap();
    let error = assign_product(&stream, out(), view(), &other).unwrap_err();
    assert!(
        matches!(error, TensorError::Aliased { operand: "a", .. }),
        "{error}"
    );
    let error = assign_product(&stream, out(), &other, view()).unwrap_err();
    assert!(
        matches!(error, TensorError::Aliased { operand: "b", .. }),
        "{error}"
    );
    let error = gemm_batched(&stream, [c.view_mut()], 1.0, [&a, &a], [&b, &b], 0.0).unwrap_err();
    assert!(
        matches!(error, TensorError::ShapeMismatch { operand: "a", .. }),
        "{error}"
    );
    // A provider of small dimensions; also of a leading one.
    let blas = Blas::of(here);
    blas.set_provider(Arc::new(HostBlas::default().with_max_dim(3)));
    let error = assign_product(&stream, &mut c, &a, &b).unwrap_err();
    assert!(
        matches!(
            error,
            TensorError::DimTooLarge {
                operand: "out",
                dim: 4,
                max: 3,
                ..
            }
        ),
        "{error}"
    );
    let mut narrow = CudaTensor::<f32, 2>::zeros(&stream, [2, 2]).unwrap();
    let error =
        assign_product(&stream, &mut narrow, &a, b.view().slice(1, 0..2).unwrap()).unwrap_err();
    assert!(
        matches!(
            error,
            TensorError::DimTooLarge {
                operand: "b",
                dim: 4,
                ..
            }
        ),
        "{error}"
    );
    // The next provider is used at once.
    blas.set_provider(Arc::new(HostBlas::default()));
    assign_product(&stream, &mut c, &a, &b).unwrap();
    // Nothing but that one was queued.
    assert_eq!(blas.counts().products, 1);
    stream.synchronize().unwrap();
    runtime.simulation().unwrap().assert_no_reports();
}

/// A provider that notes what it is asked for, and fails when told to.
#[derive(Debug, Default)]
struct Noting {
    deterministic: bool,
    calls: Arc<noted::Calls>,
}

mod noted {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    #[derive(Debug, Default)]
    pub(super) struct Calls {
        pub(super) fails: AtomicBool,
        pub(super) deterministic: Mutex<Vec<bool>>,
        pub(super) workspaces: Mutex<Vec<u64>>,
    }
}

impl MatrixProvider for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }
    fn max_dim(&self) -> u64 {
        i32::MAX as u64
    }
    fn is_deterministic(&self) -> bool {
        self.deterministic
    }
    fn workspace_bytes(&self, _: &cuda_runtime::Device) -> usize {
        1 << 12
    }
    fn open(&self, device: &cuda_runtime::Device) -> TensorResult<Box<dyn MatrixHandle>> {
        let inner = HostBlas::default().open(device)?;
        Ok(Box::new(NotingHandle(self.calls.clone(), inner)))
    }
}

#[derive(Debug)]
struct NotingHandle(Arc<noted::Calls>, Box<dyn MatrixHandle>);

impl MatrixHandle for NotingHandle {
    fn product(
        &mut self,
        stream: &cuda_runtime::Stream,
        product: &MatrixProduct<'_>,
        workspace: cuda_buffer::DeviceSliceMut<'_, u8>,
    ) -> TensorResult<()> {
        if self.0.fails.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(TensorError::Provider {
                provider: "noting",
                operation: "product",
                status: 13,
            });
        }
        assert_eq!(workspace.address().0 % 256, 0);
        self.0
            .deterministic
            .lock()
            .unwrap()
            .push(product.deterministic);
        self.0
            .workspaces
            .lock()
            .unwrap()
            .push(workspace.address().0);
        self.1.product(stream, product, workspace)
    }
}

#[test]
fn a_status_of_the_provider_is_an_error_and_leaves_everything_usable() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    let noting = Noting {
        deterministic: true,
        ..Noting::default()
    };
    let calls = noting.calls.clone();
    let blas = Blas::of(device);
    blas.set_provider(Arc::new(noting));
    let a = CudaTensor::full(stream, [2, 2], 1.0_f64).unwrap();
    let mut c = CudaTensor::full(stream, [2, 2], 5.0_f64).unwrap();
    calls
        .fails
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let error = assign_product(stream, &mut c, &a, &a).unwrap_err();
    assert!(
        matches!(error, TensorError::Provider { status: 13, .. }),
        "{error}"
    );
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 2), 5.0));
    calls
        .fails
        .store(false, std::sync::atomic::Ordering::Relaxed);
    assign_product(stream, &mut c, &a, &a).unwrap();
    blas.set_deterministic(true);
    assign_product(stream, &mut c, &a, &a).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 2), 2.0));
    assert_eq!(*calls.deterministic.lock().unwrap(), [false, true]);
    assert_eq!((blas.counts().products, blas.counts().handles_made), (2, 1));
    drop((a, c, blas));
    setup.finish();
}

/// Every stream keeps its own workspace, as long as there are not more than handles; what shares one is ordered.
#[test]
fn streams_dont_share_a_workspace_unordered() {
    for seed in 0..20 {
        let simulation = SimDriver::builder().seed(seed);
        let runtime = Runtime::builder()
            .simulation(simulation)
            .streams_per_device(8)
            .build()
            .unwrap();
        let device = runtime.default_device();
        let noting = Noting::default();
        let calls = noting.calls.clone();
        Blas::of(device).set_provider(Arc::new(noting));
        let streams = device.streams().acquire_many(8).unwrap();
        let a = CudaTensor::full(&streams[0], [8, 8], 1.0_f32).unwrap();
        let mut results: Vec<_> = streams
            .iter()
            .map(|s| CudaTensor::<f32, 2>::uninitialized_on(s, [8, 8]).unwrap())
            .collect();
        for _ in 0..3 {
            for (stream, c) in streams.iter().zip(&mut results) {
                assign_product(stream, c, &a, &a).unwrap();
            }
        }
        for c in &results {
            assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((8, 8), 8.0));
        }
        let mut workspaces = calls.workspaces.lock().unwrap().clone();
        workspaces.sort_unstable();
        workspaces.dedup();
        assert_eq!(workspaces.len(), 4);
        // Few streams keep theirs: no wait between them.
        let (before, half) = (device.order_counts(), &streams[..4]);
        for _ in 0..4 {
            for (stream, c) in half.iter().zip(&mut results) {
                assign_product(stream, c, &a, &a).unwrap();
            }
        }
        let issued = device.order_counts().waits_issued - before.waits_issued;
        assert!(issued <= 8, "{issued}");
        drop((streams, a, results));
        let simulated = runtime.simulation().unwrap().clone();
        drop(runtime);
        simulated.assert_no_reports();
        assert!(simulated.shutdown().is_empty());
    }
}

#[test]
fn every_graph_keeps_a_workspace_of_its_own() {
    for seed in 0..20 {
        let setup = setup(seed);
        let device = setup.device();
        let noting = Noting::default();
        let calls = noting.calls.clone();
        Blas::of(device).set_provider(Arc::new(noting));
        let stream = &setup.stream;
        let other = device.streams().acquire().unwrap();
        let a = CudaTensor::full(stream, [4, 4], 1.0_f32).unwrap();
        let [mut c, mut d] =
            [(); 2].map(|()| CudaTensor::<f32, 2>::uninitialized_on(stream, [4, 4]).unwrap());
        assign_product(stream, &mut c, &a, &a).unwrap();
        // Captured on another stream than the warm-up; the workspace is the graph's from then on.
        let first = other
            .capture(|_| {
                assign_product(&other, &mut c, &a, &a)?;
                gemm(&other, &mut c, 1.0_f32, &a, &a, 1.0)
            })
            .unwrap();
        let second = other
            .capture(|_| assign_product(&other, &mut d, &a, &a))
            .unwrap();
        let used = calls.workspaces.lock().unwrap().clone();
        assert_eq!(used.len(), 4);
        assert_eq!(used[1], used[2]);
        assert!(used[0] != used[1] && used[1] != used[3] && used[0] != used[3]);
        let made = device.call_counts();
        for _ in 0..3 {
            // On two streams: nothing orders the two but their operands, which differ.
            first.launch(stream).unwrap();
            second.launch(&other).unwrap();
        }
        let calls = device.call_counts() - made;
        assert_eq!(
            calls.of(Call::MemAllocFromPoolAsync) + calls.of(Call::MemAlloc),
            0
        );
        assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((4, 4), 8.0));
        assert_eq!(d.to_ndarray().unwrap(), Array2::from_elem((4, 4), 4.0));
        // In any order of destruction.
        drop(a);
        drop((second, c, first, d, other));
        setup.finish();
    }
}

#[test]
fn copies_come_from_the_arena_in_scope_and_work_under_capture() {
    let setup = setup(3);
    let (device, stream) = (setup.device(), &setup.stream);
    let a = matrix(&setup, &array![[1.0, 2.0], [3.0, 4.0]]);
    let mut c = CudaTensor::<f64, 2>::uninitialized(device, [2, 2]).unwrap();
    let mut arena = DeviceArena::over(DeviceSlab::new(device, 4096).unwrap()).unwrap();
    let backwards = || a.view().reversed(0).unwrap();
    // Warm up, with copies from the pool.
    assign_product(
        stream,
        c.view_mut().reversed(0).unwrap(),
        backwards(),
        backwards(),
    )
    .unwrap();
    let expected = array![[1.0, 2.0], [3.0, 4.0]].dot(&array![[3.0, 4.0], [1.0, 2.0]]);
    assert_eq!(c.to_ndarray().unwrap(), expected);
    let before = device.call_counts();
    with_space(&mut arena.frame(), || {
        assign_product(
            stream,
            c.view_mut().reversed(0).unwrap(),
            backwards(),
            backwards(),
        )
        .unwrap();
    });
    let made = device.call_counts() - before;
    assert_eq!(made.of(Call::MemAllocFromPoolAsync), 0);
    assert!(arena.watermark() >= 3 * 32);
    assert_eq!(arena.offset(), 0);
    let graph = {
        let frame = &mut arena.frame();
        stream
            .capture(|_| {
                with_space(frame, || {
                    assign_product(
                        stream,
                        c.view_mut().reversed(0).unwrap(),
                        backwards(),
                        backwards(),
                    )
                })
            })
            .unwrap()
    };
    tensor_cuda::fill(stream, &mut c, 0.0).unwrap();
    graph.launch(stream).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), expected);
    // Without an arena a capture refuses the copy, and says why.
    let refused = stream
        .capture(|_| assign_product(stream, &mut c, backwards(), &a))
        .unwrap_err();
    assert!(refused.to_string().contains("captur"), "{refused}");
    // An arena that is too small refuses, too, and nothing is lost.
    let mut small = DeviceArena::over(DeviceSlab::new(device, 16).unwrap()).unwrap();
    let error = with_space(&mut small.frame(), || {
        assign_product(stream, &mut c, backwards(), &a)
    })
    .unwrap_err();
    assert!(matches!(error, TensorError::Space(_)), "{error}");
    assign_product(stream, &mut c, &a, &a).unwrap();
    drop((graph, arena, small, a, c));
    setup.finish();
}

#[test]
fn an_arena_of_another_device_is_not_asked_for_room() {
    let simulation = SimDriver::builder().devices(2);
    let runtime = Runtime::builder().simulation(simulation).build().unwrap();
    let [here, there] = runtime.devices() else {
        panic!()
    };
    let stream = there.streams().acquire().unwrap();
    let host = array![[1.0_f64, 2.0], [3.0, 4.0]];
    let a = CudaTensor::from_ndarray(there, &host.view()).unwrap();
    let mut c = CudaTensor::<f64, 2>::uninitialized(there, [2, 2]).unwrap();
    // Too small for a copy.
    let mut arena = DeviceArena::over(DeviceSlab::new(here, 16).unwrap()).unwrap();
    with_space(&mut arena.frame(), || {
        let backwards = a.view().reversed(0).unwrap();
        assign_product(&stream, &mut c, backwards, &a).unwrap();
    });
    let expected = array![[3.0, 4.0], [1.0, 2.0]].dot(&host);
    assert_eq!(c.to_ndarray().unwrap(), expected);
    assert_eq!(arena.watermark(), 0);
}

#[test]
fn leases_take_a_handle_before_a_stream_and_wait_their_turn() {
    let runtime = Runtime::builder().streams_per_device(8).build().unwrap();
    let device = runtime.default_device();
    let blas = Blas::of(device);
    let leases: Vec<_> = (0..4).map(|_| blas.lease().unwrap()).collect();
    // The streams would do for more, the handles don't.
    assert!(blas.try_lease().unwrap().is_none());
    let mut waiting = Box::pin(blas.lease_async());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    use std::future::Future;
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    // Who waits for a handle holds no stream.
    assert_eq!(device.streams().try_acquire_many(4).unwrap().len(), 4);
    // A call with a stream of its own never waits for a handle.
    let stream = device.streams().acquire().unwrap();
    let a = CudaTensor::full(&stream, [2, 2], 1.0_f32).unwrap();
    let c = matmul(&stream, &a, &a).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 2), 2.0));
    let mut d = CudaTensor::<f32, 2>::uninitialized(device, [2, 2]).unwrap();
    gemm(&leases[0], &mut d, 1.0, &c, &a, 0.0).unwrap();
    assert_eq!(d.to_ndarray().unwrap(), Array2::from_elem((2, 2), 4.0));
    assert_eq!(leases[1].stream().device().id(), device.id());
    drop(leases);
    let ready = waiting.as_mut().poll(&mut context);
    assert!(matches!(ready, std::task::Poll::Ready(Ok(_))));
    drop((ready, waiting));
    // Threads that lease more than there is all come to their turn.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let lease = blas.lease().unwrap();
                    let mut out =
                        CudaTensor::<f32, 2>::uninitialized_on(Lease::stream(&lease), [2, 2])
                            .unwrap();
                    assign_product(&lease, &mut out, &a, &a).unwrap();
                }
            });
        }
    });
    stream.synchronize().unwrap();
    runtime.simulation().unwrap().assert_no_reports();
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
