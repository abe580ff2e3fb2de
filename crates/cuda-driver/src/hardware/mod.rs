//! Real devices: the port over the NVIDIA driver.
//!
//! [`open`] finds the driver and says why when there is none. What it returns is a [`Driver`] as the simulated one is:
//!
//! - each call of the port is one call of the driver, made in the primary context of the device that it names;
//! - results are plain integers, so that codes of newer drivers than `cust_raw` knows come through unharmed;
//! - which context is current is remembered for each thread. Whoever makes another one current, with `cust` or by hand,
//!   has to tell by [`context_was_switched`]. Builds with debug assertions look each time; others look before calls that
//!   make something, and when a call is refused because of its context;
//! - a child that was forked after the driver was opened gets `NOT_INITIALIZED` from every call, and the driver is not
//!   called.
//!
//! Who validates: the driver. Errors that cross: [`OpenError`] from opening, the driver's codes from calls.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use cuda_driver::{Driver, Devices, hardware};
//! let driver = hardware::open()?;
//! println!("{}: {} devices", driver.name(), driver.device_count()?);
//! # Ok(()) }
//! ```
//!
//! # Modules
//!
//! `calls` (the driver's functions), `process` (contexts, forks), `open_error`, one file per part of the port
//! (`devices`, `streams`, `memory`, `copies`, `kernels`, `capture`, `graphs`), `closures` (host functions and who frees them),
//! `share` (objects of `cust`).

mod calls;
mod capture;
mod closures;
mod copies;
mod devices;
mod graphs;
mod kernels;
mod memory;
mod open_error;
mod process;
mod share;
mod streams;

pub use kernels::{driver_function, register_models};
pub use open_error::OpenError;
pub use share::{device_ptr, raw_function, raw_stream};

use crate::{Call, CallCounters, CudaError, CudaResult, DeviceId, Driver, ErrorCode};
use process::Process;
use std::ffi::c_int;

/// The NVIDIA driver of this process. Made by [`open`]; several have counters of their own and share all else.
#[derive(Debug)]
pub struct Hardware {
    process: &'static Process,
    counters: CallCounters,
}

/// Opens the driver: `libcuda.so.1`, wherever the loader finds it.
///
/// # Errors
/// [`OpenError`]: no driver, one that is too old, no device, a forked child, or what the driver says.
pub fn open() -> Result<Hardware, OpenError> {
    Ok(Hardware {
        process: process::open()?,
        counters: CallCounters::default(),
    })
}

/// Says that another context may be current on this thread than that of the last call here: the next call looks.
///
/// Call it after `cuCtxSetCurrent`, `cuCtxPushCurrent` or `cuCtxPopCurrent`, and after making a `cust` context current.
pub fn context_was_switched() {
    process::forget_current_context();
}

impl Hardware {
    /// What the driver supports, as 1000 times CUDA's major version plus 10 times its minor one.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.process.version
    }

    /// One call in the context of `device` that is refused when another context is current.
    #[inline]
    fn call(&self, call: Call, device: DeviceId, body: impl Fn() -> c_int) -> CudaResult<()> {
        self.counters.record(call);
        let result = self.process.enter(device, false).and_then(|()| {
            match process::check(body()) {
                // The driver has done nothing, so that the call can be made again.
                Err(ErrorCode::INVALID_HANDLE | ErrorCode::INVALID_CONTEXT)
                    if self.process.was_switched(device) =>
                {
                    process::check(body())
                }
                result => result,
            }
        });
        result.map_err(|code| CudaError::new(code, call, Some(device)))
    }

    /// One call that would take effect in whichever context is current.
    fn call_in_context(
        &self,
        call: Call,
        device: DeviceId,
        body: impl FnOnce() -> c_int,
    ) -> CudaResult<()> {
        self.counters.record(call);
        self.uncounted(call, device, body)
    }

    /// A call that serves another one, of which an error speaks.
    fn uncounted(
        &self,
        call: Call,
        device: DeviceId,
        body: impl FnOnce() -> c_int,
    ) -> CudaResult<()> {
        self.process
            .enter(device, true)
            .and_then(|()| process::check(body()))
            .map_err(|code| CudaError::new(code, call, Some(device)))
    }

    /// A call whose answer is `NOT_READY` or nothing.
    fn is_ready(&self, call: Call, device: DeviceId, body: impl Fn() -> c_int) -> CudaResult<bool> {
        match self.call(call, device, body) {
            Ok(()) => Ok(true),
            Err(error) if error.code == ErrorCode::NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }
}

// SAFETY: the driver promises what the trait asks for, in the primary context of each device; every method makes one
// call of it, with pointers to values that outlive the call. Nothing here unwinds once the driver was called.
unsafe impl Driver for Hardware {
    fn name(&self) -> String {
        format!(
            "NVIDIA driver for CUDA {}.{}",
            self.version() / 1000,
            self.version() % 1000 / 10
        )
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn counters(&self) -> &CallCounters {
        &self.counters
    }
}
