//! Copies and fills.

use crate::context::{Context, Here, here};
use crate::export::exports;
use crate::legacy::code;
use crate::memory::is_pinned;
use crate::types::{
    CUDA_MEMCPY2D_st, CUDA_MEMCPY3D_PEER_st, CUcontext, CUdeviceptr, CUstream, In, Out,
};
use cuda_driver::{CaptureStatus, CopyRows, CudaError, DevicePtr, ErrorCode, Pattern, RawStream};
use std::ffi::{c_uchar, c_uint, c_ushort, c_void};
use std::ptr::null_mut;

const HOST: u32 = 1;
const DEVICE: u32 = 2;

fn fill(
    stream: CUstream,
    dst: CUdeviceptr,
    pattern: Pattern,
    count: usize,
) -> Result<(), ErrorCode> {
    let here = here()?;
    let (driver, device) = (here.driver(), here.device());
    here.on_stream(stream, |stream| {
        // SAFETY: the program's promise, as to a driver; the simulation checks it.
        unsafe { driver.fill_async(device, DevicePtr(dst), pattern, count, stream) }
    })
}

/// An asynchronous copy of pageable memory has used that memory when the call returns: programs may free it.
fn finish_if_pageable(
    here: &Here,
    stream: RawStream,
    host: *const u8,
    bytes: usize,
) -> Result<(), CudaError> {
    let (driver, device) = (here.driver(), here.device());
    let captures = driver.capture_status(device, stream)? != CaptureStatus::None;
    match captures || is_pinned(host, bytes) {
        true => Ok(()),
        false => driver.stream_synchronize(device, stream),
    }
}

/// The place of a fill of rows, as the driver's functions have it.
struct Rows {
    dst: CUdeviceptr,
    pitch: usize,
    width: usize,
    rows: usize,
}

fn fill_rows(stream: CUstream, to: &Rows, pattern: Pattern) -> Result<(), ErrorCode> {
    let here = here()?;
    let (driver, device) = (here.driver(), here.device());
    here.on_stream(stream, |stream| {
        let dst = DevicePtr(to.dst);
        // SAFETY: the program's promise, as to a driver; the simulation checks it.
        unsafe { driver.fill_rows_async(device, dst, to.pitch, pattern, to.width, to.rows, stream) }
    })
}

/// How far from an address rows begin.
fn offset(x: usize, y: usize, pitch: usize) -> Result<usize, ErrorCode> {
    let bytes = y.checked_mul(pitch).and_then(|bytes| bytes.checked_add(x));
    bytes.ok_or(ErrorCode::INVALID_VALUE)
}

/// Rows follow one another where no pitch is given.
fn shape(width_bytes: usize, rows: usize, dst_pitch: usize, src_pitch: usize) -> CopyRows {
    let pitch = |given| if given == 0 { width_bytes } else { given };
    CopyRows {
        width_bytes,
        rows,
        dst_pitch_bytes: pitch(dst_pitch),
        src_pitch_bytes: pitch(src_pitch),
    }
}

/// One plane of rows from one device to another; more are not emulated.
fn copy_rows_to_peer(copy: &CUDA_MEMCPY3D_PEER_st, stream: CUstream) -> Result<(), ErrorCode> {
    let here = here()?;
    let to_device = Context::from_handle(copy.dstContext)?.device;
    let from_device = Context::from_handle(copy.srcContext)?.device;
    let devices = (copy.srcMemoryType.0, copy.dstMemoryType.0) == (DEVICE, DEVICE);
    if copy.Depth != 1 || copy.srcLOD != 0 || copy.dstLOD != 0 || !devices {
        return Err(ErrorCode::NOT_SUPPORTED);
    }
    let shape = shape(copy.WidthInBytes, copy.Height, copy.dstPitch, copy.srcPitch);
    let row = |z, height, y| offset(y, z, height);
    let to = row(copy.dstZ, copy.dstHeight, copy.dstY)?;
    let to = offset(copy.dstXInBytes, to, shape.dst_pitch_bytes)?;
    let from = row(copy.srcZ, copy.srcHeight, copy.srcY)?;
    let from = offset(copy.srcXInBytes, from, shape.src_pitch_bytes)?;
    let (driver, device) = (here.driver(), here.device());
    let dst = DevicePtr(copy.dstDevice + to as u64);
    let src = DevicePtr(copy.srcDevice + from as u64);
    here.on_stream(stream, |stream| {
        // SAFETY: the program's promise, as to a driver; the simulation checks it.
        unsafe {
            driver.copy_rows_peer_async(device, to_device, dst, from_device, src, shape, stream)
        }
    })
}

fn copy_rows(here: &Here, copy: &CUDA_MEMCPY2D_st, stream: CUstream) -> Result<(), ErrorCode> {
    let shape = shape(copy.WidthInBytes, copy.Height, copy.dstPitch, copy.srcPitch);
    let to = offset(copy.dstXInBytes, copy.dstY, shape.dst_pitch_bytes)?;
    let from = offset(copy.srcXInBytes, copy.srcY, shape.src_pitch_bytes)?;
    let (driver, device) = (here.driver(), here.device());
    let (dst, src) = (copy.dstDevice + to as u64, copy.srcDevice + from as u64);
    let (dst, src) = (DevicePtr(dst), DevicePtr(src));
    let dst_host = copy.dstHost.cast::<u8>().wrapping_add(to);
    let src_host = copy.srcHost.cast::<u8>().wrapping_add(from);
    here.on_stream(stream, |stream| {
        match (copy.srcMemoryType.0, copy.dstMemoryType.0) {
            // SAFETY: the program's promise, as to a driver.
            (HOST, DEVICE) => unsafe {
                driver.copy_rows_to_device_async(device, dst, src_host, shape, stream)
            },
            // SAFETY: as above.
            (DEVICE, HOST) => unsafe {
                driver.copy_rows_to_host_async(device, dst_host, src, shape, stream)
            },
            // SAFETY: as above.
            (DEVICE, DEVICE) => unsafe {
                driver.copy_rows_device_async(device, dst, src, shape, stream)
            },
            _ => Err(CudaError::new(
                ErrorCode::NOT_SUPPORTED,
                cuda_driver::Call::Memcpy2DAsync,
                Some(device),
            )),
        }
    })
}

exports! {
    cust_raw copies_table;

    fn cuMemcpyHtoD_v2(dstDevice: CUdeviceptr, srcHost: In<c_void>, ByteCount: usize)
    null { Ok(()) } and {
        let here = here()?;
        here.synchronise_legacy()?;
        // SAFETY: the program's promise, as to a driver.
        unsafe {
            here.driver().copy_to_device(
                here.device(), DevicePtr(dstDevice), srcHost.as_ptr(), ByteCount,
            )
        }
        .map_err(code)
    }

    fn cuMemcpyDtoH_v2(dstHost: Out<c_void>, srcDevice: CUdeviceptr, ByteCount: usize)
    null { Ok(()) } and {
        let here = here()?;
        here.synchronise_legacy()?;
        // SAFETY: the program's promise, as to a driver.
        unsafe {
            here.driver().copy_to_host(
                here.device(), dstHost.as_mut_ptr(), DevicePtr(srcDevice), ByteCount,
            )
        }
        .map_err(code)
    }

    fn cuMemcpyDtoD_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize)
    null { Ok(()) } and {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(null_mut(), |stream| {
            let (dst, src) = (DevicePtr(dstDevice), DevicePtr(srcDevice));
            // SAFETY: the program's promise, as to a driver; the simulation checks it.
            unsafe { driver.copy_device_async(device, dst, src, ByteCount, stream) }
        })
    }

    fn cuMemcpyHtoDAsync_v2(
        dstDevice: CUdeviceptr,
        srcHost: In<c_void>,
        ByteCount: usize,
        hStream: CUstream,
    ) null { Ok(()) } and {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        let (dst, src) = (DevicePtr(dstDevice), srcHost.as_ptr());
        here.on_stream(hStream, |stream| {
            // SAFETY: the program's promise, as to a driver.
            unsafe { driver.copy_to_device_async(device, dst, src, ByteCount, stream) }?;
            finish_if_pageable(&here, stream, src, ByteCount)
        })
    }

    fn cuMemcpyDtoHAsync_v2(
        dstHost: Out<c_void>,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) null { Ok(()) } and {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        let (dst, src) = (dstHost.as_mut_ptr(), DevicePtr(srcDevice));
        here.on_stream(hStream, |stream| {
            // SAFETY: the program's promise, as to a driver.
            unsafe { driver.copy_to_host_async(device, dst, src, ByteCount, stream) }?;
            finish_if_pageable(&here, stream, dst, ByteCount)
        })
    }

    fn cuMemcpyDtoDAsync_v2(
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) null { Ok(()) } and {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| {
            let (dst, src) = (DevicePtr(dstDevice), DevicePtr(srcDevice));
            // SAFETY: the program's promise, as to a driver; the simulation checks it.
            unsafe { driver.copy_device_async(device, dst, src, ByteCount, stream) }
        })
    }

    fn cuMemcpyPeerAsync(
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
        hStream: CUstream,
    ) null { Ok(()) } and {
        let here = here()?;
        let to = Context::from_handle(dstContext)?.device;
        let from = Context::from_handle(srcContext)?.device;
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| {
            let (dst, src) = (DevicePtr(dstDevice), DevicePtr(srcDevice));
            // SAFETY: the program's promise, as to a driver; the simulation checks it.
            unsafe { driver.copy_peer_async(device, to, dst, from, src, ByteCount, stream) }
        })
    }

    fn cuMemcpy2D_v2(pCopy: In<CUDA_MEMCPY2D_st>) null { Ok(()) } and {
        let here = here()?;
        copy_rows(&here, &pCopy.get()?, null_mut())?;
        here.synchronise_legacy()
    }

    fn cuMemcpy2DAsync_v2(pCopy: In<CUDA_MEMCPY2D_st>, hStream: CUstream) null { Ok(()) } and {
        copy_rows(&here()?, &pCopy.get()?, hStream)
    }

    fn cuMemcpy3DPeerAsync(pCopy: In<CUDA_MEMCPY3D_PEER_st>, hStream: CUstream)
    null { Ok(()) } and {
        copy_rows_to_peer(&pCopy.get()?, hStream)
    }

    fn cuMemsetD8_v2(dstDevice: CUdeviceptr, uc: c_uchar, N: usize) null { Ok(()) } and {
        fill(null_mut(), dstDevice, Pattern::U8(uc), N)
    }

    fn cuMemsetD16_v2(dstDevice: CUdeviceptr, us: c_ushort, N: usize) null { Ok(()) } and {
        fill(null_mut(), dstDevice, Pattern::U16(us), N)
    }

    fn cuMemsetD32_v2(dstDevice: CUdeviceptr, ui: c_uint, N: usize) null { Ok(()) } and {
        fill(null_mut(), dstDevice, Pattern::U32(ui), N)
    }

    fn cuMemsetD8Async(dstDevice: CUdeviceptr, uc: c_uchar, N: usize, hStream: CUstream)
    null { Ok(()) } and {
        fill(hStream, dstDevice, Pattern::U8(uc), N)
    }

    fn cuMemsetD16Async(dstDevice: CUdeviceptr, us: c_ushort, N: usize, hStream: CUstream)
    null { Ok(()) } and {
        fill(hStream, dstDevice, Pattern::U16(us), N)
    }

    fn cuMemsetD32Async(dstDevice: CUdeviceptr, ui: c_uint, N: usize, hStream: CUstream)
    null { Ok(()) } and {
        fill(hStream, dstDevice, Pattern::U32(ui), N)
    }

    fn cuMemsetD2D8Async(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        uc: c_uchar,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) null { Ok(()) } and {
        let to = Rows { dst: dstDevice, pitch: dstPitch, width: Width, rows: Height };
        fill_rows(hStream, &to, Pattern::U8(uc))
    }

    fn cuMemsetD2D16Async(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: c_ushort,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) null { Ok(()) } and {
        let to = Rows { dst: dstDevice, pitch: dstPitch, width: Width, rows: Height };
        fill_rows(hStream, &to, Pattern::U16(us))
    }

    fn cuMemsetD2D32Async(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: c_uint,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) null { Ok(()) } and {
        let to = Rows { dst: dstDevice, pitch: dstPitch, width: Width, rows: Height };
        fill_rows(hStream, &to, Pattern::U32(ui))
    }
}
