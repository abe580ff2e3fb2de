//! Stream capture and graphs.

use crate::error::not_supported;
use crate::{
    Argument, Call, CudaResult, DeviceId, LaunchConfig, RawFunction, RawGraph, RawGraphExec,
    RawGraphNode, RawStream,
};

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
    /// `ILLEGAL_STATE` when the stream captures already, which goes on.
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
    /// `ILLEGAL_STATE` when the stream does not capture; the capture errors: invalidated, unjoined, unmatched, wrong
    /// thread.
    fn capture_end(&self, device: DeviceId, stream: RawStream) -> CudaResult<RawGraph>;

    /// Whether the stream captures.
    ///
    /// # Errors
    /// `INVALID_HANDLE`.
    fn capture_status(&self, device: DeviceId, stream: RawStream) -> CudaResult<CaptureStatus>;

    /// The nodes that the stream's next captured work will follow: after one launch on it, that launch. Empty when the
    /// stream does not capture or has captured nothing.
    ///
    /// # Errors
    /// `INVALID_HANDLE`, `STREAM_CAPTURE_INVALIDATED`; `NOT_SUPPORTED` unless implemented.
    fn capture_frontier(
        &self,
        device: DeviceId,
        stream: RawStream,
    ) -> CudaResult<Vec<RawGraphNode>> {
        let _ = stream;
        Err(not_supported(Call::StreamGetCaptureInfo, device))
    }

    /// Makes all of `graph` one node of the stream's capture, behind what the stream has captured. The node keeps what it
    /// needs: the graph may be destroyed.
    ///
    /// # Errors
    /// `ILLEGAL_STATE` when the stream does not capture; `INVALID_VALUE` when the handle names no graph, or one that
    /// allocates or frees memory; `NOT_SUPPORTED` unless implemented.
    fn capture_child(
        &self,
        device: DeviceId,
        stream: RawStream,
        graph: RawGraph,
    ) -> CudaResult<()> {
        let _ = (stream, graph);
        Err(not_supported(Call::GraphAddChildGraphNode, device))
    }

    /// Sets this thread's mode for calls that a capture could forbid; returns the earlier one.
    ///
    /// # Errors
    /// The driver's own.
    fn exchange_capture_mode(&self, mode: CaptureMode) -> CudaResult<CaptureMode>;
}

/// How a graph is made executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GraphFlags {
    /// Whether a launch first frees what an earlier launch allocated and nobody has freed.
    pub auto_free_on_launch: bool,
}

impl GraphFlags {
    /// A launch first frees what an earlier launch allocated and nobody has freed.
    #[must_use]
    pub const fn with_auto_free_on_launch(mut self) -> Self {
        self.auto_free_on_launch = true;
        self
    }
}

/// What came of the update of an executable graph. Anything but `Updated` has changed nothing; a new executable graph is
/// then the way. The driver's code for all of those is `GRAPH_EXEC_UPDATE_FAILURE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an executable graph that was not updated still does what it did"]
#[non_exhaustive]
pub enum GraphUpdate {
    /// It was updated.
    Updated,
    /// The graphs have other nodes or other dependencies.
    TopologyChanged,
    /// A node does something of another kind.
    NodeTypeChanged,
    /// A kernel can't become that other one.
    FunctionChanged,
    /// A parameter changed that must stay as it is.
    ParametersChanged,
    /// A node is of a kind that can't be updated, such as an allocation.
    NotSupported,
    /// Another reason.
    Refused,
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

    /// As [`graph_instantiate`](Graphs::graph_instantiate), with flags.
    ///
    /// # Errors
    /// As there; `NOT_SUPPORTED` for flags other than the usual ones unless implemented.
    fn graph_instantiate_with(
        &self,
        device: DeviceId,
        graph: RawGraph,
        flags: GraphFlags,
    ) -> CudaResult<RawGraphExec> {
        if flags == GraphFlags::default() {
            self.graph_instantiate(device, graph)
        } else {
            Err(not_supported(Call::GraphInstantiate, device))
        }
    }

    /// Gives all nodes of an executable graph the parameters that the nodes of `graph` have, which is another capture of
    /// the same work. It counts from the next launch on; launches under way go on as they were.
    ///
    /// # Errors
    /// `INVALID_VALUE` when a handle names nothing; `NOT_SUPPORTED` unless implemented. That the graphs don't match is no
    /// error but an answer.
    ///
    /// # Safety
    /// No other thread is in a call with the same executable graph. Later launches touch what the nodes of `graph` do.
    unsafe fn graph_exec_update(
        &self,
        device: DeviceId,
        exec: RawGraphExec,
        graph: RawGraph,
    ) -> CudaResult<GraphUpdate> {
        let _ = (exec, graph);
        Err(not_supported(Call::GraphExecUpdate, device))
    }

    /// Gives one launch in an executable graph other parameters. `node` is a node of the graph that it was made of, which
    /// must still exist; see [`capture_frontier`](Capture::capture_frontier). It counts from the next launch on.
    ///
    /// # Errors
    /// `INVALID_VALUE` when a handle names nothing, when the node is no launch or is not of the graph, or for a bad
    /// configuration or arguments; `NOT_SUPPORTED` unless implemented.
    ///
    /// # Safety
    /// No other thread is in a call with the same executable graph. The arguments fit the function's parameters, and
    /// later launches touch what they name.
    unsafe fn graph_exec_set_kernel(
        &self,
        device: DeviceId,
        exec: RawGraphExec,
        node: RawGraphNode,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[Argument],
    ) -> CudaResult<()> {
        let _ = (exec, node, function, config, args);
        Err(not_supported(Call::GraphExecKernelNodeSetParams, device))
    }

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
