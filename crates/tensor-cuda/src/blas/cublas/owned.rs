//! A handle of the library, from its making to its end.

use super::calls::{cublasAtomicsMode_t, cublasHandle_t, cublasPointerMode_t, cublasStatus_t};
use super::error::{CublasError, CublasStatus, FailedCall, ProductSizes};
use super::library::Library;
use super::provider::Cublas;
use crate::TensorResult;
use cuda_runtime::{Device, RuntimeError};
use std::ptr::null_mut;

/// A handle. It ends when nothing can need it any more: a graph that holds products of it keeps it.
///
/// The library's own end of a handle waits for the whole device, which captures forbid, and which a thread that drops something must
/// not: so a thread of the device makes that call, between captures.
#[derive(Debug)]
pub(super) struct Owned {
    raw: RawHandle,
    library: &'static Library,
    device: Device,
}

/// The library's name of a handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawHandle(pub(super) cublasHandle_t);

// SAFETY: cuBLAS takes its handles on any thread, one at a time: whoever makes a call has its `CublasHandle` for itself, or is the last
// one to know it.
unsafe impl Send for RawHandle {}
// SAFETY: as above; a shared one is only kept.
unsafe impl Sync for RawHandle {}

/// What a call of the library returned.
pub(super) fn check(
    library: &'static Library,
    function: &'static str,
    status: cublasStatus_t,
    product: impl FnOnce() -> Option<ProductSizes>,
) -> Result<(), CublasError> {
    if status == cublasStatus_t::SUCCESS {
        return Ok(());
    }
    Err(failed(library, function, status, product()))
}

#[cold]
fn failed(
    library: &'static Library,
    function: &'static str,
    status: cublasStatus_t,
    product: Option<ProductSizes>,
) -> CublasError {
    CublasError::Call(Box::new(FailedCall {
        function,
        library: library.name,
        status: CublasStatus(status.0),
        product,
    }))
}

impl Owned {
    /// A handle on `device`, set to scalars of the host, the provider's math mode and no atomic sums. It is no part of a capture that
    /// another thread has open.
    #[track_caller]
    pub(super) fn new(provider: &Cublas, device: &Device) -> TensorResult<Self> {
        let id = device.id();
        if device.driver().is_simulated() {
            return Err(CublasError::Simulated { device: id }.into());
        }
        let library = provider.library();
        let made = device.call_outside_captures(|driver| {
            driver.make_current(id)?;
            let mut raw = null_mut();
            // SAFETY: the pointer is to a handle of ours; the device's context is current.
            let status = unsafe { (library.handles.cublasCreate_v2)(&mut raw) };
            Ok((RawHandle(raw), status))
        });
        let (raw, status) = made?;
        check(library, "cublasCreate", status, || None)?;
        let owned = Self {
            raw,
            library,
            device: device.clone(),
        };
        let functions = &library.handles;
        device.call_outside_captures(|driver| driver.make_current(id))?;
        // SAFETY: the handle was just made, in the context that is current, and nobody else has it; here and below.
        let status =
            unsafe { (functions.cublasSetPointerMode_v2)(raw.0, cublasPointerMode_t::HOST) };
        check(library, "cublasSetPointerMode", status, || None)?;
        // SAFETY: as above.
        let status = unsafe { (functions.cublasSetMathMode)(raw.0, provider.math_mode()) };
        check(library, "cublasSetMathMode", status, || None)?;
        // SAFETY: as above.
        let status =
            unsafe { (functions.cublasSetAtomicsMode)(raw.0, cublasAtomicsMode_t::NOT_ALLOWED) };
        check(library, "cublasSetAtomicsMode", status, || None)?;
        Ok(owned)
    }

    pub(super) fn raw(&self) -> RawHandle {
        self.raw
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.device.is_poisoned() {
            // What it has may be in use for ever.
            return;
        }
        let (raw, library, id) = (self.raw, self.library, self.device.id());
        self.device.call_late(move |driver| {
            let raw = raw;
            driver.make_current(id)?;
            // The library may do that by itself; it does not say so of every version.
            driver.device_synchronize(id)?;
            // SAFETY: the handle's context is current, its work is over, and this was the last one to know it.
            let status = unsafe { (library.handles.cublasDestroy_v2)(raw.0) };
            match status {
                cublasStatus_t::SUCCESS => Ok(()),
                cublasStatus_t(status) => Err(RuntimeError::Library {
                    library: library.name,
                    function: "cublasDestroy",
                    status: status as i32,
                }),
            }
        });
    }
}
