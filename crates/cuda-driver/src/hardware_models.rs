//! Models of kernels over a C interface: how a program tells an emulated driver library, which was built apart from it,
//! what its kernels do.
//!
//! Crate `cuda-sim-library` is a `libcuda.so.1` over the simulated device. It finds PTX where a driver expects it, and no
//! Rust models; the program has those. So the library exports one function more than a driver does,
//! [`REGISTER_NAME`]; who finds it by `cuGetProcAddress` calls it through [`register`] for each kernel. The module of
//! hardware does so whenever it loads a module; on a driver, which has no such function, nothing happens.
//!
//! All structures are plain C, so that programs of other languages can register kernels, too. Pointers in them are valid
//! during the call that they are passed to, but for those of [`CKernel`], which are valid for good.

use crate::{
    Access, Argument, Arguments, DevicePtr, ErrorCode, KernelDeclaration, LaunchConfig,
    ModelLaunch, ModelMemory, ModuleImage, Param, Region, Scalar,
};
use smallvec::SmallVec;
use std::ffi::{CStr, c_int, c_void};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The name of the exported function, of type [`Register`].
pub const REGISTER_NAME: &CStr = c"carve_sim_register_kernel";

/// Registers one kernel; 0 when it was taken. A later one of the same name takes the place of an earlier one.
pub type Register = unsafe extern "C" fn(kernel: *const CKernel) -> c_int;

/// [`Access::Read`] in C.
pub const READ: u32 = 0;
/// [`Access::Write`] in C.
pub const WRITE: u32 = 1;
/// [`Access::ReadWrite`] in C.
pub const READ_WRITE: u32 = 2;
/// A parameter behind which a launch touches nothing.
pub const ABSENT: u32 = 3;

/// One parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CParam {
    /// 1 for an address, 0 for a value.
    pub is_pointer: u32,
    /// What launches do at most behind an address: one of [`READ`], [`WRITE`], [`READ_WRITE`].
    pub access: u32,
    /// Bytes of the value, or of one element behind the address.
    pub bytes: u64,
}

/// One argument: an address of 8 bytes, or a value of at most 16.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CArgument {
    /// 1 for an address, 0 for a value.
    pub is_pointer: u32,
    /// How many of the bytes there are.
    pub len: u32,
    /// The address or the value, as in the device's memory.
    pub bytes: [u8; 16],
}

/// A rectangle of bytes, as [`Region`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CRegion {
    /// Position of the parameter.
    pub param: u32,
    /// One of [`READ`], [`WRITE`], [`READ_WRITE`].
    pub access: u32,
    /// Offset of the first byte from the argument's address, in bytes.
    pub offset_bytes: i64,
    /// Bytes of one row.
    pub width_bytes: u64,
    /// Distance between the starts of two rows, in bytes.
    pub pitch_bytes: u64,
    /// Number of rows.
    pub rows: u64,
}

/// What the model of a launch gets of one parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CMemory {
    /// The lowest byte of the declared regions.
    pub address: *mut u8,
    /// Bytes to the highest one.
    pub bytes: usize,
    /// [`READ`], or [`WRITE`] when any region is written, or [`ABSENT`].
    pub kind: u64,
}

/// One launch, for its model.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CLaunch {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Number of parameters.
    pub count: u32,
    /// As many arguments.
    pub arguments: *const CArgument,
    /// As many memories.
    pub memory: *const CMemory,
}

/// A kernel: name, parameters, and two functions that get `kernel` back.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CKernel {
    /// The entry name, `name_bytes` bytes of UTF-8 without an end.
    pub name: *const u8,
    /// Its length.
    pub name_bytes: usize,
    /// The parameters.
    pub params: *const CParam,
    /// How many there are.
    pub param_count: usize,
    /// Passed to both functions.
    pub kernel: *const c_void,
    /// Calls `add` with each region that a launch touches; 0 when the arguments fit.
    pub footprint: unsafe extern "C" fn(
        kernel: *const c_void,
        arguments: *const CArgument,
        count: usize,
        add: unsafe extern "C" fn(to: *mut c_void, region: *const CRegion),
        to: *mut c_void,
    ) -> c_int,
    /// Does what the kernel does; 0 when it went well. Otherwise it may have said why by `tell`, in UTF-8.
    pub model: unsafe extern "C" fn(
        kernel: *const c_void,
        launch: *const CLaunch,
        tell: unsafe extern "C" fn(to: *mut c_void, text: *const u8, bytes: usize),
        to: *mut c_void,
    ) -> c_int,
}

/// Tells an emulated library the kernels of a module.
///
/// # Errors
/// What the library returned for the first kernel that it refused.
///
/// # Safety
/// The function is the one of that name of an emulated library.
pub unsafe fn register(register: Register, image: &'static ModuleImage) -> Result<(), ErrorCode> {
    for declaration in image.kernels {
        let params: SmallVec<[CParam; 8]> = declaration.params().iter().map(param).collect();
        let kernel = CKernel {
            name: declaration.name().as_ptr(),
            name_bytes: declaration.name().len(),
            params: params.as_ptr(),
            param_count: params.len(),
            kernel: std::ptr::from_ref(declaration).cast(),
            footprint,
            model,
        };
        // SAFETY: the caller's promise; the declaration is static, and the library copies the parameters.
        match unsafe { register(&kernel) } {
            0 => {}
            code => return Err(ErrorCode(code as u32)),
        }
    }
    Ok(())
}

/// PTX in which each kernel does nothing: an emulated library needs no more than the names and the parameters.
#[must_use]
pub fn entry_points(kernels: &[KernelDeclaration]) -> String {
    let mut text = ".version 6.0\n.target sm_50\n.address_size 64\n".to_owned();
    for kernel in kernels {
        let params: Vec<String> = kernel
            .params()
            .iter()
            .enumerate()
            .map(|(index, param)| match param {
                Param::Pointer { .. } => format!(".param .u64 p{index}"),
                Param::Scalar { bytes } => format!(".param .align 16 .b8 p{index}[{bytes}]"),
            })
            .collect();
        let _ = writeln!(
            text,
            ".visible .entry {}({})\n{{ ret; }}",
            kernel.name(),
            params.join(", ")
        );
    }
    text
}

fn param(param: &Param) -> CParam {
    match *param {
        Param::Pointer {
            access,
            element_bytes,
        } => CParam {
            is_pointer: 1,
            access: access_code(access),
            bytes: element_bytes as u64,
        },
        Param::Scalar { bytes } => CParam {
            is_pointer: 0,
            access: READ,
            bytes: bytes as u64,
        },
    }
}

/// An access in C.
#[must_use]
pub const fn access_code(access: Access) -> u32 {
    match access {
        Access::Read => READ,
        Access::Write => WRITE,
        Access::ReadWrite => READ_WRITE,
    }
}

/// An access from C; `None` for a number that is none.
#[must_use]
pub const fn access(code: u32) -> Option<Access> {
    match code {
        READ => Some(Access::Read),
        WRITE => Some(Access::Write),
        READ_WRITE => Some(Access::ReadWrite),
        _ => None,
    }
}

fn argument(argument: &CArgument) -> Option<Argument> {
    let bytes = argument.bytes.get(..argument.len as usize)?;
    Some(match argument.is_pointer {
        0 => Argument::Scalar(Scalar::from_bytes(bytes)?),
        _ => Argument::Pointer(DevicePtr(u64::from_ne_bytes(bytes.try_into().ok()?))),
    })
}

/// The arguments at `first`; `None` when one of them is none.
///
/// # Safety
/// There are `count` of them.
unsafe fn arguments(first: *const CArgument, count: usize) -> Option<SmallVec<[Argument; 8]>> {
    if count == 0 {
        return Some(SmallVec::new());
    }
    // SAFETY: the caller's promise.
    let arguments = unsafe { std::slice::from_raw_parts(first, count) };
    arguments.iter().map(argument).collect()
}

unsafe extern "C" fn footprint(
    kernel: *const c_void,
    first: *const CArgument,
    count: usize,
    add: unsafe extern "C" fn(to: *mut c_void, region: *const CRegion),
    to: *mut c_void,
) -> c_int {
    // SAFETY: the library gives back what it was given, which is static.
    let declaration = unsafe { &*kernel.cast::<KernelDeclaration>() };
    // SAFETY: the library gives as many arguments as it says.
    let arguments = unsafe { arguments(first, count) };
    let touched = arguments.and_then(|arguments| {
        catch_unwind(AssertUnwindSafe(|| declaration.footprint(&arguments).ok())).ok()?
    });
    let Some(touched) = touched else { return 1 };
    for region in touched.regions() {
        let region = CRegion {
            param: region.param as u32,
            access: access_code(region.access),
            offset_bytes: region.offset_bytes,
            width_bytes: region.width_bytes,
            pitch_bytes: region.pitch_bytes,
            rows: region.rows,
        };
        // SAFETY: both came from the library for this use.
        unsafe { add(to, &region) };
    }
    0
}

unsafe extern "C" fn model(
    kernel: *const c_void,
    launch: *const CLaunch,
    tell: unsafe extern "C" fn(to: *mut c_void, text: *const u8, bytes: usize),
    to: *mut c_void,
) -> c_int {
    // SAFETY: the library gives back what it was given, which is static.
    let declaration = unsafe { &*kernel.cast::<KernelDeclaration>() };
    // SAFETY: the library's launch is valid during this call.
    let launch = unsafe { &*launch };
    // SAFETY: as many as it says.
    let Some(arguments) = (unsafe { arguments(launch.arguments, launch.count as usize) }) else {
        return 1;
    };
    let memories: &[CMemory] = match launch.count {
        0 => &[],
        // SAFETY: there are as many as it says.
        count => unsafe { std::slice::from_raw_parts(launch.memory, count as usize) },
    };
    let memory = memories.iter().map(|memory| {
        match u32::try_from(memory.kind) {
            // SAFETY: the library lends the memory to this call, for reading.
            Ok(READ) => Some(ModelMemory::Read(unsafe {
                std::slice::from_raw_parts(memory.address, memory.bytes)
            })),
            // SAFETY: the library lends the memory to this call alone, for writing.
            Ok(WRITE) => Some(ModelMemory::Write(unsafe {
                std::slice::from_raw_parts_mut(memory.address, memory.bytes)
            })),
            _ => None,
        }
    });
    let config = LaunchConfig {
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared_bytes,
    };
    let mut launch = ModelLaunch::new(config, Arguments(&arguments), memory);
    let outcome = catch_unwind(AssertUnwindSafe(|| declaration.run_model(&mut launch)));
    let text = match outcome {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the model panicked".to_owned(),
    };
    // SAFETY: both came from the library for this use.
    unsafe { tell(to, text.as_ptr(), text.len()) };
    1
}

impl CRegion {
    /// The region in Rust; `None` when its access is none.
    #[must_use]
    pub fn region(&self) -> Option<Region> {
        Some(Region {
            param: self.param as usize,
            access: access(self.access)?,
            offset_bytes: self.offset_bytes,
            width_bytes: self.width_bytes,
            pitch_bytes: self.pitch_bytes,
            rows: self.rows,
        })
    }
}
