//! A handle of the library, from its making to its next use.
//!
//! The library ends a handle with a wait for the whole device. That would stop other work, and invalidate whatever capture any code of
//! the process has open. So a handle that nobody needs any more is kept for who needs one next, and ended only when that is asked for.

use super::calls::{cublasAtomicsMode_t, cublasHandle_t, cublasPointerMode_t, cublasStatus_t};
use super::error::{CublasError, CublasStatus, FailedCall, ProductSizes};
use super::library::Library;
use super::needs::Target;
use super::provider::Cublas;
use crate::TensorResult;
use cuda_driver::DeviceId;
use cuda_runtime::{Device, OnUnwind, RuntimeError};
use parking_lot::Mutex;
use std::ptr::null_mut;

/// A handle in use: by products, or by a graph that holds some.
#[derive(Debug)]
pub(super) struct Owned {
    raw: RawHandle,
    library: &'static Library,
    device: Device,
}

/// The library's name of a handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawHandle(pub(super) cublasHandle_t);

// SAFETY: cuBLAS takes its handles on any thread, one at a time: whoever makes a call has its `CublasHandle` for itself, or took the
// handle from those that nobody has.
unsafe impl Send for RawHandle {}
// SAFETY: as above; a shared one is only kept.
unsafe impl Sync for RawHandle {}

/// Handles that nobody has, with the device in whose context they were made: that is never given up.
#[derive(Debug, Default)]
pub(super) struct Idle(Mutex<Vec<(DeviceId, RawHandle)>>);

impl Idle {
    fn take(&self, device: DeviceId) -> Option<RawHandle> {
        let mut idle = self.0.lock();
        let at = idle.iter().rposition(|(of, _)| *of == device)?;
        Some(idle.remove(at).1)
    }

    fn put(&self, device: DeviceId, raw: RawHandle) {
        self.0.lock().push((device, raw));
    }
}

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
    let call = failed_call(library, function, status, product());
    Err(CublasError::Call(Box::new(call)))
}

#[cold]
pub(super) fn failed_call(
    library: &'static Library,
    function: &'static str,
    status: cublasStatus_t,
    product: Option<ProductSizes>,
) -> FailedCall {
    FailedCall {
        function,
        library: library.name,
        status: CublasStatus(status.0),
        product,
    }
}

impl Owned {
    /// A handle on `device`, set to scalars of the host, the provider's math mode and no atomic sums: one that nobody has, or a new
    /// one. It is no part of a capture that another thread has open.
    #[track_caller]
    pub(super) fn new(provider: &Cublas, device: &Device) -> TensorResult<Self> {
        let library = provider.library();
        Target::of(device)?.check(&library.path, library.version)?;
        let raw = match library.idle.take(device.id()) {
            Some(raw) => raw,
            None => create(library, device)?,
        };
        // Given back also when it can't be set.
        let owned = Self {
            raw,
            library,
            device: device.clone(),
        };
        let functions = &library.handles;
        current(device)?;
        // SAFETY: nobody else has the handle, and its context is current; here and below.
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

    /// The device in whose context it was made.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }
}

/// Makes the device's context current on this thread.
fn current(device: &Device) -> Result<(), RuntimeError> {
    device.call_outside_captures(|driver| driver.make_current(device.id()))
}

#[cold]
fn create(library: &'static Library, device: &Device) -> TensorResult<RawHandle> {
    // It allocates memory, which a global capture forbids every thread that is not relaxed.
    let made = device.call_outside_captures(|driver| {
        driver.make_current(device.id())?;
        let mut raw = null_mut();
        // SAFETY: the pointer is to a handle of ours; the device's context is current.
        let status = unsafe { (library.handles.cublasCreate_v2)(&mut raw) };
        Ok((RawHandle(raw), status))
    });
    let (raw, status) = made?;
    check(library, "cublasCreate", status, || None)?;
    Ok(raw)
}

/// Ends the handles of a device that nobody has; how many those were. After an error the one that did not end is still there.
#[track_caller]
pub(super) fn end_idle(library: &'static Library, device: &Device) -> TensorResult<usize> {
    cuda_runtime::refuse_in_capture("ending handles of cuBLAS")?;
    let mut ended = 0;
    while let Some(raw) = library.idle.take(device.id()) {
        let unwound = OnUnwind::new(|| library.idle.put(device.id(), raw));
        let status = current(device).map(|()| {
            // SAFETY: nobody else has the handle, and its context is current. The library waits for its work.
            unsafe { (library.handles.cublasDestroy_v2)(raw.0) }
        });
        unwound.disarm();
        if !matches!(status, Ok(cublasStatus_t::SUCCESS)) {
            library.idle.put(device.id(), raw);
        }
        check(library, "cublasDestroy", status?, || None)?;
        ended += 1;
    }
    Ok(ended)
}

impl Drop for Owned {
    fn drop(&mut self) {
        // A handle of a lost context, or of the parent of a forked child, is of no use any more.
        if !self.device.is_forked() && !self.device.is_poisoned() {
            self.library.idle.put(self.device.id(), self.raw);
        }
    }
}
