//! Several arrays in one, and parts of one.

use ndarray::{ArrayView, ArrayViewMut, Axis, Dimension, RemoveAxis, Slice, Zip};
use space_core::Element;
use std::mem::MaybeUninit;

use super::{elementwise::check_shape, reduce::check_axis};
use crate::{ArrayError, Kind, Operand, SpaceArray, UninitArray, error::value};

/// Writes the elements of a view of the same shape.
fn write<T: Element, D: Dimension>(
    out: ArrayViewMut<'_, MaybeUninit<T>, D>,
    part: ArrayView<'_, T, D>,
) {
    Zip::from(out).and(part).for_each(|slot, &element| {
        slot.write(element);
    });
}

/// Shape of the parts one after the other.
fn concatenated<T: Element, D: RemoveAxis, O, K: Kind>(
    axis: Axis,
    parts: &[O],
) -> Result<D, ArrayError>
where
    O: Operand<K, Element = T, Dim = D>,
{
    let [first, others @ ..] = parts else {
        return Err(ArrayError::NothingGiven {
            what: "a concatenation",
        });
    };
    let mut shape = first.operand()?.view().raw_dim();
    check_axis(&shape, axis)?;
    for part in others {
        let mut other = part.operand()?.view().raw_dim();
        let mut total = shape[axis.index()];
        // The number of axes may be known at run time only.
        if other.ndim() == shape.ndim() {
            total = total.saturating_add(other[axis.index()]);
            other[axis.index()] = shape[axis.index()];
        }
        if other != shape {
            return Err(ArrayError::mismatch(
                "a part of a concatenation",
                shape.slice(),
                other.slice(),
            ));
        }
        shape[axis.index()] = total;
    }
    Ok(shape)
}

/// Shape of the parts beside each other.
fn stacked<T: Element, D: Dimension, O, K: Kind>(
    axis: Axis,
    parts: &[O],
) -> Result<D::Larger, ArrayError>
where
    O: Operand<K, Element = T, Dim = D>,
{
    let [first, others @ ..] = parts else {
        return Err(ArrayError::NothingGiven { what: "a stack" });
    };
    let each = first.operand()?.view().raw_dim();
    for part in others {
        let part = part.operand()?;
        if part.shape() != each.slice() {
            return Err(ArrayError::mismatch(
                "a part of a stack",
                each.slice(),
                part.shape(),
            ));
        }
    }
    let axes = each.ndim() + 1;
    if axis.index() >= axes {
        return Err(ArrayError::NoSuchAxis {
            axis: axis.index(),
            ndim: axes,
        });
    }
    let mut shape = D::Larger::zeros(axes);
    let extents = shape.slice_mut();
    extents[..axis.index()].copy_from_slice(&each.slice()[..axis.index()]);
    extents[axis.index()] = parts.len();
    extents[axis.index() + 1..].copy_from_slice(&each.slice()[axis.index()..]);
    Ok(shape)
}

impl<T: Element, D: RemoveAxis, K: Kind> SpaceArray<T, D, K> {
    /// The parts one after the other along an axis.
    ///
    /// ```
    /// # use space_array::AllocArray;
    /// # use ndarray::Axis;
    /// let x = AllocArray::from(ndarray::array![[1, 2]]);
    /// let y = AllocArray::from(ndarray::array![[3, 4], [5, 6]]);
    /// let z = AllocArray::concatenate(Axis(0), &[&x, &y]);
    /// assert_eq!(z, ndarray::array![[1, 2], [3, 4], [5, 6]]);
    /// ```
    ///
    /// # Panics
    ///
    /// [`try_concatenate`](SpaceArray::try_concatenate) returns an error instead.
    #[track_caller]
    pub fn concatenate<O: Operand<K, Element = T, Dim = D>>(axis: Axis, parts: &[O]) -> Self {
        value(Self::try_concatenate(axis, parts))
    }

    /// The parts one after the other along an axis.
    ///
    /// # Errors
    ///
    /// [`ArrayError::NothingGiven`], [`ArrayError::NoSuchAxis`], [`ArrayError::ShapeMismatch`] if
    /// extents of other axes differ, and those of [`try_map`](SpaceArray::try_map).
    pub fn try_concatenate<O: Operand<K, Element = T, Dim = D>>(
        axis: Axis,
        parts: &[O],
    ) -> Result<Self, ArrayError> {
        let mut out = UninitArray::new(concatenated::<_, _, _, K>(axis, parts)?)?;
        let mut start = 0;
        for part in parts {
            let part = part.operand()?;
            let part = part.view();
            let end = start + part.len_of(axis);
            let mut view = out.as_uninit_view_mut();
            write(view.slice_axis_mut(axis, Slice::from(start..end)), part);
            start = end;
        }
        debug_assert_eq!(start, out.shape()[axis.index()]);
        // SAFETY: The parts' extents add up to that of `out`, whose other axes are theirs.
        Ok(unsafe { out.assume_init() })
    }

    /// Puts the parts one after the other along an axis in the place of `out`'s elements.
    ///
    /// # Panics
    ///
    /// [`try_concatenate_into`](SpaceArray::try_concatenate_into) returns an error instead.
    #[track_caller]
    pub fn concatenate_into<O: Operand<K, Element = T, Dim = D>>(
        axis: Axis,
        parts: &[O],
        out: &mut Self,
    ) {
        value(Self::try_concatenate_into(axis, parts, out));
    }

    /// Puts the parts one after the other along an axis in the place of `out`'s elements.
    ///
    /// # Errors
    ///
    /// [`ArrayError::ShapeMismatch`] if `out` has another shape, and those of
    /// [`try_concatenate`](SpaceArray::try_concatenate). If another thread resets the allocator of a
    /// checked part meanwhile, `out` is written in part.
    pub fn try_concatenate_into<O: Operand<K, Element = T, Dim = D>>(
        axis: Axis,
        parts: &[O],
        out: &mut Self,
    ) -> Result<(), ArrayError> {
        let shape = concatenated::<_, _, _, K>(axis, parts)?;
        check_shape("a concatenation", &shape, out)?;
        let mut out = out.try_view_mut()?;
        let mut start = 0;
        for part in parts {
            let part = part.operand()?;
            let part = part.view();
            let end = start + part.len_of(axis);
            let mut view = out.view_mut();
            view.slice_axis_mut(axis, Slice::from(start..end))
                .assign(&part);
            start = end;
        }
        Ok(())
    }

    /// The parts at `indices` of an axis, in that order.
    ///
    /// ```
    /// # use space_array::AllocArray;
    /// # use ndarray::Axis;
    /// let x = AllocArray::from(ndarray::array![[1, 2], [3, 4]]);
    /// assert_eq!(x.select(Axis(0), &[1, 1, 0]), ndarray::array![[3, 4], [3, 4], [1, 2]]);
    /// ```
    ///
    /// # Panics
    ///
    /// [`try_select`](SpaceArray::try_select) returns an error instead.
    #[track_caller]
    pub fn select(&self, axis: Axis, indices: &[usize]) -> Self {
        value(self.try_select(axis, indices))
    }

    /// The parts at `indices` of an axis, in that order.
    ///
    /// # Errors
    ///
    /// [`ArrayError::NoSuchAxis`], [`ArrayError::OutOfBounds`], and those of
    /// [`try_map`](SpaceArray::try_map).
    pub fn try_select(&self, axis: Axis, indices: &[usize]) -> Result<Self, ArrayError> {
        let shape = self.selected(axis, indices)?;
        let view = self.try_view()?;
        let view = view.view();
        let mut out = UninitArray::new(shape)?;
        let mut slots = out.as_uninit_view_mut();
        for (part, &index) in slots.axis_iter_mut(axis).zip(indices) {
            write(part, view.index_axis(axis, index));
        }
        // SAFETY: There are as many indices as parts of `out`, and each was written.
        Ok(unsafe { out.assume_init() })
    }

    /// Puts the parts at `indices` of an axis, in that order, in the place of `out`'s elements.
    ///
    /// # Panics
    ///
    /// [`try_select_into`](SpaceArray::try_select_into) returns an error instead.
    #[track_caller]
    pub fn select_into(&self, axis: Axis, indices: &[usize], out: &mut Self) {
        value(self.try_select_into(axis, indices, out));
    }

    /// Puts the parts at `indices` of an axis, in that order, in the place of `out`'s elements.
    ///
    /// # Errors
    ///
    /// [`ArrayError::ShapeMismatch`] if `out` has another shape, and those of
    /// [`try_select`](SpaceArray::try_select).
    pub fn try_select_into(
        &self,
        axis: Axis,
        indices: &[usize],
        out: &mut Self,
    ) -> Result<(), ArrayError> {
        let shape = self.selected(axis, indices)?;
        check_shape("a selection", &shape, out)?;
        let view = self.try_view()?;
        let view = view.view();
        let mut out = out.try_view_mut()?;
        for (mut part, &index) in out.view_mut().axis_iter_mut(axis).zip(indices) {
            part.assign(&view.index_axis(axis, index));
        }
        Ok(())
    }

    /// Shape of the parts at `indices` of an axis.
    fn selected(&self, axis: Axis, indices: &[usize]) -> Result<D, ArrayError> {
        let mut shape = self.raw_dim();
        check_axis(&shape, axis)?;
        let extent = shape[axis.index()];
        if let Some(&index) = indices.iter().find(|&&index| index >= extent) {
            return Err(ArrayError::OutOfBounds {
                index,
                axis: axis.index(),
                extent,
            });
        }
        shape[axis.index()] = indices.len();
        Ok(shape)
    }
}

impl<T: Element, D: Dimension, K: Kind> SpaceArray<T, D, K> {
    /// The parts beside each other along a new axis.
    ///
    /// ```
    /// # use space_array::AllocArray;
    /// # use ndarray::Axis;
    /// let (x, y) = (AllocArray::from([1, 2]), AllocArray::from([3, 4]));
    /// assert_eq!(AllocArray::stack(Axis(1), &[&x, &y]), ndarray::array![[1, 3], [2, 4]]);
    /// ```
    ///
    /// # Panics
    ///
    /// [`try_stack`](SpaceArray::try_stack) returns an error instead.
    #[track_caller]
    pub fn stack<O>(axis: Axis, parts: &[O]) -> SpaceArray<T, D::Larger, K>
    where
        O: Operand<K, Element = T, Dim = D>,
    {
        value(Self::try_stack(axis, parts))
    }

    /// The parts beside each other along a new axis.
    ///
    /// # Errors
    ///
    /// [`ArrayError::NothingGiven`], [`ArrayError::NoSuchAxis`], [`ArrayError::ShapeMismatch`],
    /// and those of [`try_map`](SpaceArray::try_map).
    pub fn try_stack<O>(axis: Axis, parts: &[O]) -> Result<SpaceArray<T, D::Larger, K>, ArrayError>
    where
        O: Operand<K, Element = T, Dim = D>,
    {
        let mut out = UninitArray::new(stacked::<_, _, _, K>(axis, parts)?)?;
        let mut slots = out.as_uninit_view_mut();
        for (slots, part) in slots.axis_iter_mut(axis).zip(parts) {
            // `Larger::Smaller` is another name of the same dimension.
            match slots.into_dimensionality::<D>() {
                Ok(slots) => write(slots, part.operand()?.view()),
                Err(_) => unreachable!("a part has one axis less than the stack"),
            }
        }
        // SAFETY: There are as many parts as places along the axis, and each was written.
        Ok(unsafe { out.assume_init() })
    }

    /// Puts the parts beside each other along a new axis in the place of `out`'s elements.
    ///
    /// # Panics
    ///
    /// [`try_stack_into`](SpaceArray::try_stack_into) returns an error instead.
    #[track_caller]
    pub fn stack_into<O>(axis: Axis, parts: &[O], out: &mut SpaceArray<T, D::Larger, K>)
    where
        O: Operand<K, Element = T, Dim = D>,
    {
        value(Self::try_stack_into(axis, parts, out));
    }

    /// Puts the parts beside each other along a new axis in the place of `out`'s elements.
    ///
    /// # Errors
    ///
    /// [`ArrayError::ShapeMismatch`] if `out` has another shape, and those of
    /// [`try_stack`](SpaceArray::try_stack). If another thread resets the allocator of a
    /// checked part meanwhile, `out` is written in part.
    pub fn try_stack_into<O>(
        axis: Axis,
        parts: &[O],
        out: &mut SpaceArray<T, D::Larger, K>,
    ) -> Result<(), ArrayError>
    where
        O: Operand<K, Element = T, Dim = D>,
    {
        let shape = stacked::<_, _, _, K>(axis, parts)?;
        check_shape("a stack", &shape, out)?;
        let mut out = out.try_view_mut()?;
        for (mut slots, part) in out.view_mut().axis_iter_mut(axis).zip(parts) {
            slots.assign(&part.operand()?.view());
        }
        Ok(())
    }
}
