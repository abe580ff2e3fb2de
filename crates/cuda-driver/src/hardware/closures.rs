//! Host functions: Rust closures behind the driver's function and pointer, and who frees them.

use super::Hardware;
use super::calls::{
    cuGraphRetainUserObject, cuLaunchHostFunc, cuUserObjectCreate, cuUserObjectRelease,
};
use super::share::stream_handle;
use crate::{Call, CaptureStatus, CudaResult, DeviceId, RawStream};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

type Function = Arc<dyn Fn() + Send + Sync>;

/// The only flag of user objects, and required: their destructor runs without order to the device.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// The graph takes over the caller's reference.
const MOVE: u32 = 1;

impl Hardware {
    /// Queues a function. Outside a capture it is freed after its call; if the context fails before that, it leaks. In a
    /// capture the graph owns it, and all that are made from it.
    pub(super) fn queue_function(
        &self,
        device: DeviceId,
        stream: RawStream,
        function: Function,
    ) -> CudaResult<()> {
        let info = self.capture_info(device, stream)?;
        let data: *mut c_void = Box::into_raw(Box::new(function)).cast();
        if info.status == CaptureStatus::None {
            // SAFETY: the function takes such data, once.
            let queued = self.call(Call::LaunchHostFunc, device, || unsafe {
                cuLaunchHostFunc(stream_handle(stream), Some(call_once), data)
            });
            if queued.is_err() {
                // SAFETY: the driver has not taken it.
                unsafe { free(data) };
            }
            return queued;
        }
        let mut object = null_mut();
        let made = self.uncounted(Call::LaunchHostFunc, device, || {
            // SAFETY: the pointer is to a handle of ours; the destructor takes such data, once.
            unsafe { cuUserObjectCreate(&mut object, data, Some(free), 1, NO_DESTRUCTOR_SYNC) }
        });
        if let Err(error) = made {
            // SAFETY: the driver has not taken it.
            unsafe { free(data) };
            return Err(error);
        }
        // SAFETY: the graph is the one that the stream's capture builds, the object the one that was just made.
        let kept = self.uncounted(Call::LaunchHostFunc, device, || unsafe {
            cuGraphRetainUserObject(info.graph, object, 1, MOVE)
        });
        if kept.is_err() {
            // SAFETY: the reference is still ours.
            let _ = unsafe { cuUserObjectRelease(object, 1) };
            return kept;
        }
        // SAFETY: the function takes such data; the graph keeps it for every replay.
        self.call(Call::LaunchHostFunc, device, || unsafe {
            cuLaunchHostFunc(stream_handle(stream), Some(call_again), data)
        })
    }
}

/// The driver calls this once.
unsafe extern "C" fn call_once(data: *mut c_void) {
    // SAFETY: the data was boxed for this call.
    let function = unsafe { Box::from_raw(data.cast::<Function>()) };
    guarded(&function);
}

/// The driver calls this at every replay.
unsafe extern "C" fn call_again(data: *mut c_void) {
    // SAFETY: the graph keeps the data alive.
    guarded(unsafe { &*data.cast::<Function>() });
}

/// A panic can't go into the driver, nor be told to anyone: it ends here, after the hook has printed it.
fn guarded(function: &Function) {
    let _ = catch_unwind(AssertUnwindSafe(|| function()));
}

unsafe extern "C" fn free(data: *mut c_void) {
    // SAFETY: the data was boxed, and this is its last use.
    let function = unsafe { Box::from_raw(data.cast::<Function>()) };
    // A panic of a destructor ends here as well.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(function)));
}
