//! Stream capture.

use crate::SimDriver;
use crate::graph_update::node_handle;
use cuda_driver::{
    Call, Capture, CaptureMode, CaptureStatus, CudaResult, DeviceId, RawGraph, RawGraphNode,
    RawStream,
};

impl Capture for SimDriver {
    #[track_caller]
    fn capture_begin(
        &self,
        device: DeviceId,
        stream: RawStream,
        mode: CaptureMode,
    ) -> CudaResult<()> {
        self.call(Call::StreamBeginCapture, Some(device), |sim, caller| {
            sim.capture_begin(device, stream, mode, caller)
        })
    }

    #[track_caller]
    fn capture_end(&self, device: DeviceId, stream: RawStream) -> CudaResult<RawGraph> {
        self.call(Call::StreamEndCapture, Some(device), |sim, caller| {
            sim.capture_end(device, stream, caller)
        })
    }

    #[track_caller]
    fn capture_status(&self, device: DeviceId, stream: RawStream) -> CudaResult<CaptureStatus> {
        self.call(Call::StreamGetCaptureInfo, Some(device), |sim, caller| {
            let (_, capture) = sim.stream(device, stream, caller)?;
            Ok(sim.capture_status(capture))
        })
    }

    #[track_caller]
    fn capture_frontier(
        &self,
        device: DeviceId,
        stream: RawStream,
    ) -> CudaResult<Vec<RawGraphNode>> {
        self.call(Call::StreamGetCaptureInfo, Some(device), |sim, caller| {
            let Some(id) = sim.stream(device, stream, caller)?.1 else {
                return Ok(Vec::new());
            };
            let frontier = sim.valid_capture(id)?.frontier(stream);
            let handle = |&node: &u32| crate::made::graph_node(node_handle(id, node));
            Ok(frontier.iter().map(handle).collect())
        })
    }

    #[track_caller]
    fn capture_child(
        &self,
        device: DeviceId,
        stream: RawStream,
        graph: RawGraph,
    ) -> CudaResult<()> {
        self.call(Call::GraphAddChildGraphNode, Some(device), |sim, caller| {
            let (_, capture) = sim.stream(device, stream, caller)?;
            let child = sim.find_graph(graph, caller)?;
            sim.capture_child(capture, stream, &child, caller)
        })
    }

    #[track_caller]
    fn exchange_capture_mode(&self, mode: CaptureMode) -> CudaResult<CaptureMode> {
        self.call(Call::ThreadExchangeStreamCaptureMode, None, |sim, _| {
            let thread = std::thread::current().id();
            // A thread in the mode in which all begin needs no entry.
            let earlier = match mode {
                CaptureMode::Global => sim.thread_modes.remove(&thread),
                _ => sim.thread_modes.insert(thread, mode),
            };
            Ok(earlier.unwrap_or(CaptureMode::Global))
        })
    }
}
