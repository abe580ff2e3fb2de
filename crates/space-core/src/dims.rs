//! Shapes of arrays.

use std::{fmt::Debug, hint};

mod sealed {
    pub trait Sealed {}
    impl<const N: usize> Sealed for [usize; N] {}
    impl Sealed for Vec<usize> {}
    impl Sealed for &[usize] {}
}

/// Extents of an array, in elements, outermost first.
///
/// `[usize; N]` where the rank is known to the compiler, `Vec<usize>` and `&[usize]` where only
/// the running program knows it. The trait is sealed: code that turns a length into a slice
/// relies on the answers below.
pub trait Dims: sealed::Sealed + Clone + Debug {
    /// The extents by value where their number is known: handing them to a function that is
    /// rarely called then doesn't keep them in memory always.
    #[doc(hidden)]
    type Passed<'d>: Dims
    where
        Self: 'd;

    #[doc(hidden)]
    fn passed(&self) -> Self::Passed<'_>;

    /// The extents.
    fn extents(&self) -> &[usize];

    /// Number of elements: the product of the extents, or `None` where that overflows.
    ///
    /// One extent of zero makes the product zero, whatever the others are.
    ///
    /// ```
    /// use space_core::Dims;
    /// assert_eq!([2, 3].checked_len(), Some(6));
    /// assert_eq!(vec![usize::MAX, 2, 0].checked_len(), Some(0));
    /// assert_eq!([usize::MAX, 2].checked_len(), None);
    /// ```
    #[inline(always)]
    fn checked_len(&self) -> Option<usize> {
        match product(self.extents()) {
            Some(len) => Some(len),
            None => overflowed(self.passed()),
        }
    }

    /// Number of elements, or `usize::MAX` where the product of the extents overflows.
    #[inline(always)]
    fn saturating_len(&self) -> usize {
        match product(self.extents()) {
            Some(len) => len,
            None => overflowed(self.passed()).unwrap_or(usize::MAX),
        }
    }

    /// Number of elements, for extents that were checked before.
    #[doc(hidden)]
    #[inline(always)]
    fn known_len(&self) -> usize {
        let extents = self.extents().iter();
        extents.fold(1, |len, &extent| len.wrapping_mul(extent))
    }
}

#[inline(always)]
fn product(extents: &[usize]) -> Option<usize> {
    let mut len = 1_usize;
    for &extent in extents {
        let Some(next) = len.checked_mul(extent) else {
            hint::cold_path();
            return None;
        };
        len = next;
    }
    Some(len)
}

/// The product where a step of it overflowed: zero or nothing.
#[cold]
#[inline(never)]
fn overflowed<D: Dims>(dims: D) -> Option<usize> {
    dims.extents().contains(&0).then_some(0)
}

impl<const N: usize> Dims for [usize; N] {
    type Passed<'d> = Self;

    #[inline(always)]
    fn passed(&self) -> Self {
        *self
    }

    #[inline(always)]
    fn extents(&self) -> &[usize] {
        self
    }
}

impl Dims for Vec<usize> {
    type Passed<'d> = &'d [usize];

    #[inline(always)]
    fn passed(&self) -> &[usize] {
        self
    }

    #[inline(always)]
    fn extents(&self) -> &[usize] {
        self
    }
}

impl<'s> Dims for &'s [usize] {
    type Passed<'d>
        = &'s [usize]
    where
        Self: 'd;

    #[inline(always)]
    fn passed(&self) -> &'s [usize] {
        self
    }

    #[inline(always)]
    fn extents(&self) -> &[usize] {
        self
    }
}
