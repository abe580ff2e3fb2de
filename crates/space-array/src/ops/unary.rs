//! Operators before an array.

use std::ops;

use ndarray::Dimension;
use space_core::Element;

use crate::{ArrayError, Kind, SpaceArray, View, error::value};

macro_rules! unary {
    ($($Op:ident $op:ident $try_op:ident $in_place:ident $try_in_place:ident, $sign:literal);+ $(;)?) => { $(
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

            #[doc = concat!("`", $sign, "` of each element in its place.")]
            ///
            /// # Panics
            ///
            /// If the memory is invalid; the form that begins with `try_` returns an error.
            #[track_caller]
            #[inline]
            pub fn $in_place(&mut self)
            where
                T: ops::$Op<Output = T>,
            {
                value(self.$try_in_place());
            }

            #[doc = concat!("`", $sign, "` of each element in its place.")]
            ///
            /// # Errors
            ///
            /// [`ArrayError::Invalid`].
            #[inline]
            pub fn $try_in_place(&mut self) -> Result<(), ArrayError>
            where
                T: ops::$Op<Output = T>,
            {
                self.try_map_in_place(T::$op)
            }
        }

        unary!(@of $Op $op; ['l] &'l SpaceArray<T, D, K>);
        unary!(@of $Op $op; ['l] View<'l, T, D, K>);
        unary!(@of $Op $op; ['l, 'm] &'l View<'m, T, D, K>);

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

    (@of $Op:ident $op:ident; [$($life:lifetime),*] $Of:ty) => {
        impl<$($life,)* T, D, K> ops::$Op for $Of
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
    };
}

unary! {
    Neg neg try_neg neg_in_place try_neg_in_place, "-";
    Not not try_not not_in_place try_not_in_place, "!";
}
