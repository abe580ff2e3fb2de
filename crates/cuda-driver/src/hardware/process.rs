//! What the driver is to this process: opened once, its primary contexts kept to the end, and lost to forked children.

use super::calls::{
    cuCtxGetCurrent, cuCtxSetCurrent, cuDeviceGet, cuDeviceGetCount, cuDevicePrimaryCtxRetain,
    cuDriverGetVersion, cuInit,
};
use super::open_error::OpenError;
use crate::{DeviceId, ErrorCode};
use cust_raw::CUcontext;
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The oldest driver with everything that is called here: CUDA 11.7, since kernels are compiled for it.
pub(super) const OLDEST_VERSION: u32 = 11_070;

/// Set in a child that was forked after the driver was opened. Such a child can't use it, nor can it open it again.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The process that opened the driver; 0 when none has.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

static OPEN: Mutex<Option<&'static Process>> = Mutex::new(None);

/// The opened driver.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) version: u32,
    /// The primary context of each device; null until the device is first used. They are never released: other code of
    /// the process may use them, and a context that is made anew could have the old one's address.
    contexts: Box<[AtomicPtr<cust_raw::CUctx_st>]>,
    retaining: Mutex<()>,
}

thread_local! {
    /// The context that this module last saw to be current on this thread; null at first.
    static CURRENT: Cell<CUcontext> = const { Cell::new(null_mut()) };
}

pub(super) fn check(result: c_int) -> Result<(), ErrorCode> {
    match result {
        0 => Ok(()),
        code => Err(ErrorCode(code as u32)),
    }
}

/// Forgets which context is current on this thread: the next call looks.
pub(super) fn forget_current_context() {
    CURRENT.set(null_mut());
}

/// The process that opened the driver, when it was one of those that Carve knows of.
pub(super) fn opened_by() -> Option<u32> {
    match OPENED_BY.load(Ordering::Relaxed) {
        0 => None,
        pid => Some(pid),
    }
}

pub(super) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Opens the driver, or returns what was opened before.
pub(super) fn open() -> Result<&'static Process, OpenError> {
    if is_forked() {
        // The lock may have been held by a thread that the child does not have.
        return Err(OpenError::forked());
    }
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(process) = *open {
        return Ok(process);
    }
    // SAFETY: the call takes no pointers.
    check(unsafe { cuInit(0) }).map_err(OpenError::from_init)?;
    let mut version = 0;
    // SAFETY: the pointer is to an integer of ours.
    check(unsafe { cuDriverGetVersion(&mut version) }).map_err(OpenError::from_init)?;
    let version = version.unsigned_abs();
    if version < OLDEST_VERSION {
        return Err(OpenError::TooOld {
            version: Some(version),
        });
    }
    let mut count = 0;
    // SAFETY: as above.
    check(unsafe { cuDeviceGetCount(&mut count) }).map_err(OpenError::from_init)?;
    if count <= 0 {
        return Err(OpenError::no_device());
    }
    OPENED_BY.store(std::process::id(), Ordering::Relaxed);
    watch_forks();
    let process = Box::leak(Box::new(Process {
        version,
        contexts: (0..count).map(|_| AtomicPtr::new(null_mut())).collect(),
        retaining: Mutex::new(()),
    }));
    *open = Some(process);
    Ok(process)
}

/// From now on children of this process know that they are.
fn watch_forks() {
    unsafe extern "C" {
        fn pthread_atfork(
            prepare: Option<unsafe extern "C" fn()>,
            parent: Option<unsafe extern "C" fn()>,
            child: Option<unsafe extern "C" fn()>,
        ) -> c_int;
    }
    unsafe extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler stores to an atomic, which a child may do at any time. The one failure, no memory, leaves
    // children with the driver's own refusal.
    let _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
}

impl Process {
    /// Makes the context of `device` current on this thread. With `look`, or in builds with debug assertions, what the
    /// driver says is current is looked at; else what this module set last is trusted.
    #[inline]
    pub(super) fn enter(&self, device: DeviceId, look: bool) -> Result<(), ErrorCode> {
        if is_forked() {
            return Err(ErrorCode::NOT_INITIALIZED);
        }
        let context = self.context(device)?;
        if CURRENT.get() == context && !look && !cfg!(debug_assertions) {
            return Ok(());
        }
        make_current(context).map(drop)
    }

    /// After a call failed: whether another context was current than this module had made so. Now the right one is.
    #[cold]
    pub(super) fn was_switched(&self, device: DeviceId) -> bool {
        self.context(device).and_then(make_current).unwrap_or(false)
    }

    /// The primary context of a device, which is made when it is first asked for.
    #[inline]
    pub(super) fn context(&self, device: DeviceId) -> Result<CUcontext, ErrorCode> {
        let slot = self
            .contexts
            .get(device.0 as usize)
            .ok_or(ErrorCode::INVALID_DEVICE)?;
        let known = slot.load(Ordering::Acquire);
        if known.is_null() {
            self.retain(device, slot)
        } else {
            Ok(known)
        }
    }

    #[cold]
    fn retain(
        &self,
        device: DeviceId,
        slot: &AtomicPtr<cust_raw::CUctx_st>,
    ) -> Result<CUcontext, ErrorCode> {
        let _one_at_a_time = self
            .retaining
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = slot.load(Ordering::Acquire);
        if !known.is_null() {
            return Ok(known);
        }
        let handle = self.handle(device)?;
        let mut context = null_mut();
        // SAFETY: the pointer is to a handle of ours.
        check(unsafe { cuDevicePrimaryCtxRetain(&mut context, handle) })?;
        slot.store(context, Ordering::Release);
        Ok(context)
    }

    /// The driver's own name of a device.
    pub(super) fn handle(&self, device: DeviceId) -> Result<cust_raw::CUdevice, ErrorCode> {
        if device.0 as usize >= self.contexts.len() {
            return Err(ErrorCode::INVALID_DEVICE);
        }
        let mut handle = 0;
        // SAFETY: the pointer is to an integer of ours.
        check(unsafe { cuDeviceGet(&mut handle, device.0 as c_int) })?;
        Ok(handle)
    }
}

/// Makes a context current; true when another one, or none, was.
fn make_current(context: CUcontext) -> Result<bool, ErrorCode> {
    let mut now = null_mut();
    // SAFETY: the pointer is to a handle of ours.
    check(unsafe { cuCtxGetCurrent(&mut now) })?;
    let other = now != context;
    if other {
        // SAFETY: the context is a primary one that is never released.
        check(unsafe { cuCtxSetCurrent(context) })?;
    }
    CURRENT.set(context);
    Ok(other)
}
