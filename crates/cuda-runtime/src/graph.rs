//! Executable graphs, and what they keep alive.

use crate::RuntimeResult;
use crate::device::Device;
use crate::stream::Stream;
use cuda_driver::{CallSite, RawGraphExec};
use parking_lot::Mutex;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An executable graph. It knows nothing of buffers: the layer that owns the ledgers launches it in order.
pub struct Graph {
    device: Device,
    exec: RawGraphExec,
    nodes: usize,
    keep: Vec<Arc<dyn Any + Send + Sync>>,
    /// The driver wants launches of one executable graph from one thread at a time.
    launching: Mutex<()>,
}

impl Graph {
    pub(crate) fn new(
        device: Device,
        exec: RawGraphExec,
        nodes: usize,
        keep: Vec<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        device.core().live.graphs.fetch_add(1, Ordering::Relaxed);
        Self {
            device,
            exec,
            nodes,
            keep,
            launching: Mutex::new(()),
        }
    }

    /// The device that the graph was captured on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Queues one replay on `stream`, ordered with nothing but what is queued there and earlier replays.
    ///
    /// # Errors
    /// [`RuntimeError::WrongDevice`](crate::RuntimeError::WrongDevice),
    /// [`RuntimeError::CaptureActive`](crate::RuntimeError::CaptureActive) for a replay inside a capture, the driver's own.
    ///
    /// # Safety
    /// Everything that the nodes touch is alive until the replay has completed, and the caller has ordered `stream`
    /// with every other use of it.
    #[track_caller]
    pub unsafe fn launch_unordered(&self, stream: &Stream) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        crate::capture::refuse("launching a graph")?;
        stream.check_device(&self.device)?;
        let device = self.device.id();
        let _one = self.launching.lock();
        stream.slot().enqueue(|driver, raw| {
            // SAFETY: the caller's promise; the lock keeps other threads out.
            unsafe { driver.graph_launch(device, self.exec, raw) }
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let core = self.device.core();
        core.live.graphs.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the handle is known here alone; a replay under way finishes.
        let result =
            core.call_in_cleanup(|driver| unsafe { driver.graph_exec_destroy(core.id, self.exec) });
        if let Err(error) = result {
            core.park(error);
        }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("device", &self.device.id())
            .field("nodes", &self.nodes)
            .field("keeps", &self.keep.len())
            .finish_non_exhaustive()
    }
}
