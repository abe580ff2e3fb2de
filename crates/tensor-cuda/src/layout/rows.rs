//! Layouts that are rows of a larger matrix: what one two-dimensional copy takes.

use super::Layout;

/// How elements, in row-major order, lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// As one run.
    Run,
    /// As rows of `width` elements, whose starts are `pitch` elements apart.
    Rows { width: usize, pitch: usize },
    /// In another way.
    Scattered,
}

/// The driver's limit for the distance of rows.
const MOST_PITCH_BYTES: usize = i32::MAX as usize;

impl<const N: usize> Layout<N> {
    /// How the elements, of so many bytes each, lie.
    ///
    /// Rows of one element are left to kernels: a copy of them would move each by itself.
    pub(crate) fn lie(&self, element_bytes: usize) -> Lie {
        if self.is_row_major() {
            return Lie::Run;
        }
        let (extents, strides) = (self.extents(), self.strides());
        // From the fastest index on: those that go on where the one before ends, first within a row, then over rows.
        let mut width = 1;
        let mut rows: Option<(usize, usize)> = None;
        for axis in (0..N).rev().filter(|&axis| extents[axis] > 1) {
            let (extent, Ok(stride)) = (extents[axis], usize::try_from(strides[axis])) else {
                return Lie::Scattered;
            };
            match &mut rows {
                None if stride == width => width *= extent,
                None => rows = Some((extent, stride)),
                Some((count, pitch)) if count.checked_mul(*pitch) == Some(stride) => {
                    *count *= extent
                }
                Some(_) => return Lie::Scattered,
            }
        }
        match rows {
            Some((_, pitch))
                if width > 1
                    && pitch >= width
                    && pitch
                        .checked_mul(element_bytes)
                        .is_some_and(|bytes| bytes <= MOST_PITCH_BYTES) =>
            {
                Lie::Rows { width, pitch }
            }
            _ => Lie::Scattered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_in_any_rank() {
        let whole = Layout::row_major([4, 6, 8]).unwrap();
        assert_eq!(whole.lie(4), Lie::Run);
        let columns = whole.slice(2, 1..5).unwrap();
        assert_eq!(columns.lie(4), Lie::Rows { width: 4, pitch: 8 });
        let middle = whole.slice(1, 2..5).unwrap();
        assert_eq!(
            middle.lie(4),
            Lie::Rows {
                width: 24,
                pitch: 48
            }
        );
        let every_other = whole.slice_step(0, 0..4, 2).unwrap();
        assert_eq!(
            every_other.lie(4),
            Lie::Rows {
                width: 48,
                pitch: 96
            }
        );
        // One index in a dimension, whatever its stride.
        let at_one = whole.slice(1, 2..3).unwrap();
        assert_eq!(
            at_one.lie(4),
            Lie::Rows {
                width: 8,
                pitch: 48
            }
        );
        // Two distances, one backwards, repeated ones, single elements.
        assert_eq!(middle.slice(2, 0..4).unwrap().lie(4), Lie::Scattered);
        assert_eq!(columns.reversed(0).unwrap().lie(4), Lie::Scattered);
        assert_eq!(columns.reversed(2).unwrap().lie(4), Lie::Scattered);
        assert_eq!(columns.transposed().lie(4), Lie::Scattered);
        let repeated = Layout::strided([3, 4], [0, 1], 0).unwrap();
        assert_eq!(repeated.lie(4), Lie::Scattered);
        let overlapping = Layout::strided([3, 4], [2, 1], 0).unwrap();
        assert_eq!(overlapping.lie(4), Lie::Scattered);
        let single = Layout::strided([9], [5], 0).unwrap();
        assert_eq!(single.lie(4), Lie::Scattered);
        // Farther apart than a copy can take.
        let far = Layout::strided([2, 4], [1 << 29, 1], 0).unwrap();
        assert_eq!(
            far.lie(1),
            Lie::Rows {
                width: 4,
                pitch: 1 << 29
            }
        );
        assert_eq!(far.lie(4), Lie::Scattered);
    }
}
