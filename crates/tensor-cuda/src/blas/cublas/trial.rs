//! Trials of products that are captured.
//!
//! cuBLAS looks for a kernel, and loads it, when a product of a kind is queued first. In a capture that can fail and invalidate it;
//! and it takes long, under the lock of the stream. So before a product is captured, it is captured once beside: by a thread that no
//! capture restricts, on a stream of its own, into a graph that is thrown away. What has to be loaded is loaded then. Nothing runs,
//! and nothing is allocated. Where a driver loads kernels in no capture at all, the trial fails and the capture is as it was.

use super::calls::cublasStatus_t;
use super::library::Library;
use super::owned::RawHandle;
use super::product::{Form, Kind, Memory};
use super::setting::{Called, set};
use crate::blas::workspace::beside_capture;
use cuda_driver::{CaptureMode, CaptureStatus, CudaResult, DeviceId, DevicePtr, Driver, RawStream};
use cuda_runtime::{Device, OnUnwind, RuntimeResult};
use parking_lot::Mutex;
use std::collections::HashSet;

/// Kinds that are remembered. More are tried again, which costs a little.
const REMEMBERED: usize = 4096;

/// Kinds of products that were tried, with their devices and the workspace's bytes.
#[derive(Debug, Default)]
pub(super) struct Trials(Mutex<HashSet<(DeviceId, usize, Kind)>>);

/// A product that is to be captured.
pub(super) struct Trial<'t> {
    pub(super) device: &'t Device,
    pub(super) library: &'static Library,
    pub(super) handle: RawHandle,
    pub(super) form: &'t Form,
    pub(super) memory: &'t Memory,
    pub(super) workspace: (DevicePtr, usize),
}

impl Trial<'_> {
    /// Tries the product, unless one of its kind was. `None` when it was; else the last function that was called, with its status. The
    /// handle is set to another stream then.
    pub(super) fn run(&self, kind: Kind) -> RuntimeResult<Option<Called>> {
        let key = (self.device.id(), self.workspace.1, kind);
        let tried = &self.library.trials.0;
        if tried.lock().contains(&key) {
            return Ok(None);
        }
        let capture = |driver: &dyn Driver| self.capture(driver);
        let called = beside_capture(|| self.device.call_outside_captures(capture))?;
        if called.1 == cublasStatus_t::SUCCESS {
            let mut tried = tried.lock();
            if tried.len() >= REMEMBERED {
                tried.clear();
            }
            tried.insert(key);
        }
        Ok(Some(called))
    }

    /// Captures the product on a stream of its own. The thread is left relaxed: it ends.
    fn capture(&self, driver: &dyn Driver) -> CudaResult<Called> {
        let device = self.device.id();
        driver.make_current(device)?;
        driver.exchange_capture_mode(CaptureMode::Relaxed)?;
        let stream = driver.stream_create(device, 0)?;
        // SAFETY: nothing is queued on the stream, and nobody else knows it. The handle is set anew before it is used again.
        let destroy = || unsafe { driver.stream_destroy(device, stream) };
        let unwound = OnUnwind::new(|| {
            if is_captured(driver, device, stream) {
                let _ = discard(driver, device, stream);
            }
            let _ = destroy();
        });
        let called = self.capture_on(driver, stream);
        unwound.disarm();
        let destroyed = destroy();
        let called = called?;
        destroyed.map(|()| called)
    }

    /// Captures the product on `stream`, and throws the graph away.
    fn capture_on(&self, driver: &dyn Driver, stream: RawStream) -> CudaResult<Called> {
        let device = self.device.id();
        driver.capture_begin(device, stream, CaptureMode::Relaxed)?;
        // SAFETY: whoever tries has the handle for itself, and its context is current. The stream is alive, and what is queued on it
        // never runs.
        let called = unsafe { self.queue(stream) };
        let discarded = discard(driver, device, stream);
        if discarded.is_err() && is_captured(driver, device, stream) {
            // A stream can't be destroyed while it is captured. The first failure is the one that is told.
            let _ = discard(driver, device, stream);
        }
        match discarded {
            // What failed in it says more, unless the device is lost.
            Err(error) if called.1 == cublasStatus_t::SUCCESS || error.code.is_sticky() => {
                Err(error)
            }
            _ => Ok(called),
        }
    }

    /// Queues the product on `stream`.
    ///
    /// # Safety
    /// As for [`Form::queue`].
    unsafe fn queue(&self, stream: RawStream) -> Called {
        // SAFETY: the caller's promise.
        match unsafe { set(self.library, self.handle, Some(stream), self.workspace) } {
            // SAFETY: the caller's promise.
            ("", _) => unsafe { self.form.queue(self.library, self.handle.0, self.memory) },
            failed => failed,
        }
    }
}

/// Ends the capture of `stream` and throws its graph away.
fn discard(driver: &dyn Driver, device: DeviceId, stream: RawStream) -> CudaResult<()> {
    let graph = driver.capture_end(device, stream)?;
    // SAFETY: nobody else knows the graph.
    unsafe { driver.graph_destroy(device, graph) }
}

/// Whether a capture of `stream` is there to be ended.
fn is_captured(driver: &dyn Driver, device: DeviceId, stream: RawStream) -> bool {
    let status = driver.capture_status(device, stream);
    status.is_ok_and(|status| status != CaptureStatus::None)
}
