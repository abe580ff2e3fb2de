//! Copies and fills.

use super::Hardware;
use super::calls::{
    cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, cuMemcpyHtoD_v2,
    cuMemcpyHtoDAsync_v2, cuMemcpyPeerAsync, cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async,
};
use super::share::stream_handle;
use crate::{Call, Copies, CudaError, CudaResult, DeviceId, DevicePtr, Pattern, RawStream};

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
}
