//! Handles of the driver, ours and those of `cust`.
//!
//! Both name the same objects of the same primary contexts, so that a program can use `cust` next to Carve. What Carve
//! gives out goes into `cust` as it is: an address as `cust::memory::DevicePointer::from_raw(address.0)`.
//!
//! What `cust` makes belongs to the context that is current on its thread. Each call of ours makes that of its device current, so with
//! several devices `cust`'s objects are made before, or after its own context was made current again.

use crate::{
    DevicePtr, RawEvent, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawModule, RawPool,
    RawStream,
};
use cust_raw::{
    CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmemoryPool, CUmodule, CUstream,
};
use std::ptr::with_exposed_provenance_mut;

macro_rules! handles {
    ($($function:ident $ours:ident $theirs:ident;)*) => { $(
        /// The pointer that the driver knows the object by.
        #[inline]
        pub(super) fn $function(handle: $ours) -> $theirs {
            with_exposed_provenance_mut(handle.raw() as usize)
        }
    )* };
}

handles! {
    stream_handle RawStream CUstream;
    event_handle RawEvent CUevent;
    pool_handle RawPool CUmemoryPool;
    module_handle RawModule CUmodule;
    function_handle RawFunction CUfunction;
    graph_handle RawGraph CUgraph;
    exec_handle RawGraphExec CUgraphExec;
    node_handle RawGraphNode CUgraphNode;
}

/// A `cust` stream as the port names it.
///
/// # Safety
/// The stream is alive whenever the handle is used, and belongs to the primary context of the device that is named with
/// it, as those of `cust::quick_init` and `cust::context::Context` do.
#[must_use]
pub unsafe fn raw_stream(stream: &cust::stream::Stream) -> RawStream {
    // SAFETY: the driver has given the number out for a stream; the caller answers for its life.
    unsafe { RawStream::from_raw(stream.as_inner().expose_provenance() as u64) }
}

/// A function of a `cust` module as the port names it. The module itself tells no handle to anybody; the port needs none but to look
/// up functions.
///
/// # Safety
/// The function's module is alive whenever the handle is used, and was loaded in the primary context of the device that
/// is named with it.
#[must_use]
pub unsafe fn raw_function(function: &cust::function::Function<'_>) -> RawFunction {
    // SAFETY: the driver has given the number out for a function; the caller answers for its module's life.
    unsafe { RawFunction::from_raw(function.to_raw().expose_provenance() as u64) }
}

/// Where the memory of a `cust` slice or buffer is. What it may be used for is the caller's to know: no ledger knows of it.
#[must_use]
pub fn device_ptr<T: cust::memory::DeviceCopy>(memory: &cust::memory::DeviceSlice<T>) -> DevicePtr {
    DevicePtr(memory.as_device_ptr().as_raw())
}
