//! Initialisation and devices.

use crate::context::Context;
use crate::export::{exports, library};
use crate::legacy::code;
use crate::library::Library;
use crate::names::{Found, look_up};
use crate::types::{
    CUcontext, CUdevice, CUdevice_attribute_enum, CUmemoryPool, CUuuid_st, In, Out,
};
use cuda_driver::{DeviceProperties, ErrorCode};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Compute capabilities of the devices, such as `7.0,9.0`; 9.0 unless set.
const CAPABILITY: &str = "CARVE_SIM_CAPABILITY";

fn properties(device: CUdevice) -> Result<DeviceProperties, ErrorCode> {
    let library = library()?;
    let device = library.device(device)?;
    let mut properties = library.driver().device_properties(device).map_err(code)?;
    if let Some(capability) = capability(device.0) {
        properties.compute_capability = capability;
    }
    Ok(properties)
}

/// The compute capability that the environment gives the device of this number; of a shorter list, the last one.
fn capability(device: u32) -> Option<(u32, u32)> {
    let list = std::env::var(CAPABILITY).ok()?;
    let words: Vec<_> = list.split(',').collect();
    let word = words.get(device as usize).or(words.last())?;
    let numbers = word.trim().split_once('.');
    let numbers =
        numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    if numbers.is_none() {
        eprintln!(
            "emulated libcuda: {CAPABILITY} has `{word}`, which is no capability such as 9.0; it is ignored"
        );
    }
    numbers
}

/// The attributes that the simulation knows, by number; 0 for those that it lacks.
fn attribute(number: u32, device: &DeviceProperties) -> Result<c_int, ErrorCode> {
    let (major, minor) = device.compute_capability;
    let value = match number {
        1..=3 => device.max_block_threads,
        4 => 64,
        5 => i32::MAX as u32,
        6 | 7 => 65_535,
        8 => device.shared_bytes_per_block,
        10 => 32,
        12 => 65_536,
        13 => 1_980_000,
        16 => device.multiprocessors,
        // Unified addressing, concurrent kernels, host memory that can be mapped.
        19 | 31 | 41 => 1,
        39 => 2048,
        75 => major,
        76 => minor,
        // Stream priorities.
        78 => 1,
        97 => device.shared_bytes_per_block_opt_in,
        // Memory pools.
        115 => device.memory_pools.into(),
        0 => return Err(ErrorCode::INVALID_VALUE),
        _ => 0,
    };
    Ok(value as c_int)
}

/// Text of a result code that lives for ever.
fn text(of: ErrorCode) -> Result<*const c_char, ErrorCode> {
    static NAMES: OnceLock<Vec<(u32, CString)>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let named = (1..1000).filter_map(|code| Some((code, ErrorCode(code).name()?)));
        let names = std::iter::once((0, "CUDA_SUCCESS")).chain(named);
        names
            .filter_map(|(code, name)| Some((code, CString::new(name).ok()?)))
            .collect()
    });
    names
        .iter()
        .find(|(code, _)| *code == of.0)
        .map(|(_, name)| name.as_ptr())
        .ok_or(ErrorCode::INVALID_VALUE)
}

exports! {
    cust_raw devices_table;

    fn cuInit(flags: c_uint) {
        match flags {
            0 => Library::init(),
            _ => Err(ErrorCode::INVALID_VALUE),
        }
    }

    fn cuDriverGetVersion(version: Out<c_int>) {
        version.put(crate::library::version())
    }

    fn cuGetErrorName(error: crate::types::cudaError_enum, name: Out<*const c_char>) {
        name.put(text(ErrorCode(error.0))?)
    }

    fn cuGetErrorString(error: crate::types::cudaError_enum, message: Out<*const c_char>) {
        message.put(text(ErrorCode(error.0))?)
    }

    fn cuDeviceGet(device: Out<CUdevice>, ordinal: c_int) {
        let found = library()?.device(ordinal)?;
        device.put(found.0 as CUdevice)
    }

    fn cuDeviceGetCount(count: Out<c_int>) {
        count.put(library()?.devices as c_int)
    }

    fn cuDeviceGetName(name: Out<c_char>, len: c_int, dev: CUdevice) {
        let properties = properties(dev)?;
        let Ok(len @ 1..) = usize::try_from(len) else {
            return Err(ErrorCode::INVALID_VALUE);
        };
        if name.is_null() {
            return Err(ErrorCode::INVALID_VALUE);
        }
        let shown = properties.name.bytes().take(len - 1);
        name.put_all(shown.chain(std::iter::once(0)).map(|byte| byte as c_char), len);
        Ok(())
    }

    fn cuDeviceGetUuid(uuid: Out<CUuuid_st>, dev: CUdevice) {
        put_uuid(&uuid, dev)
    }

    fn cuDeviceGetUuid_v2(uuid: Out<CUuuid_st>, dev: CUdevice) {
        put_uuid(&uuid, dev)
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, dev: CUdevice) {
        bytes.put(properties(dev)?.memory_bytes as usize)
    }

    fn cuDeviceGetAttribute(pi: Out<c_int>, attrib: CUdevice_attribute_enum, dev: CUdevice) {
        pi.put(attribute(attrib.0, &properties(dev)?)?)
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, dev: CUdevice) {
        let (first, second) = properties(dev)?.compute_capability;
        major.put(first as c_int)?;
        minor.put(second as c_int)
    }

    fn cuDeviceCanAccessPeer(canAccessPeer: Out<c_int>, dev: CUdevice, peerDev: CUdevice) {
        let library = library()?;
        let (device, peer) = (library.device(dev)?, library.device(peerDev)?);
        let can = library.driver().can_access_peer(device, peer).map_err(code)?;
        canAccessPeer.put(can.into())
    }

    fn cuDeviceGetDefaultMemPool(pool_out: Out<CUmemoryPool>, dev: CUdevice) {
        pool_out.put(crate::pools::default_pool(library()?.device(dev)?)?)
    }

    fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, dev: CUdevice) {
        pool.put(crate::pools::current_pool(library()?.device(dev)?)?)
    }

    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) {
        crate::pools::set_current_pool(library()?.device(dev)?, pool)
    }

    fn cuDevicePrimaryCtxRetain(pctx: Out<CUcontext>, dev: CUdevice) {
        let device = library()?.device(dev)?;
        pctx.put(Context::retain_primary(device).handle())
    }

    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) {
        Context::release_primary(library()?.device(dev)?)
    }

    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) {
        let device = library()?.device(dev)?;
        let context = Context::retain_primary(device);
        context.flags.store(flags, std::sync::atomic::Ordering::Relaxed);
        Context::release_primary(device)
    }

    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: Out<c_uint>, active: Out<c_int>) {
        let state = Context::primary_state(library()?.device(dev)?);
        flags.put(state.unwrap_or(0))?;
        active.put(state.is_some().into())
    }

    fn cuGetProcAddress(
        symbol: In<c_char>,
        pfn: Out<*mut c_void>,
        cudaVersion: c_int,
        flags: u64,
    ) {
        match look_up(symbol.text()?, cudaVersion, flags)? {
            Found::Function(address) => pfn.put(address),
            Found::Nothing | Found::Newer => {
                pfn.put(std::ptr::null_mut())?;
                Err(ErrorCode::NOT_FOUND)
            }
        }
    }
}

fn put_uuid(uuid: &Out<CUuuid_st>, dev: CUdevice) -> Result<(), ErrorCode> {
    let device = library()?.device(dev)?;
    let mut bytes = b"carve simulated\0".map(|byte| byte as c_char);
    bytes[15] = device.0 as c_char;
    uuid.put(CUuuid_st { bytes })
}
