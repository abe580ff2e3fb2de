//! What can go wrong with arrays, with the numbers that explain it.

use std::fmt;

use space_core::AllocError;

use crate::{Exhausted, InvalidMemory, ResetError};

/// Why an operation on arrays gave no array.
///
/// No array was made or changed then, unless an in-place form says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// The memory of a checked array was given back.
    #[error(transparent)]
    Invalid(#[from] InvalidMemory),

    /// A fixed buffer has room, but not enough.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),

    /// The space in scope gave no memory.
    #[error(transparent)]
    Alloc(#[from] AllocError),

    /// An allocator was not reset: no operation returns this, but code that resets between them.
    #[error(transparent)]
    Reset(#[from] ResetError),

    /// Two shapes that neither agree nor broadcast.
    #[error(
        "shapes {left} and {right} can't be broadcast together: from the last axis on, each pair \
         of extents must be equal or contain a 1"
    )]
    Broadcast {
        /// Shape of the left operand.
        left: Shape,
        /// Shape of the right operand.
        right: Shape,
    },

    /// A shape other than the one that the operation needs.
    #[error("{what} needs shape {wanted}, not {got}")]
    ShapeMismatch {
        /// The operation or the operand.
        what: &'static str,
        /// The shape that would have served.
        wanted: Shape,
        /// The shape that came.
        got: Shape,
    },

    /// Operands of a product whose inner extents differ.
    #[error(
        "a product of shapes {left} and {right}: the inner extents {inner_left} and {inner_right} differ"
    )]
    InnerMismatch {
        /// Shape of the left operand.
        left: Shape,
        /// Shape of the right operand.
        right: Shape,
        /// Extent of the left operand that is summed over.
        inner_left: usize,
        /// Extent of the right operand that is summed over.
        inner_right: usize,
    },

    /// A shape with another number of elements.
    #[error("{len} elements of shape {from} can't be seen as shape {to}")]
    Reshape {
        /// Number of elements.
        len: usize,
        /// The shape they have.
        from: Shape,
        /// The shape that was asked for.
        to: Shape,
    },

    /// An axis that the array doesn't have.
    #[error("axis {axis} of an array with {ndim} axes")]
    NoSuchAxis {
        /// The axis, zero-based.
        axis: usize,
        /// Number of axes.
        ndim: usize,
    },

    /// An index past the end of an axis.
    #[error("index {index} on axis {axis} of extent {extent}")]
    OutOfBounds {
        /// The index, zero-based.
        index: usize,
        /// The axis, zero-based.
        axis: usize,
        /// Extent of the axis, in elements.
        extent: usize,
    },

    /// No arrays to put together.
    #[error("{what} of no arrays has no shape")]
    NothingGiven {
        /// The operation.
        what: &'static str,
    },
}

impl ArrayError {
    pub(crate) fn broadcast(left: &[usize], right: &[usize]) -> Self {
        Self::Broadcast {
            left: Shape::of(left),
            right: Shape::of(right),
        }
    }

    pub(crate) fn mismatch(what: &'static str, wanted: &[usize], got: &[usize]) -> Self {
        Self::ShapeMismatch {
            what,
            wanted: Shape::of(wanted),
            got: Shape::of(got),
        }
    }
}

/// The extents of an array, in elements, as an error tells them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape(Box<[usize]>);

impl Shape {
    pub(crate) fn of(extents: &[usize]) -> Self {
        Self(extents.into())
    }

    /// The extents.
    #[must_use]
    pub fn extents(&self) -> &[usize] {
        &self.0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The value, or a panic at the caller's location.
#[track_caller]
#[inline]
pub(crate) fn value<T>(result: Result<T, ArrayError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(&error),
    }
}

#[track_caller]
#[cold]
#[inline(never)]
fn fail(error: &ArrayError) -> ! {
    panic!("{error}")
}
