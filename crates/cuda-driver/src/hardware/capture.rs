//! Stream capture and graphs.

use super::Hardware;
use super::calls::{
    cuGraphDestroy, cuGraphExecDestroy, cuGraphGetNodes, cuGraphInstantiateWithFlags,
    cuGraphLaunch, cuStreamBeginCapture_v2, cuStreamEndCapture, cuStreamGetCaptureInfo_v2,
    cuThreadExchangeStreamCaptureMode,
};
use super::process::{check, is_forked};
use super::share::{exec_handle, graph_handle, stream_handle};
use crate::{
    Call, Capture, CaptureMode, CaptureStatus, CudaError, CudaResult, DeviceId, ErrorCode, Graphs,
    RawGraph, RawGraphExec, RawStream,
};
use cust_raw::{CUgraph, CUstreamCaptureMode};
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;

/// A stream's answer to what it captures.
pub(super) struct CaptureInfo {
    pub(super) status: CaptureStatus,
    /// The graph that is being built; null without a capture.
    pub(super) graph: CUgraph,
}

impl Hardware {
    pub(super) fn capture_info(
        &self,
        device: DeviceId,
        stream: RawStream,
    ) -> CudaResult<CaptureInfo> {
        let (status, id, graph) = (Cell::new(0_i32), Cell::new(0), Cell::new(null_mut()));
        self.call(Call::StreamGetCaptureInfo, device, || {
            let (no_nodes, no_count) = (null_mut(), null_mut());
            // The driver writes an integer, which an enum that ends some day should not hold.
            let status = status.as_ptr().cast();
            let stream = stream_handle(stream);
            // SAFETY: whoever made the handle has promised that it names a stream; the pointers are to values of ours.
            unsafe {
                cuStreamGetCaptureInfo_v2(
                    stream,
                    status,
                    id.as_ptr(),
                    graph.as_ptr(),
                    no_nodes,
                    no_count,
                )
            }
        })?;
        let status = match status.get() {
            0 => CaptureStatus::None,
            1 => CaptureStatus::Active(id.get()),
            _ => CaptureStatus::Invalidated,
        };
        Ok(CaptureInfo {
            status,
            graph: graph.get(),
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

impl Graphs for Hardware {
    fn graph_node_count(&self, device: DeviceId, graph: RawGraph) -> CudaResult<usize> {
        let count = Cell::new(0);
        // SAFETY: whoever made the handle has promised that it names a graph; without a list, only the number is told.
        self.call(Call::GraphGetNodes, device, || unsafe {
            cuGraphGetNodes(graph_handle(graph), null_mut(), count.as_ptr())
        })?;
        Ok(count.get())
    }

    fn graph_instantiate(&self, device: DeviceId, graph: RawGraph) -> CudaResult<RawGraphExec> {
        let mut exec = null_mut();
        // SAFETY: as above; the pointer is to a handle of ours.
        self.call_in_context(Call::GraphInstantiate, device, || unsafe {
            cuGraphInstantiateWithFlags(&mut exec, graph_handle(graph), 0)
        })?;
        // SAFETY: the driver has just made this executable graph for us.
        Ok(unsafe { RawGraphExec::from_raw(exec.expose_provenance() as u64) })
    }

    unsafe fn graph_launch(
        &self,
        device: DeviceId,
        exec: RawGraphExec,
        stream: RawStream,
    ) -> CudaResult<()> {
        // SAFETY: the caller's promise.
        self.call(Call::GraphLaunch, device, || unsafe {
            cuGraphLaunch(exec_handle(exec), stream_handle(stream))
        })
    }

    unsafe fn graph_destroy(&self, device: DeviceId, graph: RawGraph) -> CudaResult<()> {
        // SAFETY: nobody uses the handle afterwards.
        self.call(Call::GraphDestroy, device, || unsafe {
            cuGraphDestroy(graph_handle(graph))
        })
    }

    unsafe fn graph_exec_destroy(&self, device: DeviceId, exec: RawGraphExec) -> CudaResult<()> {
        // SAFETY: nobody uses the handle afterwards.
        self.call(Call::GraphExecDestroy, device, || unsafe {
            cuGraphExecDestroy(exec_handle(exec))
        })
    }
}
