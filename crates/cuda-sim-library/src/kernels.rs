//! Kernels that programs registered: their layout, and how the simulation calls them.
//!
//! The simulation calls plain functions, which can't know for which kernel. So each kernel that is declared to it has
//! one parameter more than the program knows of, the first: its number in the list of kernels.

use cuda_driver::hardware_models::{
    ABSENT, CArgument, CKernel, CLaunch, CMemory, CParam, CRegion, READ, WRITE, access,
};
use cuda_driver::{
    Argument, Arguments, ErrorCode, Footprint, KernelDeclaration, ModelError, ModelLaunch,
    ModelMemory, ModuleImage, Param,
};
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::ffi::{c_int, c_void};
use std::ptr::{from_mut, null_mut};
use std::sync::OnceLock;

/// A kernel of a program.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) params: Vec<CParam>,
    /// The pointer that goes back to the program, with the program's two functions.
    program: CKernel,
    /// A module of the simulation that has this kernel alone, once it was asked for.
    image: OnceLock<ModuleImage>,
}

// SAFETY: what a program registers may be called from any thread; it says so by registering.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

static KERNELS: RwLock<Vec<&'static Kernel>> = RwLock::new(Vec::new());

fn kernel(number: u64) -> Option<&'static Kernel> {
    KERNELS.read().get(usize::try_from(number).ok()?).copied()
}

/// The latest kernel of this name, with its number.
pub(crate) fn named(name: &str) -> Option<(u64, &'static Kernel)> {
    let kernels = KERNELS.read();
    let found = kernels.iter().rposition(|kernel| kernel.name == name)?;
    Some((found as u64, kernels[found]))
}

/// Takes a kernel.
///
/// # Safety
/// The pointers of `kernel` are as [`CKernel`] says.
pub(crate) unsafe fn register(kernel: &CKernel) -> Result<(), ErrorCode> {
    if kernel.name.is_null() || (kernel.params.is_null() && kernel.param_count > 0) {
        return Err(ErrorCode::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { std::slice::from_raw_parts(kernel.name, kernel.name_bytes) };
    let name = std::str::from_utf8(name).map_err(|_| ErrorCode::INVALID_VALUE)?;
    let params = match kernel.param_count {
        0 => &[][..],
        // SAFETY: the caller's promise.
        count => unsafe { std::slice::from_raw_parts(kernel.params, count) },
    };
    let fits = |param: &CParam| match param.is_pointer {
        0 => param.bytes <= 16,
        _ => access(param.access).is_some(),
    };
    if !params.iter().all(fits) {
        return Err(ErrorCode::INVALID_VALUE);
    }
    let mut kernels = KERNELS.write();
    let same = |known: &&&Kernel| {
        known.name == name && known.program.kernel.addr() == kernel.kernel.addr()
    };
    if kernels
        .iter()
        .rfind(|known| known.name == name)
        .is_some_and(|known| same(&known))
    {
        return Ok(());
    }
    kernels.push(Box::leak(Box::new(Kernel {
        name: name.to_owned(),
        params: params.to_vec(),
        program: *kernel,
        image: OnceLock::new(),
    })));
    Ok(())
}

impl Kernel {
    /// The kernel as a module of the simulation.
    pub(crate) fn image(&'static self) -> &'static ModuleImage {
        self.image.get_or_init(|| ModuleImage {
            name: "PTX",
            ptx: None,
            kernels: Box::leak(Box::new([self.declaration()])),
        })
    }

    /// The declaration for the simulation, with the number in front.
    fn declaration(&'static self) -> KernelDeclaration {
        let own = std::iter::once(Param::Scalar { bytes: 8 });
        let params = self.params.iter().map(|param| match param.is_pointer {
            0 => Param::Scalar {
                bytes: param.bytes as usize,
            },
            _ => Param::Pointer {
                access: access(param.access).unwrap_or(cuda_driver::Access::ReadWrite),
                element_bytes: param.bytes as usize,
            },
        });
        let params: &'static [Param] = Box::leak(own.chain(params).collect());
        // SAFETY: there is no image but the one that was made of this declaration.
        unsafe { KernelDeclaration::new(&self.name, params, footprint, model) }
    }
}

fn c_argument(argument: &Argument) -> CArgument {
    let mut bytes = [0; 16];
    let (is_pointer, value): (u32, &[u8]) = match argument {
        Argument::Pointer(address) => (1, &address.0.to_ne_bytes()),
        Argument::Scalar(scalar) => (0, scalar.as_bytes()),
    };
    bytes[..value.len()].copy_from_slice(value);
    CArgument {
        is_pointer,
        len: value.len() as u32,
        bytes,
    }
}

type CArguments = SmallVec<[CArgument; 8]>;

/// The kernel that the first argument names, and the arguments that are the program's.
fn split(args: &Arguments<'_>) -> Option<(&'static Kernel, CArguments)> {
    let kernel = kernel(args.scalar(0)?)?;
    Some((kernel, args.0.iter().skip(1).map(c_argument).collect()))
}

fn footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    unsafe extern "C" fn add(to: *mut c_void, region: *const CRegion) {
        // SAFETY: the program passes on what it was given, which is the footprint below, borrowed for this time.
        let touched = unsafe { &mut *to.cast::<Footprint>() };
        // SAFETY: the program's region is valid during this call.
        let region = unsafe { &*region };
        if let Some(mut region) = region.region() {
            region.param += 1;
            touched.region(region);
        }
    }
    let (kernel, args) = split(args)?;
    let program = &kernel.program;
    // SAFETY: the program registered the function for these arguments; the footprint is borrowed for this call.
    let code = unsafe {
        (program.footprint)(
            program.kernel,
            args.as_ptr(),
            args.len(),
            add,
            from_mut(touched).cast(),
        )
    };
    (code == 0).then_some(())
}

/// Of each of the program's parameters, the lowest offset that the launch touches behind it.
fn starts(all: &Arguments<'_>) -> Result<SmallVec<[i64; 8]>, ModelError> {
    let mut touched = Footprint::default();
    footprint(all, &mut touched).ok_or(ModelError::Scalar { param: 0 })?;
    let lowest = |param: usize| {
        let offsets = touched
            .regions()
            .iter()
            .filter(|region| region.param == param);
        offsets.map(|region| region.offset_bytes).min().unwrap_or(0)
    };
    Ok((1..all.0.len()).map(lowest).collect())
}

fn c_memory(memory: Option<ModelMemory<'_>>) -> CMemory {
    match memory {
        None => CMemory {
            address: null_mut(),
            bytes: 0,
            kind: ABSENT.into(),
        },
        Some(ModelMemory::Read(bytes)) => CMemory {
            address: bytes.as_ptr().cast_mut(),
            bytes: bytes.len(),
            kind: READ.into(),
        },
        Some(ModelMemory::Write(bytes)) => CMemory {
            address: bytes.as_mut_ptr(),
            bytes: bytes.len(),
            kind: WRITE.into(),
        },
    }
}

fn model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    unsafe extern "C" fn tell(to: *mut c_void, text: *const u8, bytes: usize) {
        // SAFETY: the program passes on what it was given, which is the text below, borrowed for this time.
        let message = unsafe { &mut *to.cast::<String>() };
        // SAFETY: the program's text is valid during this call.
        let text = unsafe { std::slice::from_raw_parts(text, bytes) };
        *message = String::from_utf8_lossy(text).into_owned();
    }
    let all = launch.arguments();
    let (kernel, args) = split(&all).ok_or(ModelError::Scalar { param: 0 })?;
    let mut memory: SmallVec<[CMemory; 8]> = SmallVec::new();
    for (index, argument) in all.0.iter().enumerate().skip(1) {
        memory.push(c_memory(match argument {
            Argument::Pointer(_) => launch.take_bytes(index)?,
            Argument::Scalar(_) => None,
        }));
    }
    if let Some(native) = crate::native::find(&kernel.name) {
        let starts = starts(&all)?;
        // SAFETY: the arguments fit, as the footprint has found; the memory was taken from the launch for this call alone.
        unsafe { crate::native::run(native, &args, &memory, &starts) };
        return Ok(());
    }
    let config = launch.config();
    let c_launch = CLaunch {
        grid: config.grid,
        block: config.block,
        shared_bytes: config.shared_bytes,
        count: args.len() as u32,
        arguments: args.as_ptr(),
        memory: memory.as_ptr(),
    };
    let mut message = "its function returned an error".to_owned();
    let program = &kernel.program;
    // SAFETY: the program registered the function for such launches; the memory was taken from the launch for this call
    // alone, and the text is borrowed for it.
    let code: c_int = unsafe {
        (program.model)(
            program.kernel,
            &c_launch,
            tell,
            from_mut(&mut message).cast(),
        )
    };
    match code {
        0 => Ok(()),
        _ => Err(ModelError::Fault(message)),
    }
}
