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

/// The same in planes of so many rows.
fn plane_offset([x, y, z]: [usize; 3], height: usize, pitch: usize) -> Result<usize, ErrorCode> {
    offset(x, offset(y, z, height)?, pitch)
}

/// The address so many bytes behind another one.
fn behind(address: CUdeviceptr, bytes: usize) -> Result<DevicePtr, ErrorCode> {
    let address = address.checked_add(bytes as u64);
    address.map(DevicePtr).ok_or(ErrorCode::INVALID_VALUE)
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
    let to = [copy.dstXInBytes, copy.dstY, copy.dstZ];
    let to = plane_offset(to, copy.dstHeight, shape.dst_pitch_bytes)?;
    let from = [copy.srcXInBytes, copy.srcY, copy.srcZ];
    let from = plane_offset(from, copy.srcHeight, shape.src_pitch_bytes)?;
    let (driver, device) = (here.driver(), here.device());
    let dst = behind(copy.dstDevice, to)?;
    let src = behind(copy.srcDevice, from)?;
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
    // Addresses that the types of memory don't take can be anything.
    let device_at = |kind: c_uint, address, bytes| match kind {
        DEVICE => behind(address, bytes),
        _ => Ok(DevicePtr::NULL),
    };
    let dst = device_at(copy.dstMemoryType.0, copy.dstDevice, to)?;
    let src = device_at(copy.srcMemoryType.0, copy.srcDevice, from)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{self, Handle, call, cuMemAlloc_v2, cuMemFree_v2, cuStreamSynchronize};

    unsafe extern "C" {
        #[link_name = "cuMemcpy2DAsync_v2"]
        fn copy_rows(copy: *const CUDA_MEMCPY2D_st, stream: Handle) -> u32;
    }

    /// Programs in C leave them as they were.
    #[test]
    fn fields_that_a_copy_does_not_take_can_be_anything() {
        let _alone = facts::open();
        let stream = facts::stream(facts::NON_BLOCKING);
        let (host, mut address) = ([[1_u32, 2], [3, 4]], 0);
        assert_eq!(call!(cuMemAlloc_v2(&mut address, 16)), 0);
        // SAFETY: numbers and pointers, which may be zero and null.
        let nothing: CUDA_MEMCPY2D_st = unsafe { std::mem::zeroed() };
        let copy = CUDA_MEMCPY2D_st {
            srcY: 1,
            srcMemoryType: crate::types::CUmemorytype_enum(HOST),
            srcHost: host.as_ptr().cast(),
            srcDevice: u64::MAX,
            srcPitch: 8,
            dstMemoryType: crate::types::CUmemorytype_enum(DEVICE),
            dstDevice: address,
            dstPitch: 8,
            WidthInBytes: 8,
            Height: 1,
            ..nothing
        };
        assert_eq!(call!(copy_rows(&copy, stream)), 0);
        assert_eq!(call!(cuStreamSynchronize(stream)), 0);
        let behind_all = CUDA_MEMCPY2D_st {
            dstDevice: u64::MAX,
            dstY: 1,
            ..copy
        };
        assert_eq!(call!(copy_rows(&behind_all, stream)), 1);
        assert_eq!(call!(cuMemFree_v2(address)), 0);
        assert_eq!(facts::reports(), 0);
    }

    #[test]
    fn rows_begin_where_the_description_says_or_nowhere() {
        assert_eq!(plane_offset([3, 2, 1], 10, 100), Ok(1203));
        assert_eq!(plane_offset([3, 2, 0], 0, 100), Ok(203));
        let wrong = ErrorCode::INVALID_VALUE;
        for place in [[0, 0, usize::MAX], [0, usize::MAX, 0], [usize::MAX, 1, 0]] {
            assert_eq!(plane_offset(place, 10, 100), Err(wrong), "{place:?}");
        }
        assert_eq!(behind(1 << 40, 8), Ok(DevicePtr((1 << 40) + 8)));
        assert_eq!(behind(u64::MAX - 7, 8), Err(wrong));
    }
}
