//! Memory of the device and page-locked memory of the host.

use crate::error::not_supported;
use crate::{Call, CudaResult, DeviceId, DevicePtr, RawPool, RawStream};
use std::ptr::NonNull;

/// Bytes a pool holds from the system, and bytes of them that are in use; now and at the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// Bytes taken from the system.
    pub reserved_bytes: u64,
    /// Highest `reserved_bytes` so far.
    pub reserved_high_bytes: u64,
    /// Bytes allocated to users.
    pub used_bytes: u64,
    /// Highest `used_bytes` so far.
    pub used_high_bytes: u64,
}

/// Allocation. Zero-byte requests fail with `INVALID_VALUE`: send none.
pub trait Memory {
    /// Device memory, aligned to at least 256 bytes. May synchronise the device; don't rely on it.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, `INVALID_VALUE` for zero bytes; forbidden in a capture.
    fn mem_alloc(&self, device: DeviceId, bytes: usize) -> CudaResult<DevicePtr>;

    /// Frees memory of [`mem_alloc`](Memory::mem_alloc) or, without order, of a pool.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the address is not the base of a live allocation; forbidden in a capture.
    ///
    /// # Safety
    /// No work queued or running touches the memory, and none will.
    unsafe fn mem_free(&self, device: DeviceId, address: DevicePtr) -> CudaResult<()>;

    /// A pool of memory of `device` with a release threshold: bytes it keeps at a synchronisation.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` on devices without pools.
    fn pool_create(&self, device: DeviceId, release_threshold_bytes: u64) -> CudaResult<RawPool>;

    /// Destroys a pool. Its memory returns to the system when the last allocation from it is freed.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the handle names no pool.
    ///
    /// # Safety
    /// Nobody uses the handle afterwards.
    unsafe fn pool_destroy(&self, device: DeviceId, pool: RawPool) -> CudaResult<()>;

    /// Returns unused memory above `keep_bytes` to the system.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the handle names no pool.
    fn pool_trim(&self, device: DeviceId, pool: RawPool, keep_bytes: u64) -> CudaResult<()>;

    /// What the pool holds and gave out.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the handle names no pool.
    fn pool_usage(&self, device: DeviceId, pool: RawPool) -> CudaResult<PoolUsage>;

    /// Lets kernels and copies of `peer` reach the pool's memory.
    ///
    /// # Errors
    /// `PEER_ACCESS_UNSUPPORTED` when the devices can't.
    fn pool_set_access(&self, device: DeviceId, pool: RawPool, peer: DeviceId) -> CudaResult<()>;

    /// Memory from a pool, valid for work ordered after this point of `stream`.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, `INVALID_VALUE` for zero bytes.
    fn mem_alloc_async(
        &self,
        device: DeviceId,
        pool: RawPool,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<DevicePtr>;

    /// Gives pool memory back once earlier work of `stream` is done.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the address is not the base of a live allocation, or in a capture that did not allocate it.
    ///
    /// # Safety
    /// Work that touches the memory is ordered before this point of `stream`.
    unsafe fn mem_free_async(
        &self,
        device: DeviceId,
        address: DevicePtr,
        stream: RawStream,
    ) -> CudaResult<()>;

    /// Page-locked host memory.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, `INVALID_VALUE` for zero bytes.
    fn host_alloc(&self, device: DeviceId, bytes: usize) -> CudaResult<NonNull<u8>>;

    /// Frees page-locked host memory.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the address is not one that [`host_alloc`](Memory::host_alloc) returned.
    ///
    /// # Safety
    /// No copy queued or running touches the memory, nor does the host afterwards.
    unsafe fn host_free(&self, device: DeviceId, address: NonNull<u8>) -> CudaResult<()>;

    /// Page-locks host memory that the caller owns, for every device. Its contents and its owner stay.
    ///
    /// # Errors
    /// `INVALID_VALUE` for zero bytes; `HOST_MEMORY_ALREADY_REGISTERED` when some of it is page-locked already;
    /// `OUT_OF_MEMORY`; `NOT_SUPPORTED` unless implemented; forbidden in a capture.
    ///
    /// # Safety
    /// The memory is readable and writable, and stays so until it is unregistered.
    unsafe fn host_register(
        &self,
        device: DeviceId,
        address: NonNull<u8>,
        bytes: usize,
    ) -> CudaResult<()> {
        let _ = (address, bytes);
        Err(not_supported(Call::MemHostRegister, device))
    }

    /// Ends what [`host_register`](Memory::host_register) of this address began. The memory is its owner's alone again.
    ///
    /// # Errors
    /// `HOST_MEMORY_NOT_REGISTERED` when no registered memory starts there; `NOT_SUPPORTED` unless implemented; forbidden in
    /// a capture.
    ///
    /// # Safety
    /// No copy queued or running touches the memory.
    unsafe fn host_unregister(&self, device: DeviceId, address: NonNull<u8>) -> CudaResult<()> {
        let _ = address;
        Err(not_supported(Call::MemHostUnregister, device))
    }
}
