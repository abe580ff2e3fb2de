//! Memory pools.

use crate::context::here;
use crate::export::{exports, library};
use crate::legacy::code;
use crate::types::{
    CUdeviceptr, CUmemAccessDesc_st, CUmemPool_attribute_enum, CUmemPoolProps_st, CUmemoryPool,
    CUstream, In, Out,
};
use cuda_driver::{CaptureMode, DeviceId, DevicePtr, ErrorCode, RawPool};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;

const DEVICE: u32 = 1;
const RELEASE_THRESHOLD: u32 = 4;

/// A pool. The simulation's own is made at the first use, since it takes the threshold when it is made.
#[derive(Debug)]
struct Known {
    device: DeviceId,
    pool: Option<RawPool>,
    threshold: u64,
    destroyed: bool,
}

/// All pools that ever were, and for each device the numbers of the default one and the current one.
#[derive(Debug)]
struct Pools {
    known: Vec<Known>,
    default: Vec<(DeviceId, usize)>,
    current: Vec<(DeviceId, usize)>,
}

static POOLS: Mutex<Pools> = Mutex::new(Pools {
    known: Vec::new(),
    default: Vec::new(),
    current: Vec::new(),
});

/// Handles are numbers that no other kind of object has.
const KIND: usize = 8;

fn handle(number: usize) -> CUmemoryPool {
    without_provenance_mut(((number + 1) << 4) | KIND)
}

impl Pools {
    fn number(&self, handle: CUmemoryPool) -> Result<usize, ErrorCode> {
        let number = (handle.addr() >> 4).wrapping_sub(1);
        match self.known.get(number) {
            Some(known) if handle.addr() & 15 == KIND && !known.destroyed => Ok(number),
            _ => Err(ErrorCode::INVALID_VALUE),
        }
    }

    fn get(&mut self, handle: CUmemoryPool) -> Result<&mut Known, ErrorCode> {
        let number = self.number(handle)?;
        Ok(&mut self.known[number])
    }

    fn make(&mut self, device: DeviceId) -> Result<usize, ErrorCode> {
        let driver = library()?.driver();
        if !driver.device_properties(device).map_err(code)?.memory_pools {
            return Err(ErrorCode::NOT_SUPPORTED);
        }
        self.known.push(Known {
            device,
            pool: None,
            threshold: 0,
            destroyed: false,
        });
        Ok(self.known.len() - 1)
    }

    fn default(&mut self, device: DeviceId) -> Result<usize, ErrorCode> {
        if let Some((_, number)) = self.default.iter().find(|(of, _)| *of == device) {
            return Ok(*number);
        }
        let number = self.make(device)?;
        self.default.push((device, number));
        Ok(number)
    }
}

/// The device and the simulation's pool of a handle.
fn pool_of(handle: CUmemoryPool) -> Result<(DeviceId, RawPool), ErrorCode> {
    let mut pools = POOLS.lock();
    let known = pools.get(handle)?;
    let pool = match known.pool {
        Some(pool) => pool,
        None => {
            let driver = library()?.driver();
            // The program made its pool long ago; that it is made now, no capture is to notice.
            let earlier = driver
                .exchange_capture_mode(CaptureMode::Relaxed)
                .map_err(code)?;
            let made = driver
                .pool_create(known.device, known.threshold)
                .map_err(code);
            driver.exchange_capture_mode(earlier).map_err(code)?;
            *known.pool.insert(made?)
        }
    };
    Ok((known.device, pool))
}

/// The pool that a device has from the start.
pub(crate) fn default_pool(device: DeviceId) -> Result<CUmemoryPool, ErrorCode> {
    POOLS.lock().default(device).map(handle)
}

/// The pool that allocations without one come from.
pub(crate) fn current_pool(device: DeviceId) -> Result<CUmemoryPool, ErrorCode> {
    let mut pools = POOLS.lock();
    let current = pools.current.iter().find(|(of, _)| *of == device);
    match current {
        Some((_, number)) => Ok(handle(*number)),
        None => pools.default(device).map(handle),
    }
}

pub(crate) fn set_current_pool(device: DeviceId, handle: CUmemoryPool) -> Result<(), ErrorCode> {
    let mut pools = POOLS.lock();
    let number = pools.number(handle)?;
    if pools.known[number].device != device {
        return Err(ErrorCode::INVALID_VALUE);
    }
    pools.current.retain(|(of, _)| *of != device);
    pools.current.push((device, number));
    Ok(())
}

exports! {
    cust_raw pools_table;

    fn cuMemPoolCreate(pool: Out<CUmemoryPool>, poolProps: In<CUmemPoolProps_st>) {
        let properties = poolProps.get()?;
        if properties.location.type_.0 != DEVICE || properties.handleTypes.0 != 0 {
            return Err(ErrorCode::NOT_SUPPORTED);
        }
        let device = library()?.device(properties.location.id)?;
        let number = POOLS.lock().make(device)?;
        pool.put(handle(number))
    }

    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        let mut pools = POOLS.lock();
        let number = pools.number(pool)?;
        if pools.default.iter().any(|(_, default)| *default == number) {
            return Err(ErrorCode::INVALID_VALUE);
        }
        if let Some(raw) = pools.known[number].pool {
            // SAFETY: the program does not use the pool any more.
            unsafe { library()?.driver().pool_destroy(pools.known[number].device, raw) }
                .map_err(code)?;
        }
        pools.known[number].destroyed = true;
        pools.current.retain(|(_, current)| *current != number);
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize) {
        let (device, raw) = pool_of(pool)?;
        library()?.driver().pool_trim(device, raw, minBytesToKeep as u64).map_err(code)
    }

    /// Which memory a pool uses again, it decides by itself; those attributes stay as they are. The threshold can be set
    /// before the first use.
    fn cuMemPoolSetAttribute(
        pool: CUmemoryPool,
        attr: CUmemPool_attribute_enum,
        value: Out<c_void>,
    ) {
        let mut pools = POOLS.lock();
        let known = pools.get(pool)?;
        match attr.0 {
            1..=3 => Ok(()),
            RELEASE_THRESHOLD => {
                let threshold = value.cast::<u64>().get()?;
                if known.pool.is_some() && known.threshold != threshold {
                    return Err(ErrorCode::NOT_SUPPORTED);
                }
                known.threshold = threshold;
                Ok(())
            }
            // Zero starts the high marks again, which the simulation can't.
            6 | 8 => Err(ErrorCode::NOT_SUPPORTED),
            _ => Err(ErrorCode::INVALID_VALUE),
        }
    }

    fn cuMemPoolGetAttribute(
        pool: CUmemoryPool,
        attr: CUmemPool_attribute_enum,
        value: Out<c_void>,
    ) {
        let usage = || {
            let (device, raw) = pool_of(pool)?;
            library()?.driver().pool_usage(device, raw).map_err(code)
        };
        match attr.0 {
            1..=3 => {
                POOLS.lock().get(pool)?;
                value.cast::<i32>().put(1)
            }
            RELEASE_THRESHOLD => {
                let threshold = POOLS.lock().get(pool)?.threshold;
                value.cast::<u64>().put(threshold)
            }
            5 => value.cast::<u64>().put(usage()?.reserved_bytes),
            6 => value.cast::<u64>().put(usage()?.reserved_high_bytes),
            7 => value.cast::<u64>().put(usage()?.used_bytes),
            8 => value.cast::<u64>().put(usage()?.used_high_bytes),
            _ => Err(ErrorCode::INVALID_VALUE),
        }
    }

    fn cuMemPoolSetAccess(pool: CUmemoryPool, map: In<CUmemAccessDesc_st>, count: usize) {
        let (device, raw) = pool_of(pool)?;
        let library = library()?;
        for access in map.all(count)? {
            if access.location.type_.0 != DEVICE || access.flags.0 != 3 {
                return Err(ErrorCode::NOT_SUPPORTED);
            }
            let peer = library.device(access.location.id)?;
            library.driver().pool_set_access(device, raw, peer).map_err(code)?;
        }
        Ok(())
    }

    fn cuMemAllocFromPoolAsync(
        dptr: Out<CUdeviceptr>,
        bytesize: usize,
        pool: CUmemoryPool,
        hStream: CUstream,
    ) null { dptr.put(crate::memory::next_null_address(bytesize)) } and {
        let here = here()?;
        let (device, raw) = pool_of(pool)?;
        let driver = here.driver();
        let address = here.on_stream(hStream, |stream| {
            driver.mem_alloc_async(device, raw, bytesize, stream)
        })?;
        dptr.put(address.0)
    }

    fn cuMemAllocAsync(dptr: Out<CUdeviceptr>, bytesize: usize, hStream: CUstream)
    null { dptr.put(crate::memory::next_null_address(bytesize)) } and {
        let here = here()?;
        let (device, pool) = pool_of(current_pool(here.device())?)?;
        let driver = here.driver();
        let address = here.on_stream(hStream, |stream| {
            driver.mem_alloc_async(device, pool, bytesize, stream)
        })?;
        dptr.put(address.0)
    }

    fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream) null { Ok(()) } and {
        let here = here()?;
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| {
            // SAFETY: the program's promise, as to a driver; the simulation checks it.
            unsafe { driver.mem_free_async(device, DevicePtr(dptr), stream) }
        })
    }
}
