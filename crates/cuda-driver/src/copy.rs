//! Copies and fills.

use crate::error::not_supported;
use crate::{Call, CudaResult, DeviceId, DevicePtr, RawStream};

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

/// Rows of bytes in two places, in each of them at a distance of its own.
///
/// No pitch is smaller than a row, also where there is one row only, nor larger than 2^31 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRows {
    /// Bytes of one row.
    pub width_bytes: usize,
    /// Number of rows.
    pub rows: usize,
    /// Distance between the starts of two rows at the destination, in bytes.
    pub dst_pitch_bytes: usize,
    /// Distance between the starts of two rows at the source, in bytes.
    pub src_pitch_bytes: usize,
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

    /// Queues a copy of rows from host to device. Bytes between the rows are not touched; no rows, or rows of no bytes,
    /// are nothing to do.
    ///
    /// # Errors
    /// `INVALID_VALUE` when a pitch is smaller than a row or larger than 2^31 - 1; `NOT_SUPPORTED` unless implemented.
    ///
    /// # Safety
    /// As for [`copy_to_device_async`](Copies::copy_to_device_async), row by row.
    unsafe fn copy_rows_to_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: *const u8,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        let _ = (dst, src, shape, stream);
        Err(not_supported(Call::Memcpy2DAsync, device))
    }

    /// Queues a copy of rows from device to host, as [`copy_rows_to_device_async`](Copies::copy_rows_to_device_async).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As for [`copy_to_host_async`](Copies::copy_to_host_async), row by row.
    unsafe fn copy_rows_to_host_async(
        &self,
        device: DeviceId,
        dst: *mut u8,
        src: DevicePtr,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        let _ = (dst, src, shape, stream);
        Err(not_supported(Call::Memcpy2DAsync, device))
    }

    /// Queues a copy of rows within a device, as [`copy_rows_to_device_async`](Copies::copy_rows_to_device_async).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As for [`copy_device_async`](Copies::copy_device_async), row by row.
    unsafe fn copy_rows_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: DevicePtr,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        let _ = (dst, src, shape, stream);
        Err(not_supported(Call::Memcpy2DAsync, device))
    }

    /// Queues a copy of rows between devices on a stream of `device`, as
    /// [`copy_rows_to_device_async`](Copies::copy_rows_to_device_async).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As for [`copy_peer_async`](Copies::copy_peer_async), row by row.
    #[expect(clippy::too_many_arguments, reason = "as for whole ranges")]
    unsafe fn copy_rows_peer_async(
        &self,
        device: DeviceId,
        dst_device: DeviceId,
        dst: DevicePtr,
        src_device: DeviceId,
        src: DevicePtr,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        let _ = (dst_device, dst, src_device, src, shape, stream);
        Err(not_supported(Call::Memcpy3DPeerAsync, device))
    }

    /// Queues a fill of `rows` rows of `width` patterns, whose starts are `pitch_bytes` bytes apart. Bytes between the
    /// rows are not touched; no rows, or rows of no patterns, are nothing to do.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the address or the pitch is not a multiple of the pattern's size, or when the pitch is smaller
    /// than a row or larger than 2^31 - 1; `NOT_SUPPORTED` unless implemented.
    ///
    /// # Safety
    /// The rows are allocated at that point of the stream, and the fill is ordered with other uses of them.
    #[expect(clippy::too_many_arguments, reason = "the driver's own signature")]
    unsafe fn fill_rows_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        pitch_bytes: usize,
        pattern: Pattern,
        width: usize,
        rows: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        let _ = (dst, pitch_bytes, width, rows, stream);
        let call = match pattern {
            Pattern::U8(_) => Call::MemsetD2D8Async,
            Pattern::U16(_) => Call::MemsetD2D16Async,
            Pattern::U32(_) => Call::MemsetD2D32Async,
        };
        Err(not_supported(call, device))
    }
}
