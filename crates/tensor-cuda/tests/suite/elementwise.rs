//! Every elementwise operation and reduction against `ndarray`, over ranks, extents, strides and types.

use crate::common::{Cut, Pair, Setup, cut, numbered, pair, setup};
use cuda_buffer::{CudaBuffer, DeviceData};
use cuda_runtime::Stream;
use half::{bf16, f16};
use ndarray::{ArrayD, Axis, IxDyn};
use num_complex::Complex;
use proptest::prelude::*;
use tensor_cuda::{
    CudaTensor, Layout, Map, Norm, Number, TensorError, TensorView, TensorViewMut, add, argmax,
    axpy, cast, copy, fill, linear, map, map_in_place, max, min, multiply, multiply_in_place, norm,
    scale, sum, to_ndarray,
};

type C64 = Complex<f64>;

/// Small whole numbers, so that sums are exact in every type and order.
fn small(i: usize, seed: usize) -> f64 {
    ((i * 31 + seed * 17 + 5) % 13) as f64 - 6.0
}

fn three_cuts() -> impl Strategy<Value = (Vec<usize>, [Cut; 3])> {
    prop_oneof![4 => 0_usize..4, 1 => 4_usize..7].prop_flat_map(|rank| {
        let extents = prop::collection::vec(if rank > 3 { 1_usize..3 } else { 0_usize..4 }, rank);
        (extents, [cut(rank), cut(rank), cut(rank)])
    })
}

/// Calls `$body` with views of the rank that the running program knows.
macro_rules! ranked {
    ($rank:expr, $n:ident => $body:expr) => {
        match $rank {
            0 => {
                const $n: usize = 0;
                $body
            }
            1 => {
                const $n: usize = 1;
                $body
            }
            2 => {
                const $n: usize = 2;
                $body
            }
            3 => {
                const $n: usize = 3;
                $body
            }
            4 => {
                const $n: usize = 4;
                $body
            }
            5 => {
                const $n: usize = 5;
                $body
            }
            6 => {
                const $n: usize = 6;
                $body
            }
            _ => unreachable!(),
        }
    };
}

/// An output and two inputs, each cut its own way from a larger tensor.
struct Operands<T> {
    tensors: [Pair<T>; 3],
    cuts: [Cut; 3],
    setup: Setup,
}

impl<T: Number> Operands<T> {
    fn new(
        seed: u64,
        extents: &[usize],
        cuts: &[Cut; 3],
        value: impl Fn(usize, usize) -> T,
    ) -> Self {
        let setup = setup(seed);
        let whole = |k: usize| numbered(&cuts[k].of(extents), |i| value(i, k));
        let tensors = [0, 1, 2].map(|k| pair(setup.device(), whole(k)));
        Self {
            tensors,
            cuts: cuts.clone(),
            setup,
        }
    }

    fn views<const N: usize>(
        &mut self,
    ) -> (
        Stream,
        TensorViewMut<'_, T, N>,
        TensorView<'_, T, N>,
        TensorView<'_, T, N>,
    ) {
        let layout = |k: usize| {
            let cut = self.cuts[k].layout(self.tensors[k].tensor.layout());
            Layout::<N>::try_from(&cut).unwrap()
        };
        let layouts = [layout(0), layout(1), layout(2)];
        let [out, a, b] = &mut self.tensors;
        (
            self.setup.stream.clone(),
            TensorViewMut::over(out.tensor.write(), layouts[0]).unwrap(),
            TensorView::over(a.tensor.read(), layouts[1]).unwrap(),
            TensorView::over(b.tensor.read(), layouts[2]).unwrap(),
        )
    }

    /// All of the output's memory is what the host works out: elements of the view as `host` says, the others untouched.
    fn check(self, host: impl Fn(T, T, T) -> T) {
        let [out, a, b] = self.tensors;
        let [cut_out, cut_a, cut_b] = &self.cuts;
        let positions = numbered(out.host.shape(), |i| i);
        let mut expected = out.host.clone();
        let flat = expected.as_slice_mut().unwrap();
        let (av, bv) = (cut_a.view(a.host.view()), cut_b.view(b.host.view()));
        for ((&at, a), b) in cut_out.view(positions.view()).iter().zip(&av).zip(&bv) {
            flat[at] = host(flat[at], *a, *b);
        }
        assert_eq!(out.tensor.to_vec().unwrap(), expected.as_slice().unwrap());
        drop((out.tensor, a.tensor, b.tensor));
        self.setup.finish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any rank, with more dimensions than one launch takes, too.
    #[test]
    fn copies_and_sums_of_any_rank((extents, cuts) in three_cuts(), seed in any::<u64>()) {
        let value = |i, k| small(i, k);
        let mut operands = Operands::<f64>::new(seed, &extents, &cuts, value);
        ranked!(extents.len(), N => {
            let (stream, out, a, _) = operands.views::<N>();
            copy(&stream, out, a).unwrap();
        });
        operands.check(|_, a, _| a);
        let mut operands = Operands::<f64>::new(seed, &extents, &cuts, value);
        ranked!(extents.len(), N => {
            let (stream, out, a, b) = operands.views::<N>();
            linear(&stream, out, 2.0, a, -3.0, b).unwrap();
        });
        operands.check(|_, a, b| 2.0 * a - 3.0 * b);
    }

    #[test]
    fn arithmetic_of_complex_views(
        (extents, cuts) in prop::array::uniform3(0_usize..4).prop_flat_map(|e| (Just(e), [cut(3), cut(3), cut(3)])),
        conjugated in any::<[bool; 2]>(),
        seed in any::<u64>(),
    ) {
        let value = |i, k| C64::new(small(i, k), small(i, k + 7));
        let of = |x: C64, conjugated: bool| if conjugated { x.conj() } else { x };
        macro_rules! case {
            (|$stream:ident, $out:ident, $a:ident, $b:ident| $device:expr, $host:expr) => {{
                let mut operands = Operands::new(seed, &extents, &cuts, value);
                {
                let ($stream, $out, $a, $b) = operands.views::<3>();
                let $a = if conjugated[0] { $a.conjugated() } else { $a };
                let $b = if conjugated[1] { $b.conjugated() } else { $b };
                let _ = (&$a, &$b);
                $device.unwrap();
                }
                operands.check(|out, a, b| {
                    let host: fn(C64, C64, C64) -> C64 = $host;
                    host(out, of(a, conjugated[0]), of(b, conjugated[1]))
                });
            }};
        }
        case!(|s, out, a, b| copy(&s, out, a), |_, a, _| a);
        case!(|s, out, a, b| add(&s, out, a, b), |_, a, b| a + b);
        case!(|s, out, a, b| multiply(&s, out, a, b), |_, a, b| a * b);
        case!(|s, out, a, b| multiply_in_place(&s, out, a), |out, a, _| out * a);
        case!(|s, out, a, b| axpy(&s, out, C64::new(2.0, -1.0), a), |out, a, _| C64::new(2.0, -1.0) * a + out);
        case!(|s, out, a, b| scale(&s, out, C64::new(0.0, 1.0)), |out, _, _| C64::new(0.0, 1.0) * out);
        case!(|s, out, a, b| fill(&s, out, C64::new(7.0, 8.0)), |_, _, _| C64::new(7.0, 8.0));
        case!(|s, out, a, b| map(&s, out, Map::Square, a), |_, a, _| a * a);
        case!(|s, out, a, b| map_in_place(&s, out, Map::Conjugate), |out, _, _| out.conj());
    }

    /// Sums over any axes, and the rest of the reductions, of cut views into cut views.
    #[test]
    fn reductions_over_any_axes(
        (extents, cuts) in prop::array::uniform4(0_usize..4).prop_flat_map(|e| (Just(e), [cut(4), cut(2), cut(3)])),
        axes in Just([0_usize, 1, 2, 3]).prop_shuffle(),
        seed in any::<u64>(),
    ) {
        let setup = setup(seed);
        let [from, to, to_one] = &cuts;
        let x = pair(setup.device(), numbered(&from.of(&extents), |i| small(i, 1)));
        let layout = Layout::<4>::try_from(&from.layout(x.tensor.layout())).unwrap();
        let view = TensorView::over(x.tensor.read(), layout).unwrap();
        let host = from.view(x.host.view());
        let two = [axes[0], axes[1]];
        let mut kept: Vec<usize> = axes[2..].to_vec();
        kept.sort_unstable();
        let kept_extents: Vec<_> = kept.iter().map(|&axis| extents[axis]).collect();
        // Over two axes.
        let reduce = |f: &dyn Fn(&[f64]) -> f64| {
            let last = host.clone().permuted_axes(IxDyn(&[kept[0], kept[1], two[0], two[1]]));
            ArrayD::from_shape_fn(IxDyn(&kept_extents), |at| {
                let rest: Vec<f64> = last.index_axis(Axis(0), at[0]).index_axis(Axis(0), at[1]).iter().copied().collect();
                f(&rest)
            })
        };
        let nothing = extents[two[0]] * extents[two[1]] == 0 && !kept_extents.contains(&0);
        macro_rules! case {
            (|$stream:ident, $out:ident| $device:expr, $fails:expr, $host:expr) => {{
                let mut out = pair(setup.device(), numbered(&to.of(&kept_extents), |i| small(i, 3)));
                let layout = Layout::<2>::try_from(&to.layout(out.tensor.layout())).unwrap();
                let ($stream, $out) = (&setup.stream, TensorViewMut::over(out.tensor.write(), layout).unwrap());
                let done = $device;
                prop_assert_eq!(done.is_err(), $fails, "{:?}", done);
                if done.is_ok() {
                    let got = to_ndarray(TensorView::over(out.tensor.read(), layout).unwrap()).unwrap();
                    prop_assert_eq!(got.into_dyn(), reduce(&$host));
                }
            }};
        }
        case!(|s, out| sum(s, out, view, two), false, |x: &[f64]| x.iter().sum());
        case!(|s, out| max(s, out, view, two), nothing, |x: &[f64]| x.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        case!(|s, out| min(s, out, view, two), nothing, |x: &[f64]| x.iter().copied().fold(f64::INFINITY, f64::min));
        case!(|s, out| norm(s, out, Norm::One, view, two), false, |x: &[f64]| x.iter().map(|x| x.abs()).sum());
        case!(|s, out| norm(s, out, Norm::Infinity, view, two), false, |x: &[f64]| x.iter().fold(0.0, |a: f64, x| a.max(x.abs())));
        // Over one axis: the position of the largest.
        let axis = axes[0];
        let mut others: Vec<usize> = axes[1..].to_vec();
        others.sort_unstable();
        let shape: Vec<_> = others.iter().map(|&axis| extents[axis]).collect();
        let mut out = pair(setup.device(), numbered(&to_one.of(&shape), |i| i as u32));
        let layout = Layout::<3>::try_from(&to_one.layout(out.tensor.layout())).unwrap();
        let done = argmax(&setup.stream, TensorViewMut::over(out.tensor.write(), layout).unwrap(), view, axis);
        prop_assert_eq!(done.is_err(), extents[axis] == 0 && !shape.contains(&0), "{:?}", done);
        if done.is_ok() {
            let got = to_ndarray(TensorView::over(out.tensor.read(), layout).unwrap()).unwrap();
            let expected = host.map_axis(Axis(axis), |lane| {
                let high = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                lane.iter().position(|&x| x == high).unwrap_or(0) as u32
            });
            prop_assert_eq!(got.into_dyn(), expected);
        }
        drop((x, out));
        setup.finish();
    }
}

/// Every function of every type, by the definition.
#[test]
fn functions_are_what_they_say() {
    let setup = setup(0);
    macro_rules! functions {
        ($type:ty, $values:expr, $tolerance:expr, $($function:ident: $host:expr;)+) => {{
            let values: Vec<$type> = $values;
            let a = CudaTensor::from_ndarray(setup.device(), &ndarray::ArrayView1::from(&values[..])).unwrap();
            $({
                let mut out = CudaTensor::<$type, 1>::uninitialized(setup.device(), [values.len()]).unwrap();
                map(&setup.stream, &mut out, Map::$function, &a).unwrap();
                let host: fn($type) -> $type = $host;
                for (&x, got) in values.iter().zip(out.to_ndarray().unwrap()) {
                    let expected = host(x);
                    let close = got == expected || ($tolerance)(got - expected, expected);
                    let same = close || (got != got && expected != expected);
                    assert!(same, "{} of {x}: {got}, not {expected}", stringify!($function));
                }
            })+
        }};
    }
    let reals = || vec![-2.5, -1.0, -0.0, 0.25, 1.0, 3.0, f64::NAN, f64::INFINITY];
    functions!(f64, reals(), |d: f64, e: f64| d.abs() <= 1e-15 * e.abs(),
        Negate: |x| -x; Absolute: f64::abs; Conjugate: |x| x; Square: |x| x * x; SquareRoot: f64::sqrt;
        Reciprocal: |x| 1.0 / x; Exponential: f64::exp; Logarithm: f64::ln; Sine: f64::sin; Cosine: f64::cos;
        Tanh: f64::tanh; Sigmoid: |x| 1.0 / (1.0 + (-x).exp());
        Relu: |x| if x < 0.0 { 0.0 } else { x };
    );
    functions!(f32, reals().into_iter().map(|x| x as f32).collect(), |d: f32, e: f32| d.abs() <= 1e-6 * e.abs(),
        Exponential: f32::exp; Tanh: f32::tanh; Square: |x| x * x;
    );
    functions!(f16, reals().into_iter().map(f16::from_f64).collect(), |_: f16, _: f16| false,
        Exponential: |x| f16::from_f32(x.to_f32().exp()); Square: |x| f16::from_f32(x.to_f32() * x.to_f32());
    );
    functions!(bf16, reals().into_iter().map(bf16::from_f64).collect(), |_: bf16, _: bf16| false,
        Sine: |x| bf16::from_f32(x.to_f32().sin()); Negate: |x| -x;
    );
    functions!(C64, vec![C64::new(1.0, -2.0), C64::new(-0.5, 0.25), C64::new(0.0, 3.0)], |d: C64, e: C64| d.norm() <= 1e-15 * e.norm(),
        Absolute: |x| x.norm().into(); Conjugate: |x| x.conj(); SquareRoot: |x| x.sqrt(); Reciprocal: |x| x.inv();
        Exponential: |x| x.exp(); Logarithm: |x| x.ln(); Sine: |x| x.sin(); Cosine: |x| x.cos(); Tanh: |x| x.tanh();
    );
    let z = CudaTensor::<C64, 1>::zeros(&setup.stream, [1]).unwrap();
    let mut out = CudaTensor::<C64, 1>::zeros(&setup.stream, [1]).unwrap();
    for function in [Map::Relu, Map::Sigmoid] {
        let error = map(&setup.stream, &mut out, function, &z).unwrap_err();
        assert!(
            matches!(
                error,
                TensorError::Unsupported {
                    operand: "a",
                    element: "c64",
                    ..
                }
            ),
            "{error}"
        );
    }
    drop((z, out));
    setup.finish();
}

#[test]
fn casts_round_as_the_host_does() {
    let setup = setup(0);
    macro_rules! cast {
        ($from:ty => $to:ty, $values:expr, $host:expr) => {{
            let values: Vec<$from> = $values;
            let a =
                CudaTensor::from_ndarray(setup.device(), &ndarray::ArrayView1::from(&values[..]))
                    .unwrap();
            let mut out =
                CudaTensor::<$to, 1>::uninitialized(setup.device(), [values.len()]).unwrap();
            cast(
                &setup.stream,
                out.view_mut().reversed(0).unwrap(),
                a.view().reversed(0).unwrap(),
            )
            .unwrap();
            let host: fn($from) -> $to = $host;
            let got = out.to_ndarray().unwrap();
            for (&x, &got) in values.iter().zip(&got) {
                let expected = host(x);
                assert_eq!(
                    bytemuck::bytes_of(&got),
                    bytemuck::bytes_of(&expected),
                    "{x:?}"
                );
            }
        }};
    }
    let reals = || {
        vec![
            0.0,
            -1.5,
            1e10,
            -7.9,
            65504.0,
            1.000_000_1,
            3.0e-6,
            f64::INFINITY,
        ]
    };
    let singles = || reals().into_iter().map(|x| x as f32).collect::<Vec<_>>();
    cast!(f64 => f32, reals(), |x| x as f32);
    cast!(f64 => f16, reals(), f16::from_f64);
    cast!(f64 => bf16, reals(), bf16::from_f64);
    cast!(f64 => i32, reals(), |x| x as i32);
    cast!(f64 => u32, reals(), |x| x as u32);
    cast!(f64 => C64, reals(), C64::from);
    cast!(f32 => f64, singles(), f64::from);
    cast!(f32 => f16, singles(), f16::from_f32);
    cast!(f32 => bf16, singles(), bf16::from_f32);
    cast!(f32 => i32, singles(), |x| x as i32);
    cast!(f32 => u32, singles(), |x| x as u32);
    cast!(f32 => Complex<f32>, singles(), Complex::from);
    cast!(f16 => f32, singles().into_iter().map(f16::from_f32).collect(), f16::to_f32);
    cast!(bf16 => f64, singles().into_iter().map(bf16::from_f32).collect(), bf16::to_f64);
    cast!(bf16 => f16, singles().into_iter().map(bf16::from_f32).collect(), |x| f16::from_f32(x.to_f32()));
    cast!(i32 => f32, vec![i32::MIN, -3, 16_777_217], |x| x as f32);
    cast!(u32 => f64, vec![u32::MAX, 5], f64::from);
    cast!(C64 => Complex<f32>, vec![C64::new(0.1, -1e300)], |x| Complex::new(x.re as f32, x.im as f32));
    let z = CudaTensor::full(&setup.stream, [2], Complex::new(1.0_f32, 2.0)).unwrap();
    let mut out = CudaTensor::<C64, 1>::uninitialized(setup.device(), [2]).unwrap();
    cast(&setup.stream, &mut out, z.view().conjugated()).unwrap();
    assert_eq!(out.to_ndarray().unwrap().to_vec(), [C64::new(1.0, -2.0); 2]);
    drop((z, out));
    setup.finish();
}

#[test]
fn norms_neither_overflow_nor_vanish() {
    let setup = setup(0);
    let two = |values: &[f64]| {
        let x =
            CudaTensor::from_ndarray(setup.device(), &ndarray::ArrayView1::from(values)).unwrap();
        let mut out = CudaTensor::<f64, 0>::uninitialized(setup.device(), []).unwrap();
        norm(&setup.stream, &mut out, Norm::Two, &x, [0]).unwrap();
        out.to_ndarray().unwrap()[()]
    };
    assert_eq!(two(&[3.0, 4.0]), 5.0);
    assert!((two(&[3e200, -4e200]) / 5e200 - 1.0).abs() < 1e-15);
    assert!((two(&[3e-200, 4e-200]) / 5e-200 - 1.0).abs() < 1e-15);
    assert_eq!(two(&[0.0, -0.0]), 0.0);
    assert_eq!(two(&[]), 0.0);
    assert_eq!(two(&[1.0, f64::NEG_INFINITY]), f64::INFINITY);
    assert!(two(&[f64::INFINITY, f64::NAN]).is_nan());
    assert!(two(&[f64::NAN, 1.0]).is_nan());
    let z = CudaTensor::full(&setup.stream, [2, 2], C64::new(3.0, 4.0)).unwrap();
    for (kind, expected) in [(Norm::One, 20.0), (Norm::Two, 10.0), (Norm::Infinity, 5.0)] {
        let mut out = CudaTensor::<f64, 0>::uninitialized(setup.device(), []).unwrap();
        norm(&setup.stream, &mut out, kind, &z, [0, 1]).unwrap();
        assert_eq!(out.to_ndarray().unwrap()[()], expected);
    }
    let mut conjugates = CudaTensor::<C64, 1>::uninitialized(setup.device(), [2]).unwrap();
    sum(&setup.stream, &mut conjugates, z.view().conjugated(), [1]).unwrap();
    assert_eq!(
        conjugates.to_ndarray().unwrap().to_vec(),
        [C64::new(6.0, -8.0); 2]
    );
    drop((z, conjugates));
    setup.finish();
}

#[test]
fn a_factor_of_zero_leaves_its_operand_unread() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    let nan = CudaTensor::full(stream, [4], f32::NAN).unwrap();
    let unwritten = CudaTensor::<f32, 1>::uninitialized(device, [4]).unwrap();
    let one = CudaTensor::full(stream, [4], 1.0_f32).unwrap();
    let mut out = CudaTensor::<f32, 1>::uninitialized(device, [4]).unwrap();
    linear(stream, &mut out, 0.0, &nan, 2.0, &one).unwrap();
    assert_eq!(out.to_ndarray().unwrap().to_vec(), [2.0; 4]);
    linear(stream, &mut out, 3.0, &one, 0.0, &unwritten).unwrap();
    assert_eq!(out.to_ndarray().unwrap().to_vec(), [3.0; 4]);
    axpy(stream, &mut out, 0.0, &nan).unwrap();
    assert_eq!(out.to_ndarray().unwrap().to_vec(), [3.0; 4]);
    fill(stream, &mut out, f32::NAN).unwrap();
    scale(stream, &mut out, 0.0).unwrap();
    assert_eq!(out.to_ndarray().unwrap().to_vec(), [0.0; 4]);
    drop((nan, unwritten, one, out));
    setup.finish();
}

#[test]
fn bad_operands_are_named() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    let a = CudaTensor::<f32, 2>::zeros(stream, [2, 3]).unwrap();
    let mut out = CudaTensor::<f32, 2>::zeros(stream, [2, 3]).unwrap();
    let before = device.call_counts();
    let error = add(stream, &mut out, &a, a.view().transposed()).unwrap_err();
    assert!(
        matches!(error, TensorError::ShapeMismatch { operand: "b", .. }),
        "{error}"
    );
    let row = out
        .view_mut()
        .slice(0, 0..1)
        .unwrap()
        .broadcast([2, 3])
        .unwrap();
    let error = copy(stream, row, &a).unwrap_err();
    assert!(
        matches!(error, TensorError::OverlappingWrite { operand: "out", .. }),
        "{error}"
    );
    let windows = Layout::strided([2, 2], [1, 1], 0).unwrap();
    let windows = TensorViewMut::over(out.write(), windows).unwrap();
    let error = fill(stream, windows, 1.0).unwrap_err();
    assert!(
        matches!(error, TensorError::OverlappingWrite { .. }),
        "{error}"
    );
    let outside = Layout::strided([2, 3], [3, 1], 1).unwrap();
    let error = TensorView::over(a.read(), outside).unwrap_err();
    assert!(
        matches!(
            error,
            TensorError::PastMemory {
                operand: "a view",
                start: 1,
                end: 7,
                len: 6,
                ..
            }
        ),
        "{error}"
    );
    // Two handles of one value.
    let shared = cuda_buffer::SharedCudaBuffer::from(out.into_buffer());
    let layout = Layout::row_major([2, 3]).unwrap();
    let to = TensorViewMut::over(shared.write(), layout).unwrap();
    let from = TensorView::over(shared.read(), layout).unwrap();
    let error = axpy(stream, to, 1.0, from).unwrap_err();
    assert!(
        matches!(
            error,
            TensorError::Aliased {
                operation: "axpy",
                operand: "x"
            }
        ),
        "{error}"
    );
    let mut one = CudaTensor::<f32, 1>::zeros(stream, [2]).unwrap();
    let error = sum(stream, &mut one, &a, [2]).unwrap_err();
    assert!(
        matches!(&error, TensorError::BadAxes { operand: "x", axes, rank: 2, .. } if *axes == [2]),
        "{error}"
    );
    let mut none = CudaTensor::<f32, 0>::zeros(stream, []).unwrap();
    let error = sum(stream, &mut none, &a, [1, 1]).unwrap_err();
    assert!(
        matches!(&error, TensorError::BadAxes { operand: "x", axes, .. } if *axes == [1, 1]),
        "{error}"
    );
    let odd = CudaBuffer::<[u8; 3]>::new(device, 2).unwrap();
    let mut odd = CudaTensor::from_buffer(odd, Layout::row_major([2]).unwrap()).unwrap();
    let error = fill(stream, &mut odd, [1, 2, 3]).unwrap_err();
    assert!(
        matches!(
            error,
            TensorError::Unsupported {
                operation: "fill",
                operand: "out",
                ..
            }
        ),
        "{error}"
    );
    let made = device.call_counts() - before;
    assert_eq!(made.of(cuda_driver::Call::LaunchKernel), 0);
    drop((a, shared, one, none, odd));
    setup.finish();
}

#[test]
fn one_run_is_one_launch_and_one_event() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    let a = CudaTensor::full(stream, [2, 3, 4], 1.0_f32).unwrap();
    let mut out = CudaTensor::<f32, 3>::uninitialized_on(stream, [2, 3, 4]).unwrap();
    (0..4).for_each(|_| add(stream, &mut out, &a, &a).unwrap());
    let before = device.call_counts();
    add(stream, &mut out, &a, &a).unwrap();
    let made = device.call_counts() - before;
    assert_eq!(made.of(cuda_driver::Call::LaunchKernel), 1);
    assert!(made.total() <= 2, "{made}");
    drop((a, out));
    setup.finish();
}
