//! Shapes of arrays.

use std::fmt::Debug;

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
        let mut product = 1_usize;
        for &extent in self.extents() {
            match product.checked_mul(extent) {
                Some(next) => product = next,
                None => return overflowed(self.extents()),
            }
        }
        Some(product)
    }

    /// Number of elements, or `usize::MAX` where the product of the extents overflows.
    #[inline(always)]
    fn saturating_len(&self) -> usize {
        self.checked_len().unwrap_or(usize::MAX)
    }
}

#[cold]
#[inline(never)]
fn overflowed(extents: &[usize]) -> Option<usize> {
    extents.contains(&0).then_some(0)
}

impl<const N: usize> Dims for [usize; N] {
    #[inline(always)]
    fn extents(&self) -> &[usize] {
        self
    }
}

impl Dims for Vec<usize> {
    #[inline(always)]
    fn extents(&self) -> &[usize] {
        self
    }
}

impl Dims for &[usize] {
    #[inline(always)]
    fn extents(&self) -> &[usize] {
        self
    }
}
