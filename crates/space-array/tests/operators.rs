//! Operators against plain `ndarray`: each operand by value, by reference, as a view and as a
//! number, on both kinds, with a bumper in scope.

mod support;

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub};

use ndarray::{Array1, Ix1, array};
use num_complex::Complex;
use proptest::prelude::*;
use space_array::{AllocArray, ArrayError, CheckedAllocArray, Element, Kind, Scalar, SpaceArray};
use support::{cases, everywhere, matrix, model, operands};

/// Each pair of forms that `$a $op $b` can be written with.
macro_rules! all_forms {
    ($Array:ident, $op:tt, $a:ident, $b:ident, $wanted:expr) => {{
        let (x, y) = (|| $Array::copy_of($a.view()), || $Array::copy_of($b.view()));
        let (s, t) = (x(), y());
        let wanted = $wanted;
        assert_eq!(x() $op y(), wanted);
        assert_eq!(x() $op &t, wanted);
        assert_eq!(x() $op t.view(), wanted);
        assert_eq!(x() $op &t.view(), wanted);
        assert_eq!(x() $op $b.view(), wanted);
        assert_eq!(x() $op &$b, wanted);
        assert_eq!(&s $op y(), wanted);
        assert_eq!(&s $op &t, wanted);
        assert_eq!(&s $op t.view(), wanted);
        assert_eq!(&s $op &$b, wanted);
        assert_eq!($a.view() $op y(), wanted);
        assert_eq!($a.view() $op &t, wanted);
        assert_eq!(&$a $op y(), wanted);
        assert_eq!(&$a $op &t, wanted);
        assert_eq!($a.clone() $op &t, wanted);
    }};
}

/// The forms that only views of checked arrays have.
macro_rules! view_forms {
    ($op:tt, $a:ident, $b:ident, $wanted:expr) => {{
        let (x, y) = (
            CheckedAllocArray::copy_of($a.view()),
            CheckedAllocArray::copy_of($b.view()),
        );
        let wanted = $wanted;
        assert_eq!(x.view() $op y.view(), wanted);
        assert_eq!(&x.view() $op &y.view(), wanted);
        assert_eq!(&x.view() $op CheckedAllocArray::copy_of($b.view()), wanted);
        assert_eq!(x.view() $op $b.view(), wanted);
        assert_eq!(x.view() $op &$b, wanted);
        assert_eq!($a.view() $op y.view(), wanted);
        assert_eq!(&$a $op &y.view(), wanted);
    }};
}

macro_rules! assigns {
    ($op:tt, $a:ident, $b:ident, $wanted:expr) => {{
        let y = AllocArray::copy_of($b.view());
        let check = |f: &dyn Fn(&mut AllocArray<i64, ndarray::IxDyn>)| {
            let mut x = AllocArray::copy_of($a.view());
            f(&mut x);
            assert_eq!(x, $wanted);
        };
        check(&|x| *x $op &y);
        check(&|x| *x $op AllocArray::copy_of($b.view()));
        check(&|x| *x $op y.view());
        check(&|x| *x $op &$b);
        let mut x = CheckedAllocArray::copy_of($a.view());
        x $op CheckedAllocArray::copy_of($b.view()).view();
        assert_eq!(x, $wanted);
    }};
}

/// Every binary operator on two operands that broadcast, with `$b` free of zeros.
macro_rules! all_operators {
    ($a:ident, $b:ident, $d:ident) => {{
        all_forms!(AllocArray, +, $a, $b, model(&$a, &$b, i64::add).unwrap());
        all_forms!(AllocArray, -, $a, $b, model(&$a, &$b, i64::sub).unwrap());
        all_forms!(AllocArray, *, $a, $b, model(&$a, &$b, i64::mul).unwrap());
        all_forms!(AllocArray, /, $a, $d, model(&$a, &$d, i64::div).unwrap());
        all_forms!(AllocArray, %, $a, $d, model(&$a, &$d, i64::rem).unwrap());
        all_forms!(AllocArray, &, $a, $b, model(&$a, &$b, i64::bitand).unwrap());
        all_forms!(AllocArray, |, $a, $b, model(&$a, &$b, i64::bitor).unwrap());
        all_forms!(AllocArray, ^, $a, $b, model(&$a, &$b, i64::bitxor).unwrap());
        all_forms!(CheckedAllocArray, -, $a, $b, model(&$a, &$b, i64::sub).unwrap());
        view_forms!(-, $a, $b, model(&$a, &$b, i64::sub).unwrap());
        view_forms!(/, $a, $d, model(&$a, &$d, i64::div).unwrap());
    }};
}

/// The arrays of a binary operator's `try_` twins, or the error of each.
fn tried<K: Kind>(
    x: &SpaceArray<i64, ndarray::IxDyn, K>,
    y: &SpaceArray<i64, ndarray::IxDyn, K>,
) -> [Result<SpaceArray<i64, ndarray::IxDyn, K>, ArrayError>; 6] {
    [
        x.try_add(y),
        x.try_sub(y),
        x.try_mul(y),
        x.try_bitand(y),
        x.try_bitor(y),
        x.try_bitxor(y),
    ]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn operators_between_arrays((a, b) in operands()) {
        let d = b.mapv(|b| if b == 0 { 7 } else { b });
        everywhere(|| {
            let (x, y) = (AllocArray::copy_of(a.view()), AllocArray::copy_of(b.view()));
            let fs = [i64::add, i64::sub, i64::mul, i64::bitand, i64::bitor, i64::bitxor];
            for (got, f) in tried(&x, &y).into_iter().zip(fs) {
                match model(&a, &b, f) {
                    Some(wanted) => assert_eq!(got.unwrap(), wanted),
                    None => assert!(matches!(got, Err(ArrayError::Broadcast { .. }))),
                }
            }
            let Some(shape) = model(&a, &b, |_, _| ()) else { return };
            all_operators!(a, b, d);
            if shape.shape() == a.shape() {
                assigns!(+=, a, b, model(&a, &b, i64::add).unwrap());
                assigns!(-=, a, b, model(&a, &b, i64::sub).unwrap());
                assigns!(*=, a, b, model(&a, &b, i64::mul).unwrap());
                assigns!(/=, a, d, model(&a, &d, i64::div).unwrap());
                assigns!(%=, a, d, model(&a, &d, i64::rem).unwrap());
                assigns!(&=, a, b, model(&a, &b, i64::bitand).unwrap());
                assigns!(|=, a, b, model(&a, &b, i64::bitor).unwrap());
                assigns!(^=, a, b, model(&a, &b, i64::bitxor).unwrap());
                let mut z = x.clone();
                z.try_sub_assign(&y).unwrap();
                assert_eq!(z, model(&a, &b, i64::sub).unwrap());
            }
        });
    }

    #[test]
    fn operators_with_numbers(a in matrix(3, 4), k in 1..9_i64) {
        let d = a.mapv(|a| if a == 0 { 7 } else { a });
        everywhere(|| {
            let x = CheckedAllocArray::copy_of(a.view());
            let z = CheckedAllocArray::copy_of(d.view());
            assert_eq!(&x + k, &a + k);
            assert_eq!(&x - k, &a - k);
            assert_eq!(x.view() * k, &a * k);
            assert_eq!(&x.view() / k, &a / k);
            assert_eq!(CheckedAllocArray::copy_of(a.view()) % k, &a % k);
            assert_eq!((&x & k, &x | k, &x ^ k), (
                CheckedAllocArray::from(&a & k),
                CheckedAllocArray::from(&a | k),
                CheckedAllocArray::from(&a ^ k),
            ));
            assert_eq!(k + &x, k + &a);
            assert_eq!(k - x.view(), k - &a);
            assert_eq!(k * CheckedAllocArray::copy_of(a.view()), k * &a);
            assert_eq!(k / &z, d.mapv(|d| k / d));
            assert_eq!(k % &z.view(), d.mapv(|d| k % d));
            assert_eq!((k & &x, k | &x, k ^ &x), (&x & k, &x | k, &x ^ k));
            assert_eq!(x.try_sub(Scalar(k)).unwrap(), &a - k);
            assert_eq!(x.zip_map(Scalar(k), i64::max), a.mapv(|a| a.max(k)));

            assert_eq!(-&x, -&a);
            assert_eq!(-x.view(), -&a);
            assert_eq!(-CheckedAllocArray::copy_of(a.view()), -&a);
            assert_eq!(!&x.view(), !&a);
            assert_eq!((x.try_neg().unwrap(), x.try_not().unwrap()), (-&x, !&x));
            let mut y = CheckedAllocArray::copy_of(a.view());
            y.neg_in_place();
            assert_eq!(y, a.mapv(i64::neg));
            y.not_in_place();
            assert_eq!(y, a.mapv(|a| (-a).not()));

            let mut y = AllocArray::copy_of(a.view());
            let mut b = a.clone();
            y += k;
            b += k;
            y -= a.row(1);
            b -= &a.row(1);
            y *= k;
            b *= k;
            y /= 2;
            b /= 2;
            y %= k;
            b %= k;
            assert_eq!(y, b);
            y.try_add_assign(Scalar(k)).unwrap();
            assert_eq!(y, &b + k);
            y &= 6;
            y |= 1;
            y ^= k;
            assert_eq!(y, ((b + k) & 6 | 1) ^ k);
        });
    }
}

/// `2 (x + 1) - x / 2`, with the number on the left where it can be.
fn on_the_left<T>(x: &AllocArray<T, Ix1>, one: T, two: T) -> AllocArray<T, Ix1>
where
    T: Element + Add<Output = T> + Sub<Output = T> + Mul<Output = T> + Div<Output = T>,
    T: for<'a> Add<&'a AllocArray<T, Ix1>, Output = AllocArray<T, Ix1>>,
    T: Mul<AllocArray<T, Ix1>, Output = AllocArray<T, Ix1>>,
{
    two * (one + x) - x / two
}

#[test]
fn numbers_of_each_type_stand_on_the_left() {
    let of = |v: [f64; 2]| v.map(|v| 2.0 * (v + 1.0) - v / 2.0);
    let [p, q] = of([3.0, 4.0]);
    let x = AllocArray::from([3.0, 4.0]);
    assert_eq!(on_the_left(&x, 1.0, 2.0), array![p, q]);
    let real = |v: f64| Complex::new(v, 0.0);
    let x = AllocArray::from([real(3.0), real(4.0)]);
    let y = on_the_left(&x, real(1.0), real(2.0));
    assert_eq!(y, array![real(p), real(q)]);
    let i = Complex::new(0.0_f32, 1.0);
    let z = i * &AllocArray::from([i, i * 2.0]);
    assert_eq!(z, array![Complex::new(-1.0, 0.0), Complex::new(-2.0, 0.0)]);
    assert_eq!(-z, array![Complex::new(1.0, 0.0), Complex::new(2.0, 0.0)]);
    let mask = AllocArray::from([true, false]);
    assert_eq!(true ^ &mask, array![false, true]);
    assert_eq!(1_u8 - AllocArray::from([0_u8, 1]), array![1, 0]);
    assert_eq!(
        array![3, 4].view() - &AllocArray::from([1, 2]),
        array![2, 2]
    );
}

#[test]
fn short_floats_are_elements_like_others() {
    use half::{bf16, f16};
    let of = |v: [f32; 2]| v.map(f16::from_f32);
    let [one, two] = of([1.0, 2.0]);
    let x = AllocArray::from(of([3.0, 4.0]));
    assert_eq!(
        on_the_left(&x, one, two),
        Array1::from_vec(of([6.5, 8.0]).to_vec())
    );
    assert_eq!(x.sum(), f16::from_f32(7.0));
    assert_eq!(x.dot(&x).sum(), f16::from_f32(25.0));
    assert_eq!(x.convert::<f32>(), array![3.0, 4.0]);
    let b = bf16::from_f32(2.0) * AllocArray::from([bf16::from_f32(1.5)]);
    assert_eq!(b, array![bf16::from_f32(3.0)]);
}
