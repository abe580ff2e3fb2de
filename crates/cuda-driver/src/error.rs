//! Driver errors: code, symbolic name, call, device.

use crate::{Call, DeviceId};
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $symbol:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// The symbolic name, such as `CUDA_ERROR_INVALID_VALUE`; newer codes than this table have none.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($code => Some($symbol),)* _ => None }
            }
        }
    };
}

/// A result code of the driver, as the plain number: a newer driver may return codes that no table knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ErrorCode(pub u32);

codes! {
    /// A parameter is out of its range, or a graph can't be launched again.
    INVALID_VALUE = 1, "CUDA_ERROR_INVALID_VALUE";
    /// No memory of the kind asked for is left.
    OUT_OF_MEMORY = 2, "CUDA_ERROR_OUT_OF_MEMORY";
    /// The driver is not initialised, or this process is a fork of one that did so.
    NOT_INITIALIZED = 3, "CUDA_ERROR_NOT_INITIALIZED";
    /// The driver is shutting down: the process ends.
    DEINITIALIZED = 4, "CUDA_ERROR_DEINITIALIZED";
    /// There is no driver: the link library of Carve returns this where `libcuda.so.1` is missing, as the toolkit's own does.
    STUB_LIBRARY = 34, "CUDA_ERROR_STUB_LIBRARY";
    /// The driver is too old to have this call: the link library of Carve returns this, as NVIDIA's runtime library does. Drivers have
    /// no such code.
    CALL_REQUIRES_NEWER_DRIVER = 36, "cudaErrorCallRequiresNewerDriver";
    /// Somebody else has the device for himself, or it has just been lost.
    DEVICE_UNAVAILABLE = 46, "CUDA_ERROR_DEVICE_UNAVAILABLE";
    /// No device that this driver can use.
    NO_DEVICE = 100, "CUDA_ERROR_NO_DEVICE";
    /// The device ordinal does not exist.
    INVALID_DEVICE = 101, "CUDA_ERROR_INVALID_DEVICE";
    /// The kernel image is not valid for this device.
    INVALID_IMAGE = 200, "CUDA_ERROR_INVALID_IMAGE";
    /// The context is not valid (not current, or destroyed).
    INVALID_CONTEXT = 201, "CUDA_ERROR_INVALID_CONTEXT";
    /// The image has no code for this device.
    NO_BINARY_FOR_GPU = 209, "CUDA_ERROR_NO_BINARY_FOR_GPU";
    /// An uncorrectable memory error on the device. Sticky.
    ECC_UNCORRECTABLE = 214, "CUDA_ERROR_ECC_UNCORRECTABLE";
    /// Direct peer access is not possible between these devices.
    PEER_ACCESS_UNSUPPORTED = 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED";
    /// The PTX can't be compiled.
    INVALID_PTX = 218, "CUDA_ERROR_INVALID_PTX";
    /// An uncorrectable error of the link between devices. Sticky.
    NVLINK_UNCORRECTABLE = 220, "CUDA_ERROR_NVLINK_UNCORRECTABLE";
    /// The driver's compiler of PTX, a library of its own, is not there.
    JIT_COMPILER_NOT_FOUND = 221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND";
    /// The PTX is newer than the driver knows.
    UNSUPPORTED_PTX_VERSION = 222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION";
    /// There is no such file.
    FILE_NOT_FOUND = 301, "CUDA_ERROR_FILE_NOT_FOUND";
    /// The handle names nothing, or an object of another context.
    INVALID_HANDLE = 400, "CUDA_ERROR_INVALID_HANDLE";
    /// The object is not in the state that the call needs.
    ILLEGAL_STATE = 401, "CUDA_ERROR_ILLEGAL_STATE";
    /// A named symbol (a kernel) was not found.
    NOT_FOUND = 500, "CUDA_ERROR_NOT_FOUND";
    /// Asynchronous work is not finished yet. An answer rather than an error.
    NOT_READY = 600, "CUDA_ERROR_NOT_READY";
    /// A kernel touched an address it may not. Sticky.
    ILLEGAL_ADDRESS = 700, "CUDA_ERROR_ILLEGAL_ADDRESS";
    /// A launch asked for more threads, registers or shared memory than there are.
    LAUNCH_OUT_OF_RESOURCES = 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES";
    /// A kernel ran too long. Sticky.
    LAUNCH_TIMEOUT = 702, "CUDA_ERROR_LAUNCH_TIMEOUT";
    /// A device-side assertion failed. Sticky.
    ASSERT = 710, "CUDA_ERROR_ASSERT";
    /// Some of the host memory is page-locked already.
    HOST_MEMORY_ALREADY_REGISTERED = 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
    /// No registered host memory starts there.
    HOST_MEMORY_NOT_REGISTERED = 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED";
    /// The stack of a kernel was corrupted or exceeded. Sticky.
    HARDWARE_STACK_ERROR = 714, "CUDA_ERROR_HARDWARE_STACK_ERROR";
    /// A kernel ran into an illegal instruction. Sticky.
    ILLEGAL_INSTRUCTION = 715, "CUDA_ERROR_ILLEGAL_INSTRUCTION";
    /// A kernel touched a misaligned address. Sticky.
    MISALIGNED_ADDRESS = 716, "CUDA_ERROR_MISALIGNED_ADDRESS";
    /// A kernel used an instruction on an address space that it does not work on. Sticky.
    INVALID_ADDRESS_SPACE = 717, "CUDA_ERROR_INVALID_ADDRESS_SPACE";
    /// A kernel's program counter wrapped. Sticky.
    INVALID_PC = 718, "CUDA_ERROR_INVALID_PC";
    /// A kernel failed for another reason. Sticky.
    LAUNCH_FAILED = 719, "CUDA_ERROR_LAUNCH_FAILED";
    /// The call is not permitted here.
    NOT_PERMITTED = 800, "CUDA_ERROR_NOT_PERMITTED";
    /// The device or the driver can't do this.
    NOT_SUPPORTED = 801, "CUDA_ERROR_NOT_SUPPORTED";
    /// A service that the devices of this machine need, such as the one of its switches, does not run yet.
    SYSTEM_NOT_READY = 802, "CUDA_ERROR_SYSTEM_NOT_READY";
    /// The kernel's driver and its library are of different versions, as after an update without a restart.
    SYSTEM_DRIVER_MISMATCH = 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    /// A library for newer CUDA versions on older drivers was loaded, which the device does not support.
    COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE";
    /// The operation is not permitted while a stream is capturing.
    STREAM_CAPTURE_UNSUPPORTED = 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    /// The capture was invalidated by an earlier error.
    STREAM_CAPTURE_INVALIDATED = 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    /// The operation would merge two captures.
    STREAM_CAPTURE_MERGE = 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE";
    /// The capture was not begun on this stream.
    STREAM_CAPTURE_UNMATCHED = 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED";
    /// A stream that joined the capture was not joined back to its origin.
    STREAM_CAPTURE_UNJOINED = 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED";
    /// A dependency would cross the border of the capture.
    STREAM_CAPTURE_ISOLATION = 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION";
    /// An implicit dependency on the legacy stream would enter the capture.
    STREAM_CAPTURE_IMPLICIT = 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
    /// The event was recorded in a capture: it can't be queried or waited for outside.
    CAPTURED_EVENT = 907, "CUDA_ERROR_CAPTURED_EVENT";
    /// The capture was begun by another thread.
    STREAM_CAPTURE_WRONG_THREAD = 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD";
    /// An executable graph can't be updated that way.
    GRAPH_EXEC_UPDATE_FAILURE = 910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE";
    /// An unknown error.
    UNKNOWN = 999, "CUDA_ERROR_UNKNOWN";
}

impl ErrorCode {
    /// True for codes after which the context is dead: every later call returns the same one.
    #[must_use]
    pub const fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 220 | 700 | 702 | 710 | 714..=719)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} [{}]", self.0),
            None => write!(f, "CUDA error [{}]", self.0),
        }
    }
}

/// A driver call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct CudaError {
    /// The driver's code.
    pub code: ErrorCode,
    /// The call that returned it.
    pub call: Call,
    /// The device that the call was made for; `None` for calls that concern none.
    pub device: Option<DeviceId>,
}

impl CudaError {
    /// An error of `call` on `device`.
    #[must_use]
    pub const fn new(code: ErrorCode, call: Call, device: Option<DeviceId>) -> Self {
        Self { code, call, device }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {}", self.call, self.code)?;
        match self.device {
            Some(device) => write!(f, " on {device}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CudaError {}

/// What a part of the port answers that an implementation does not have.
pub(crate) const fn not_supported(call: Call, device: DeviceId) -> CudaError {
    CudaError::new(ErrorCode::NOT_SUPPORTED, call, Some(device))
}

/// The result of a driver call.
pub type CudaResult<T> = Result<T, CudaError>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sticky are 214, 220, 700, 702, 710 and 714 to 719; not 1, 2, 701 or 9xx.
    #[test]
    fn these_codes_end_a_context() {
        let sticky: Vec<u32> = (0..1000)
            .filter(|&code| ErrorCode(code).is_sticky())
            .collect();
        assert_eq!(
            sticky,
            [214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719]
        );
        assert!(sticky.iter().all(|&code| ErrorCode(code).name().is_some()));
    }

    #[test]
    fn codes_that_no_table_knows_keep_their_number() {
        assert_eq!(ErrorCode(4711).to_string(), "CUDA error [4711]");
    }
}
