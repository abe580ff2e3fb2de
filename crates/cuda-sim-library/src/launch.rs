//! Modules, functions and launches.

use crate::context::here;
use crate::export::exports;
use crate::kernels::{self, Kernel};
use crate::legacy::code;
use crate::library::loads_eagerly;
use crate::ptx::{self, Ptx};
use crate::streams::next_null_handle;
use crate::types::{
    CUdeviceptr, CUfunc_cache_enum, CUfunction, CUfunction_attribute_enum, CUhostFn,
    CUjit_option_enum, CUmodule, CUsharedconfig_enum, CUstream, In, Out,
};
use cuda_driver::{
    Argument, DevicePtr, ErrorCode, LaunchConfig, ModuleImage, RawFunction, RawModule, Scalar,
};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{with_exposed_provenance, without_provenance_mut};
use std::sync::Arc;

/// Ten times the newest version of PTX that a driver of the emulated version compiles.
fn newest_ptx() -> u32 {
    const CUDA_12: [u32; 10] = [80, 81, 82, 83, 84, 85, 85, 86, 87, 88];
    let version = crate::library::version().unsigned_abs();
    let minor = version % 1000 / 10;
    match version {
        ..12_000 => 70 + minor,
        12_000..13_000 => CUDA_12[minor.min(9) as usize],
        _ => 90,
    }
}

/// A loaded module: the parts that the program has named so far.
#[derive(Debug)]
struct Module {
    handle: usize,
    ptx: Arc<Ptx>,
    /// One module of the simulation for each kernel that was looked up.
    parts: Vec<(u64, RawModule)>,
}

/// A function that was looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    handle: usize,
    module: usize,
    pub(crate) function: RawFunction,
    number: u64,
    kernel: &'static Kernel,
}

static MODULES: Mutex<Vec<Module>> = Mutex::new(Vec::new());
static FUNCTIONS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The function of a handle.
pub(crate) fn known(handle: CUfunction) -> Result<Known, ErrorCode> {
    let functions = FUNCTIONS.lock();
    let found = functions.iter().find(|known| known.handle == handle.addr());
    found.copied().ok_or(ErrorCode::INVALID_HANDLE)
}

fn load(to: &Out<CUmodule>, text: &str) -> Result<(), ErrorCode> {
    let here = here()?;
    let ptx = ptx::read(text).ok_or(ErrorCode::INVALID_IMAGE)?;
    if ptx.version > newest_ptx() {
        return Err(ErrorCode::UNSUPPORTED_PTX_VERSION);
    }
    // An empty module of the simulation: whether loading is allowed now is for it to say.
    static EMPTY: ModuleImage = ModuleImage {
        name: "PTX",
        ptx: None,
        kernels: &[],
    };
    let raw = here
        .driver()
        .module_load(here.device(), &EMPTY)
        .map_err(code)?;
    let handle = raw.raw() as usize;
    MODULES.lock().push(Module {
        handle,
        ptx,
        parts: vec![(u64::MAX, raw)],
    });
    to.put(without_provenance_mut(handle))
}

/// Says on standard error what the program has to do, since a result code can't.
fn refuse(name: &str, why: &str, code: ErrorCode) -> ErrorCode {
    eprintln!("emulated libcuda: kernel `{name}` {why}");
    code
}

/// The layout that the program registered is the one that its PTX declares.
fn check_layout(kernel: &Kernel, params: &[usize]) -> Result<(), ErrorCode> {
    let registered: Vec<usize> = kernel
        .params
        .iter()
        .map(|param| {
            if param.is_pointer == 0 {
                param.bytes as usize
            } else {
                8
            }
        })
        .collect();
    if registered == params {
        return Ok(());
    }
    let why = format!("takes {params:?} bytes in its PTX, but was registered with {registered:?}");
    Err(refuse(&kernel.name, &why, ErrorCode::INVALID_IMAGE))
}

fn function(handle: CUmodule, name: &str) -> Result<CUfunction, ErrorCode> {
    let here = here()?;
    let mut modules = MODULES.lock();
    let module = modules
        .iter_mut()
        .find(|module| module.handle == handle.addr())
        .ok_or(ErrorCode::INVALID_HANDLE)?;
    let entry = module.ptx.entries.iter().find(|entry| entry.name == name);
    let entry = entry.ok_or(ErrorCode::NOT_FOUND)?;
    let (number, kernel) = kernels::named(name).ok_or_else(|| {
        let why = "has no function: register one with carve_sim_register_kernel";
        refuse(name, why, ErrorCode::NOT_FOUND)
    })?;
    check_layout(kernel, &entry.params)?;
    let (driver, device) = (here.driver(), here.device());
    let part = match module.parts.iter().find(|(of, _)| *of == number) {
        Some((_, part)) => *part,
        None => {
            let part = driver.module_load(device, kernel.image()).map_err(code)?;
            module.parts.push((number, part));
            part
        }
    };
    let function = driver
        .module_function(device, part, &kernel.name)
        .map_err(code)?;
    if loads_eagerly() {
        driver.function_load(device, function).map_err(code)?;
    }
    let mut functions = FUNCTIONS.lock();
    let handle = function.raw() as usize;
    functions.retain(|known| known.handle != handle);
    functions.push(Known {
        handle,
        module: module.handle,
        function,
        number,
        kernel,
    });
    Ok(without_provenance_mut(handle))
}

/// Loads the code of a function, which its first launch would do.
pub(crate) fn load_function(handle: CUfunction) -> Result<(), ErrorCode> {
    let here = here()?;
    let function = known(handle)?.function;
    let loaded = here.driver().function_load(here.device(), function);
    loaded.map_err(code)
}

fn unload(handle: CUmodule) -> Result<(), ErrorCode> {
    let here = here()?;
    let mut modules = MODULES.lock();
    let found = modules
        .iter()
        .position(|module| module.handle == handle.addr());
    let index = found.ok_or(ErrorCode::INVALID_HANDLE)?;
    for (_, part) in std::mem::take(&mut modules[index].parts) {
        // SAFETY: the program does not use the module any more.
        unsafe { here.driver().module_unload(here.device(), part) }.map_err(code)?;
    }
    modules.swap_remove(index);
    FUNCTIONS
        .lock()
        .retain(|known| known.module != handle.addr());
    Ok(())
}

/// The arguments that a launch points to, with the kernel's number in front.
pub(crate) fn arguments(
    known: &Known,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<SmallVec<[Argument; 8]>, ErrorCode> {
    if !extra.is_null() {
        return Err(ErrorCode::NOT_SUPPORTED);
    }
    let layout = &known.kernel.params;
    if params.is_null() && !layout.is_empty() {
        return Err(ErrorCode::INVALID_VALUE);
    }
    let mut arguments: SmallVec<[Argument; 8]> = SmallVec::new();
    arguments.push(Argument::scalar(known.number));
    for (index, param) in layout.iter().enumerate() {
        // SAFETY: the program gives a pointer for each parameter.
        let place = unsafe { params.add(index) };
        // SAFETY: as above.
        let value: *const c_void = unsafe { *place };
        if value.is_null() {
            return Err(ErrorCode::INVALID_VALUE);
        }
        arguments.push(match param.is_pointer {
            0 => {
                // SAFETY: the pointer is to a value of the parameter's size.
                let bytes =
                    unsafe { std::slice::from_raw_parts(value.cast::<u8>(), param.bytes as usize) };
                Argument::Scalar(Scalar::from_bytes(bytes).ok_or(ErrorCode::INVALID_VALUE)?)
            }
            // SAFETY: the pointer is to an address.
            _ => Argument::Pointer(DevicePtr(unsafe { value.cast::<u64>().read_unaligned() })),
        });
    }
    Ok(arguments)
}

/// A host function of the program. What it is given, it can be given on any thread.
struct HostFunction(unsafe extern "C" fn(data: *mut c_void), usize);

impl HostFunction {
    fn call(&self) {
        // SAFETY: the program gave both for this.
        unsafe { (self.0)(with_exposed_provenance::<c_void>(self.1).cast_mut()) };
    }
}

exports! {
    cust_raw launch_table;

    fn cuModuleLoad(module: Out<CUmodule>, fname: In<c_char>)
    null { module.put(next_null_handle()) } and {
        here()?;
        let text = std::fs::read(fname.text()?).map_err(|_| ErrorCode::FILE_NOT_FOUND)?;
        load(&module, std::str::from_utf8(&text).map_err(|_| ErrorCode::INVALID_IMAGE)?)
    }

    fn cuModuleLoadData(module: Out<CUmodule>, image: In<c_void>)
    null { module.put(next_null_handle()) } and {
        load(&module, image.as_text().text()?)
    }

    /// Options of the compiler are taken and change nothing.
    fn cuModuleLoadDataEx(
        module: Out<CUmodule>,
        image: In<c_void>,
        numOptions: c_uint,
        options: Out<CUjit_option_enum>,
        optionValues: Out<*mut c_void>,
    ) null { module.put(next_null_handle()) } and {
        let _ = (numOptions, options, optionValues);
        load(&module, image.as_text().text()?)
    }

    fn cuModuleUnload(hmod: CUmodule) null { Ok(()) } and {
        unload(hmod)
    }

    fn cuModuleGetFunction(hfunc: Out<CUfunction>, hmod: CUmodule, name: In<c_char>)
    null { hfunc.put(next_null_handle()) } and {
        hfunc.put(function(hmod, name.text()?)?)
    }

    /// Variables of modules are not emulated.
    fn cuModuleGetGlobal_v2(
        dptr: Out<CUdeviceptr>,
        bytes: Out<usize>,
        hmod: CUmodule,
        name: In<c_char>,
    ) {
        let _ = (dptr, bytes, hmod);
        Err(refuse(name.text()?, "is a variable, which are not emulated", ErrorCode::NOT_FOUND))
    }

    fn cuFuncGetAttribute(pi: Out<c_int>, attrib: CUfunction_attribute_enum, hfunc: CUfunction) {
        known(hfunc)?;
        pi.put(match attrib.0 {
            // Threads of a block, dynamic shared memory, registers, PTX and binary version.
            0 => 1024,
            8 => 48 * 1024,
            4 => 32,
            5 | 6 => 90,
            1..=3 | 7 | 9 => 0,
            _ => return Err(ErrorCode::INVALID_VALUE),
        })
    }

    fn cuFuncSetAttribute(hfunc: CUfunction, attrib: CUfunction_attribute_enum, value: c_int) {
        let here = here()?;
        let function = known(hfunc)?.function;
        match (attrib.0, u32::try_from(value)) {
            (8, Ok(bytes)) => here
                .driver()
                .function_allow_shared(here.device(), function, bytes)
                .map_err(code),
            (9, _) => Ok(()),
            _ => Err(ErrorCode::INVALID_VALUE),
        }
    }

    /// A wish that devices may ignore, as this one does.
    fn cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache_enum) {
        let _ = config;
        known(hfunc).map(drop)
    }

    /// A wish that devices may ignore, as this one does.
    fn cuFuncSetSharedMemConfig(hfunc: CUfunction, config: CUsharedconfig_enum) {
        let _ = config;
        known(hfunc).map(drop)
    }

    fn cuLaunchKernel(
        f: CUfunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        hStream: CUstream,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) null { Ok(()) } and {
        let here = here()?;
        let known = known(f)?;
        let args = arguments(&known, kernelParams, extra)?;
        let config =
            LaunchConfig::new([gridDimX, gridDimY, gridDimZ], [blockDimX, blockDimY, blockDimZ])
                .with_shared_bytes(sharedMemBytes);
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| {
            // SAFETY: the program's promise, as to a driver; the simulation checks it.
            unsafe { driver.launch(device, known.function, &config, stream, &args) }
        })
    }

    fn cuLaunchHostFunc(hStream: CUstream, fn_: CUhostFn, userData: *mut c_void) {
        let here = here()?;
        let function = HostFunction(fn_.ok_or(ErrorCode::INVALID_VALUE)?, userData.expose_provenance());
        let (driver, device) = (here.driver(), here.device());
        here.on_stream(hStream, |stream| {
            driver.launch_host_function(device, stream, Arc::new(move || function.call()))
        })
    }
}
