//! The error of a function that takes a value and gives it back when it fails.

use crate::BufferError;
use std::error::Error;
use std::fmt;

/// Why a function did not take a value, with the value.
///
/// It is an error like any other, whose text is that of [`error`](Self::error); by `?` it also becomes that error, and the value is
/// dropped.
///
/// ```
/// # use cuda_buffer::{CudaBuffer, PartitionedCudaBuffer, Refused};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = cuda_runtime::Runtime::builder().build()?;
/// let whole = CudaBuffer::<f32>::new(runtime.default_device(), 8)?;
/// let whole = match PartitionedCudaBuffer::new(whole, &[0..4, 3..8]) {
///     Ok(_) => unreachable!("they overlap"),
///     Err(Refused { value, error }) => {
///         println!("{error}");
///         value
///     }
/// };
/// let parts = PartitionedCudaBuffer::new(whole, &[0..4, 4..8])?;
/// # drop(parts);
/// # Ok(())
/// # }
/// ```
pub struct Refused<V, E = BufferError> {
    /// What was given.
    pub value: V,
    /// Why it was not taken.
    pub error: E,
}

impl<V, E> Refused<V, E> {
    /// The value and the error.
    pub fn into_parts(self) -> (V, E) {
        (self.value, self.error)
    }
}

impl<V, E> From<(V, E)> for Refused<V, E> {
    fn from((value, error): (V, E)) -> Self {
        Self { value, error }
    }
}

impl<V> From<Refused<V>> for BufferError {
    fn from(refused: Refused<V>) -> Self {
        refused.error
    }
}

impl<V, E: fmt::Display> fmt::Display for Refused<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// Without the value.
impl<V, E: fmt::Debug> fmt::Debug for Refused<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<V, E: Error> Error for Refused<V, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
