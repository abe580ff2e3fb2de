//! Shapes: numbers in, numbers out, no memory in sight.

#![forbid(unsafe_code)]

use std::alloc::Layout;

use ndarray::{DimMax, Dimension};
use space_core::AllocError;

use crate::{ArrayError, Operand, SpaceArray};

/// The dimension of two operands broadcast together.
pub type Broadcast<D, E> = <D as DimMax<E>>::Output;

/// What an operation makes of an array with the dimension `D` and another operand: an array of `U`,
/// of the kind `K`, with the shape that both broadcast to.
pub type Combined<U, D, O, K> = SpaceArray<U, Broadcast<D, <O as Operand<K>>::Dim>, K>;

/// Layout of an array of `T` with the extents `dim`.
///
/// What `ndarray` asks of a shape is checked too: the product of the extents that are not zero is
/// at most `isize::MAX`, in elements and in bytes.
#[inline]
pub(crate) fn layout_of<T, D: Dimension>(dim: &D) -> Result<Layout, AllocError> {
    let mut len = 1_usize;
    let mut empty = false;
    for &extent in dim.slice() {
        if extent == 0 {
            empty = true;
        } else {
            len = len
                .checked_mul(extent)
                .filter(|&len| len <= isize::MAX as usize)
                .ok_or_else(|| overflow::<T>(usize::MAX))?;
        }
    }
    let full = Layout::array::<T>(len).map_err(|_| overflow::<T>(len))?;
    if empty {
        Ok(Layout::new::<[T; 0]>())
    } else {
        Ok(full)
    }
}

#[cold]
fn overflow<T>(len: usize) -> AllocError {
    AllocError::SizeOverflow {
        len,
        elem_size: size_of::<T>(),
    }
}

/// The shape that both operands broadcast to: from the last axis on, each pair of extents must be
/// equal or contain a 1.
pub(crate) fn broadcast<D, E>(left: &D, right: &E) -> Result<Broadcast<D, E>, ArrayError>
where
    D: Dimension + DimMax<E>,
    E: Dimension,
{
    let (left, right) = (left.slice(), right.slice());
    let mut out = Broadcast::<D, E>::zeros(left.len().max(right.len()));
    let extents = out.slice_mut();
    let axes = extents.len();
    extents.fill(1);
    extents[axes - left.len()..].copy_from_slice(left);
    for (extent, &other) in extents[axes - right.len()..].iter_mut().zip(right) {
        if *extent == 1 {
            *extent = other;
        } else if other != 1 && other != *extent {
            return Err(ArrayError::broadcast(left, right));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use ndarray::{Ix1, Ix2, Ix3, IxDyn};

    use super::*;

    #[test]
    fn shapes_broadcast_from_the_last_axis_on() {
        assert_eq!(broadcast(&Ix2(2, 3), &Ix1(3)).unwrap(), Ix2(2, 3));
        assert_eq!(broadcast(&Ix2(2, 1), &Ix3(4, 1, 5)).unwrap(), Ix3(4, 2, 5));
        assert_eq!(broadcast(&Ix1(0), &Ix1(1)).unwrap(), Ix1(0));
        assert_eq!(broadcast(&IxDyn(&[]), &Ix1(7)).unwrap(), IxDyn(&[7]));
        assert!(broadcast(&Ix2(2, 3), &Ix1(2)).is_err());
        assert!(broadcast(&Ix1(0), &Ix1(2)).is_err());
    }

    #[test]
    fn sizes_that_overflow_are_refused_even_beside_a_zero() {
        assert_eq!(layout_of::<u32, _>(&Ix2(3, 4)).unwrap().size(), 48);
        assert_eq!(layout_of::<u32, _>(&Ix2(0, 4)).unwrap().size(), 0);
        assert_eq!(layout_of::<(), _>(&Ix1(1000)).unwrap().size(), 0);
        for dim in [Ix2(1 << 61, 1), Ix2(1 << 40, 1 << 40), Ix2(usize::MAX, 0)] {
            assert!(layout_of::<u64, _>(&dim).is_err(), "{dim:?}");
        }
        assert!(layout_of::<(), _>(&Ix1(usize::MAX)).is_err());
    }
}
