//! Graphs.

use super::Hardware;
use super::calls::{
    cuGraphDestroy, cuGraphExecDestroy, cuGraphExecKernelNodeSetParams, cuGraphExecUpdate,
    cuGraphGetNodes, cuGraphInstantiateWithFlags, cuGraphLaunch,
};
use super::kernels::with_pointers_to;
use super::share::{exec_handle, function_handle, graph_handle, node_handle, stream_handle};
use crate::{
    Argument, Call, CudaResult, DeviceId, ErrorCode, GraphFlags, GraphUpdate, Graphs, LaunchConfig,
    RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawStream,
};
use cust_raw::CUDA_KERNEL_NODE_PARAMS;
use std::cell::Cell;
use std::ptr::null_mut;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const AUTO_FREE_ON_LAUNCH: u64 = 1;

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
        self.graph_instantiate_with(device, graph, GraphFlags::default())
    }

    fn graph_instantiate_with(
        &self,
        device: DeviceId,
        graph: RawGraph,
        flags: GraphFlags,
    ) -> CudaResult<RawGraphExec> {
        let flags = match flags.auto_free_on_launch {
            true => AUTO_FREE_ON_LAUNCH,
            false => 0,
        };
        let mut exec = null_mut();
        // SAFETY: as above; the pointer is to a handle of ours.
        self.call_in_context(Call::GraphInstantiate, device, || unsafe {
            cuGraphInstantiateWithFlags(&mut exec, graph_handle(graph), flags)
        })?;
        // SAFETY: the driver has just made this executable graph for us.
        Ok(unsafe { RawGraphExec::from_raw(exec.expose_provenance() as u64) })
    }

    unsafe fn graph_exec_update(
        &self,
        device: DeviceId,
        exec: RawGraphExec,
        graph: RawGraph,
    ) -> CudaResult<GraphUpdate> {
        let (mut node, mut outcome) = (null_mut(), 0_i32);
        let result = self.call_in_context(Call::GraphExecUpdate, device, || {
            // The driver writes an integer, which an enum that ends some day should not hold.
            let outcome = (&raw mut outcome).cast();
            // SAFETY: the caller's promise for the graphs; the pointers are to values of ours.
            unsafe { cuGraphExecUpdate(exec_handle(exec), graph_handle(graph), &mut node, outcome) }
        });
        match (result, outcome) {
            (Ok(()), _) => Ok(GraphUpdate::Updated),
            (Err(error), _) if error.code != ErrorCode::GRAPH_EXEC_UPDATE_FAILURE => Err(error),
            (_, 2) => Ok(GraphUpdate::TopologyChanged),
            (_, 3) => Ok(GraphUpdate::NodeTypeChanged),
            (_, 4 | 7) => Ok(GraphUpdate::FunctionChanged),
            (_, 5) => Ok(GraphUpdate::ParametersChanged),
            (_, 6) => Ok(GraphUpdate::NotSupported),
            _ => Ok(GraphUpdate::Refused),
        }
    }

    unsafe fn graph_exec_set_kernel(
        &self,
        device: DeviceId,
        exec: RawGraphExec,
        node: RawGraphNode,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[Argument],
    ) -> CudaResult<()> {
        with_pointers_to(args, |pointers| {
            let parameters = CUDA_KERNEL_NODE_PARAMS {
                func: function_handle(function),
                gridDimX: config.grid[0],
                gridDimY: config.grid[1],
                gridDimZ: config.grid[2],
                blockDimX: config.block[0],
                blockDimY: config.block[1],
                blockDimZ: config.block[2],
                sharedMemBytes: config.shared_bytes,
                kernelParams: pointers,
                extra: null_mut(),
            };
            // SAFETY: the caller's promise; the driver copies each argument before the call returns.
            self.call(Call::GraphExecKernelNodeSetParams, device, || unsafe {
                cuGraphExecKernelNodeSetParams(exec_handle(exec), node_handle(node), &parameters)
            })
        })
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
