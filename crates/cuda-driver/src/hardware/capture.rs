//! Stream capture.

use super::Hardware;
use super::calls::{
    cuGraphAddChildGraphNode, cuStreamBeginCapture_v2, cuStreamEndCapture,
    cuStreamGetCaptureInfo_v2, cuStreamUpdateCaptureDependencies,
    cuThreadExchangeStreamCaptureMode,
};
use super::process::{check, is_forked};
use super::share::{graph_handle, stream_handle};
use crate::{
    Call, Capture, CaptureMode, CaptureStatus, CudaError, CudaResult, DeviceId, ErrorCode,
    RawGraph, RawGraphNode, RawStream,
};
use cust_raw::{CUgraph, CUgraphNode, CUstreamCaptureMode};
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::{null, null_mut};

/// A stream's answer to what it captures.
pub(super) struct CaptureInfo {
    pub(super) status: CaptureStatus,
    /// The graph that is being built; null without a capture.
    pub(super) graph: CUgraph,
    /// What the stream's next work will follow.
    frontier: Vec<CUgraphNode>,
}

/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`.
const SET: u32 = 1;

impl Hardware {
    pub(super) fn capture_info(
        &self,
        device: DeviceId,
        stream: RawStream,
    ) -> CudaResult<CaptureInfo> {
        self.capture_answer(device, stream, false)
    }

    fn capture_answer(
        &self,
        device: DeviceId,
        stream: RawStream,
        with_frontier: bool,
    ) -> CudaResult<CaptureInfo> {
        let (status, id, graph) = (Cell::new(0_i32), Cell::new(0), Cell::new(null_mut()));
        let (nodes, count) = (Cell::new(null()), Cell::new(0));
        self.call(Call::StreamGetCaptureInfo, device, || {
            let (nodes, count) = match with_frontier {
                true => (nodes.as_ptr(), count.as_ptr()),
                false => (null_mut(), null_mut()),
            };
            // The driver writes an integer, which an enum that ends some day should not hold.
            let status = status.as_ptr().cast();
            let stream = stream_handle(stream);
            // SAFETY: whoever made the handle has promised that it names a stream; the pointers are to values of ours.
            unsafe {
                cuStreamGetCaptureInfo_v2(stream, status, id.as_ptr(), graph.as_ptr(), nodes, count)
            }
        })?;
        let frontier = match count.get() {
            0 => Vec::new(),
            // SAFETY: the list is the driver's, and valid until the stream is used again.
            count => unsafe { std::slice::from_raw_parts(nodes.get(), count) }.to_vec(),
        };
        let status = match status.get() {
            0 => CaptureStatus::None,
            1 => CaptureStatus::Active(id.get()),
            _ => CaptureStatus::Invalidated,
        };
        Ok(CaptureInfo {
            status,
            graph: graph.get(),
            frontier,
        })
    }
}

impl Capture for Hardware {
    fn capture_begin(
        &self,
        device: DeviceId,
        stream: RawStream,
        mode: CaptureMode,
    ) -> CudaResult<()> {
        // SAFETY: whoever made the handle has promised that it names a stream.
        self.call(Call::StreamBeginCapture, device, || unsafe {
            cuStreamBeginCapture_v2(stream_handle(stream), raw_mode(mode))
        })
    }

    fn capture_end(&self, device: DeviceId, stream: RawStream) -> CudaResult<RawGraph> {
        let graph = Cell::new(null_mut());
        // SAFETY: as above; the pointer is to a handle of ours.
        self.call(Call::StreamEndCapture, device, || unsafe {
            cuStreamEndCapture(stream_handle(stream), graph.as_ptr())
        })?;
        // SAFETY: the driver has just made this graph for us.
        Ok(unsafe { RawGraph::from_raw(graph.get().expose_provenance() as u64) })
    }

    fn capture_status(&self, device: DeviceId, stream: RawStream) -> CudaResult<CaptureStatus> {
        Ok(self.capture_info(device, stream)?.status)
    }

    fn capture_frontier(
        &self,
        device: DeviceId,
        stream: RawStream,
    ) -> CudaResult<Vec<RawGraphNode>> {
        let info = self.capture_answer(device, stream, true)?;
        if info.status == CaptureStatus::Invalidated {
            return Err(CudaError::new(
                ErrorCode::STREAM_CAPTURE_INVALIDATED,
                Call::StreamGetCaptureInfo,
                Some(device),
            ));
        }
        // SAFETY: the driver has just given these nodes out.
        let named =
            |node: &CUgraphNode| unsafe { RawGraphNode::from_raw(node.expose_provenance() as u64) };
        Ok(info.frontier.iter().map(named).collect())
    }

    fn capture_child(
        &self,
        device: DeviceId,
        stream: RawStream,
        graph: RawGraph,
    ) -> CudaResult<()> {
        let call = Call::GraphAddChildGraphNode;
        let info = self.capture_answer(device, stream, true)?;
        let refused = |code| Err(CudaError::new(code, call, Some(device)));
        match info.status {
            CaptureStatus::None => return refused(ErrorCode::ILLEGAL_STATE),
            CaptureStatus::Invalidated => return refused(ErrorCode::STREAM_CAPTURE_INVALIDATED),
            CaptureStatus::Active(_) => {}
        }
        let (mut node, before) = (null_mut(), &info.frontier);
        self.call_in_context(call, device, || {
            let child = graph_handle(graph);
            // SAFETY: the graph is the one that the capture builds, the nodes are of it; the driver copies the child.
            unsafe {
                cuGraphAddChildGraphNode(
                    &mut node,
                    info.graph,
                    before.as_ptr(),
                    before.len(),
                    child,
                )
            }
        })?;
        self.uncounted(call, device, || {
            // SAFETY: the node was just added to the graph that this stream's capture builds.
            unsafe { cuStreamUpdateCaptureDependencies(stream_handle(stream), &mut node, 1, SET) }
        })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> CudaResult<CaptureMode> {
        let call = Call::ThreadExchangeStreamCaptureMode;
        self.counters.record(call);
        let mut value = raw_mode(mode) as c_int;
        let result = match is_forked() {
            true => Err(ErrorCode::NOT_INITIALIZED),
            // SAFETY: the pointer is to an integer of ours, of the enum's size.
            false => check(unsafe { cuThreadExchangeStreamCaptureMode((&raw mut value).cast()) }),
        };
        result.map_err(|code| CudaError::new(code, call, None))?;
        Ok(match value {
            0 => CaptureMode::Global,
            1 => CaptureMode::ThreadLocal,
            _ => CaptureMode::Relaxed,
        })
    }
}

fn raw_mode(mode: CaptureMode) -> CUstreamCaptureMode {
    match mode {
        CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    }
}
