//! Copies and fills.

use super::Hardware;
use super::calls::{
    cuMemcpy2DAsync_v2, cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2,
    cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, cuMemcpyPeerAsync, cuMemsetD2D8Async,
    cuMemsetD2D16Async, cuMemsetD2D32Async, cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async,
};
use super::share::stream_handle;
use crate::{
    Call, Copies, CopyRows, CudaError, CudaResult, DeviceId, DevicePtr, ErrorCode, Pattern,
    RawStream,
};
use cust_raw::{CUDA_MEMCPY2D, CUmemorytype};
use std::ptr::{null, null_mut};

impl Copies for Hardware {
    unsafe fn copy_to_device(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
    ) -> CudaResult<()> {
        // SAFETY: the caller's promise for both ranges.
        self.call_in_context(Call::MemcpyHtoD, device, || unsafe {
            cuMemcpyHtoD_v2(dst.0, src.cast(), bytes)
        })
    }

    unsafe fn copy_to_host(
        &self,
        device: DeviceId,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
    ) -> CudaResult<()> {
        // SAFETY: the caller's promise for both ranges.
        self.call_in_context(Call::MemcpyDtoH, device, || unsafe {
            cuMemcpyDtoH_v2(dst.cast(), src.0, bytes)
        })
    }

    unsafe fn copy_to_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        // SAFETY: the caller's promise for both ranges until the copy is done.
        self.call(Call::MemcpyHtoDAsync, device, || unsafe {
            cuMemcpyHtoDAsync_v2(dst.0, src.cast(), bytes, stream_handle(stream))
        })
    }

    unsafe fn copy_to_host_async(
        &self,
        device: DeviceId,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        // SAFETY: the caller's promise for both ranges until the copy is done.
        self.call(Call::MemcpyDtoHAsync, device, || unsafe {
            cuMemcpyDtoHAsync_v2(dst.cast(), src.0, bytes, stream_handle(stream))
        })
    }

    unsafe fn copy_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        // SAFETY: the caller's promise for both ranges.
        self.call(Call::MemcpyDtoDAsync, device, || unsafe {
            cuMemcpyDtoDAsync_v2(dst.0, src.0, bytes, stream_handle(stream))
        })
    }

    unsafe fn copy_peer_async(
        &self,
        device: DeviceId,
        dst_device: DeviceId,
        dst: DevicePtr,
        src_device: DeviceId,
        src: DevicePtr,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        let context = |of| {
            let error = |code| CudaError::new(code, Call::MemcpyPeerAsync, Some(of));
            self.process.context(of).map_err(error)
        };
        let (to, from) = (context(dst_device)?, context(src_device)?);
        // SAFETY: the caller's promise for both ranges; contexts live to the end of the process.
        self.call(Call::MemcpyPeerAsync, device, || unsafe {
            cuMemcpyPeerAsync(dst.0, to, src.0, from, bytes, stream_handle(stream))
        })
    }

    unsafe fn fill_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        pattern: Pattern,
        count: usize,
        stream: RawStream,
    ) -> CudaResult<()> {
        let stream = stream_handle(stream);
        match pattern {
            // SAFETY: the caller's promise for the range.
            Pattern::U8(value) => self.call(Call::MemsetD8Async, device, || unsafe {
                cuMemsetD8Async(dst.0, value, count, stream)
            }),
            // SAFETY: as above.
            Pattern::U16(value) => self.call(Call::MemsetD16Async, device, || unsafe {
                cuMemsetD16Async(dst.0, value, count, stream)
            }),
            // SAFETY: as above.
            Pattern::U32(value) => self.call(Call::MemsetD32Async, device, || unsafe {
                cuMemsetD32Async(dst.0, value, count, stream)
            }),
        }
    }

    unsafe fn copy_rows_to_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: *const u8,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: src.cast(),
            dstDevice: dst.0,
            ..rows(shape)
        };
        // SAFETY: the caller's promise for all rows until the copy is done.
        unsafe { self.copy_rows(device, &copy, stream) }
    }

    unsafe fn copy_rows_to_host_async(
        &self,
        device: DeviceId,
        dst: *mut u8,
        src: DevicePtr,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        let copy = CUDA_MEMCPY2D {
            srcDevice: src.0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: dst.cast(),
            ..rows(shape)
        };
        // SAFETY: the caller's promise for all rows until the copy is done.
        unsafe { self.copy_rows(device, &copy, stream) }
    }

    unsafe fn copy_rows_device_async(
        &self,
        device: DeviceId,
        dst: DevicePtr,
        src: DevicePtr,
        shape: CopyRows,
        stream: RawStream,
    ) -> CudaResult<()> {
        let copy = CUDA_MEMCPY2D {
            srcDevice: src.0,
            dstDevice: dst.0,
            ..rows(shape)
        };
        // SAFETY: the caller's promise for all rows.
        unsafe { self.copy_rows(device, &copy, stream) }
    }

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
        let stream = stream_handle(stream);
        match pattern {
            // SAFETY: the caller's promise for all rows.
            Pattern::U8(value) => self.call(Call::MemsetD2D8Async, device, || unsafe {
                cuMemsetD2D8Async(dst.0, pitch_bytes, value, width, rows, stream)
            }),
            // SAFETY: as above.
            Pattern::U16(value) => self.call(Call::MemsetD2D16Async, device, || unsafe {
                cuMemsetD2D16Async(dst.0, pitch_bytes, value, width, rows, stream)
            }),
            // SAFETY: as above.
            Pattern::U32(value) => self.call(Call::MemsetD2D32Async, device, || unsafe {
                cuMemsetD2D32Async(dst.0, pitch_bytes, value, width, rows, stream)
            }),
        }
    }
}

impl Hardware {
    /// Queues a copy of rows; none are nothing to do, and a pitch that is too small is refused before the driver sees it.
    ///
    /// # Safety
    /// As for the methods that call it.
    unsafe fn copy_rows(
        &self,
        device: DeviceId,
        copy: &CUDA_MEMCPY2D,
        stream: RawStream,
    ) -> CudaResult<()> {
        // A pitch of zero would mean to the driver that rows follow one another.
        if copy.srcPitch < copy.WidthInBytes || copy.dstPitch < copy.WidthInBytes {
            let call = Call::Memcpy2DAsync;
            self.counters.record(call);
            return Err(CudaError::new(ErrorCode::INVALID_VALUE, call, Some(device)));
        }
        // SAFETY: the caller's promise; the description is ours.
        self.call(Call::Memcpy2DAsync, device, || unsafe {
            cuMemcpy2DAsync_v2(copy, stream_handle(stream))
        })
    }
}

/// Rows from device to device, of addresses that are to be filled in.
fn rows(shape: CopyRows) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: null(),
        srcDevice: 0,
        srcArray: null_mut(),
        srcPitch: shape.src_pitch_bytes,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: null_mut(),
        dstDevice: 0,
        dstArray: null_mut(),
        dstPitch: shape.dst_pitch_bytes,
        WidthInBytes: shape.width_bytes,
        Height: shape.rows,
    }
}
