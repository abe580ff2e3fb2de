//! What tensor operations report.

use cuda_buffer::BufferError;
use cuda_driver::LaunchError;
use cuda_runtime::RuntimeError;
use space_core::AllocError;

/// An error of a tensor operation. Nothing was queued or changed when one is returned, unless the driver failed after the
/// work was queued: then the stream was synchronised, and the output is written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// A buffer, the runtime or the driver failed.
    #[error(transparent)]
    Buffer(#[from] BufferError),

    /// A space had no room, or refused.
    #[error(transparent)]
    Space(#[from] AllocError),

    /// The extents of an operand don't fit the operation.
    #[error(
        "operand {operand} of {operation} has extents {given:?}, where {expected:?} are needed"
    )]
    ShapeMismatch {
        /// The operation.
        operation: &'static str,
        /// The operand.
        operand: &'static str,
        /// The extents that fit.
        expected: Vec<usize>,
        /// The extents given.
        given: Vec<usize>,
    },

    /// The strides of an operand can't be handled by the operation.
    #[error("operand {operand} of {operation} has strides {strides:?}: {reason}")]
    BadLayout {
        /// The operation.
        operation: &'static str,
        /// The operand.
        operand: &'static str,
        /// Its strides, in elements.
        strides: Vec<isize>,
        /// What is wrong with them.
        reason: &'static str,
    },

    /// The number of elements does not fit.
    #[error("extents {extents:?} are more elements than can be counted")]
    TooLarge {
        /// The extents.
        extents: Vec<usize>,
    },

    /// A range reaches past an extent.
    #[error("{start}..{end} is not within extent {extent}")]
    OutOfBounds {
        /// First index.
        start: usize,
        /// One past the last index.
        end: usize,
        /// The extent.
        extent: usize,
    },
}

impl From<RuntimeError> for TensorError {
    fn from(error: RuntimeError) -> Self {
        Self::Buffer(error.into())
    }
}

impl From<LaunchError> for TensorError {
    fn from(error: LaunchError) -> Self {
        Self::Buffer(error.into())
    }
}

/// The result of a tensor operation.
pub type TensorResult<T> = Result<T, TensorError>;
