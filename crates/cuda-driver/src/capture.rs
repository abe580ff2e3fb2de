//! Stream capture and graphs.

use crate::{CudaResult, DeviceId, RawGraph, RawGraphExec, RawStream};

/// How strictly a capture forbids calls that could not be captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaptureMode {
    /// Unsafe calls are forbidden on every thread while the capture is open.
    Global,
    /// Unsafe calls are forbidden on the capturing thread.
    ThreadLocal,
    /// Nothing is forbidden that the driver can't forbid anyway.
    Relaxed,
}

/// What a stream says of its capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    /// The stream does not capture.
    None,
    /// The stream captures, as part of the capture with this id (unique in the process).
    Active(u64),
    /// The stream's capture was invalidated; it must be ended.
    Invalidated,
}

/// Stream capture.
pub trait Capture {
    /// Begins to capture work of `stream` instead of running it.
    ///
    /// # Errors
    /// A capture error when the stream captures already.
    fn capture_begin(
        &self,
        device: DeviceId,
        stream: RawStream,
        mode: CaptureMode,
    ) -> CudaResult<()>;

    /// Ends the capture that was begun on `stream`; the graph belongs to the caller. On an error the capture is
    /// over as well, and there is no graph.
    ///
    /// # Errors
    /// The capture errors: invalidated, unjoined, unmatched, wrong thread.
    fn capture_end(&self, device: DeviceId, stream: RawStream) -> CudaResult<RawGraph>;

    /// Whether the stream captures.
    ///
    /// # Errors
    /// `INVALID_HANDLE`.
    fn capture_status(&self, device: DeviceId, stream: RawStream) -> CudaResult<CaptureStatus>;

    /// Sets this thread's mode for calls that a capture could forbid; returns the earlier one.
    ///
    /// # Errors
    /// The driver's own.
    fn exchange_capture_mode(&self, mode: CaptureMode) -> CudaResult<CaptureMode>;
}

/// Graphs and their executable form.
pub trait Graphs {
    /// Number of nodes of a graph.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the handle names no graph.
    fn graph_node_count(&self, device: DeviceId, graph: RawGraph) -> CudaResult<usize>;

    /// An executable form of the graph; the graph itself may be destroyed afterwards.
    ///
    /// # Errors
    /// The driver's own.
    fn graph_instantiate(&self, device: DeviceId, graph: RawGraph) -> CudaResult<RawGraphExec>;

    /// Queues one replay. Replays of one executable graph are ordered among themselves.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the graph holds allocations of an earlier launch that were not freed.
    ///
    /// # Safety
    /// Everything that the nodes touch is alive until the replay has completed and ordered with it, and no other
    /// thread is in a call with the same executable graph.
    unsafe fn graph_launch(
        &self,
        device: DeviceId,
        exec: RawGraphExec,
        stream: RawStream,
    ) -> CudaResult<()>;

    /// Destroys a graph.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the handle names no graph.
    ///
    /// # Safety
    /// Nobody uses the handle afterwards.
    unsafe fn graph_destroy(&self, device: DeviceId, graph: RawGraph) -> CudaResult<()>;

    /// Destroys an executable graph. A replay under way finishes.
    ///
    /// # Errors
    /// `INVALID_VALUE` when the handle names no executable graph.
    ///
    /// # Safety
    /// Nobody uses the handle afterwards.
    unsafe fn graph_exec_destroy(&self, device: DeviceId, exec: RawGraphExec) -> CudaResult<()>;
}
