//! Functions of handles.

use crate::driver::{check, driver};
use crate::export::exports;
use crate::handle::{create, destroy, find};
use crate::types::{
    STATUS, Status, cublasAtomicsMode_t, cublasHandle_t, cublasMath_t, cublasPointerMode_t,
    cublasStatus_t, cudaStream_t, libraryPropertyType_t, refused,
};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

/// The version that a program asked for; 0 when none did.
static VERSION: AtomicI32 = AtomicI32::new(0);

/// The version that is told: 10,000 times the major number, 100 times the minor one, and the patch level.
fn version() -> c_int {
    match VERSION.load(Ordering::Relaxed) {
        0 => {
            let told = std::env::var("CARVE_CUBLAS_VERSION").ok();
            told.and_then(|told| told.parse().ok())
                .unwrap_or_else(own_version)
        }
        told => told,
    }
}

/// The version that the name of this library's file means: so a copy by another name is another version.
fn own_version() -> c_int {
    match crate::file::name().is_some_and(|name| name.ends_with(".so.13")) {
        true => 130_002,
        false => 120_804,
    }
}

/// Tells this version from now on; 0 takes that back.
pub(crate) fn tell_version(version: c_int) {
    VERSION.store(version, Ordering::Relaxed);
}

/// Writes a result; `INVALID_VALUE` without a place for it.
pub(crate) fn put<T>(to: *mut T, value: T) -> Result<(), Status> {
    if to.is_null() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: not null, so that the caller has promised it to be valid.
    unsafe { to.write(value) };
    Ok(())
}

exports! {
    cudarc handles_table;

    fn cublasCreate_v2(handle: *mut cublasHandle_t) {
        if handle.is_null() {
            return Err(Status::InvalidValue);
        }
        put(handle, create()?)
    }

    fn cublasDestroy_v2(handle: cublasHandle_t) {
        destroy(handle)
    }

    fn cublasGetVersion_v2(handle: cublasHandle_t, version: *mut c_int) {
        let _ = handle;
        put(version, self::version())
    }

    fn cublasGetProperty(type_: libraryPropertyType_t, value: *mut c_int) {
        let version = version();
        put(value, match type_.0 {
            0 => version / 10_000,
            1 => version / 100 % 100,
            2 => version % 100,
            _ => return Err(Status::InvalidValue),
        })
    }

    /// Resets the workspace, always.
    fn cublasSetStream_v2(handle: cublasHandle_t, streamId: cudaStream_t) {
        let (driver, state) = (driver()?, find(handle)?);
        let mut settings = state.settings()?;
        let mut context = 0;
        if !streamId.is_null() {
            // SAFETY: the pointer is to a number of ours.
            check(unsafe { (driver.stream_context)(streamId.addr(), &mut context) }, "cuStreamGetCtx")?;
            if context != state.context {
                return Err(refused!(InvalidValue, "the stream is of another context than the handle"));
            }
        }
        settings.stream = streamId.addr();
        settings.workspace = None;
        Ok(())
    }

    fn cublasGetStream_v2(handle: cublasHandle_t, streamId: *mut cudaStream_t) {
        let stream = find(handle)?.settings()?.stream;
        put(streamId, std::ptr::without_provenance_mut(stream))
    }

    fn cublasSetWorkspace_v2(
        handle: cublasHandle_t,
        workspace: *mut c_void,
        workspaceSizeInBytes: usize,
    ) {
        let state = find(handle)?;
        let mut settings = state.settings()?;
        let address = workspace.addr() as u64;
        if !address.is_multiple_of(256) || (address == 0 && workspaceSizeInBytes > 0) {
            return Err(refused!(
                InvalidValue,
                "a workspace at {address:#x}: it has to lie at a multiple of 256 bytes"
            ));
        }
        settings.workspace = Some((address, workspaceSizeInBytes));
        Ok(())
    }

    fn cublasSetPointerMode_v2(handle: cublasHandle_t, mode: cublasPointerMode_t) {
        find(handle)?.settings()?.device_scalars = match mode.0 {
            0 => false,
            1 => true,
            _ => return Err(Status::InvalidValue),
        };
        Ok(())
    }

    fn cublasSetAtomicsMode(handle: cublasHandle_t, mode: cublasAtomicsMode_t) {
        find(handle)?.settings()?.atomics = match mode.0 {
            0 => false,
            1 => true,
            _ => return Err(Status::InvalidValue),
        };
        Ok(())
    }

    fn cublasGetAtomicsMode(handle: cublasHandle_t, mode: *mut cublasAtomicsMode_t) {
        let atomics = find(handle)?.settings()?.atomics;
        put(mode, cublasAtomicsMode_t(atomics.into()))
    }

    fn cublasSetMathMode(handle: cublasHandle_t, mode: cublasMath_t) {
        // The mode, and the flag that reductions are not of reduced precision.
        if mode.0 & !16 > 3 {
            return Err(Status::InvalidValue);
        }
        find(handle)?.settings()?.math = mode.0;
        Ok(())
    }

    fn cublasGetMathMode(handle: cublasHandle_t, mode: *mut cublasMath_t) {
        let math = find(handle)?.settings()?.math;
        put(mode, cublasMath_t(math))
    }
}

fn text(status: cublasStatus_t, which: usize) -> *const c_char {
    let known = STATUS.iter().find(|(number, ..)| *number == status.0);
    let unknown = (0, c"CUBLAS_STATUS_UNKNOWN", c"unknown error");
    let (_, name, meaning) = known.copied().unwrap_or(unknown);
    [name, meaning][which].as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusName(status: cublasStatus_t) -> *const c_char {
    text(status, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusString(status: cublasStatus_t) -> *const c_char {
    text(status, 1)
}
