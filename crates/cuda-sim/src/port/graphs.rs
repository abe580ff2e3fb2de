//! Graphs.

use crate::SimDriver;
use crate::graph::{Exec, GraphData};
use crate::sim::{Caller, Sim};
use cuda_driver::{
    Argument, Call, CudaResult, DeviceId, ErrorCode, GraphFlags, GraphUpdate, Graphs, LaunchConfig,
    RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawStream,
};
use std::sync::Arc;

impl Graphs for SimDriver {
    #[track_caller]
    fn graph_node_count(&self, device: DeviceId, graph: RawGraph) -> CudaResult<usize> {
        self.call(Call::GraphGetNodes, Some(device), |sim, caller| {
            let data = sim.find_graph(graph, caller)?;
            Ok(data.nodes.len() - data.inner)
        })
    }

    #[track_caller]
    fn graph_instantiate(&self, device: DeviceId, graph: RawGraph) -> CudaResult<RawGraphExec> {
        self.graph_instantiate_with(device, graph, GraphFlags::default())
    }

    #[track_caller]
    fn graph_instantiate_with(
        &self,
        device: DeviceId,
        graph: RawGraph,
        flags: GraphFlags,
    ) -> CudaResult<RawGraphExec> {
        self.call(Call::GraphInstantiate, Some(device), |sim, caller| {
            let data = sim.find_graph(graph, caller)?;
            sim.check_modules(&data, caller)?;
            sim.check_graph_once(graph);
            // A graph with allocations has one executable form at a time.
            if data.allocates() && sim.execs.iter().any(|(_, exec)| exec.data.id == data.id) {
                let rule = "a graph that allocates memory has one executable form at a time";
                return Err(sim.misuse(caller, ErrorCode::INVALID_VALUE, None, rule));
            }
            sim.adopt_graph(&data);
            Ok(crate::made::graph_exec(sim.execs.insert(Exec {
                device,
                site: caller.site,
                data,
                last: None,
                checked: true,
                auto_free: flags.auto_free_on_launch,
            })))
        })
    }

    #[track_caller]
    unsafe fn graph_exec_update(
        &self,
        device: DeviceId,
        exec: RawGraphExec,
        graph: RawGraph,
    ) -> CudaResult<GraphUpdate> {
        self.call_with_exec(Call::GraphExecUpdate, device, exec, |sim, caller| {
            sim.find_exec(exec, caller)?;
            let data = sim.find_graph(graph, caller)?;
            sim.check_modules(&data, caller)?;
            Ok(sim.update_exec(exec.raw(), graph.raw()))
        })
    }

    #[track_caller]
    unsafe fn graph_exec_set_kernel(
        &self,
        device: DeviceId,
        exec: RawGraphExec,
        node: RawGraphNode,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[Argument],
    ) -> CudaResult<()> {
        let call = Call::GraphExecKernelNodeSetParams;
        self.call_with_exec(call, device, exec, |sim, caller| {
            sim.find_exec(exec, caller)?;
            let index = sim.kernel_node(exec.raw(), node)?;
            let (work, _) = sim.kernel_work(device, function, config, args, caller)?;
            sim.set_node(exec.raw(), index, work, caller.site);
            Ok(())
        })
    }

    #[track_caller]
    unsafe fn graph_launch(
        &self,
        device: DeviceId,
        exec: RawGraphExec,
        stream: RawStream,
    ) -> CudaResult<()> {
        self.call_with_exec(Call::GraphLaunch, device, exec, |sim, caller| {
            let (lane, capture) = sim.stream(device, stream, caller)?;
            sim.find_exec(exec, caller)?;
            if let Some(id) = capture {
                sim.valid_capture(id)?;
                let rule = "an executable graph is not simulated as part of a capture: capture the graph as a child";
                return Err(sim.misuse(caller, ErrorCode::NOT_SUPPORTED, Some(id), rule));
            }
            sim.launch_graph(lane, exec.raw(), caller)
        })
    }

    #[track_caller]
    unsafe fn graph_destroy(&self, device: DeviceId, graph: RawGraph) -> CudaResult<()> {
        self.call(Call::GraphDestroy, Some(device), |sim, caller| {
            sim.find_graph(graph, caller)?;
            if let Some(graph) = sim.graphs.remove(graph.raw(), caller.site) {
                sim.disown_graph(&graph.data);
                sim.discarded.add(graph);
            }
            Ok(())
        })
    }

    #[track_caller]
    unsafe fn graph_exec_destroy(&self, device: DeviceId, exec: RawGraphExec) -> CudaResult<()> {
        self.call_with_exec(Call::GraphExecDestroy, device, exec, |sim, caller| {
            sim.find_exec(exec, caller)?;
            if let Some(gone) = sim.execs.remove(exec.raw(), caller.site) {
                sim.disown_graph(&gone.data);
                sim.discarded.add(gone);
                // The next one may get the handle before this call has returned.
                self.forget_uses(exec);
            }
            Ok(())
        })
    }
}

impl Sim {
    /// The first use of a graph checks the order of its nodes.
    fn check_graph_once(&mut self, graph: RawGraph) {
        let Some(entry) = self.graphs.get_mut(graph.raw()) else {
            return;
        };
        if !std::mem::replace(&mut entry.checked, true) {
            let data = Arc::clone(&entry.data);
            self.check_graph(&data);
        }
    }

    pub(crate) fn find_graph(
        &mut self,
        graph: RawGraph,
        caller: Caller,
    ) -> Result<Arc<GraphData>, ErrorCode> {
        match self.graphs.get(graph.raw()) {
            Some(graph) => Ok(Arc::clone(&graph.data)),
            None => {
                let destroyed_at = self.graphs.destroyed_at(graph.raw());
                Err(self.bad_handle(destroyed_at, graph.raw(), caller, ErrorCode::INVALID_VALUE))
            }
        }
    }

    fn find_exec(&mut self, exec: RawGraphExec, caller: Caller) -> Result<(), ErrorCode> {
        match self.execs.get(exec.raw()) {
            Some(_) => Ok(()),
            None => {
                let destroyed_at = self.execs.destroyed_at(exec.raw());
                Err(self.bad_handle(destroyed_at, exec.raw(), caller, ErrorCode::INVALID_VALUE))
            }
        }
    }
}
