//! Copies and fills.

use super::Hardware;
use super::calls::{
    cuMemcpy2DAsync_v2, cuMemcpy3DPeerAsync, cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2,
    cuMemcpyDtoHAsync_v2, cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, cuMemcpyPeerAsync,
    cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async, cuMemsetD8Async, cuMemsetD16Async,
    cuMemsetD32Async,
};
use super::share::stream_handle;
use crate::{
    Call, Copies, CopyRows, CudaError, CudaResult, DeviceId, DevicePtr, ErrorCode, Pattern,
    RawStream,
};
use cust_raw::{CUDA_MEMCPY2D, CUDA_MEMCPY3D_PEER, CUcontext, CUmemorytype};
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
        let context = |of| self.context_for(Call::MemcpyPeerAsync, of);
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
        unsafe { self.copy_rows(device, shape, &copy, stream) }
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
        unsafe { self.copy_rows(device, shape, &copy, stream) }
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
        unsafe { self.copy_rows(device, shape, &copy, stream) }
    }

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
        let call = Call::Memcpy3DPeerAsync;
        self.check_pitches(device, call, shape)?;
        if shape.rows == 0 || shape.width_bytes == 0 {
            return Ok(());
        }
        let copy = CUDA_MEMCPY3D_PEER {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: null(),
            srcDevice: src.0,
            srcArray: null_mut(),
            srcContext: self.context_for(call, src_device)?,
            srcPitch: shape.src_pitch_bytes,
            srcHeight: shape.rows,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: null_mut(),
            dstDevice: dst.0,
            dstArray: null_mut(),
            dstContext: self.context_for(call, dst_device)?,
            dstPitch: shape.dst_pitch_bytes,
            dstHeight: shape.rows,
            WidthInBytes: shape.width_bytes,
            Height: shape.rows,
            Depth: 1,
        };
        // SAFETY: the caller's promise for all rows; the description is ours, and contexts live to the end of the process.
        self.call(call, device, || unsafe {
            cuMemcpy3DPeerAsync(&copy, stream_handle(stream))
        })
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
        shape: CopyRows,
        copy: &CUDA_MEMCPY2D,
        stream: RawStream,
    ) -> CudaResult<()> {
        self.check_pitches(device, Call::Memcpy2DAsync, shape)?;
        // SAFETY: the caller's promise; the description is ours.
        self.call(Call::Memcpy2DAsync, device, || unsafe {
            cuMemcpy2DAsync_v2(copy, stream_handle(stream))
        })
    }

    /// A pitch of zero would mean to the driver that rows follow one another.
    fn check_pitches(&self, device: DeviceId, call: Call, shape: CopyRows) -> CudaResult<()> {
        if shape.src_pitch_bytes < shape.width_bytes || shape.dst_pitch_bytes < shape.width_bytes {
            self.counters.record(call);
            return Err(CudaError::new(ErrorCode::INVALID_VALUE, call, Some(device)));
        }
        Ok(())
    }

    /// The context of a device that a call names.
    fn context_for(&self, call: Call, device: DeviceId) -> CudaResult<CUcontext> {
        let error = |code| CudaError::new(code, call, Some(device));
        self.process.context(device).map_err(error)
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
