//! Comparison to masks, and choice by them.

use ndarray::{ArrayView, DimMax, Dimension};
use space_core::Element;

use super::{
    elementwise::{check_shape, spread},
    lanes::Slot,
};
use crate::{ArrayError, Kind, Operand, SpaceArray, UninitArray, error::value, shape::Combined};

macro_rules! comparisons {
    ($($name:ident $try_name:ident $into:ident $try_into:ident $Bound:ident $op:ident $sign:literal);+ $(;)?) => {
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

            #[doc = concat!("Puts the mask of `self ", $sign, " other`, after broadcasting, in the place of `mask`'s elements.")]
            ///
            /// # Panics
            ///
            /// As [`zip_map_into`](SpaceArray::zip_map_into); the form that begins with `try_`
            /// returns an error.
            #[track_caller]
            pub fn $into<O: Operand<K, Element = T>>(
                &self,
                other: O,
                mask: &mut Combined<bool, D, O, K>,
            ) where
                T: $Bound,
                D: DimMax<O::Dim>,
            {
                value(self.$try_into(other, mask));
            }

            #[doc = concat!("Puts the mask of `self ", $sign, " other`, after broadcasting, in the place of `mask`'s elements.")]
            ///
            /// # Errors
            ///
            /// Those of [`try_zip_map_into`](SpaceArray::try_zip_map_into).
            pub fn $try_into<O: Operand<K, Element = T>>(
                &self,
                other: O,
                mask: &mut Combined<bool, D, O, K>,
            ) -> Result<(), ArrayError>
            where
                T: $Bound,
                D: DimMax<O::Dim>,
            {
                self.try_zip_map_into(other, mask, |a, b| a.$op(&b))
            }
        )+ }
    };
}

comparisons! {
    equal try_equal equal_into try_equal_into PartialEq eq "==";
    not_equal try_not_equal not_equal_into try_not_equal_into PartialEq ne "!=";
    less try_less less_into try_less_into PartialOrd lt "<";
    less_equal try_less_equal less_equal_into try_less_equal_into PartialOrd le "<=";
    greater try_greater greater_into try_greater_into PartialOrd gt ">";
    greater_equal try_greater_equal greater_equal_into try_greater_equal_into PartialOrd ge ">=";
}

/// Writes the chosen elements. The views have one shape, and `out` a slot for each element.
fn write_chosen<T: Element, D: Dimension>(
    out: &mut [impl Slot<T>],
    mask: &ArrayView<'_, bool, D>,
    yes: &ArrayView<'_, T, D>,
    no: &ArrayView<'_, T, D>,
) {
    debug_assert_eq!(out.len(), mask.len());
    let elements = mask.iter().zip(yes).zip(no);
    for (slot, ((&mask, &yes), &no)) in out.iter_mut().zip(elements) {
        slot.write(if mask { yes } else { no });
    }
}

impl<D: Dimension, K: Kind> SpaceArray<bool, D, K> {
    /// Elements of `yes` where the mask is set, and of `no` elsewhere, both broadcast to the
    /// mask's shape.
    ///
    /// ```
    /// use space_array::{AllocArray, Scalar};
    /// let x = AllocArray::from([-1.0, 2.0, -3.0]);
    /// let positive = x.less(Scalar(0.0)).choose(Scalar(0.0), &x);
    /// assert_eq!(positive, ndarray::array![0.0, 2.0, 0.0]);
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
        let (yes, no) = (
            spread(&yes, &mask.raw_dim())?,
            spread(&no, &mask.raw_dim())?,
        );
        let mut out = UninitArray::new(mask.raw_dim())?;
        write_chosen(out.as_uninit_slice_mut(), &mask, &yes, &no);
        // SAFETY: All three views have the shape of `out`, so each slot was written.
        Ok(unsafe { out.assume_init() })
    }

    /// Puts elements of `yes` where the mask is set, and of `no` elsewhere, in the place of `out`'s
    /// elements.
    ///
    /// # Panics
    ///
    /// [`try_choose_into`](SpaceArray::try_choose_into) returns an error instead.
    #[track_caller]
    pub fn choose_into<Y, N>(&self, yes: Y, no: N, out: &mut SpaceArray<Y::Element, D, K>)
    where
        Y: Operand<K>,
        N: Operand<K, Element = Y::Element>,
    {
        value(self.try_choose_into(yes, no, out));
    }

    /// Puts elements of `yes` where the mask is set, and of `no` elsewhere, in the place of `out`'s
    /// elements.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Broadcast`], [`ArrayError::ShapeMismatch`] and [`ArrayError::Invalid`].
    pub fn try_choose_into<Y, N>(
        &self,
        yes: Y,
        no: N,
        out: &mut SpaceArray<Y::Element, D, K>,
    ) -> Result<(), ArrayError>
    where
        Y: Operand<K>,
        N: Operand<K, Element = Y::Element>,
    {
        let (mask, yes, no) = (self.try_view()?, yes.operand()?, no.operand()?);
        let (mask, yes, no) = (mask.view(), yes.view(), no.view());
        let (yes, no) = (
            spread(&yes, &mask.raw_dim())?,
            spread(&no, &mask.raw_dim())?,
        );
        check_shape("a choice", &mask.raw_dim(), out)?;
        out.on_slice(|out| {
            write_chosen(out, &mask, &yes, &no);
            Ok(())
        })
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
