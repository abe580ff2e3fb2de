//! Comparison to masks, and choice by them.

use ndarray::{DimMax, Dimension};
use space_core::Element;

use super::elementwise::spread;
use crate::{ArrayError, Kind, Operand, SpaceArray, UninitArray, error::value, shape::Combined};

macro_rules! comparisons {
    ($($name:ident $try_name:ident $Bound:ident $op:ident $sign:literal);+ $(;)?) => {
        impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> { $(
            #[doc = concat!("The mask of `self ", $sign, " other`, after broadcasting.")]
            ///
            /// # Panics
            ///
            /// As [`zip_map`](SpaceArray::zip_map); the form that begins with `try_` returns an
            /// error.
            #[track_caller]
            pub fn $name<O: Operand<K, Element = T>>(
                &self,
                other: O,
            ) -> Combined<bool, D, O, K>
            where
                T: $Bound,
                D: DimMax<O::Dim>,
            {
                value(self.$try_name(other))
            }

            #[doc = concat!("The mask of `self ", $sign, " other`, after broadcasting.")]
            ///
            /// # Errors
            ///
            /// Those of [`try_zip_map`](SpaceArray::try_zip_map).
            pub fn $try_name<O: Operand<K, Element = T>>(
                &self,
                other: O,
            ) -> Result<Combined<bool, D, O, K>, ArrayError>
            where
                T: $Bound,
                D: DimMax<O::Dim>,
            {
                self.try_zip_map(other, |a, b| a.$op(&b))
            }
        )+ }
    };
}

comparisons! {
    equal try_equal PartialEq eq "==";
    not_equal try_not_equal PartialEq ne "!=";
    less try_less PartialOrd lt "<";
    less_equal try_less_equal PartialOrd le "<=";
    greater try_greater PartialOrd gt ">";
    greater_equal try_greater_equal PartialOrd ge ">=";
}

impl<D: Dimension, K: Kind> SpaceArray<bool, D, K> {
    /// Elements of `yes` where the mask is set, and of `no` elsewhere, both broadcast to the
    /// mask's shape.
    ///
    /// ```
    /// # use space_array::AllocArray;
    /// let x = AllocArray::from([-1.0, 2.0, -3.0]);
    /// let zero = AllocArray::from([0.0]);
    /// assert_eq!(x.less(&zero).choose(&zero, &x), ndarray::array![0.0, 2.0, 0.0]);
    /// ```
    ///
    /// # Panics
    ///
    /// [`try_choose`](SpaceArray::try_choose) returns an error instead.
    #[track_caller]
    pub fn choose<Y, N>(&self, yes: Y, no: N) -> SpaceArray<Y::Element, D, K>
    where
        Y: Operand<K>,
        N: Operand<K, Element = Y::Element>,
    {
        value(self.try_choose(yes, no))
    }

    /// Elements of `yes` where the mask is set, and of `no` elsewhere, both broadcast to the
    /// mask's shape.
    ///
    /// # Errors
    ///
    /// Those of [`try_zip_map`](SpaceArray::try_zip_map).
    pub fn try_choose<Y, N>(
        &self,
        yes: Y,
        no: N,
    ) -> Result<SpaceArray<Y::Element, D, K>, ArrayError>
    where
        Y: Operand<K>,
        N: Operand<K, Element = Y::Element>,
    {
        let (mask, yes, no) = (self.try_view()?, yes.operand()?, no.operand()?);
        let (mask, yes, no) = (mask.view(), yes.view(), no.view());
        let yes = spread(&yes, &self.raw_dim())?;
        let no = spread(&no, &self.raw_dim())?;
        let mut out = UninitArray::new(self.raw_dim())?;
        let slots = out.as_uninit_slice_mut().iter_mut();
        for (((slot, &mask), &yes), &no) in slots.zip(mask.iter()).zip(yes.iter()).zip(no.iter()) {
            slot.write(if mask { yes } else { no });
        }
        // SAFETY: All three views have the shape of `out`, so each slot was written.
        Ok(unsafe { out.assume_init() })
    }

    /// How many elements are set.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Invalid`].
    pub fn try_count(&self) -> Result<usize, ArrayError> {
        let view = self.try_view()?;
        Ok(view.view().iter().filter(|&&set| set).count())
    }

    /// How many elements are set.
    ///
    /// # Panics
    ///
    /// If the memory is invalid: [`try_count`](SpaceArray::try_count) returns an error.
    #[track_caller]
    pub fn count(&self) -> usize {
        value(self.try_count())
    }
}
