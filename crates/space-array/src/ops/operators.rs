//! `+ - * / %` and `& | ^` between arrays, and their forms that assign.
//!
//! An array taken by value gives its memory to the result where the shapes allow it, the left one
//! first; taken by reference it is left alone, and the result comes from the allocator in scope.

use std::ops;

use ndarray::{Array, ArrayBase, ArrayView, Data, DimMax, Dimension};
use space_core::Element;

use super::elementwise::zip_views;
use crate::{
    ArrayError, Kind, Operand, SpaceArray, View,
    error::value,
    shape::{Broadcast, Combined, broadcast},
};

/// What two arrays of `T` with the dimensions `D` and `E` give.
type Both<T, D, E, K> = Result<SpaceArray<T, Broadcast<D, E>, K>, ArrayError>;

/// `f` of each pair of elements, in an array of its own.
#[inline]
fn zip<T, L, R, K>(left: &L, right: &R, f: impl FnMut(T, T) -> T) -> Both<T, L::Dim, R::Dim, K>
where
    T: Element,
    L: Operand<K, Element = T, Dim: DimMax<R::Dim>>,
    R: Operand<K, Element = T>,
    K: Kind,
{
    zip_views(left.operand()?.view(), right.operand()?.view(), f)
}

/// [`zip`] into the left array's memory, if the result has its shape.
fn zip_into_left<T, D, R, K>(
    mut left: SpaceArray<T, D, K>,
    right: &R,
    f: impl FnMut(T, T) -> T,
) -> Both<T, D, R::Dim, K>
where
    T: Element,
    D: Dimension + DimMax<R::Dim>,
    R: Operand<K, Element = T>,
    K: Kind,
{
    let right = right.operand()?;
    let shape = broadcast(&left.raw_dim(), &right.view().raw_dim())?;
    if shape.slice() != left.shape() {
        return zip(&left, &right, f);
    }
    left.try_zip_map_in_place(right, f)?;
    let (elements, _, store) = left.into_parts();
    // SAFETY: The array's own parts, with the same extents in another type.
    Ok(unsafe { SpaceArray::from_parts(elements, shape, store) })
}

/// [`zip`] into the right array's memory, if the result has its shape.
fn zip_into_right<T, L, E, K>(
    left: &L,
    mut right: SpaceArray<T, E, K>,
    mut f: impl FnMut(T, T) -> T,
) -> Both<T, L::Dim, E, K>
where
    T: Element,
    L: Operand<K, Element = T, Dim: DimMax<E>>,
    E: Dimension,
    K: Kind,
{
    let left = left.operand()?;
    let shape = broadcast(&left.view().raw_dim(), &right.raw_dim())?;
    if shape.slice() != right.shape() {
        return zip(&left, &right, f);
    }
    right.try_zip_map_in_place(left, |right, left| f(left, right))?;
    let (elements, _, store) = right.into_parts();
    // SAFETY: The array's own parts, with the same extents in another type.
    Ok(unsafe { SpaceArray::from_parts(elements, shape, store) })
}

/// [`zip`] into the memory of the one or the other.
fn zip_into_either<T, D, E, K>(
    left: SpaceArray<T, D, K>,
    right: SpaceArray<T, E, K>,
    f: impl FnMut(T, T) -> T,
) -> Both<T, D, E, K>
where
    T: Element,
    D: Dimension + DimMax<E>,
    E: Dimension,
    K: Kind,
{
    let shape = broadcast(&left.raw_dim(), &right.raw_dim())?;
    if shape.slice() == left.shape() {
        zip_into_left(left, &right, f)
    } else {
        zip_into_right(&left, right, f)
    }
}

/// Operators between arrays.
macro_rules! binary {
    ($($Op:ident $op:ident $try_op:ident, $OpAssign:ident $op_assign:ident $try_op_assign:ident, $sign:literal);+ $(;)?) => { $(
        impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
            #[doc = concat!("`self ", $sign, " other`, after broadcasting. A number goes as a [`Scalar`](crate::Scalar).")]
            ///
            /// # Errors
            ///
            /// Those of [`try_zip_map`](SpaceArray::try_zip_map).
            #[inline]
            pub fn $try_op<O: Operand<K, Element = T>>(
                &self,
                other: O,
            ) -> Result<Combined<T, D, O, K>, ArrayError>
            where
                T: ops::$Op<Output = T>,
                D: DimMax<O::Dim>,
            {
                self.try_zip_map(other, T::$op)
            }

            #[doc = concat!("`self ", $sign, "= other`, with the other broadcast to this shape. A number goes as a [`Scalar`](crate::Scalar).")]
            ///
            /// # Errors
            ///
            /// Those of [`try_zip_map_in_place`](SpaceArray::try_zip_map_in_place).
            #[inline]
            pub fn $try_op_assign<O: Operand<K, Element = T>>(
                &mut self,
                other: O,
            ) -> Result<(), ArrayError>
            where
                T: ops::$Op<Output = T>,
            {
                self.try_zip_map_in_place(other, T::$op)
            }
        }

        binary!(@lefts $Op $op; [] SpaceArray<T, E, K>; zip_into_either zip_into_right);
        binary!(@lefts $Op $op; ['r] &'r SpaceArray<T, E, K>; zip_into_left zip);
        binary!(@lefts $Op $op; ['r] View<'r, T, E, K>; zip_into_left zip);
        binary!(@lefts $Op $op; ['r, 's] &'r View<'s, T, E, K>; zip_into_left zip);
        binary!(@mine $Op $op; ['r] ArrayView<'r, T, E>; zip_into_left zip);
        binary!(@mine $Op $op; ['r, 's] &'r ArrayView<'s, T, E>; zip_into_left zip);
        binary!(@mine $Op $op; ['r] &'r Array<T, E>; zip_into_left zip);
        binary!(@assign $OpAssign $op_assign $Op $op; [] SpaceArray<T, E, K>);
        binary!(@assign $OpAssign $op_assign $Op $op; ['r] &'r SpaceArray<T, E, K>);
        binary!(@assign $OpAssign $op_assign $Op $op; ['r] View<'r, T, E, K>);
        binary!(@assign $OpAssign $op_assign $Op $op; ['r, 's] &'r View<'s, T, E, K>);
        binary!(@assign $OpAssign $op_assign $Op $op; ['r] ArrayView<'r, T, E>);
        binary!(@assign $OpAssign $op_assign $Op $op; ['r, 's] &'r ArrayView<'s, T, E>);
        binary!(@assign $OpAssign $op_assign $Op $op; ['r] &'r Array<T, E>);
    )+ };

    // What may stand on the left of something of this crate.
    (@lefts $Op:ident $op:ident; [$($life:lifetime),*] $Right:ty; $owned:ident $lent:ident) => {
        binary!(@mine $Op $op; [$($life),*] $Right; $owned $lent);
        binary!(@pair $Op $op; [$($life,)*] [S: Data<Elem = T>] ArrayBase<S, D>, $Right; [&] $lent);
        binary!(@pair $Op $op; ['l, $($life,)*] [S: Data<Elem = T>] &'l ArrayBase<S, D>, $Right; [&] $lent);
    };

    // What of this crate may stand on the left.
    (@mine $Op:ident $op:ident; [$($life:lifetime),*] $Right:ty; $owned:ident $lent:ident) => {
        binary!(@pair $Op $op; [$($life,)*] [] SpaceArray<T, D, K>, $Right; [] $owned);
        binary!(@pair $Op $op; ['l, $($life,)*] [] &'l SpaceArray<T, D, K>, $Right; [&] $lent);
        binary!(@pair $Op $op; ['l, $($life,)*] [] View<'l, T, D, K>, $Right; [&] $lent);
        binary!(@pair $Op $op; ['l, 'm, $($life,)*] [] &'l View<'m, T, D, K>, $Right; [&] $lent);
    };

    (@pair $Op:ident $op:ident; [$($life:lifetime,)*] [$($more:tt)*] $Left:ty, $Right:ty; [$($lend:tt)?] $zip:ident) => {
        impl<$($life,)* T, D, E, K, $($more)*> ops::$Op<$Right> for $Left
        where
            T: Element + ops::$Op<Output = T>,
            D: Dimension + DimMax<E>,
            E: Dimension,
            K: Kind,
        {
            type Output = SpaceArray<T, Broadcast<D, E>, K>;

            #[track_caller]
            #[inline]
            fn $op(self, other: $Right) -> Self::Output {
                value($zip($($lend)? self, lend!($zip other), T::$op))
            }
        }
    };

    (@assign $OpAssign:ident $op_assign:ident $Op:ident $op:ident; [$($life:lifetime),*] $Right:ty) => {
        impl<$($life,)* T, D, E, K> ops::$OpAssign<$Right> for SpaceArray<T, D, K>
        where
            T: Element + ops::$Op<Output = T>,
            D: Dimension,
            E: Dimension,
            K: Kind,
        {
            #[track_caller]
            #[inline]
            fn $op_assign(&mut self, other: $Right) {
                value(self.try_zip_map_in_place(&other, T::$op));
            }
        }
    };
}

/// The right operand as each of the ways to zip takes it.
macro_rules! lend {
    (zip $right:ident) => {
        &$right
    };
    (zip_into_left $right:ident) => {
        &$right
    };
    ($by_value:ident $right:ident) => {
        $right
    };
}

binary! {
    Add add try_add, AddAssign add_assign try_add_assign, "+";
    Sub sub try_sub, SubAssign sub_assign try_sub_assign, "-";
    Mul mul try_mul, MulAssign mul_assign try_mul_assign, "*";
    Div div try_div, DivAssign div_assign try_div_assign, "/";
    Rem rem try_rem, RemAssign rem_assign try_rem_assign, "%";
    BitAnd bitand try_bitand, BitAndAssign bitand_assign try_bitand_assign, "&";
    BitOr bitor try_bitor, BitOrAssign bitor_assign try_bitor_assign, "|";
    BitXor bitxor try_bitxor, BitXorAssign bitxor_assign try_bitxor_assign, "^";
}

#[cfg(test)]
mod tests {
    use crate::AllocArray;

    #[test]
    fn a_value_gives_its_memory_to_the_result() {
        let row = || AllocArray::from([10, 20]);
        let square = || AllocArray::from(ndarray::array![[1_i32, 2], [3, 4]]);
        let x = square();
        let at = x.view().as_ptr();
        let y = -(x + row()) * 2;
        assert_eq!(y.view().as_ptr(), at);
        let y = &row() - y;
        assert_eq!(y.view().as_ptr(), at);
        let y = row() - y;
        assert_eq!(y.view().as_ptr(), at);
        let y = ndarray::arr1(&[1, 2]) - y;
        assert_eq!(y.view().as_ptr(), at);
        let y = 1 - y;
        assert_eq!(y.view().as_ptr(), at);
        assert_eq!(y, 1 - (ndarray::arr1(&[1, 2]) - (-(square() + row()) * 2)));
    }
}
