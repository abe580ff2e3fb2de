//! Products of every type: against sums in higher precision with the standard error bound, and exactly for small whole numbers.

use crate::common::{Cut, Pair, Setup, cut, numbered, pair, setup};
use crate::exact::{
    C32, C64, Exact, conjugate_if, digits, exact_product, reference, view_if, whole,
};
use cuda_buffer::DeviceData;
use half::{bf16, f16};
use ndarray::{Array2, Array3, Ix1, Ix2, Ix3};
use proptest::prelude::*;
use tensor_cuda::{
    CudaTensor, DynTensor, Layout, TensorView, TensorViewMut, assign_product, gemm, gemm_batched,
    gemm_strided_batched, gemv, matmul, to_ndarray,
};

/// One product of a type, of cut operands, against the bound gamma of k + 2 operations, and the rounding of the type.
fn check<T: Exact>(
    [m, n, k]: [usize; 3],
    cuts: &[Cut; 3],
    conjugate: [bool; 2],
    [alpha, beta]: [T; 2],
    seed: u64,
) {
    let setup = setup(seed);
    let value = |i: usize, which: u64| T::of(digits(i, seed ^ which), digits(i, seed ^ which ^ 77));
    let stored = |cut: &Cut, extents: [usize; 2], which: u64| {
        pair(
            setup.device(),
            numbered(&cut.of(&extents), |i| value(i, which)),
        )
    };
    let mut c = stored(&cuts[0], [m, n], 1);
    let (a, b) = (stored(&cuts[1], [m, k], 2), stored(&cuts[2], [k, n], 3));
    let layout = |cut: &Cut, tensor: &DynTensor<T>| {
        Layout::<2>::try_from(&cut.layout(tensor.layout())).unwrap()
    };
    let (of_c, of_a, of_b) = (
        layout(&cuts[0], &c.tensor),
        layout(&cuts[1], &a.tensor),
        layout(&cuts[2], &b.tensor),
    );
    gemm(
        &setup.stream,
        TensorViewMut::over(c.tensor.write(), of_c).unwrap(),
        alpha,
        view_if(
            TensorView::over(a.tensor.read(), of_a).unwrap(),
            conjugate[0],
        ),
        view_if(
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
    for ((i, j), got) in got.indexed_iter() {
        let scaled = |x: C64, factor: C64| exact_product(x, factor);
        let product = (0..k).flat_map(|l| {
            let (a, b) = (
                conjugate_if(a_host[[i, l]], conjugate[0]),
                conjugate_if(b_host[[l, j]], conjugate[1]),
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
            #![proptest_config(ProptestConfig::with_cases(crate::common::cases(40)))]
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

/// An operand of small whole numbers, cut from a larger tensor.
struct Operand<T> {
    pair: Pair<T>,
    cut: Cut,
}

impl<T: Exact> Operand<T> {
    fn new(setup: &Setup, cut: &Cut, extents: &[usize], seed: usize) -> Self {
        let host = numbered(&cut.of(extents), |i| whole(i, seed));
        Self {
            pair: pair(setup.device(), host),
            cut: cut.clone(),
        }
    }

    fn layout<const N: usize>(&self) -> Layout<N> {
        Layout::try_from(&self.cut.layout(self.pair.tensor.layout())).unwrap()
    }

    fn view<const N: usize>(&self) -> TensorView<'_, T, N> {
        TensorView::over(self.pair.tensor.read(), self.layout()).unwrap()
    }

    fn view_mut<const N: usize>(&mut self) -> TensorViewMut<'_, T, N> {
        let layout = self.layout();
        TensorViewMut::over(self.pair.tensor.write(), layout).unwrap()
    }

    /// What the tensor held at first, exactly.
    fn host<D: ndarray::Dimension>(&self, conjugate: bool) -> ndarray::Array<C64, D> {
        let view = self.cut.view(self.pair.host.view());
        let exact = view.mapv(|x| conjugate_if(x, conjugate));
        exact.into_dimensionality().unwrap()
    }

    /// What the tensor holds.
    fn matrix(&self) -> Array2<C64> {
        to_ndarray(self.view::<2>()).unwrap().mapv(Exact::exact)
    }
}

fn real(x: f64) -> C64 {
    C64::new(x, 0.0)
}

/// Every call that multiplies, of one type: batches with repeated operands, matrices and vectors.
fn check_exactly<T: Exact>(
    [batch, m, n, k]: [usize; 4],
    (threes, twos, ones): &([Cut; 3], [Cut; 3], [Cut; 2]),
    [repeat_a, repeat_b]: [bool; 2],
    conjugate: [bool; 2],
    beta: f64,
    seed: u64,
) {
    let setup = setup(seed);
    let stream = &setup.stream;
    let [alpha_of, beta_of] = [T::of(2.0, 0.0), T::of(beta, 0.0)];

    let mut c = Operand::<T>::new(&setup, &threes[0], &[batch, m, n], 1);
    let a = Operand::<T>::new(
        &setup,
        &threes[1],
        &[if repeat_a { 1 } else { batch }, m, k],
        2,
    );
    let b = Operand::<T>::new(
        &setup,
        &threes[2],
        &[if repeat_b { 1 } else { batch }, k, n],
        3,
    );
    let of_a = view_if(a.view::<3>(), conjugate[0])
        .broadcast([batch, m, k])
        .unwrap();
    let of_b = view_if(b.view::<3>(), conjugate[1])
        .broadcast([batch, k, n])
        .unwrap();
    let before: Array3<C64> = c.host(false);
    gemm_strided_batched(stream, c.view_mut::<3>(), alpha_of, of_a, of_b, beta_of).unwrap();
    let got = to_ndarray(c.view::<3>()).unwrap().mapv(Exact::exact);
    let (a_host, b_host) = (a.host::<Ix3>(conjugate[0]), b.host::<Ix3>(conjugate[1]));
    for i in 0..batch {
        let at = |array: &Array3<C64>, i: usize| array.index_axis(ndarray::Axis(0), i).to_owned();
        let product = at(&a_host, if repeat_a { 0 } else { i })
            .dot(&at(&b_host, if repeat_b { 0 } else { i }));
        assert_eq!(
            at(&got, i),
            product * real(2.0) + at(&before, i) * real(beta)
        );
    }

    drop((c, a, b));

    // A product and its output of any layout, or of a new tensor; several of matrices of their own.
    let mut c = Operand::<T>::new(&setup, &twos[0], &[m, n], 4);
    let (a, b) = (
        Operand::<T>::new(&setup, &twos[1], &[m, k], 5),
        Operand::<T>::new(&setup, &twos[2], &[k, n], 6),
    );
    let (of_a, of_b) = (
        view_if(a.view::<2>(), conjugate[0]),
        view_if(b.view::<2>(), conjugate[1]),
    );
    let product = a
        .host::<Ix2>(conjugate[0])
        .dot(&b.host::<Ix2>(conjugate[1]));
    assign_product(stream, c.view_mut::<2>(), of_a, of_b).unwrap();
    assert_eq!(c.matrix(), product);
    let new = matmul(stream, of_a, of_b).unwrap();
    assert_eq!(new.to_ndarray().unwrap().mapv(Exact::exact), product);
    let mut square = CudaTensor::<T, 2>::full(stream, [m, m], T::of(3.0, 0.0)).unwrap();
    let mut d = Operand::<T>::new(&setup, &twos[0], &[m, n], 7);
    let before = [d.host::<Ix2>(false), Array2::from_elem((m, m), real(3.0))];
    gemm_batched(
        stream,
        [d.view_mut::<2>(), square.view_mut()],
        alpha_of,
        [of_a, of_a],
        [of_b, a.view::<2>().transposed()],
        beta_of,
    )
    .unwrap();
    let transposed = a.host::<Ix2>(false).reversed_axes();
    let squared = a.host::<Ix2>(conjugate[0]).dot(&transposed);
    let [first, second] = before.map(|before| before * real(beta));
    assert_eq!(d.matrix(), product.clone() * real(2.0) + first);
    assert_eq!(
        square.to_ndarray().unwrap().mapv(Exact::exact),
        squared * real(2.0) + second
    );

    let mut y = Operand::<T>::new(&setup, &ones[0], &[m], 8);
    let x = Operand::<T>::new(&setup, &ones[1], &[k], 9);
    let before = y.host::<Ix1>(false);
    gemv(
        stream,
        y.view_mut::<1>(),
        alpha_of,
        of_a,
        view_if(x.view::<1>(), conjugate[1]),
        beta_of,
    )
    .unwrap();
    let product = a
        .host::<Ix2>(conjugate[0])
        .dot(&x.host::<Ix1>(conjugate[1]));
    let got = to_ndarray(y.view::<1>()).unwrap().mapv(Exact::exact);
    assert_eq!(got, product * real(2.0) + before * real(beta));
    drop((c, d, a, b, new, square, y, x));
    setup.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(48)))]

    #[test]
    fn every_kind_of_product_of_every_type(
        sizes in prop::array::uniform4(0_usize..4),
        cuts in ([cut(3), cut(3), cut(3)], [cut(2), cut(2), cut(2)], [cut(1), cut(1)]),
        repeat in any::<[bool; 2]>(),
        conjugate in any::<[bool; 2]>(),
        beta in prop::sample::select(vec![0.0, 1.0, -1.0]),
        seed in any::<u64>(),
    ) {
        check_exactly::<f32>(sizes, &cuts, repeat, conjugate, beta, seed);
        check_exactly::<f64>(sizes, &cuts, repeat, conjugate, beta, seed);
        check_exactly::<f16>(sizes, &cuts, repeat, conjugate, beta, seed);
        check_exactly::<bf16>(sizes, &cuts, repeat, conjugate, beta, seed);
        check_exactly::<C32>(sizes, &cuts, repeat, conjugate, beta, seed);
        check_exactly::<C64>(sizes, &cuts, repeat, conjugate, beta, seed);
    }
}
