//! Memory of the device, pools, and page-locked memory of the host.

use super::Hardware;
use super::calls::{
    cuMemAlloc_v2, cuMemAllocFromPoolAsync, cuMemFree_v2, cuMemFreeAsync, cuMemFreeHost,
    cuMemHostAlloc, cuMemHostRegister_v2, cuMemHostUnregister, cuMemPoolCreate, cuMemPoolDestroy,
    cuMemPoolGetAttribute, cuMemPoolSetAccess, cuMemPoolSetAttribute, cuMemPoolTrimTo,
};
use super::share::{pool_handle, stream_handle};
use crate::{
    Call, CudaError, CudaResult, DeviceId, DevicePtr, ErrorCode, Memory, PoolUsage, RawPool,
    RawStream,
};
use cust_raw::{
    CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolProps,
};
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

impl Memory for Hardware {
    fn mem_alloc(&self, device: DeviceId, bytes: usize) -> CudaResult<DevicePtr> {
        let mut address = 0;
        // SAFETY: the pointer is to an integer of ours.
        self.call_in_context(Call::MemAlloc, device, || unsafe {
            cuMemAlloc_v2(&mut address, bytes)
        })?;
        Ok(DevicePtr(address))
    }

    unsafe fn mem_free(&self, device: DeviceId, address: DevicePtr) -> CudaResult<()> {
        // SAFETY: nothing uses the memory any more.
        self.call_in_context(Call::MemFree, device, || unsafe { cuMemFree_v2(address.0) })
    }

    fn pool_create(&self, device: DeviceId, release_threshold_bytes: u64) -> CudaResult<RawPool> {
        let id = self.handle_for(Call::MemPoolCreate, device)?;
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: on_device(id),
            win32SecurityAttributes: null_mut(),
            reserved: [0; 64],
        };
        let mut pool = null_mut();
        // SAFETY: both pointers are to values of ours.
        self.call_in_context(Call::MemPoolCreate, device, || unsafe {
            cuMemPoolCreate(&mut pool, &properties)
        })?;
        let mut threshold = release_threshold_bytes;
        let threshold_set = self.call_in_context(Call::MemPoolSetAttribute, device, || {
            let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            // SAFETY: the attribute is 64 bits wide, and so is what the pointer is to.
            unsafe { cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()) }
        });
        // Or else the driver makes a stream that allocates wait for another one's free, which nobody asked for.
        let mut allowed: c_int = 0;
        let settled = threshold_set.and_then(|()| {
            self.call_in_context(Call::MemPoolSetAttribute, device, || {
                let attribute =
                    CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
                // SAFETY: the attribute is an `int`, and so is what the pointer is to.
                unsafe { cuMemPoolSetAttribute(pool, attribute, (&raw mut allowed).cast()) }
            })
        });
        // SAFETY: the driver has just made this pool for us.
        let pool = unsafe { RawPool::from_raw(pool.expose_provenance() as u64) };
        if let Err(error) = settled {
            // SAFETY: nobody else has seen the pool. The first error is the one to tell.
            let _ = unsafe { self.pool_destroy(device, pool) };
            return Err(error);
        }
        Ok(pool)
    }

    unsafe fn pool_destroy(&self, device: DeviceId, pool: RawPool) -> CudaResult<()> {
        // SAFETY: nobody uses the handle afterwards.
        self.call(Call::MemPoolDestroy, device, || unsafe {
            cuMemPoolDestroy(pool_handle(pool))
        })
    }

    fn pool_trim(&self, device: DeviceId, pool: RawPool, keep_bytes: u64) -> CudaResult<()> {
        let keep = usize::try_from(keep_bytes).unwrap_or(usize::MAX);
        // SAFETY: whoever made the handle has promised that it names a pool.
        self.call(Call::MemPoolTrimTo, device, || unsafe {
            cuMemPoolTrimTo(pool_handle(pool), keep)
        })
    }

    fn pool_usage(&self, device: DeviceId, pool: RawPool) -> CudaResult<PoolUsage> {
        use CUmemPool_attribute as A;
        let value = |attribute| {
            let value = Cell::new(0_u64);
            self.call(Call::MemPoolGetAttribute, device, || {
                // SAFETY: as above; the attribute is 64 bits wide, and so is what the pointer is to.
                unsafe {
                    cuMemPoolGetAttribute(pool_handle(pool), attribute, value.as_ptr().cast())
                }
            })?;
            Ok(value.get())
        };
        Ok(PoolUsage {
            reserved_bytes: value(A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_high_bytes: value(A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
            used_bytes: value(A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            used_high_bytes: value(A::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
        })
    }

    fn pool_set_access(&self, device: DeviceId, pool: RawPool, peer: DeviceId) -> CudaResult<()> {
        let access = CUmemAccessDesc {
            location: on_device(self.handle_for(Call::MemPoolSetAccess, peer)?),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: as above; the pointer is to one description of ours.
        self.call(Call::MemPoolSetAccess, device, || unsafe {
            cuMemPoolSetAccess(pool_handle(pool), &access, 1)
        })
    }

    fn mem_alloc_async(
        &self,
        device: DeviceId,
        pool: RawPool,
        bytes: usize,
        stream: RawStream,
    ) -> CudaResult<DevicePtr> {
        let address = Cell::new(0);
        // SAFETY: whoever made the handles has promised what they name; the pointer is to an integer of ours.
        self.call(Call::MemAllocFromPoolAsync, device, || unsafe {
            cuMemAllocFromPoolAsync(
                address.as_ptr(),
                bytes,
                pool_handle(pool),
                stream_handle(stream),
            )
        })?;
        Ok(DevicePtr(address.get()))
    }

    unsafe fn mem_free_async(
        &self,
        device: DeviceId,
        address: DevicePtr,
        stream: RawStream,
    ) -> CudaResult<()> {
        // SAFETY: work that touches the memory is ordered before this point of the stream.
        self.call(Call::MemFreeAsync, device, || unsafe {
            cuMemFreeAsync(address.0, stream_handle(stream))
        })
    }

    fn host_alloc(&self, device: DeviceId, bytes: usize) -> CudaResult<NonNull<u8>> {
        let mut address = null_mut();
        // SAFETY: the pointer is to a pointer of ours.
        self.call_in_context(Call::MemHostAlloc, device, || unsafe {
            cuMemHostAlloc(&mut address, bytes, CU_MEMHOSTALLOC_PORTABLE)
        })?;
        NonNull::new(address.cast()).ok_or(CudaError::new(
            ErrorCode::UNKNOWN,
            Call::MemHostAlloc,
            Some(device),
        ))
    }

    unsafe fn host_free(&self, device: DeviceId, address: NonNull<u8>) -> CudaResult<()> {
        // SAFETY: nothing uses the memory any more.
        self.call_in_context(Call::MemFreeHost, device, || unsafe {
            cuMemFreeHost(address.as_ptr().cast())
        })
    }

    unsafe fn host_register(
        &self,
        device: DeviceId,
        address: NonNull<u8>,
        bytes: usize,
    ) -> CudaResult<()> {
        // SAFETY: the memory is the caller's, and stays until it is unregistered.
        self.call_in_context(Call::MemHostRegister, device, || unsafe {
            cuMemHostRegister_v2(address.as_ptr().cast(), bytes, CU_MEMHOSTREGISTER_PORTABLE)
        })
    }

    unsafe fn host_unregister(&self, device: DeviceId, address: NonNull<u8>) -> CudaResult<()> {
        // SAFETY: no copy uses the memory any more.
        self.call_in_context(Call::MemHostUnregister, device, || unsafe {
            cuMemHostUnregister(address.as_ptr().cast())
        })
    }
}

impl Hardware {
    pub(super) fn handle_for(
        &self,
        call: Call,
        device: DeviceId,
    ) -> CudaResult<cust_raw::CUdevice> {
        self.process
            .handle(device)
            .map_err(|code| CudaError::new(code, call, Some(device)))
    }
}

fn on_device(id: cust_raw::CUdevice) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id,
    }
}
