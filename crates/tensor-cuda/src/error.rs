//! What tensor operations report.

use cuda_buffer::{AccessError, BufferError, Refused};
use cuda_driver::{CudaError, DeviceId, LaunchError};
use cuda_runtime::RuntimeError;
use space_core::AllocError;

/// An error of a tensor operation. Nothing was changed when one is returned, and nothing queued but copies into scratch memory, unless the
/// driver failed after the work was queued: then the stream was synchronised, and the output is written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// A buffer, the runtime or the driver failed.
    #[error(transparent)]
    Buffer(BufferError),

    /// A value of an asynchronous operation can't be had.
    #[error(transparent)]
    Value(#[from] async_value::AsyncError),

    /// Operations in a capture wait for something, which a capture must not.
    #[error(
        "{left} operations wait for something that is no value, which a capture can't: let it happen before"
    )]
    Suspended {
        /// How many have not ended.
        left: usize,
    },

    /// An operation over a list of operands got none.
    #[error("there is no operand, so there is no device either: give at least one")]
    NoOperand,

    /// A space had no room, or refused.
    #[error(transparent)]
    Space(AllocError),

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

    /// The output names an element twice, so that it would be written twice.
    #[error(
        "operand {operand} of {operation} with extents {extents:?} and strides {strides:?} names an element twice: an output must not"
    )]
    OverlappingWrite {
        /// The operation.
        operation: &'static str,
        /// The operand.
        operand: &'static str,
        /// Its extents.
        extents: Vec<usize>,
        /// Its strides, in elements.
        strides: Vec<isize>,
    },

    /// The output is of the same value as an operand that is read.
    #[error(
        "operand {operand} of {operation} is of the same value as the output: give the output a tensor of its own, or use an operation that works in place"
    )]
    Aliased {
        /// The operation.
        operation: &'static str,
        /// The operand.
        operand: &'static str,
    },

    /// An operand lies on another device than the stream.
    #[error(
        "operand {operand} of {operation} is on {given}, and the stream on {expected}: copy it over first"
    )]
    WrongDevice {
        /// The operation.
        operation: &'static str,
        /// The operand.
        operand: &'static str,
        /// The device of the stream.
        expected: DeviceId,
        /// The device of the operand.
        given: DeviceId,
    },

    /// A dimension, or a leading dimension, is larger than the provider, or the result, can take.
    #[error(
        "operand {operand} of {operation} needs a dimension of {dim}, and {provider} takes at most {max}"
    )]
    DimTooLarge {
        /// The operation.
        operation: &'static str,
        /// The operand.
        operand: &'static str,
        /// Who takes no larger ones.
        provider: &'static str,
        /// The dimension.
        dim: usize,
        /// The largest possible one.
        max: u64,
    },

    /// An operation that does not exist for elements of this type.
    #[error(
        "{operation} does not exist for elements of type {element}, which operand {operand} has"
    )]
    Unsupported {
        /// The operation.
        operation: &'static str,
        /// The operand.
        operand: &'static str,
        /// The element type.
        element: &'static str,
    },

    /// Elements that lie at multiples of their own alignment only, which is less than the kernel takes them at.
    #[error(
        "operand {operand} of {operation} does not lie at a multiple of {align_bytes} bytes, at which elements of type {element} are \
         taken: carve it from an arena of that alignment"
    )]
    Misaligned {
        /// The operation.
        operation: &'static str,
        /// The operand.
        operand: &'static str,
        /// The element type.
        element: &'static str,
        /// The alignment, in bytes.
        align_bytes: u64,
    },

    /// No provider of matrix products for this device.
    #[error(
        "there is no provider of matrix products for {device}, driven by {driver}: set one with `Blas::set_provider`"
    )]
    NoProvider {
        /// The device.
        device: DeviceId,
        /// What drives it.
        driver: String,
    },

    /// Results must be the same to the bit in every run, which the provider does not promise.
    #[error(
        "{provider} does not promise the same bits for {operation} in every run, which the deterministic mode asks for: set another \
         provider with `Blas::set_provider`, or leave the mode with `Blas::set_deterministic`"
    )]
    NotDeterministic {
        /// The operation.
        operation: &'static str,
        /// The provider.
        provider: &'static str,
    },

    /// The provider of matrix products failed.
    #[error("{provider} failed in {operation} with status {status}")]
    Provider {
        /// The provider.
        provider: &'static str,
        /// The operation.
        operation: &'static str,
        /// The status that it returned.
        status: i32,
    },

    /// cuBLAS can't be used, or failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cublas(#[from] crate::CublasError),

    /// The number of elements does not fit.
    #[error("extents {extents:?} are more elements than can be counted")]
    TooLarge {
        /// The extents.
        extents: Vec<usize>,
    },

    /// An operation over more dimensions than its kernel takes, which can't be merged.
    #[error(
        "{operation} over {dims} dimensions of operand {operand} that can't be merged is not possible: at most {max} are; copy it to \
         row-major order first"
    )]
    TooManyDimensions {
        /// The operation.
        operation: &'static str,
        /// The operand.
        operand: &'static str,
        /// Dimensions left after merging.
        dims: usize,
        /// The largest possible number.
        max: usize,
    },

    /// Axes that an operation can't be over.
    #[error(
        "{operation} over axes {axes:?} of operand {operand}, which has {rank} dimensions: each must be one of them, named once"
    )]
    BadAxes {
        /// The operation.
        operation: &'static str,
        /// The operand.
        operand: &'static str,
        /// The axes given.
        axes: Vec<usize>,
        /// Dimensions of the operand.
        rank: usize,
    },

    /// A layout that reaches past the memory it is to be a layout of.
    #[error(
        "{operand} of extents {extents:?} with strides {strides:?} reaches elements {start}..{end}, and its memory has {len}"
    )]
    PastMemory {
        /// What was to be made: a view or a tensor.
        operand: &'static str,
        /// Its extents.
        extents: Vec<usize>,
        /// Its strides, in elements.
        strides: Vec<isize>,
        /// Position of its lowest element.
        start: usize,
        /// One past the position of its highest element.
        end: usize,
        /// Elements that the memory has.
        len: usize,
    },

    /// A range reaches past the extent of a dimension.
    #[error("{start}..{end} is not within dimension {axis}, of extent {extent}")]
    OutOfBounds {
        /// The dimension.
        axis: usize,
        /// First index.
        start: usize,
        /// One past the last index.
        end: usize,
        /// The extent.
        extent: usize,
    },

    /// A dimension that a layout does not have.
    #[error("there is no dimension {axis} in a layout that has {rank}")]
    NoSuchAxis {
        /// The dimension.
        axis: usize,
        /// How many there are.
        rank: usize,
    },

    /// Dimensions that are not named once each.
    #[error("{order:?} does not name each of {rank} dimensions once")]
    BadOrder {
        /// The dimensions named.
        order: Vec<usize>,
        /// How many there are.
        rank: usize,
    },

    /// A step of 0, or one whose stride is no number.
    #[error("a slice can't have a step of {step}")]
    BadStep {
        /// The step.
        step: isize,
    },

    /// Strides that lead below position 0, or to no number.
    #[error(
        "extents {extents:?} with strides {strides:?} from position {offset} reach positions that can't be"
    )]
    BadStrides {
        /// The extents.
        extents: Vec<usize>,
        /// The strides, in elements.
        strides: Vec<isize>,
        /// Position of the first element.
        offset: usize,
    },

    /// A leading dimension smaller than what it leads over.
    #[error(
        "a matrix of extents {extents:?} can't have a leading dimension of {leading}: at least {min} is needed"
    )]
    LeadingDimension {
        /// The extents of the matrix.
        extents: [usize; 2],
        /// The leading dimension.
        leading: usize,
        /// The smallest possible one.
        min: usize,
    },

    /// Extents that only a copy could give.
    #[error("extents {from:?} with strides {strides:?} can't become {to:?} without a copy")]
    CannotReshape {
        /// The extents.
        from: Vec<usize>,
        /// The strides, in elements.
        strides: Vec<isize>,
        /// The extents wanted.
        to: Vec<usize>,
    },

    /// Extents that elements can't be repeated to.
    #[error(
        "extents {from:?} can't be repeated to {to:?}: each must be equal, or 1, or new and first"
    )]
    CannotBroadcast {
        /// The extents.
        from: Vec<usize>,
        /// The extents wanted.
        to: Vec<usize>,
    },

    /// Another number of dimensions than the type says.
    #[error("{given} dimensions, where {expected} are needed")]
    RankMismatch {
        /// Dimensions given.
        given: usize,
        /// Dimensions needed.
        expected: usize,
    },
}

/// A space's error is told as one, whoever hands it on.
impl From<BufferError> for TensorError {
    fn from(error: BufferError) -> Self {
        match error {
            BufferError::Space(error) => Self::Space(error),
            other => Self::Buffer(other),
        }
    }
}

/// What a buffer reported through a space is that report again.
impl From<AllocError> for TensorError {
    fn from(error: AllocError) -> Self {
        BufferError::from(error).into()
    }
}

impl From<AccessError> for TensorError {
    fn from(error: AccessError) -> Self {
        Self::Buffer(error.into())
    }
}

impl From<CudaError> for TensorError {
    fn from(error: CudaError) -> Self {
        Self::Buffer(error.into())
    }
}

impl From<RuntimeError> for TensorError {
    fn from(error: RuntimeError) -> Self {
        Self::Buffer(error.into())
    }
}

/// The error alone: the value that came with it is dropped.
impl<V> From<Refused<V, TensorError>> for TensorError {
    fn from(refused: Refused<V, Self>) -> Self {
        refused.error
    }
}

/// The error alone: the value that came with it is dropped.
impl<V> From<Refused<V>> for TensorError {
    fn from(refused: Refused<V>) -> Self {
        refused.error.into()
    }
}

impl From<LaunchError> for TensorError {
    fn from(error: LaunchError) -> Self {
        Self::Buffer(error.into())
    }
}

/// The result of a tensor operation.
pub type TensorResult<T> = Result<T, TensorError>;
