//! The arithmetic of strides, for any rank: extents and strides as slices, all checked.

use smallvec::SmallVec;
use std::ops::Range;

/// Strides of elements that follow each other without gaps, with the dimensions from the fastest to the slowest; `None`
/// when the elements can't be counted.
pub(crate) fn dense(
    extents: &[usize],
    strides: &mut [isize],
    fastest_first: impl Iterator<Item = usize>,
) -> Option<()> {
    let mut stride = 1_usize;
    for axis in fastest_first {
        strides[axis] = isize::try_from(stride).ok()?;
        // An empty dimension makes the tensor empty, but its strides still have to be numbers.
        stride = stride.checked_mul(extents[axis].max(1))?;
    }
    isize::try_from(stride).ok().map(|_| ())
}

/// Number of elements; `None` when they, or those without an empty dimension, can't be counted.
pub(crate) fn count(extents: &[usize]) -> Option<usize> {
    let mut all = 1_usize;
    for &extent in extents {
        all = all.checked_mul(extent.max(1))?;
    }
    isize::try_from(all).ok()?;
    Some(if extents.contains(&0) { 0 } else { all })
}

/// Positions from the lowest to the highest that an element has, relative to the first element; empty for no
/// elements. `None` when they are no numbers.
pub(crate) fn reach(extents: &[usize], strides: &[isize]) -> Option<Range<isize>> {
    if extents.contains(&0) {
        return Some(0..0);
    }
    let (mut low, mut high) = (0_isize, 0_isize);
    for (&extent, &stride) in extents.iter().zip(strides) {
        let last = isize::try_from(extent - 1).ok()?.checked_mul(stride)?;
        low = low.checked_add(last.min(0))?;
        high = high.checked_add(last.max(0))?;
    }
    Some(low..high.checked_add(1)?)
}

/// Positions from the lowest to the highest that an element has; `None` when one would be below zero or no number.
pub(crate) fn span(extents: &[usize], strides: &[isize], offset: usize) -> Option<Range<usize>> {
    let reach = reach(extents, strides)?;
    if reach.is_empty() {
        return Some(offset..offset);
    }
    let first = isize::try_from(offset).ok()?;
    let low = usize::try_from(first.checked_add(reach.start)?).ok()?;
    let end = usize::try_from(first.checked_add(reach.end)?).ok()?;
    Some(low..end)
}

/// As [`span`], of a layout that was checked when it was made.
#[inline]
pub(crate) fn known_span(extents: &[usize], strides: &[isize], offset: usize) -> Range<usize> {
    let (mut low, mut high) = (0_isize, 0_isize);
    for (&extent, &stride) in extents.iter().zip(strides) {
        if extent == 0 {
            return offset..offset;
        }
        let last = (extent as isize - 1).wrapping_mul(stride);
        low = low.wrapping_add(last.min(0));
        high = high.wrapping_add(last.max(0));
    }
    let at = |reach: isize| offset.wrapping_add_signed(reach);
    at(low)..at(high).wrapping_add(1)
}

/// Whether the elements follow each other without gaps, with the dimensions from the fastest to the slowest.
pub(crate) fn is_dense(
    extents: &[usize],
    strides: &[isize],
    fastest_first: impl Iterator<Item = usize>,
) -> bool {
    if extents.contains(&0) {
        return true;
    }
    let mut stride = 1;
    for axis in fastest_first {
        if extents[axis] != 1 && strides[axis] != stride {
            return false;
        }
        stride *= extents[axis] as isize;
    }
    true
}

/// The strides with which `new` extents, of the same number of elements, name the same elements in the same order;
/// `None` when only a copy could.
pub(crate) fn reshape(
    extents: &[usize],
    strides: &[isize],
    new: &[usize],
    new_strides: &mut [isize],
) -> Option<()> {
    if extents.contains(&0) || new.contains(&0) {
        return dense(new, new_strides, (0..new.len()).rev());
    }
    // Old and new dimensions in groups of as many elements; the old ones of a group have to be one run.
    let old: SmallVec<[usize; 8]> = (0..extents.len())
        .filter(|&axis| extents[axis] != 1)
        .collect();
    let (mut from, mut to) = (0, 0);
    while from < old.len() {
        let (mut last, mut end) = (from, to);
        let (mut of_old, mut of_new) = (extents[old[from]], 1);
        while of_new != of_old {
            if of_new < of_old {
                of_new *= new.get(end)?;
                end += 1;
            } else {
                last += 1;
                of_old *= extents[*old.get(last)?];
            }
        }
        for pair in old[from..=last].windows(2) {
            // What wraps is no stride that continues a run.
            let run = strides[pair[1]].wrapping_mul(extents[pair[1]] as isize);
            if strides[pair[0]] != run {
                return None;
            }
        }
        let mut stride = strides[old[last]];
        for axis in (to..end).rev() {
            new_strides[axis] = stride;
            stride = stride.wrapping_mul(new[axis] as isize);
        }
        (from, to) = (last + 1, end);
    }
    // What is left has one element each, whose stride is never taken.
    new_strides[to..].fill(1);
    Some(())
}

/// The strides of a layout that repeats elements along dimensions that it does not have, or that have one element;
/// `None` when the extents don't fit. Dimensions are matched from the last one.
pub(crate) fn broadcast(
    extents: &[usize],
    strides: &[isize],
    new: &[usize],
    new_strides: &mut [isize],
) -> Option<()> {
    let added = new.len().checked_sub(extents.len())?;
    for (axis, stride) in new_strides.iter_mut().enumerate() {
        *stride = match axis.checked_sub(added) {
            None => 0,
            Some(old) if extents[old] == new[axis] => strides[old],
            Some(old) if extents[old] == 1 => 0,
            Some(_) => return None,
        };
    }
    Some(())
}

/// A slice of one dimension: the first index, the number of indices, and the new stride. A negative step goes from the
/// last index of the range to the first. `None` for a step of 0 or a stride that is no number.
pub(crate) fn step(
    range: &Range<usize>,
    step: isize,
    stride: isize,
) -> Option<(usize, usize, isize)> {
    if step == 0 {
        return None;
    }
    let count = range.len().div_ceil(step.unsigned_abs());
    let first = match step > 0 || count == 0 {
        true => range.start,
        false => range.end - 1,
    };
    // The stride of at most one element is never used.
    let stride = if count > 1 {
        stride.checked_mul(step)?
    } else {
        stride
    };
    Some((first, count, stride))
}
