//! Operators between arrays and numbers, and a number as an operand.

use std::ops;

use ndarray::{Dimension, Ix0, aview0};
use num_complex::Complex;
use space_core::Element;

use crate::{InvalidMemory, Kind, Operand, SpaceArray, View};

/// A number as an [`Operand`]: an array without axes, which broadcasts to any shape.
///
/// Operators take numbers as they are; methods take them as this.
///
/// ```
/// use space_array::{AllocArray, Scalar};
/// let mut x = AllocArray::from([-1.0, 2.0]);
/// assert_eq!(x.less(Scalar(0.0)), ndarray::array![true, false]);
/// assert_eq!(x.try_add(Scalar(1.0))?, ndarray::array![0.0, 3.0]);
/// x.try_mul_assign(Scalar(2.0))?;
/// assert_eq!(x, ndarray::array![-2.0, 4.0]);
/// # Ok::<(), space_array::ArrayError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scalar<T>(pub T);

impl<T: Element, K: Kind> Operand<K> for Scalar<T> {
    type Element = T;
    type Dim = Ix0;

    #[inline]
    fn operand(&self) -> Result<View<'_, T, Ix0, K>, InvalidMemory> {
        Ok(View::new(aview0(&self.0), K::unpinned()))
    }
}

/// Numbers on the right.
macro_rules! scalar_right {
    ($($Op:ident $op:ident $OpAssign:ident $op_assign:ident);+ $(;)?) => { $(
        scalar_right!(@lent $Op $op; ['l] &'l SpaceArray<T, D, K>);
        scalar_right!(@lent $Op $op; ['l] View<'l, T, D, K>);
        scalar_right!(@lent $Op $op; ['l, 'm] &'l View<'m, T, D, K>);

        impl<T, D, K> ops::$Op<T> for SpaceArray<T, D, K>
        where
            T: Element + ops::$Op<Output = T>,
            D: Dimension,
            K: Kind,
        {
            type Output = SpaceArray<T, D, K>;

            #[track_caller]
            #[inline]
            fn $op(mut self, scalar: T) -> SpaceArray<T, D, K> {
                self.map_in_place(|element| T::$op(element, scalar));
                self
            }
        }

        impl<T, D, K> ops::$OpAssign<T> for SpaceArray<T, D, K>
        where
            T: Element + ops::$Op<Output = T>,
            D: Dimension,
            K: Kind,
        {
            #[track_caller]
            #[inline]
            fn $op_assign(&mut self, scalar: T) {
                self.map_in_place(|element| T::$op(element, scalar));
            }
        }
    )+ };

    (@lent $Op:ident $op:ident; [$($life:lifetime),*] $Left:ty) => {
        impl<$($life,)* T, D, K> ops::$Op<T> for $Left
        where
            T: Element + ops::$Op<Output = T>,
            D: Dimension,
            K: Kind,
        {
            type Output = SpaceArray<T, D, K>;

            #[track_caller]
            #[inline]
            fn $op(self, scalar: T) -> SpaceArray<T, D, K> {
                self.map(|element| T::$op(element, scalar))
            }
        }
    };
}

scalar_right! {
    Add add AddAssign add_assign;
    Sub sub SubAssign sub_assign;
    Mul mul MulAssign mul_assign;
    Div div DivAssign div_assign;
    Rem rem RemAssign rem_assign;
    BitAnd bitand BitAndAssign bitand_assign;
    BitOr bitor BitOrAssign bitor_assign;
    BitXor bitxor BitXorAssign bitxor_assign;
}

/// Numbers on the left, which the orphan rules allow for each type by itself.
macro_rules! scalar_left {
    ($T:ty: $($Op:ident $op:ident),+) => { $(
        scalar_left!(@lent $T: $Op $op; ['r] &'r SpaceArray<$T, D, K>);
        scalar_left!(@lent $T: $Op $op; ['r] View<'r, $T, D, K>);
        scalar_left!(@lent $T: $Op $op; ['r, 's] &'r View<'s, $T, D, K>);

        impl<D: Dimension, K: Kind> ops::$Op<SpaceArray<$T, D, K>> for $T {
            type Output = SpaceArray<$T, D, K>;

            #[track_caller]
            #[inline]
            fn $op(self, mut array: SpaceArray<$T, D, K>) -> SpaceArray<$T, D, K> {
                array.map_in_place(|element| <$T as ops::$Op>::$op(self, element));
                array
            }
        }
    )+ };

    (@lent $T:ty: $Op:ident $op:ident; [$($life:lifetime),*] $Right:ty) => {
        impl<$($life,)* D: Dimension, K: Kind> ops::$Op<$Right> for $T {
            type Output = SpaceArray<$T, D, K>;

            #[track_caller]
            #[inline]
            fn $op(self, array: $Right) -> SpaceArray<$T, D, K> {
                array.map(|element| <$T as ops::$Op>::$op(self, element))
            }
        }
    };
}

macro_rules! numbers_left {
    ($($T:ty),+) => { $( scalar_left!($T: Add add, Sub sub, Mul mul, Div div, Rem rem); )+ };
}

macro_rules! bits_left {
    ($($T:ty),+) => { $( scalar_left!($T: BitAnd bitand, BitOr bitor, BitXor bitxor); )+ };
}

numbers_left!(f32, f64, Complex<f32>, Complex<f64>);
numbers_left!(i8, i16, i32, i64, i128, isize);
numbers_left!(u8, u16, u32, u64, u128, usize);
bits_left!(bool, i8, i16, i32, i64, i128, isize);
bits_left!(u8, u16, u32, u64, u128, usize);

#[cfg(feature = "half")]
numbers_left!(half::f16, half::bf16);
