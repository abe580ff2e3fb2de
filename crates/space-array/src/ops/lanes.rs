//! Loops over elements: contiguous where the operands are, else lane by lane.

#![forbid(unsafe_code)]

use std::mem::MaybeUninit;

use ndarray::{ArrayView, ArrayView1, Dimension};

/// Where an element goes.
pub(super) trait Slot<U> {
    fn write(&mut self, element: U);
}

impl<U> Slot<U> for MaybeUninit<U> {
    #[inline(always)]
    fn write(&mut self, element: U) {
        self.write(element);
    }
}

/// In the place of another one.
impl<U: Copy> Slot<U> for U {
    #[inline(always)]
    fn write(&mut self, element: U) {
        *self = element;
    }
}

/// Elements along the last axis.
enum Lane<'a, T> {
    Slice(&'a [T]),
    /// One element for all, as broadcasting makes it.
    Same(&'a T),
    Strided(ArrayView1<'a, T>),
}

impl<'a, T> Lane<'a, T> {
    #[inline]
    fn of(lane: ArrayView1<'a, T>) -> Self {
        if let Some(elements) = lane.to_slice() {
            return Self::Slice(elements);
        }
        if lane.strides() == [0]
            && let Some(element) = lane.into_iter().next()
        {
            return Self::Same(element);
        }
        Self::Strided(lane)
    }
}

/// Writes `f` of each element. `out` has as many slots as the view has elements.
#[inline]
pub(super) fn map<A: Copy, U, D: Dimension>(
    out: &mut [impl Slot<U>],
    a: &ArrayView<'_, A, D>,
    mut f: impl FnMut(A) -> U,
) {
    debug_assert_eq!(out.len(), a.len());
    match a.as_slice() {
        Some(a) => {
            for (slot, &a) in out.iter_mut().zip(a) {
                slot.write(f(a));
            }
        }
        None => {
            for (slot, &a) in out.iter_mut().zip(a.iter()) {
                slot.write(f(a));
            }
        }
    }
}

/// Writes `f` of each pair of elements. The views have one shape, and `out` a slot for each of
/// its elements.
#[inline]
pub(super) fn zip<A: Copy, B: Copy, U, D: Dimension>(
    out: &mut [impl Slot<U>],
    a: &ArrayView<'_, A, D>,
    b: &ArrayView<'_, B, D>,
    mut f: impl FnMut(A, B) -> U,
) {
    debug_assert_eq!((out.len(), a.shape()), (b.len(), b.shape()));
    if let (Some(a), Some(b)) = (a.as_slice(), b.as_slice()) {
        return zip_slices(out, a, b, f);
    }
    let Some(&extent) = a.shape().last() else {
        unreachable!("an array without axes is contiguous");
    };
    // Without elements there are no lanes either.
    let rows = out.chunks_exact_mut(extent.max(1));
    for ((out, a), b) in rows.zip(a.rows()).zip(b.rows()) {
        match (Lane::of(a), Lane::of(b)) {
            (Lane::Slice(a), Lane::Slice(b)) => zip_slices(out, a, b, &mut f),
            (Lane::Slice(a), Lane::Same(&b)) => {
                for (slot, &a) in out.iter_mut().zip(a) {
                    slot.write(f(a, b));
                }
            }
            (Lane::Same(&a), Lane::Slice(b)) => {
                for (slot, &b) in out.iter_mut().zip(b) {
                    slot.write(f(a, b));
                }
            }
            _ => {
                for ((slot, &a), &b) in out.iter_mut().zip(a).zip(b) {
                    slot.write(f(a, b));
                }
            }
        }
    }
}

#[inline]
fn zip_slices<A: Copy, B: Copy, U>(
    out: &mut [impl Slot<U>],
    a: &[A],
    b: &[B],
    mut f: impl FnMut(A, B) -> U,
) {
    for ((slot, &a), &b) in out.iter_mut().zip(a).zip(b) {
        slot.write(f(a, b));
    }
}

/// Puts `f` of each pair of elements in the place of the left one. `a` lies in row-major order,
/// with the shape of `b`.
#[inline]
pub(super) fn zip_in_place<A: Copy, B: Copy, D: Dimension>(
    a: &mut [A],
    b: &ArrayView<'_, B, D>,
    mut f: impl FnMut(A, B) -> A,
) {
    debug_assert_eq!(a.len(), b.len());
    if let Some(b) = b.as_slice() {
        for (a, &b) in a.iter_mut().zip(b) {
            *a = f(*a, b);
        }
        return;
    }
    let Some(&extent) = b.shape().last() else {
        unreachable!("an array without axes is contiguous");
    };
    for (a, b) in a.chunks_exact_mut(extent.max(1)).zip(b.rows()) {
        match Lane::of(b) {
            Lane::Slice(b) => {
                for (a, &b) in a.iter_mut().zip(b) {
                    *a = f(*a, b);
                }
            }
            Lane::Same(&b) => {
                for a in a {
                    *a = f(*a, b);
                }
            }
            Lane::Strided(b) => {
                for (a, &b) in a.iter_mut().zip(b) {
                    *a = f(*a, b);
                }
            }
        }
    }
}
