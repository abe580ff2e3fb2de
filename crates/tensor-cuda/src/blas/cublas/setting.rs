//! What a handle is set to: the stream that it queues on, and then its scratch memory.

use super::calls::{CUstream_st, cublasStatus_t};
use super::library::Library;
use super::owned::RawHandle;
use cuda_driver::{DevicePtr, RawStream};
use cuda_runtime::StreamId;
use std::ptr::with_exposed_provenance_mut;

/// A function of the library, and what it returned; the name is empty when nothing failed.
pub(super) type Called = (&'static str, cublasStatus_t);

/// Where a handle queues, and its workspace: address and bytes. Names of streams are never used again, as their addresses may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) stream: StreamId,
    pub(super) workspace: (DevicePtr, usize),
}

impl Setting {
    /// Sets a handle that was set to `before`, which is nothing when that is not known: what differs.
    ///
    /// # Safety
    /// As for [`set`].
    pub(super) unsafe fn change(
        self,
        library: &Library,
        handle: RawHandle,
        before: Option<Self>,
        stream: RawStream,
    ) -> Called {
        let same_stream = before.is_some_and(|before| before.stream == self.stream);
        match before {
            Some(before) if before == self => ("", cublasStatus_t::SUCCESS),
            // SAFETY: the caller's promise.
            _ => unsafe {
                let stream = (!same_stream).then_some(stream);
                set(library, handle, stream, self.workspace)
            },
        }
    }
}

/// Sets a handle to a stream, unless it is there, and to a workspace then: to set a stream takes the workspace away.
///
/// # Safety
/// The handle is for this thread alone, and its context is current. The stream is alive while work is queued on it, and each product
/// that uses the workspace has an access of it.
pub(super) unsafe fn set(
    library: &Library,
    handle: RawHandle,
    stream: Option<RawStream>,
    (address, bytes): (DevicePtr, usize),
) -> Called {
    let functions = &library.handles;
    if let Some(stream) = stream {
        let stream = with_exposed_provenance_mut::<CUstream_st>(stream.raw() as usize);
        // SAFETY: the caller's promise.
        let status = unsafe { (functions.cublasSetStream_v2)(handle.0, stream) };
        if status != cublasStatus_t::SUCCESS {
            return ("cublasSetStream", status);
        }
    }
    let address = with_exposed_provenance_mut(address.0 as usize);
    // SAFETY: the caller's promise.
    let status = unsafe { (functions.cublasSetWorkspace_v2)(handle.0, address, bytes) };
    if status != cublasStatus_t::SUCCESS {
        return ("cublasSetWorkspace", status);
    }
    ("", cublasStatus_t::SUCCESS)
}
