//! Discovery and device-wide calls.

use super::Hardware;
use super::calls::{
    cuCtxGetStreamPriorityRange, cuCtxSynchronize, cuDeviceCanAccessPeer, cuDeviceGetAttribute,
    cuDeviceGetCount, cuDeviceGetName, cuDeviceTotalMem_v2, cuMemGetInfo_v2,
};
use super::process::{check, is_forked};
use crate::{Call, CudaError, CudaResult, DeviceId, DeviceProperties, Devices, ErrorCode};
use cust_raw::{CUdevice, CUdevice_attribute};
use std::ffi::{CStr, c_int};

impl Devices for Hardware {
    fn device_count(&self) -> CudaResult<u32> {
        let call = Call::DeviceGetCount;
        self.counters.record(call);
        let mut count = 0;
        let result = match is_forked() {
            true => Err(ErrorCode::NOT_INITIALIZED),
            // SAFETY: the pointer is to an integer of ours.
            false => check(unsafe { cuDeviceGetCount(&mut count) }),
        };
        result.map_err(|code| CudaError::new(code, call, None))?;
        Ok(count.unsigned_abs())
    }

    fn device_properties(&self, device: DeviceId) -> CudaResult<DeviceProperties> {
        let call = Call::DeviceGetAttribute;
        self.counters.record(call);
        self.properties(device)
            .map_err(|code| CudaError::new(code, call, Some(device)))
    }

    fn memory_info(&self, device: DeviceId) -> CudaResult<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to integers of ours.
        self.call_in_context(Call::MemGetInfo, device, || unsafe {
            cuMemGetInfo_v2(&mut free, &mut total)
        })?;
        Ok((free as u64, total as u64))
    }

    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> CudaResult<bool> {
        let call = Call::DeviceCanAccessPeer;
        self.counters.record(call);
        let mut can = 0;
        let mut ask = || {
            let (device, peer) = (self.process.handle(device)?, self.process.handle(peer)?);
            // SAFETY: the pointer is to an integer of ours.
            check(unsafe { cuDeviceCanAccessPeer(&mut can, device, peer) })
        };
        ask().map_err(|code| CudaError::new(code, call, Some(device)))?;
        Ok(device != peer && can != 0)
    }

    fn device_synchronize(&self, device: DeviceId) -> CudaResult<()> {
        // SAFETY: the call takes no pointers.
        self.call_in_context(Call::CtxSynchronize, device, || unsafe {
            cuCtxSynchronize()
        })
    }

    fn make_current(&self, device: DeviceId) -> CudaResult<()> {
        let entered = self.process.enter(device, true);
        entered.map_err(|code| CudaError::new(code, Call::CtxSetCurrent, Some(device)))
    }
}

impl Hardware {
    fn properties(&self, device: DeviceId) -> Result<DeviceProperties, ErrorCode> {
        use CUdevice_attribute as A;
        // The range of priorities is the context's to say.
        self.process.enter(device, true)?;
        let handle = self.process.handle(device)?;
        let mut bytes = 0;
        // SAFETY: the pointer is to an integer of ours.
        check(unsafe { cuDeviceTotalMem_v2(&mut bytes, handle) })?;
        let mut properties = DeviceProperties::new(name(handle)?, bytes as u64);
        properties.compute_capability = (
            attribute(handle, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(handle, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        properties.multiprocessors =
            attribute(handle, A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        properties.memory_pools =
            attribute(handle, A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0;
        properties.max_block_threads =
            attribute(handle, A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        properties.shared_bytes_per_block =
            attribute(handle, A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?;
        properties.shared_bytes_per_block_opt_in = attribute(
            handle,
            A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?;
        let (mut least, mut most) = (0, 0);
        // SAFETY: the pointers are to integers of ours.
        check(unsafe { cuCtxGetStreamPriorityRange(&mut least, &mut most) })?;
        properties.priorities = (least, most);
        Ok(properties)
    }
}

fn attribute(device: CUdevice, attribute: CUdevice_attribute) -> Result<u32, ErrorCode> {
    let mut value: c_int = 0;
    // SAFETY: the pointer is to an integer of ours.
    check(unsafe { cuDeviceGetAttribute(&mut value, attribute, device) })?;
    Ok(value.unsigned_abs())
}

fn name(device: CUdevice) -> Result<String, ErrorCode> {
    let mut text = [0_u8; 256];
    // SAFETY: the driver writes at most that many bytes, the last of them zero.
    check(unsafe { cuDeviceGetName(text.as_mut_ptr().cast(), text.len() as c_int, device) })?;
    let text = CStr::from_bytes_until_nul(&text).map_err(|_| ErrorCode::UNKNOWN)?;
    Ok(text.to_string_lossy().into_owned())
}
