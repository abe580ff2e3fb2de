//! How the tests know numbers: exactly, in double precision.

use half::{bf16, f16};
use num_complex::Complex;
use tensor_cuda::{Number, TensorView};

pub(crate) type C32 = Complex<f32>;
pub(crate) type C64 = Complex<f64>;

/// How the tests know a number type: exactly, as a complex number of double precision.
pub(crate) trait Exact: Number {
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
pub(crate) fn digits(i: usize, seed: u64) -> f64 {
    let mixed =
        (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64 * 4.0 - 2.0
}

/// The sum of products, and that of the absolute values, each with an error of a square of the double round-off.
pub(crate) fn reference(terms: impl Iterator<Item = C64>) -> (C64, f64) {
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
pub(crate) fn exact_product(a: C64, b: C64) -> [C64; 4] {
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

/// A small whole number, so that sums of a few products are exact in every type and order.
pub(crate) fn whole<T: Exact>(i: usize, seed: usize) -> T {
    let of = |seed: usize| ((i * 31 + seed * 17 + 5) % 11) as f64 - 5.0;
    T::of(of(seed), of(seed + 3))
}

/// A number as its conjugate, where there is one and it is asked for.
pub(crate) fn conjugate_if<T: Exact>(x: T, conjugate: bool) -> C64 {
    match conjugate && T::COMPLEX {
        true => x.exact().conj(),
        false => x.exact(),
    }
}

/// A view as its conjugate, where that is asked for.
pub(crate) fn view_if<'a, T: Exact, const N: usize>(
    view: TensorView<'a, T, N>,
    conjugate: bool,
) -> TensorView<'a, T, N> {
    match conjugate {
        true => T::conjugate(view),
        false => view,
    }
}
