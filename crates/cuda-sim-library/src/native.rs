//! Kernels from a library of the host in the place of models: the CUDA C of kernels, compiled for the host.
//! `cargo xtask test-kernels` compares it with the models that way.

use cuda_driver::hardware_models::{CArgument, CMemory};
use smallvec::SmallVec;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// The library's path; models are used unless set.
const LIBRARY: &str = "CARVE_SIM_KERNELS";
const RTLD_NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// Takes a pointer to each argument, as launches do; addresses are those of the host.
pub(crate) type Native = unsafe extern "C" fn(arguments: *mut *mut c_void);

/// The function for a kernel, when there is a library and it has one.
pub(crate) fn find(kernel: &str) -> Option<Native> {
    static OPENED: OnceLock<usize> = OnceLock::new();
    let library = *OPENED.get_or_init(|| {
        let Some(path) = std::env::var_os(LIBRARY) else {
            return 0;
        };
        let path = CString::new(path.into_encoded_bytes()).unwrap_or_default();
        // SAFETY: the path ends with a zero. The library is one of plain functions.
        let opened = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        if opened.is_null() {
            eprintln!(
                "emulated libcuda: {LIBRARY}={} can't be opened",
                path.to_string_lossy()
            );
        }
        opened.expose_provenance()
    });
    if library == 0 {
        return None;
    }
    let name = CString::new(format!("carve_host_{kernel}")).ok()?;
    let library = std::ptr::with_exposed_provenance_mut(library);
    // SAFETY: the library is open and stays so; the name ends with a zero.
    let found = unsafe { dlsym(library, name.as_ptr()) };
    // SAFETY: a function of this name has this type; a null pointer becomes `None`.
    unsafe { std::mem::transmute::<*mut c_void, Option<Native>>(found) }
}

/// Runs one launch. `starts` are the offsets of each memory from its argument's address, in bytes.
///
/// # Safety
/// The arguments fit the kernel, and the memory is lent to this call.
pub(crate) unsafe fn run(
    native: Native,
    arguments: &[CArgument],
    memory: &[CMemory],
    starts: &[i64],
) {
    let mut values: SmallVec<[[u64; 2]; 16]> = SmallVec::new();
    for ((argument, memory), start) in arguments.iter().zip(memory).zip(starts) {
        let mut value = [0; 2];
        match argument.is_pointer {
            0 => {
                for (half, bytes) in value.iter_mut().zip(argument.bytes.chunks_exact(8)) {
                    *half = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
                }
            }
            _ => {
                let base = memory.address.expose_provenance() as u64;
                value[0] = base.wrapping_add_signed(-start);
            }
        }
        values.push(value);
    }
    let mut pointers: SmallVec<[*mut c_void; 16]> = values
        .iter_mut()
        .map(|value| std::ptr::from_mut(value).cast())
        .collect();
    pointers.push(null_mut());
    // SAFETY: the caller's promise.
    unsafe { native(pointers.as_mut_ptr()) };
}
