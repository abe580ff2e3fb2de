//! Copies and fills.

use crate::{CudaResult, DeviceId, DevicePtr, RawStream};

/// The value that a fill repeats. The address must be a multiple of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One byte.
    U8(u8),
    /// Two bytes.
    U16(u16),
    /// Four bytes.
    U32(u32),
}

impl Pattern {
    /// Size of the pattern, in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8(_) => 1,
            Self::U16(_) => 2,
            Self::U32(_) => 4,
        }
    }
}

/// Copies and fills. Counts are in bytes but for fills, which count patterns.
///
/// An asynchronous copy is truly asynchronous only with page-locked host memory. With pageable memory it may be
/// staged or synchronous; don't build on when it returns.
pub trait Copies {
    /// Copies from host to device and returns once the host memory has been read. Orders with the legacy stream
    /// only: wait for the work that uses the destination first. The last of the transfer may still be under way
    /// on the legacy stream for pageable memory.
    ///
    /// # Errors
    /// The driver's own; forbidden in a capture.
    ///
    /// # Safety
    /// `src` is readable for `bytes`; no unfinished work touches the destination, which is allocated.
    unsafe fn copy_to_device(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
    ) -> CudaResult<()>;

    /// Copies from device to host and returns when it is done.
    ///
    /// # Errors
    /// The driver's own; forbidden in a capture.
    ///
    /// # Safety
    /// `dst` is writable for `bytes`; no unfinished work writes the source, which is allocated.
    unsafe fn copy_to_host(
        &self,
        device: DeviceId,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
    ) -> CudaResult<()>;

    /// Queues a copy from host to device.
    ///
    /// # Errors
    /// The driver's own.
    ///
    /// # Safety
    /// `src` stays readable and unchanged until the copy has completed (and, in a capture, while the graph can be
    /// launched). The destination is allocated at that point of the stream, and the copy is ordered with other uses.
    unsafe fn copy_to_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()>;

    /// Queues a copy from device to host.
    ///
    /// # Errors
    /// The driver's own.
    ///
    /// # Safety
    /// `dst` stays writable and untouched until the copy has completed (and, in a capture, during every replay).
    /// The source is allocated at that point of the stream, and the copy is ordered with other uses.
    unsafe fn copy_to_host_async(
        &self,
        device: DeviceId,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()>;

    /// Queues a copy within a device.
    ///
    /// # Errors
    /// The driver's own.
    ///
    /// # Safety
    /// Both ranges are allocated at that point of the stream and don't overlap; the copy is ordered with other uses.
    unsafe fn copy_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()>;

    /// Queues a copy between devices on a stream of `device`.
    ///
    /// # Errors
    /// The driver's own.
    ///
    /// # Safety
    /// As for [`copy_device_async`](Copies::copy_device_async), with each range allocated on its own device.
    #[expect(clippy::too_many_arguments, reason = "the driver's own signature")]
    unsafe fn copy_peer_async(
        &self,
        device: DeviceId,
        dst_device: DeviceId,
        dst: DevicePtr,
        src_device: DeviceId,
        src: DevicePtr,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()>;

    /// Queues a fill of `count` patterns.
    ///
    /// # Errors
    /// The driver's own; `INVALID_VALUE` when the address is not aligned to the pattern.
    ///
    /// # Safety
    /// The range is allocated at that point of the stream, and the fill is ordered with other uses.
    unsafe fn fill_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        pattern: Pattern,
        count: usize,
        stream: RawStream,
    ) -> CudaResult<()>;
}
