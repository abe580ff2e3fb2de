//! Executable graphs that get other parameters.

use crate::address_space::AddressSpace;
use crate::graph::{GraphData, Node};
use crate::handles::Site;
use crate::sim::Sim;
use crate::work::{Body, Work};
use cuda_driver::{ErrorCode, GraphUpdate, RawGraphNode};
use std::sync::Arc;

/// The raw handle of a node: the graph and the position in it, both counted from 1.
pub(crate) fn node_handle(graph: u64, index: u32) -> u64 {
    (graph << 32) | (u64::from(index) + 1)
}

fn position(node: RawGraphNode) -> Option<(u64, usize)> {
    let index = (node.raw() & u64::from(u32::MAX)).checked_sub(1)?;
    Some((node.raw() >> 32, usize::try_from(index).ok()?))
}

/// Whether a node can take over the parameters of its counterpart.
fn compare(old: &Node, new: &Node) -> GraphUpdate {
    let (mut before, mut after) = (old.after.clone(), new.after.clone());
    before.sort_unstable();
    after.sort_unstable();
    if before != after {
        return GraphUpdate::TopologyChanged;
    }
    let (old, new) = (&old.work, &new.work);
    match (&old.body, &new.body) {
        (Body::Allocation, Body::Allocation) | (Body::Free, Body::Free) => {
            GraphUpdate::NotSupported
        }
        (Body::Kernel { .. }, Body::Kernel { .. }) if old.device != new.device => {
            GraphUpdate::FunctionChanged
        }
        (Body::Kernel { .. }, Body::Kernel { .. })
        | (Body::HostFunction(_), Body::HostFunction(_))
        | (Body::Nothing, Body::Nothing) => GraphUpdate::Updated,
        (Body::Fill { .. }, Body::Fill { .. }) => same_place(old, new),
        (a, b) if is_copy(a) && is_copy(b) => {
            // A copy keeps its direction.
            if std::mem::discriminant(a) == std::mem::discriminant(b) {
                same_place(old, new)
            } else {
                GraphUpdate::ParametersChanged
            }
        }
        _ => GraphUpdate::NodeTypeChanged,
    }
}

fn is_copy(body: &Body) -> bool {
    matches!(
        body,
        Body::CopyToDevice | Body::CopyToHost | Body::CopyDevice
    )
}

/// Memory must stay on its device, and rows keep their shape.
fn same_place(old: &Work, new: &Work) -> GraphUpdate {
    let devices = |work: &Work| -> Vec<Option<u32>> {
        let starts = work.spans.iter().map(|span| span.range.start);
        starts.map(AddressSpace::device_of).collect()
    };
    let flat = |work: &Work| {
        let host_rows = work.host.iter().flat_map(|host| host.rows()).count();
        work.touches.len() == work.spans.len() && host_rows < 2
    };
    let shape = |work: &Work| -> Vec<(u64, u64)> {
        let origin = |span: usize| work.spans[span].range.start;
        let device = work.touches.iter();
        let device = device.map(|touch| {
            let origin = origin(touch.span);
            (touch.range.start - origin, touch.range.end - origin)
        });
        let host = work.host.iter().flat_map(|host| {
            let origin = host.pointer.address();
            host.row_ranges()
                .map(move |row| (row.start - origin, row.end - origin))
        });
        device.chain(host).collect()
    };
    if devices(old) == devices(new) && ((flat(old) && flat(new)) || shape(old) == shape(new)) {
        GraphUpdate::Updated
    } else {
        GraphUpdate::ParametersChanged
    }
}

impl Sim {
    /// Gives an executable graph the parameters of another graph. Both exist.
    pub(crate) fn update_exec(&mut self, exec: u64, graph: u64) -> GraphUpdate {
        let Self { execs, graphs, .. } = self;
        let (Some(exec), Some(graph)) = (execs.get_mut(exec), graphs.get(graph)) else {
            return GraphUpdate::Refused;
        };
        let (old, new) = (&exec.data, &graph.data);
        if old.nodes.len() != new.nodes.len() {
            return GraphUpdate::TopologyChanged;
        }
        let pairs = old.nodes.iter().zip(&new.nodes);
        let refused = pairs
            .map(|(old, new)| compare(old, new))
            .find(|&answer| answer != GraphUpdate::Updated);
        if let Some(answer) = refused {
            return answer;
        }
        let updated = GraphData::new(old.id, new.nodes.clone(), Vec::new(), old.inner);
        exec.checked = graph.checked;
        let old = std::mem::replace(&mut exec.data, Arc::new(updated));
        self.discarded.add(old);
        GraphUpdate::Updated
    }

    /// The position of a launch that a handle names in a graph that exists and of which `exec` was made.
    pub(crate) fn kernel_node(&self, exec: u64, node: RawGraphNode) -> Result<usize, ErrorCode> {
        let entry = self.execs.get(exec).ok_or(ErrorCode::INVALID_VALUE)?;
        let (graph, index) = position(node).ok_or(ErrorCode::INVALID_VALUE)?;
        let exists = self.graphs.iter().any(|(_, known)| known.data.id == graph);
        let kernel = entry
            .data
            .nodes
            .get(index)
            .is_some_and(|node| matches!(node.work.body, Body::Kernel { .. }));
        if exists && entry.data.id == graph && kernel {
            Ok(index)
        } else {
            Err(ErrorCode::INVALID_VALUE)
        }
    }

    /// Puts other work into a node.
    pub(crate) fn set_node(&mut self, exec: u64, index: usize, work: Work, site: Site) {
        let memory = self.captured_memory(&work);
        let Some(entry) = self.execs.get_mut(exec) else {
            return;
        };
        entry.checked = false;
        let node = &mut Arc::make_mut(&mut entry.data).nodes[index];
        (node.work, node.memory, node.site) = (Arc::new(work), memory, site);
    }
}
