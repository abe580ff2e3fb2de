//! Every elementwise operation against `ndarray`, over ranks, extents, strides and types.

use crate::common::{Cut, Setup, cut, numbered, pair, setup};
use crate::exact::{C32, C64, Exact, conjugate_if, view_if, whole};
use crate::operands::{Operands, ranked, small, three_cuts};
use cuda_buffer::DeviceData;
use half::{bf16, f16};
use num_complex::Complex;
use proptest::prelude::*;
use tensor_cuda::{
    Activation, CastTo, CudaTensor, Layout, Map, Real, TensorError, TensorView, TensorViewMut, add,
    add_bias, axpy, cast, copy, fill, linear, map, map_in_place, multiply, multiply_in_place,
    scale, to_ndarray,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(96)))]

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
}

/// The functions that all numbers have, and those of real ones.
const FUNCTIONS: [Map; 13] = [
    Map::Negate,
    Map::Absolute,
    Map::Conjugate,
    Map::Square,
    Map::SquareRoot,
    Map::Reciprocal,
    Map::Exponential,
    Map::Logarithm,
    Map::Sine,
    Map::Cosine,
    Map::Tanh,
    Map::Sigmoid,
    Map::Relu,
];

/// Every operation over views of three dimensions, of one type.
fn check_arithmetic<T: Exact>(
    extents: [usize; 3],
    cuts: &[Cut; 3],
    conjugated: [bool; 2],
    function: Map,
    seed: u64,
) {
    let number = |x: C64| T::of(x.re, x.im);
    macro_rules! case {
        (|$stream:ident, $out:ident, $a:ident, $b:ident| $device:expr, $host:expr) => {{
            let mut operands = Operands::<T>::new(seed, &extents, cuts, whole);
            {
                let ($stream, $out, $a, $b) = operands.views::<3>();
                let ($a, $b) = (view_if($a, conjugated[0]), view_if($b, conjugated[1]));
                let _ = (&$a, &$b);
                $device.unwrap();
            }
            operands.check(|out, a, b| {
                let host: fn(C64, C64, C64) -> C64 = $host;
                let (a, b) = (
                    conjugate_if(a, conjugated[0]),
                    conjugate_if(b, conjugated[1]),
                );
                number(host(out.exact(), a, b))
            });
        }};
    }
    let (two, three) = (T::of(2.0, 0.0), T::of(-3.0, 0.0));
    case!(|s, out, a, b| copy(&s, out, a), |_, a, _| a);
    case!(|s, out, a, b| add(&s, out, a, b), |_, a, b| a + b);
    case!(
        |s, out, a, b| linear(&s, out, two, a, three, b),
        |_, a, b| a * 2.0 - b * 3.0
    );
    case!(|s, out, a, b| multiply(&s, out, a, b), |_, a, b| a * b);
    case!(
        |s, out, a, b| multiply_in_place(&s, out, a),
        |out, a, _| out * a
    );
    case!(|s, out, a, b| axpy(&s, out, two, a), |out, a, _| a * 2.0
        + out);
    case!(|s, out, a, b| scale(&s, out, three), |out, _, _| out * -3.0);
    case!(|s, out, a, b| fill(&s, out, two), |_, _, _| C64::new(
        2.0, 0.0
    ));
    case!(|s, out, a, b| map(&s, out, Map::Square, a), |_, a, _| a * a);
    case!(
        |s, out, a, b| map_in_place(&s, out, Map::Negate),
        |out, _, _| -out
    );
    check_function::<T>(extents, cuts, function, seed);
}

/// A function of a view is that of its elements one after another, to the bit; the definitions are tested below.
fn check_function<T: Exact>(
    extents: [usize; 3],
    [to, from, _]: &[Cut; 3],
    function: Map,
    seed: u64,
) {
    if T::COMPLEX && matches!(function, Map::Sigmoid | Map::Relu) {
        return;
    }
    let setup = setup(seed);
    let x = pair(
        setup.device(),
        numbered(&from.of(&extents), |i| whole::<T>(i, 1)),
    );
    let elements: Vec<T> = from.view(x.host.view()).iter().copied().collect();
    let mut expected =
        CudaTensor::from_ndarray(setup.device(), &ndarray::ArrayView1::from(&elements[..]))
            .unwrap();
    map_in_place(&setup.stream, &mut expected, function).unwrap();
    let mut out = pair(setup.device(), numbered(&to.of(&extents), |_| T::ZERO));
    let of_x = Layout::<3>::try_from(&from.layout(x.tensor.layout())).unwrap();
    let of_out = Layout::<3>::try_from(&to.layout(out.tensor.layout())).unwrap();
    map(
        &setup.stream,
        TensorViewMut::over(out.tensor.write(), of_out).unwrap(),
        function,
        TensorView::over(x.tensor.read(), of_x).unwrap(),
    )
    .unwrap();
    let got = to_ndarray(TensorView::over(out.tensor.read(), of_out).unwrap()).unwrap();
    let bits = |values: &[T]| bytemuck::cast_slice::<T, u8>(values).to_vec();
    let got: Vec<T> = got.iter().copied().collect();
    assert_eq!(
        bits(&got),
        bits(&expected.to_vec().unwrap()),
        "{function:?}"
    );
    drop((x, out, expected));
    setup.finish();
}

/// A bias along the last dimension of any rank, and what is applied after it.
fn check_bias<T: Exact + Real, const N: usize>(
    extents: [usize; 3],
    cuts: &[Cut; 3],
    (of_bias, activation): (&Cut, Activation),
    seed: u64,
) {
    let setup = setup(seed);
    let (extents, cut) = (&extents[3 - N..], &cuts[N - 1]);
    let mut x = pair(
        setup.device(),
        numbered(&cut.of(extents), |i| whole::<T>(i, 1)),
    );
    let bias = pair(
        setup.device(),
        numbered(&of_bias.of(&extents[N - 1..]), |i| whole::<T>(i, 2)),
    );
    let of_x = Layout::<N>::try_from(&cut.layout(x.tensor.layout())).unwrap();
    let layout = Layout::<1>::try_from(&of_bias.layout(bias.tensor.layout())).unwrap();
    let view = TensorView::over(bias.tensor.read(), layout).unwrap();
    add_bias(
        &setup.stream,
        TensorViewMut::over(x.tensor.write(), of_x).unwrap(),
        view,
        activation,
    )
    .unwrap();
    let function = |x: f64| match activation {
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        _ => x,
    };
    let positions = numbered(x.host.shape(), |i| i);
    let memory = x.tensor.to_vec().unwrap();
    let bias_host: Vec<T> = of_bias.view(bias.host.view()).iter().copied().collect();
    let mut touched = vec![false; memory.len()];
    for (i, &at) in cut.view(positions.view()).iter().enumerate() {
        touched[at] = true;
        let before = x.host.as_slice().unwrap()[at].exact().re;
        let expected = function(before + bias_host[i % bias_host.len()].exact().re);
        let error = (memory[at].exact().re - expected).abs();
        assert!(
            error <= 4.0 * T::ROUND_OFF[1] * expected.abs(),
            "{activation:?} of {before}"
        );
    }
    for (at, touched) in touched.into_iter().enumerate() {
        assert!(touched || memory[at] == x.host.as_slice().unwrap()[at]);
    }
    drop((x, bias));
    setup.finish();
}

/// A cast of a view, with values that both types have.
fn check_cast<S: CastTo<D>, D: bytemuck::Pod + PartialEq + std::fmt::Debug>(
    setup: &Setup,
    extents: &[usize],
    [to, from, _]: &[Cut; 3],
    of_source: impl Fn(u8) -> S,
    of_result: impl Fn(u8) -> D,
) {
    let value = |i: usize| ((i * 7 + 3) % 23) as u8;
    let x = pair(
        setup.device(),
        numbered(&from.of(extents), |i| of_source(value(i))),
    );
    let mut out = pair(setup.device(), numbered(&to.of(extents), |_| of_result(99)));
    let of_x = Layout::<3>::try_from(&from.layout(x.tensor.layout())).unwrap();
    let of_out = Layout::<3>::try_from(&to.layout(out.tensor.layout())).unwrap();
    cast(
        &setup.stream,
        TensorViewMut::over(out.tensor.write(), of_out).unwrap(),
        TensorView::over(x.tensor.read(), of_x).unwrap(),
    )
    .unwrap();
    let (values, positions) = (
        numbered(x.host.shape(), value),
        numbered(out.host.shape(), |i| i),
    );
    let mut expected = out.host.as_slice().unwrap().to_vec();
    for (&at, &value) in to
        .view(positions.view())
        .iter()
        .zip(&from.view(values.view()))
    {
        expected[at] = of_result(value);
    }
    assert_eq!(out.tensor.to_vec().unwrap(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(24)))]

    #[test]
    fn arithmetic_of_every_type(
        (extents, cuts) in prop::array::uniform3(0_usize..4).prop_flat_map(|e| (Just(e), [cut(3), cut(3), cut(3)])),
        conjugated in any::<[bool; 2]>(),
        function in prop::sample::select(&FUNCTIONS[..]),
        seed in any::<u64>(),
    ) {
        check_arithmetic::<f32>(extents, &cuts, conjugated, function, seed);
        check_arithmetic::<f64>(extents, &cuts, conjugated, function, seed);
        check_arithmetic::<f16>(extents, &cuts, conjugated, function, seed);
        check_arithmetic::<bf16>(extents, &cuts, conjugated, function, seed);
        check_arithmetic::<C32>(extents, &cuts, conjugated, function, seed);
        check_arithmetic::<C64>(extents, &cuts, conjugated, function, seed);
    }

    #[test]
    fn biases_of_every_real_type(
        extents in prop::array::uniform3(0_usize..4),
        cuts in [cut(1), cut(2), cut(3)],
        of_bias in cut(1),
        activation in prop::sample::select(vec![Activation::Identity, Activation::Relu, Activation::Tanh, Activation::Sigmoid]),
        seed in any::<u64>(),
    ) {
        macro_rules! each {
            ($($type:ty)+) => { $(
                check_bias::<$type, 1>(extents, &cuts, (&of_bias, activation), seed);
                check_bias::<$type, 2>(extents, &cuts, (&of_bias, activation), seed);
                check_bias::<$type, 3>(extents, &cuts, (&of_bias, activation), seed);
            )+ };
        }
        each!(f32 f64 f16 bf16);
    }

    #[test]
    fn casts_of_views_between_all_types(
        (extents, cuts) in prop::array::uniform3(0_usize..4).prop_flat_map(|e| (Just(e), [cut(3), cut(3), cut(3)])),
        seed in any::<u64>(),
    ) {
        let setup = setup(seed);
        macro_rules! each {
            ($($from:ty => $($to:ty)+;)+) => { $( $(
                check_cast::<$from, $to>(&setup, &extents, &cuts, <$from as Small>::small, <$to as Small>::small);
            )+ )+ };
        }
        each! {
            f32 => f64 f16 bf16 i32 u32 C32;
            f64 => f32 f16 bf16 i32 u32 C64;
            f16 => f32 f64 bf16;
            bf16 => f32 f64 f16;
            i32 => f32 f64;
            u32 => f32 f64;
            C32 => C64;
            C64 => C32;
        }
        setup.finish();
    }
}

/// What a small whole number is in a type.
trait Small {
    fn small(x: u8) -> Self;
}

macro_rules! small_numbers {
    ($($type:ty: |$x:ident| $value:expr;)+) => { $(
        impl Small for $type {
            fn small($x: u8) -> Self {
                $value
            }
        }
    )+ };
}

small_numbers! {
    f32: |x| x.into();
    f64: |x| x.into();
    f16: |x| f16::from_f32(x.into());
    bf16: |x| bf16::from_f32(x.into());
    i32: |x| x.into();
    u32: |x| x.into();
    C32: |x| f32::from(x).into();
    C64: |x| f64::from(x).into();
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
