//! `+ - * / %`, `& | ^`, negation, and their forms that assign.
//!
//! An array taken by value gives its memory to the result where the shapes allow it; taken by
//! reference it is left alone, and the result comes from the allocator in scope.

use std::ops;

use ndarray::{ArrayView, DimMax, Dimension};
use space_core::Element;

use crate::{
    ArrayError, Kind, Operand, SpaceArray, View,
    error::value,
    shape::{Broadcast, Combined, broadcast},
};

impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
    /// [`try_zip_map`](SpaceArray::try_zip_map) into this array's memory, if the result has its
    /// shape.
    fn zip_into<O: Operand<K>>(
        mut self,
        other: O,
        f: impl FnMut(T, O::Element) -> T,
    ) -> Result<Combined<T, D, O, K>, ArrayError>
    where
        D: DimMax<O::Dim>,
    {
        let other = other.operand()?;
        let shape = broadcast(&self.raw_dim(), &other.view().raw_dim())?;
        if shape.slice() != self.shape() {
            return self.try_zip_map(other, f);
        }
        self.try_zip_map_in_place(other, f)?;
        let (elements, _, store) = self.into_parts();
        // SAFETY: The array's own parts, with the same extents in another type.
        Ok(unsafe { SpaceArray::from_parts(elements, shape, store) })
    }
}

/// Operators between arrays.
macro_rules! binary {
    ($($Op:ident $op:ident $try_op:ident, $OpAssign:ident $op_assign:ident $try_op_assign:ident, $sign:literal);+ $(;)?) => { $(
        impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
            #[doc = concat!("`self ", $sign, " other`, after broadcasting.")]
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

            #[doc = concat!("`self ", $sign, "= other`, with the other broadcast to this shape.")]
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

        binary!(@right $Op $op $OpAssign $op_assign; [] SpaceArray<T, E, K>);
        binary!(@right $Op $op $OpAssign $op_assign; ['r] &'r SpaceArray<T, E, K>);
        binary!(@right $Op $op $OpAssign $op_assign; ['r, 'v] &'r View<'v, T, E, K>);
        binary!(@right $Op $op $OpAssign $op_assign; ['v] ArrayView<'v, T, E>);

        impl<T, D, K> ops::$Op<T> for &SpaceArray<T, D, K>
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

        impl<T, D, K> ops::$Op<T> for &View<'_, T, D, K>
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

    (@right $Op:ident $op:ident $OpAssign:ident $op_assign:ident; [$($life:lifetime),*] $Right:ty) => {
        impl<$($life,)* T, D, E, K> ops::$Op<$Right> for &SpaceArray<T, D, K>
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
                value(self.try_zip_map(&other, T::$op))
            }
        }

        impl<$($life,)* T, D, E, K> ops::$Op<$Right> for SpaceArray<T, D, K>
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
                value(self.zip_into(&other, T::$op))
            }
        }

        impl<$($life,)* T, D, E, K> ops::$Op<$Right> for &View<'_, T, D, K>
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
                value(self.try_zip_map(&other, T::$op))
            }
        }

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

/// Operators before an array.
macro_rules! unary {
    ($($Op:ident $op:ident $try_op:ident, $sign:literal);+ $(;)?) => { $(
        impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
            #[doc = concat!("`", $sign, "self`.")]
            ///
            /// # Errors
            ///
            /// Those of [`try_map`](SpaceArray::try_map).
            #[inline]
            pub fn $try_op(&self) -> Result<Self, ArrayError>
            where
                T: ops::$Op<Output = T>,
            {
                self.try_map(T::$op)
            }
        }

        impl<T, D, K> ops::$Op for &SpaceArray<T, D, K>
        where
            T: Element + ops::$Op<Output = T>,
            D: Dimension,
            K: Kind,
        {
            type Output = SpaceArray<T, D, K>;

            #[track_caller]
            #[inline]
            fn $op(self) -> SpaceArray<T, D, K> {
                self.map(T::$op)
            }
        }

        impl<T, D, K> ops::$Op for SpaceArray<T, D, K>
        where
            T: Element + ops::$Op<Output = T>,
            D: Dimension,
            K: Kind,
        {
            type Output = SpaceArray<T, D, K>;

            #[track_caller]
            #[inline]
            fn $op(mut self) -> SpaceArray<T, D, K> {
                self.map_in_place(T::$op);
                self
            }
        }
    )+ };
}

unary! {
    Neg neg try_neg, "-";
    Not not try_not, "!";
}

/// Numbers on the left, which the orphan rules allow for each type by itself.
macro_rules! scalar_left {
    ($($T:ty),+: $Op:ident $op:ident) => { $(
        impl<D: Dimension, K: Kind> ops::$Op<&SpaceArray<$T, D, K>> for $T {
            type Output = SpaceArray<$T, D, K>;

            #[track_caller]
            #[inline]
            fn $op(self, array: &SpaceArray<$T, D, K>) -> SpaceArray<$T, D, K> {
                array.map(|element| <$T>::$op(self, element))
            }
        }

        impl<D: Dimension, K: Kind> ops::$Op<SpaceArray<$T, D, K>> for $T {
            type Output = SpaceArray<$T, D, K>;

            #[track_caller]
            #[inline]
            fn $op(self, mut array: SpaceArray<$T, D, K>) -> SpaceArray<$T, D, K> {
                array.map_in_place(|element| <$T>::$op(self, element));
                array
            }
        }
    )+ };
}

macro_rules! numbers_left {
    ($($Op:ident $op:ident),+) => { $(
        scalar_left!(
            f32, f64, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize: $Op $op
        );
    )+ };
}

numbers_left!(Add add, Sub sub, Mul mul, Div div, Rem rem);

#[cfg(test)]
mod tests {
    use crate::AllocArray;

    #[test]
    fn a_value_gives_its_memory_to_the_result() {
        let x = AllocArray::from(ndarray::array![[1, 2], [3, 4]]);
        let at = x.view().as_ptr();
        let y = -(x + AllocArray::from([10, 20])) * 2;
        assert_eq!(y.view().as_ptr(), at);
    }
}
