//! Whether a device is recording a graph, and what may not happen then.

use std::fmt;

use crate::{AllocError, Dims};

/// Whether the device behind a value is recording a graph capture right now.
///
/// Host memory cannot be captured and answers `false`, which is also the provided answer.
/// Arrays of devices that can record ask their driver.
pub trait Capturing {
    /// Whether the device behind `self` is recording. See [`capturing`].
    fn is_capturing(&self) -> bool {
        false
    }
}

impl<X: Capturing + ?Sized> Capturing for &X {
    fn is_capturing(&self) -> bool {
        (**self).is_capturing()
    }
}

impl<T> Capturing for [T] {}
impl<T, const N: usize> Capturing for [T; N] {}
impl<T> Capturing for Vec<T> {}

/// Whether the device behind `x` is recording a graph capture right now: the one predicate that
/// code above the device layer asks.
///
/// ```
/// assert!(!space_core::capturing(&[1.0_f32, 2.0]));
/// ```
pub fn capturing<X: Capturing + ?Sized>(x: &X) -> bool {
    x.is_capturing()
}

/// An array was asked of a pooled space while its device was recording a capture.
///
/// The allocation itself would succeed, and that is the trap: it would be recorded into the graph
/// as a memory node, and a graph that owns memory cannot be launched a second time. An arena's
/// carve is arithmetic over a slab that was allocated long before, so it records nothing and
/// gives the same address at each replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureViolation {
    element: &'static str,
    shape: Box<[usize]>,
    device: Box<str>,
}

impl CaptureViolation {
    /// A violation by an array of `T` with extents `shape` (in elements) on `device`.
    #[cold]
    pub fn new<T>(shape: &[usize], device: impl Into<String>) -> Self {
        Self {
            element: std::any::type_name::<T>(),
            shape: shape.into(),
            device: device.into().into_boxed_str(),
        }
    }

    /// The same violation, told of the array that the caller asked for.
    ///
    /// A space's leaf sees bytes only; the typed layers above it put in what they know.
    #[cold]
    #[must_use]
    pub fn of<T>(self, shape: &[usize]) -> Self {
        Self {
            element: std::any::type_name::<T>(),
            shape: shape.into(),
            device: self.device,
        }
    }

    /// Puts the array into an error that a leaf returned, if it is a violation.
    #[cold]
    #[inline(never)]
    pub(crate) fn name<T, D: Dims>(error: AllocError, dims: D) -> AllocError {
        match error {
            AllocError::CaptureViolation(violation) => violation.of::<T>(dims.extents()).into(),
            other => other,
        }
    }

    /// Name of the element type.
    #[must_use]
    pub fn element(&self) -> &'static str {
        self.element
    }

    /// Extents of the array, in elements.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Which device was recording, in words.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl fmt::Display for CaptureViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an array of {} with shape {:?} was asked of a pooled space on {} during a graph \
             capture; run the step once eagerly, size an arena from its watermark, and pass that \
             arena or a frame of it instead",
            self.element, self.shape, self.device
        )
    }
}

impl std::error::Error for CaptureViolation {}
