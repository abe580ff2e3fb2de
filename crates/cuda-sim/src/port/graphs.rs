//! Graphs.

use crate::SimDriver;
use crate::graph::Exec;
use crate::sim::{Caller, Sim};
use cuda_driver::{
    Call, CudaResult, DeviceId, ErrorCode, Graphs, RawGraph, RawGraphExec, RawStream,
};
use std::sync::Arc;

impl Graphs for SimDriver {
    #[track_caller]
    fn graph_node_count(&self, device: DeviceId, graph: RawGraph) -> CudaResult<usize> {
        self.call(Call::GraphGetNodes, Some(device), |sim, caller| {
            sim.find_graph(graph, caller)?;
            Ok(sim
                .graphs
                .get(graph.raw())
                .map_or(0, |graph| graph.data.nodes.len()))
        })
    }

    #[track_caller]
    fn graph_instantiate(&self, device: DeviceId, graph: RawGraph) -> CudaResult<RawGraphExec> {
        self.call(Call::GraphInstantiate, Some(device), |sim, caller| {
            sim.find_graph(graph, caller)?;
            let Some(entry) = sim.graphs.get_mut(graph.raw()) else {
                return Err(ErrorCode::INVALID_VALUE);
            };
            let data = Arc::clone(&entry.data);
            if !std::mem::replace(&mut entry.checked, true) {
                sim.check_graph(&data);
            }
            // A graph with allocations has one executable form at a time.
            if !data.allocations.is_empty()
                && sim.execs.iter().any(|(_, exec)| exec.data.id == data.id)
            {
                return Err(ErrorCode::INVALID_VALUE);
            }
            sim.adopt_graph(&data);
            Ok(crate::made::graph_exec(sim.execs.insert(Exec {
                device,
                site: caller.site,
                data,
                last: None,
            })))
        })
    }

    #[track_caller]
    unsafe fn graph_launch(
        &self,
        device: DeviceId,
        exec: RawGraphExec,
        stream: RawStream,
    ) -> CudaResult<()> {
        self.call(Call::GraphLaunch, Some(device), |sim, caller| {
            let (lane, capture) = sim.stream(device, stream, caller)?;
            sim.find_exec(exec, caller)?;
            if capture.is_some() {
                return Err(ErrorCode::NOT_SUPPORTED);
            }
            sim.launch_graph(lane, exec.raw(), caller.site)
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
        self.call(Call::GraphExecDestroy, Some(device), |sim, caller| {
            sim.find_exec(exec, caller)?;
            if let Some(exec) = sim.execs.remove(exec.raw(), caller.site) {
                sim.disown_graph(&exec.data);
                sim.discarded.add(exec);
            }
            Ok(())
        })
    }
}

impl Sim {
    fn find_graph(&mut self, graph: RawGraph, caller: Caller) -> Result<(), ErrorCode> {
        match self.graphs.get(graph.raw()) {
            Some(_) => Ok(()),
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
