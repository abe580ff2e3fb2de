//! Kernels as a library has them: another one for each kind of product, and loaded when it is used first.
//!
//! As the emulated driver has it, the first launch loads a kernel, and a capture forbids that. Some drivers are milder: they load a
//! kernel for a thread that is relaxed, whatever is captured. [`allow_in_captures`] makes this one of those.

use crate::driver::{Driver, Handle, check, driver};
use crate::kernels::{IMAGE, NAMES};
use crate::types::Status;
use cuda_driver::hardware_models::{entry_points, register};
use parking_lot::Mutex;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};

/// What has a kernel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Its model, by position in [`NAMES`].
    pub(crate) model: usize,
    /// How A and B take part.
    pub(crate) operations: [u64; 2],
    pub(crate) batch: Batch,
}

/// How products are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    One,
    Strided,
    Pointers,
}

/// A kernel of a context.
#[derive(Debug)]
struct Known {
    context: Handle,
    kind: Kind,
    function: Handle,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

static IN_CAPTURES: AtomicBool = AtomicBool::new(false);

/// Whether kernels are loaded while a capture is open.
pub(crate) fn allow_in_captures(allowed: bool) {
    IN_CAPTURES.store(allowed, Ordering::Relaxed);
}

/// The kernel of a kind, in the current context, which is `context`.
pub(crate) fn function(context: Handle, kind: Kind) -> Result<Handle, Status> {
    let driver = driver()?;
    let mut known = KNOWN.lock();
    let mut found = known.iter();
    let found = found.find(|known| known.context == context && known.kind == kind);
    let function = match found {
        Some(known) => known.function,
        None => {
            let function = driver.relaxed(|| find(driver, kind))?;
            known.push(Known {
                context,
                kind,
                function,
            });
            function
        }
    };
    if IN_CAPTURES.load(Ordering::Relaxed) {
        load(driver, function)?;
    }
    Ok(function)
}

/// Loads a kernel without a launch, where no capture forbids that to this thread.
pub(crate) fn load(driver: &Driver, function: Handle) -> Result<(), Status> {
    // SAFETY: the call takes no pointer.
    check(unsafe { (driver.load_function)(function) }, "cuFuncLoad")
}

/// A function of a module of its own, which nothing has launched.
fn find(driver: &Driver, kind: Kind) -> Result<Handle, Status> {
    // SAFETY: the function was found under this name.
    unsafe { register(driver.register, &IMAGE) }.map_err(|_| Status::InternalError)?;
    let text = CString::new(entry_points(IMAGE.kernels)).map_err(|_| Status::InternalError)?;
    let mut module = 0;
    // SAFETY: the pointers are to a number of ours and to text that ends with a zero.
    let result = unsafe { (driver.load)(&mut module, text.as_ptr()) };
    check(result, "cuModuleLoadData")?;
    let (mut function, name) = (0, NAMES[kind.model]);
    // SAFETY: as above.
    let found = unsafe { (driver.function)(&mut function, module, name.as_ptr()) };
    check(found, "cuModuleGetFunction")?;
    Ok(function)
}
