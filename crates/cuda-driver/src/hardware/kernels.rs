//! Modules, functions and launches.

use super::Hardware;
use super::calls::{
    cuFuncSetAttribute, cuGetProcAddress, cuLaunchKernel, cuModuleGetFunction, cuModuleLoadData,
    cuModuleUnload,
};
use super::process::{OLDEST_VERSION, check};
use super::share::{function_handle, module_handle, stream_handle};
use crate::error::not_supported;
use crate::hardware_models::{REGISTER_NAME, Register, entry_points, register};
use crate::{
    Argument, Call, CudaError, CudaResult, DeviceId, DevicePtr, ErrorCode, Kernels, LaunchConfig,
    ModuleImage, RawFunction, RawModule, RawStream,
};
use cust_raw::CUfunction;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, OnceLock};

impl Kernels for Hardware {
    fn module_load(&self, device: DeviceId, image: &'static ModuleImage) -> CudaResult<RawModule> {
        let call = Call::ModuleLoadData;
        let error = |code| CudaError::new(code, call, Some(device));
        let emulated = register_models(image).map_err(error)?;
        let text = match (image.ptx, emulated) {
            (Some(ptx), _) => ptx.to_owned(),
            // An emulated driver needs no more than the names.
            (None, true) => entry_points(image.kernels),
            (None, false) => return Err(error(ErrorCode::INVALID_IMAGE)),
        };
        let text = CString::new(text).map_err(|_| error(ErrorCode::INVALID_IMAGE))?;
        let mut module = null_mut();
        // SAFETY: the pointers are to a handle of ours and to text that ends with a zero.
        self.call_in_context(call, device, || unsafe {
            cuModuleLoadData(&mut module, text.as_ptr().cast())
        })?;
        // SAFETY: the driver has just made this module for us.
        Ok(unsafe { RawModule::from_raw(module.expose_provenance() as u64) })
    }

    unsafe fn module_unload(&self, device: DeviceId, module: RawModule) -> CudaResult<()> {
        // SAFETY: no launch of its functions is queued or running.
        self.call_in_context(Call::ModuleUnload, device, || unsafe {
            cuModuleUnload(module_handle(module))
        })
    }

    fn module_function(
        &self,
        device: DeviceId,
        module: RawModule,
        name: &'static str,
    ) -> CudaResult<RawFunction> {
        let call = Call::ModuleGetFunction;
        let error = |_| CudaError::new(ErrorCode::NOT_FOUND, call, Some(device));
        let name = CString::new(name).map_err(error)?;
        let mut function = null_mut();
        // SAFETY: whoever made the handle has promised that it names a module; the name ends with a zero.
        self.call_in_context(call, device, || unsafe {
            cuModuleGetFunction(&mut function, module_handle(module), name.as_ptr())
        })?;
        // SAFETY: the driver has just given this function out.
        Ok(unsafe { RawFunction::from_raw(function.expose_provenance() as u64) })
    }

    fn function_allow_shared(
        &self,
        device: DeviceId,
        function: RawFunction,
        bytes: u32,
    ) -> CudaResult<()> {
        let attribute =
            cust_raw::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: whoever made the handle has promised that it names a function.
        self.call(Call::FuncSetAttribute, device, || unsafe {
            cuFuncSetAttribute(function_handle(function), attribute, bytes)
        })
    }

    fn function_load(&self, device: DeviceId, function: RawFunction) -> CudaResult<()> {
        let load = match loading() {
            Loading::ByCall(load) => load,
            Loading::WithModule => return Ok(()),
            Loading::ByLaunch => return Err(not_supported(Call::FuncLoad, device)),
        };
        // SAFETY: whoever made the handle has promised that it names a function.
        self.call_in_context(Call::FuncLoad, device, || unsafe {
            load(function_handle(function))
        })
    }

    unsafe fn launch(
        &self,
        device: DeviceId,
        function: RawFunction,
        config: &LaunchConfig,
        stream: RawStream,
        args: &[Argument],
    ) -> CudaResult<()> {
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (config.grid, config.block);
        with_pointers_to(args, |pointers| {
            // SAFETY: the caller's promise for function, arguments and memory. The driver copies each argument, of the size
            // that the function's parameter has, before the call returns.
            self.call(Call::LaunchKernel, device, || unsafe {
                cuLaunchKernel(
                    function_handle(function),
                    grid_x,
                    grid_y,
                    grid_z,
                    block_x,
                    block_y,
                    block_z,
                    config.shared_bytes,
                    stream_handle(stream),
                    pointers,
                    null_mut(),
                )
            })
        })
    }

    fn launch_host_function(
        &self,
        device: DeviceId,
        stream: RawStream,
        function: Arc<dyn Fn() + Send + Sync>,
    ) -> CudaResult<()> {
        self.queue_function(device, stream, function)
    }
}

/// Shows where the bytes of each argument are, as launches take them. Most kernels have few, and room for those is there at once.
#[inline]
pub(super) fn with_pointers_to<R>(args: &[Argument], to: impl FnOnce(*mut *mut c_void) -> R) -> R {
    const FEW: usize = 16;
    if args.len() > FEW {
        let mut pointers: Vec<_> = args.iter().map(address).collect();
        return to(pointers.as_mut_ptr());
    }
    let mut pointers = [null_mut(); FEW];
    for (pointer, arg) in pointers.iter_mut().zip(args) {
        *pointer = address(arg);
    }
    to(pointers.as_mut_ptr())
}

#[inline]
fn address(argument: &Argument) -> *mut c_void {
    match argument {
        Argument::Pointer(address) => std::ptr::from_ref::<DevicePtr>(address).cast_mut().cast(),
        Argument::Scalar(value) => value.as_bytes().as_ptr().cast_mut().cast(),
    }
}

/// Tells an emulated driver what the kernels of a module do that other code than the port loads, such as `cust`. False on a
/// real one, which runs their PTX.
///
/// # Errors
/// What the emulated driver returned for a kernel that it refused.
pub fn register_models(image: &'static ModuleImage) -> Result<bool, ErrorCode> {
    match taker_of_models() {
        // SAFETY: the function was found under its name.
        Some(taker) => unsafe { register(taker, image) }.map(|()| true),
        None => Ok(false),
    }
}

/// The address of a function of the driver by its name without a version, such as `cuFuncLoad`, in the form that CUDA
/// `version` gave it, written as [`Hardware::version`](super::Hardware::version) is. `None` when the driver, or that
/// version, has none of this name, and when there is no driver.
#[must_use]
pub fn driver_function(name: &CStr, version: u32) -> Option<NonNull<c_void>> {
    let mut function: *mut c_void = null_mut();
    let version = version as c_int;
    // SAFETY: the name ends with a zero, the pointer is to a pointer of ours.
    let found = unsafe { cuGetProcAddress(name.as_ptr(), &mut function, version, 0) };
    check(found).ok()?;
    NonNull::new(function)
}

/// The function that takes models of kernels; an emulated driver has one.
fn taker_of_models() -> Option<Register> {
    let function = driver_function(REGISTER_NAME, OLDEST_VERSION)?.as_ptr();
    // SAFETY: a function of this name has this type.
    Some(unsafe { std::mem::transmute::<*mut c_void, Register>(function) })
}

/// When the code of a function gets onto the device.
#[derive(Clone, Copy)]
enum Loading {
    /// By `cuFuncLoad`, which drivers have from CUDA 12.4 on.
    ByCall(unsafe extern "C" fn(CUfunction) -> c_int),
    /// With its module: older drivers, up to 12.1 unless asked otherwise, and later with `CUDA_MODULE_LOADING=EAGER`.
    WithModule,
    /// By its first launch.
    ByLaunch,
}

/// What this process's driver does.
fn loading() -> Loading {
    static LOADING: OnceLock<Loading> = OnceLock::new();
    *LOADING.get_or_init(|| {
        if let Some(load) = driver_function(c"cuFuncLoad", 12_040) {
            // SAFETY: a function of this name has this type.
            return Loading::ByCall(unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(CUfunction) -> c_int>(
                    load.as_ptr(),
                )
            });
        }
        match loads_eagerly() {
            Some(true) => Loading::WithModule,
            _ => Loading::ByLaunch,
        }
    })
}

/// Whether modules are loaded with all of their functions; `None` when the driver does not tell.
fn loads_eagerly() -> Option<bool> {
    /// `CU_MODULE_EAGER_LOADING`.
    const EAGER: c_int = 1;
    let ask = driver_function(c"cuModuleGetLoadingMode", OLDEST_VERSION)?.as_ptr();
    // SAFETY: a function of this name has this type, with an enum in the place of the integer.
    let ask = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(ask)
    };
    let mut mode = 0;
    // SAFETY: the pointer is to an integer of ours.
    check(unsafe { ask(&mut mode) }).ok()?;
    Some(mode == EAGER)
}
