//! The CUDA driver as a small, object-safe port without policy.
//!
//! [`Driver`] is what Carve needs of a device: discovery, streams and events, memory, copies, kernels, capture and
//! graphs, with the semantics of the CUDA driver API. Everything above the port is written once; below it stand a
//! simulated device (crate `cuda-sim`) and, behind feature `cuda`, the hardware (module `hardware`). The port
//!
//! - holds no state that a driver would not hold, and decides nothing;
//! - names objects by plain integers ([`RawStream`], [`DevicePtr`], ...), which are reused and prove nothing;
//! - takes the device of every call, so that an implementation can make its context current;
//! - is `unsafe` where a driver can be made to touch memory it must not, and where a handle is made from a number;
//! - reports a [`CudaError`] with code, symbolic name, call and device, and counts every call in [`CallCounters`].
//!
//! Who validates: the port's users check what would be undefined; implementations return the driver's own codes.
//!
//! ```
//! use cuda_driver::{CudaError, ErrorCode, Call, DeviceId};
//! let error = CudaError::new(ErrorCode::OUT_OF_MEMORY, Call::MemAlloc, Some(DeviceId(1)));
//! assert_eq!(error.to_string(), "cuMemAlloc returned CUDA_ERROR_OUT_OF_MEMORY [2] on device 1");
//! ```
//!
//! # Modules
//!
//! One concept per file: [`Devices`] (`device`), [`Streams`] and [`Events`] (`stream`), [`Memory`] (`memory`),
//! [`Copies`] (`copy`), [`Kernels`] and [`KernelDeclaration`] (`kernel`), [`LaunchConfig`] (`launch`), [`ModelLaunch`] (`model`), [`Argument`]
//! (`argument`), [`Capture`] and [`Graphs`] (`capture`), [`CallSite`] (`site`), handles, calls (counted in a `lane` per thread) and errors; `hardware`
//! (the NVIDIA driver) and [`hardware_models`] (kernels for an emulated one).

mod argument;
mod call;
mod capture;
mod copy;
mod device;
mod error;
mod handle;
#[cfg(feature = "cuda")]
pub mod hardware;
pub mod hardware_models;
mod kernel;
mod lane;
mod launch;
mod memory;
mod model;
mod site;
mod stream;

pub use argument::{Argument, Arguments, Scalar};
pub use call::{Call, CallCounters, CallCounts};
pub use capture::{Capture, CaptureMode, CaptureStatus, GraphFlags, GraphUpdate, Graphs};
pub use copy::{Copies, CopyRows, Pattern};
pub use device::{DeviceProperties, Devices};
pub use error::{CudaError, CudaResult, ErrorCode};
pub use handle::{
    DeviceId, DevicePtr, RawEvent, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawModule,
    RawPool, RawStream,
};
pub use kernel::{
    Access, FlopsFn, Footprint, FootprintFn, KernelDeclaration, Kernels, ModelFn, ModuleImage,
    Param, Region,
};
pub use launch::{LaunchConfig, LaunchError};
pub use memory::{Memory, PoolUsage};
pub use model::{ModelError, ModelLaunch, ModelMemory};
pub use site::CallSite;
pub use stream::{EventFlags, Events, Streams};

use std::fmt;

/// A driver: all parts of the port, usable from any thread.
///
/// Later parts of the driver API come as further supertraits or provided methods; existing calls keep their form.
///
/// # Safety
/// Layers above build safe interfaces on what an implementation answers. It promises that
///
/// - memory that it gives out, of the device or of the host, has the size and alignment asked for and belongs to the
///   caller alone until it is freed; host memory may be read and written;
/// - it touches memory only as the calls and the declarations of kernels say, in an order that streams, events and
///   host waits allow, and no more once a wait or a query has said that the work is done;
/// - handles name what they were given out for until that is destroyed;
/// - after an error a call has had no effect, but for errors of earlier work that it reports.
///
/// A call may unwind only before it has had any effect.
pub unsafe trait Driver:
    Devices + Streams + Events + Memory + Copies + Kernels + Capture + Graphs + fmt::Debug + Send + Sync
{
    /// What answers: `simulated`, or the driver's own name and version.
    fn name(&self) -> String;

    /// Whether devices are simulated.
    fn is_simulated(&self) -> bool;

    /// The live counters of the calls that this driver received.
    fn counters(&self) -> &CallCounters;
}
