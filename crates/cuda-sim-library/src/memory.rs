//! Memory of the device and page-locked memory of the host.

use crate::context::here;
use crate::export::exports;
use crate::legacy::code;
use crate::types::{CUdeviceptr, Out};
use cuda_driver::{DevicePtr, ErrorCode};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Addresses that null mode gives out: no two allocations share one.
pub(crate) fn next_null_address(bytes: usize) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
    let bytes = (bytes as u64).next_multiple_of(256).max(256);
    NEXT.fetch_add(bytes, Ordering::Relaxed)
}

/// Page-locked memory: address and bytes.
static PINNED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Whether all of a range of host memory is page-locked.
pub(crate) fn is_pinned(address: *const u8, bytes: usize) -> bool {
    let (pinned, address) = (PINNED.lock(), address.addr());
    let below = pinned.range(..=address).next_back();
    below.is_some_and(|(base, len)| address - base <= *len && bytes <= len - (address - base))
}

fn host_alloc(pp: &Out<*mut c_void>, bytes: usize) -> Result<(), ErrorCode> {
    let here = here()?;
    let address = here
        .driver()
        .host_alloc(here.device(), bytes)
        .map_err(code)?;
    PINNED.lock().insert(address.addr().get(), bytes);
    pp.put(address.as_ptr().cast())
}

exports! {
    cust_raw memory_table;

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let here = here()?;
        let (now, all) = here.driver().memory_info(here.device()).map_err(code)?;
        free.put(now as usize)?;
        total.put(all as usize)
    }

    fn cuMemAlloc_v2(dptr: Out<CUdeviceptr>, bytesize: usize)
    null { dptr.put(next_null_address(bytesize)) } and {
        let here = here()?;
        let address = here.driver().mem_alloc(here.device(), bytesize).map_err(code)?;
        dptr.put(address.0)
    }

    fn cuMemAllocPitch_v2(
        dptr: Out<CUdeviceptr>,
        pPitch: Out<usize>,
        WidthInBytes: usize,
        Height: usize,
        ElementSizeBytes: c_uint,
    ) {
        if !matches!(ElementSizeBytes, 4 | 8 | 16) {
            return Err(ErrorCode::INVALID_VALUE);
        }
        let here = here()?;
        let pitch = WidthInBytes.checked_next_multiple_of(512).ok_or(ErrorCode::INVALID_VALUE)?;
        let bytes = pitch.checked_mul(Height).ok_or(ErrorCode::INVALID_VALUE)?;
        let address = here.driver().mem_alloc(here.device(), bytes).map_err(code)?;
        dptr.put(address.0)?;
        pPitch.put(pitch)
    }

    /// As a driver does, waits for the work that uses the memory.
    fn cuMemFree_v2(dptr: CUdeviceptr) null { Ok(()) } and {
        if dptr == 0 {
            return Ok(());
        }
        let here = here()?;
        here.synchronise_legacy()?;
        // SAFETY: the program's promise, as to a driver; the simulation checks it.
        unsafe { here.driver().mem_free(here.device(), DevicePtr(dptr)) }.map_err(code)
    }

    fn cuMemHostAlloc(pp: Out<*mut c_void>, bytesize: usize, Flags: c_uint) {
        match Flags & !7 {
            0 => host_alloc(&pp, bytesize),
            _ => Err(ErrorCode::INVALID_VALUE),
        }
    }

    fn cuMemAllocHost_v2(pp: Out<*mut c_void>, bytesize: usize) {
        host_alloc(&pp, bytesize)
    }

    fn cuMemFreeHost(p: *mut c_void) {
        let here = here()?;
        let address = NonNull::new(p.cast::<u8>()).ok_or(ErrorCode::INVALID_VALUE)?;
        // SAFETY: the program's promise, as to a driver; the simulation checks it.
        unsafe { here.driver().host_free(here.device(), address) }.map_err(code)?;
        PINNED.lock().remove(&address.addr().get());
        Ok(())
    }

    /// Portable and mapped are what all page-locked memory is here; memory of other devices or to be read only is not known.
    fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: c_uint) {
        match Flags {
            0..=3 => {}
            4..=15 => return Err(ErrorCode::NOT_SUPPORTED),
            _ => return Err(ErrorCode::INVALID_VALUE),
        }
        let here = here()?;
        let address = NonNull::new(p.cast::<u8>()).ok_or(ErrorCode::INVALID_VALUE)?;
        // SAFETY: the program's promise, as to a driver.
        unsafe { here.driver().host_register(here.device(), address, bytesize) }.map_err(code)?;
        PINNED.lock().insert(address.addr().get(), bytesize);
        Ok(())
    }

    fn cuMemHostUnregister(p: *mut c_void) {
        let here = here()?;
        let address = NonNull::new(p.cast::<u8>()).ok_or(ErrorCode::INVALID_VALUE)?;
        // SAFETY: the program's promise, as to a driver; the simulation checks it.
        unsafe { here.driver().host_unregister(here.device(), address) }.map_err(code)?;
        PINNED.lock().remove(&address.addr().get());
        Ok(())
    }
}
