//! What this library has and cuBLAS has not: counts of calls, failures on demand, the version that it tells, when kernels are loaded, and
//! how many handles are alive.

use crate::export::{self, exports};
use crate::handles::put;
use crate::types::Status;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::atomic::Ordering;

fn text<'t>(text: *const c_char) -> Result<&'t str, Status> {
    if text.is_null() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: not null, so that the caller has promised text that ends with a zero and lives during the call.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| Status::InvalidValue)
}

exports! {
    carve carve_table;

    /// How often a function was called so far.
    fn carve_cublas_calls(name: *const c_char, count: *mut u64) {
        let name = text(name)?;
        let found = export::all().find(|export| export.name == name);
        put(count, found.ok_or(Status::InvalidValue)?.calls.load(Ordering::Relaxed))
    }

    /// Has the `nth` call of a function from now on fail with `status` and do nothing; `nth` = 0 takes that back.
    fn carve_cublas_fail(name: *const c_char, nth: u64, status: c_uint) {
        let name = text(name)?;
        if !export::all().any(|export| export.name == name) {
            return Err(Status::InvalidValue);
        }
        export::fail(name, nth, status);
        Ok(())
    }

    /// Tells this version from now on, as 120804; 0 takes that back.
    fn carve_cublas_version(version: c_int) {
        crate::handles::tell_version(version);
        Ok(())
    }

    /// Whether kernels that were not used yet are loaded while a capture is open, as some drivers do: 1, or 0 as at first.
    fn carve_cublas_load_in_captures(allowed: c_uint) {
        crate::loading::allow_in_captures(allowed != 0);
        Ok(())
    }

    /// How many handles are alive.
    fn carve_cublas_handles(count: *mut usize) {
        put(count, crate::handle::alive())
    }
}
