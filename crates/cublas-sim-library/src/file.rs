//! The file that this library was loaded from.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null;

/// What the loader knows of an address (`dlfcn.h`).
#[repr(C)]
struct Info {
    file: *const c_char,
    base: *const c_void,
    symbol: *const c_char,
    address: *const c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, info: *mut Info) -> c_int;
}

/// Its path, as it was asked for.
pub(crate) fn name() -> Option<String> {
    let mut info = Info {
        file: null(),
        base: null(),
        symbol: null(),
        address: null(),
    };
    // SAFETY: the address is that of a function of this library, and the pointer is to a value of ours.
    let known = unsafe { dladdr(name as *const c_void, &mut info) };
    if known == 0 || info.file.is_null() {
        return None;
    }
    // SAFETY: the loader's text, which ends with a zero and lives as long as the library.
    let file = unsafe { CStr::from_ptr(info.file) };
    Some(file.to_string_lossy().into_owned())
}
