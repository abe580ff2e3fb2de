//! What the runtime reports.

use cuda_driver::{CudaError, DeviceId, ErrorCode};
use std::panic::Location;

/// An error of the runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// A driver call failed.
    #[error(transparent)]
    Driver(#[from] CudaError),

    /// There is an NVIDIA driver, and it can't be used: it is too old, or refuses.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Hardware(#[from] cuda_driver::hardware::OpenError),

    /// The device can't be used any more: an earlier failure left its state unknown.
    #[error("{device} is poisoned since {origin}: {first}; end the process or use another device")]
    Poisoned {
        /// The device.
        device: DeviceId,
        /// The first error.
        first: CudaError,
        /// Where the operation that failed was asked for.
        origin: &'static Location<'static>,
    },

    /// A child process used what its parent had opened: a device can't be taken along by `fork`.
    #[error(
        "the runtime was opened by process {created_pid}, and this is its child {current_pid}: open one here, before the parent has used the driver"
    )]
    Forked {
        /// The process that opened the runtime.
        created_pid: u32,
        /// This process.
        current_pid: u32,
    },

    /// The device has no memory left for this request, also after pending frees were waited for.
    #[error(
        "{device} is out of memory: {wanted_bytes} bytes wanted, {free_bytes} of {total_bytes} bytes free"
    )]
    OutOfMemory {
        /// The device.
        device: DeviceId,
        /// Bytes asked for.
        wanted_bytes: usize,
        /// Bytes the device reports free.
        free_bytes: u64,
        /// Bytes the device has.
        total_bytes: u64,
    },

    /// No more host memory can be page-locked, also after pending frees were waited for and what the device had kept went back.
    #[error(
        "{bytes} bytes of host memory can't be page-locked for {device}: free memory, or page-locked memory that other parts of the program hold"
    )]
    HostOutOfMemory {
        /// The device.
        device: DeviceId,
        /// Bytes asked for.
        bytes: usize,
    },

    /// All streams of the pool are leased or busy.
    #[error(
        "no idle stream on {device}: {leased} of {size} are leased, {pending} still have work; drop a lease, or wait with `acquire`"
    )]
    PoolEmpty {
        /// The device.
        device: DeviceId,
        /// Streams of the pool.
        size: usize,
        /// Streams that are leased.
        leased: usize,
        /// Streams that were returned and still have work.
        pending: usize,
    },

    /// A pool of `size` streams can never lease `wanted` of them at once.
    #[error("{wanted} streams were asked for at once, but the pool of {device} has {size}")]
    PoolTooSmall {
        /// The device.
        device: DeviceId,
        /// Streams asked for.
        wanted: usize,
        /// Streams of the pool.
        size: usize,
    },

    /// A wait for one of no completions would never end.
    #[error("there is nothing to wait for: no completion was given")]
    NothingToWaitFor,

    /// There is no such device.
    #[error("{device} does not exist: {count} found")]
    NoSuchDevice {
        /// The device asked for.
        device: DeviceId,
        /// Number of devices.
        count: u32,
    },

    /// An object of one device was used where another device's is due.
    #[error("an object of {given} was used on {expected}")]
    WrongDevice {
        /// The device of the operation.
        expected: DeviceId,
        /// The device of the object.
        given: DeviceId,
    },

    /// Two runtimes have the same device, and an object of one was used with a stream of the other.
    #[error(
        "an object of one runtime was used on {device} of another: use objects of one runtime together"
    )]
    WrongRuntime {
        /// The device.
        device: DeviceId,
    },

    /// An object of one driver was to be used on another one's device.
    #[error("an object of {given} of another driver can't be used on {device}")]
    WrongDriver {
        /// The device of the use.
        device: DeviceId,
        /// The device of the object, of another driver.
        given: DeviceId,
    },

    /// A capture is open on this thread, and this can't be part of one.
    #[error("{what} is not possible while this thread captures: do it before the capture begins")]
    CaptureActive {
        /// What was refused.
        what: &'static str,
    },

    /// The stream belongs to a capture of another thread.
    #[error("the stream is captured by another thread: use it there, or lease another stream")]
    CaptureWrongThread,

    /// A completion from outside a capture was to be waited for inside, or the reverse.
    #[error(
        "a completion recorded {recorded} can't be waited for {waited}: order the graph's launch instead"
    )]
    CaptureIsolation {
        /// Where the completion was recorded.
        recorded: &'static str,
        /// Where the wait was asked for.
        waited: &'static str,
    },

    /// No capture is open where one is needed.
    #[error("no capture is open on this stream")]
    NotCapturing,

    /// The kernel was never launched on this device, whose driver can load it in no other way, and a capture forbids that.
    #[error(
        "kernel {kernel} was never launched on {device}, and a driver before CUDA 12.4 loads it then: run the step once \
         before capturing it, or start the program with CUDA_MODULE_LOADING=EAGER"
    )]
    ColdKernel {
        /// The kernel.
        kernel: &'static str,
        /// The device.
        device: DeviceId,
    },

    /// A module's image lacks a kernel that the module declares.
    #[error("module {module} declares kernel {kernel}, and its image has none of this name")]
    MissingKernel {
        /// The module.
        module: &'static str,
        /// The kernel.
        kernel: &'static str,
    },

    /// A library that works on the device failed in a capture, whose end returns this.
    #[error("{function} of {library} returned status {status}")]
    Library {
        /// The library.
        library: &'static str,
        /// Its function.
        function: &'static str,
        /// The status that it returned.
        status: i32,
    },

    /// A module has no kernel of this name.
    #[error("module {module} declares no kernel {kernel}")]
    NoSuchKernel {
        /// The module.
        module: &'static str,
        /// The name asked for.
        kernel: &'static str,
    },

    /// A builder named a device twice.
    #[error("{device} was named twice: a runtime has each device once")]
    DeviceTwice {
        /// The device.
        device: DeviceId,
    },

    /// A builder asked for streams of a priority that the device does not have.
    #[error(
        "{device} has stream priorities from {least}, the least urgent, to {most}: {priority} is none of them"
    )]
    BadPriority {
        /// The device.
        device: DeviceId,
        /// The priority asked for.
        priority: i32,
        /// The least urgent priority.
        least: i32,
        /// The most urgent one.
        most: i32,
    },

    /// A builder was asked twice for streams of one priority; those of usual priority have a setting of their own.
    #[error(
        "streams of priority {priority} were asked for twice; `streams_per_device` sets the number of those of priority 0"
    )]
    PriorityTwice {
        /// The priority.
        priority: i32,
    },

    /// The runtime was built without streams of this priority.
    #[error("{device} has no streams of priority {priority}: ask the runtime's builder for some")]
    NoSuchPriority {
        /// The device.
        device: DeviceId,
        /// The priority asked for.
        priority: i32,
    },

    /// A builder was given a value that can't work.
    #[error("{what} can't be {value}")]
    BadSetting {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: usize,
    },

    /// A thread could not be started.
    #[error("a thread that {purpose} could not be started: {reason}")]
    NoThread {
        /// What it was to do, such as "wakes who waits".
        purpose: &'static str,
        /// The system's reason.
        reason: String,
    },
}

impl RuntimeError {
    /// There is no thread that does this.
    pub(crate) fn no_thread(purpose: &'static str, error: &std::io::Error) -> Self {
        Self::NoThread {
            purpose,
            reason: error.to_string(),
        }
    }

    /// The driver's code, where a driver call is the cause.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Driver(error) | Self::Poisoned { first: error, .. } => Some(error.code),
            _ => None,
        }
    }
}

/// The result of a runtime operation.
pub type RuntimeResult<T> = Result<T, RuntimeError>;
