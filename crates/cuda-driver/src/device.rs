//! Device discovery: how many there are and what they can do.

use crate::{CudaResult, DeviceId};

/// What a device is and can do; constant while the process lives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceProperties {
    /// The device's name, such as `NVIDIA H200`, or the simulated device's own.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// All of the device's memory, in bytes.
    pub memory_bytes: u64,
    /// Whether stream-ordered memory pools exist.
    pub memory_pools: bool,
    /// Largest block size, in threads.
    pub max_block_threads: u32,
    /// Shared memory a block has without asking for more, in bytes.
    pub shared_bytes_per_block: u32,
    /// Shared memory a block can have of a function that [asks for it](crate::Kernels::function_allow_shared), in bytes.
    pub shared_bytes_per_block_opt_in: u32,
    /// Least urgent and most urgent stream priority; smaller numbers are more urgent.
    pub priorities: (i32, i32),
}

impl DeviceProperties {
    /// Properties with the limits that every CUDA device has; set what differs.
    #[must_use]
    pub fn new(name: impl Into<String>, memory_bytes: u64) -> Self {
        Self {
            name: name.into(),
            compute_capability: (9, 0),
            multiprocessors: 1,
            memory_bytes,
            memory_pools: true,
            max_block_threads: 1024,
            shared_bytes_per_block: 48 * 1024,
            shared_bytes_per_block_opt_in: 48 * 1024,
            priorities: (0, 0),
        }
    }
}

/// Discovery and device-wide calls.
pub trait Devices {
    /// Number of devices; their ids are `0..count`.
    ///
    /// # Errors
    /// The driver's own, such as `NO_DEVICE`.
    fn device_count(&self) -> CudaResult<u32>;

    /// What a device is and can do.
    ///
    /// # Errors
    /// `INVALID_DEVICE` when there is no such device.
    fn device_properties(&self, device: DeviceId) -> CudaResult<DeviceProperties>;

    /// Free and total device memory, in bytes.
    ///
    /// # Errors
    /// The driver's own.
    fn memory_info(&self, device: DeviceId) -> CudaResult<(u64, u64)>;

    /// Whether `device` can reach the memory of `peer` directly.
    ///
    /// # Errors
    /// `INVALID_DEVICE` when there is no such device.
    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> CudaResult<bool>;

    /// Waits on the host for all work of a device. Illegal during any capture.
    ///
    /// # Errors
    /// Errors of the work waited for, and `STREAM_CAPTURE_UNSUPPORTED`.
    fn device_synchronize(&self, device: DeviceId) -> CudaResult<()>;

    /// Makes the context of a device current on this thread, for a library that works in whichever is. Not counted. Drivers
    /// without contexts have nothing to do.
    ///
    /// # Errors
    /// `INVALID_DEVICE` when there is no such device; the driver's own.
    fn make_current(&self, device: DeviceId) -> CudaResult<()> {
        let _ = device;
        Ok(())
    }
}
