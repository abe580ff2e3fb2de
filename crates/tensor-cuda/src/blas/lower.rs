//! From layouts to what BLAS takes: orientation, transposes and leading dimensions from strides. Arithmetic only.

use super::provider::Transform;
use crate::Layout;

/// One or more matrices, as a view has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// How many, and elements from one to the next.
    batch: (usize, isize),
    rows: usize,
    columns: usize,
    row: isize,
    column: isize,
    conjugated: bool,
}

impl Shape {
    /// Of a matrix, or of a batch of them along the first dimension.
    #[inline]
    pub(super) fn of<const N: usize>(layout: &Layout<N>, conjugated: bool) -> Self {
        const { assert!(N == 2 || N == 3, "matrices have two dimensions") };
        let (extents, strides) = (layout.extents(), layout.strides());
        Self {
            batch: if N == 3 {
                (extents[0], strides[0])
            } else {
                (1, 0)
            },
            rows: extents[N - 2],
            columns: extents[N - 1],
            row: strides[N - 2],
            column: strides[N - 1],
            conjugated,
        }
    }

    #[inline]
    fn turned(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row: self.column,
            column: self.row,
            ..self
        }
    }

    /// The leading dimension, when columns are runs that don't overlap. An axis of one element has no stride of its own.
    #[inline]
    fn column_major(self) -> Option<usize> {
        let min = self.rows.max(1);
        let runs = self.rows <= 1 || self.row == 1;
        let leading = match self.columns {
            0 | 1 => min,
            _ => usize::try_from(self.column).ok()?,
        };
        (runs && leading >= min).then_some(leading)
    }

    /// The leading dimension, the smaller one where both rows and columns are runs; `None` when neither are.
    pub(super) fn leading(self) -> Option<usize> {
        let ways = [self.column_major(), self.turned().column_major()];
        ways.into_iter().flatten().min()
    }

    /// How BLAS reads the matrix; `None` when only a copy would do.
    #[inline]
    fn stored(self) -> Option<(Transform, usize)> {
        if !self.conjugated
            && let Some(leading) = self.column_major()
        {
            return Some((Transform::None, leading));
        }
        let transform = match self.conjugated {
            true => Transform::ConjugateTranspose,
            false => Transform::Transpose,
        };
        Some((transform, self.turned().column_major()?))
    }

    /// Elements from one matrix to the next; `None` where BLAS can't step.
    #[inline]
    fn step(self) -> Option<usize> {
        match self.batch {
            (0 | 1, _) => Some(0),
            (_, step) => usize::try_from(step).ok(),
        }
    }
}

/// The operands of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Out = 0,
    A = 1,
    B = 2,
}

/// What a product is, but for its memory and its factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    /// m, n, k, and how many.
    pub(super) sizes: [usize; 4],
    /// Of out, a, b: transform and leading dimension.
    pub(super) ways: [(Transform, usize); 3],
    /// Of out, a, b: elements from one matrix to the next.
    pub(super) steps: [usize; 3],
    /// Whether the transposed product is computed, with A and B in each other's place.
    pub(super) turned: bool,
}

/// How a product is put to BLAS, the way that needs the fewest copies; else the operand that has to be copied before anything
/// else is.
#[inline]
pub(super) fn lower(out: Shape, a: Shape, b: Shape) -> Result<Form, Side> {
    let step_c = out.step().ok_or(Side::Out)?;
    // A row-major output, the usual one, is a turned product.
    let turned = way(out.turned(), a.turned(), b.turned(), true);
    let way = match turned {
        Some(way) if way.copies() == 0 => way,
        turned => {
            let direct = way(out, a, b, false);
            let ways = [turned, direct].into_iter().flatten();
            ways.min_by_key(Way::copies).ok_or(Side::Out)?
        }
    };
    let (of_a, step_a) = way.a.zip(a.step()).ok_or(Side::A)?;
    let (of_b, step_b) = way.b.zip(b.step()).ok_or(Side::B)?;
    Ok(Form {
        sizes: [out.rows, out.columns, a.columns, out.batch.0],
        ways: [(Transform::None, way.c), of_a, of_b],
        steps: [step_c, step_a, step_b],
        turned: way.turned,
    })
}

/// A way to put the output; `None` when it can't be written so.
#[inline]
fn way(out: Shape, a: Shape, b: Shape, turned: bool) -> Option<Way> {
    out.column_major().map(|c| Way {
        turned,
        a: a.stored(),
        b: b.stored(),
        c,
    })
}

/// A way to put a product, with what has to be copied left out.
#[derive(Clone, Copy, Debug)]
struct Way {
    turned: bool,
    a: Option<(Transform, usize)>,
    b: Option<(Transform, usize)>,
    c: usize,
}

impl Way {
    #[inline]
    fn copies(&self) -> usize {
        usize::from(self.a.is_none()) + usize::from(self.b.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(extents: [usize; 2], strides: [isize; 2], conjugated: bool) -> Shape {
        Shape::of(&Layout::strided(extents, strides, 100).unwrap(), conjugated)
    }

    #[test]
    fn transposes_and_conjugates_come_from_strides() {
        let row_major = shape([3, 4], [4, 1], false);
        let column_major = shape([3, 4], [1, 3], false);
        assert_eq!(column_major.stored(), Some((Transform::None, 3)));
        assert_eq!(row_major.stored(), Some((Transform::Transpose, 4)));
        let conjugated = |shape: Shape| Shape {
            conjugated: true,
            ..shape
        };
        assert_eq!(
            conjugated(row_major).stored(),
            Some((Transform::ConjugateTranspose, 4))
        );
        assert_eq!(conjugated(column_major).stored(), None);
        // Neither rows nor columns are runs; columns overlap; they go backwards.
        assert_eq!(shape([3, 4], [8, 2], false).stored(), None);
        assert_eq!(shape([3, 4], [1, 2], false).stored(), None);
        assert_eq!(shape([3, 4], [-4, 1], false).stored(), None);
        assert_eq!(shape([3, 4], [0, 1], false).stored(), None);
        // A single row or column may have any stride.
        assert_eq!(
            shape([1, 4], [7, 2], false).stored(),
            Some((Transform::None, 2))
        );
        assert_eq!(
            shape([4, 1], [2, 7], false).stored(),
            Some((Transform::Transpose, 2))
        );
        assert_eq!(
            shape([1, 1], [0, 0], false).stored(),
            Some((Transform::None, 1))
        );
    }

    #[test]
    fn the_way_with_the_fewest_copies_is_taken() {
        let dense = shape([3, 3], [3, 1], false);
        let form = lower(dense, dense, dense).unwrap();
        assert!(form.turned && form.ways[1] == (Transform::None, 3));
        // A conjugated operand of a column-major output is read as it lies only when it is row-major.
        let column_major = shape([3, 3], [1, 3], false);
        let conjugated = Shape {
            conjugated: true,
            ..dense
        };
        let form = lower(column_major, conjugated, dense).unwrap();
        assert_eq!(
            (form.turned, form.ways[1]),
            (false, (Transform::ConjugateTranspose, 3))
        );
        assert_eq!(lower(dense, conjugated, dense).unwrap_err(), Side::A);
        assert_eq!(lower(dense, dense, conjugated).unwrap_err(), Side::B);
        let backwards = shape([3, 3], [-3, 1], false);
        assert_eq!(lower(backwards, conjugated, dense).unwrap_err(), Side::Out);
        // An output of one row can be either.
        let row = shape([1, 3], [3, 1], false);
        assert!(lower(row, shape([1, 3], [3, 1], true), dense).is_ok());
    }

    #[test]
    fn batches_step_forwards() {
        let batch = |strides| Shape::of(&Layout::strided([2, 3, 3], strides, 9).unwrap(), false);
        let (up, down, same) = (batch([9, 3, 1]), batch([-9, 3, 1]), batch([0, 3, 1]));
        let form = lower(up, same, up).unwrap();
        assert_eq!((form.sizes, form.steps), ([3, 3, 3, 2], [9, 0, 9]));
        for (out, a, b, side) in [
            (down, up, up, Side::Out),
            (up, down, up, Side::A),
            (up, up, down, Side::B),
        ] {
            assert_eq!(lower(out, a, b).unwrap_err(), side);
        }
    }
}
