//! Graphs: captured work with its dependencies, and its launches.

use crate::clock::Epoch;
use crate::handles::Site;
use crate::lane::{Pending, Resolved, Task};
use crate::memory::{Allocation, AllocationId, Origin};
use crate::objects::EagerRecord;
use crate::report::{Operation, OperationKind};
use crate::sim::{Caller, Sim};
use crate::work::{Body, Work};
use cuda_driver::{DeviceId, ErrorCode, RawStream};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// One captured operation.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) work: Arc<Work>,
    /// The memory that its addresses meant when it was captured, for each span of its work.
    pub(crate) memory: Resolved,
    /// Earlier nodes that it follows.
    pub(crate) after: SmallVec<[u32; 2]>,
    pub(crate) stream: RawStream,
    pub(crate) site: Site,
}

/// Addresses that a node of the graph allocates.
#[derive(Clone, Debug)]
pub(crate) struct GraphAllocation {
    pub(crate) device: DeviceId,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Whether a node of the graph frees it again.
    pub(crate) freed: bool,
}

/// What a graph and its executable forms share.
#[derive(Clone, Debug)]
pub(crate) struct GraphData {
    pub(crate) id: u64,
    pub(crate) nodes: Vec<Node>,
    /// For each node, those that follow it.
    pub(crate) before: Vec<SmallVec<[u32; 2]>>,
    pub(crate) allocations: Vec<GraphAllocation>,
    /// Nodes that belong to child graphs.
    pub(crate) inner: usize,
    /// Whether host memory of its copies can change between launch and execution by the graph's own doing.
    writes_host: bool,
}

impl GraphData {
    pub(crate) fn new(
        id: u64,
        nodes: Vec<Node>,
        allocations: Vec<GraphAllocation>,
        inner: usize,
    ) -> Self {
        let mut before: Vec<SmallVec<[u32; 2]>> = nodes.iter().map(|_| SmallVec::new()).collect();
        for (index, node) in nodes.iter().enumerate() {
            for &earlier in &node.after {
                before[earlier as usize].push(index as u32);
            }
        }
        let writes_host = nodes.iter().any(|node| {
            matches!(node.work.body, Body::HostFunction(_))
                || node.work.host.as_ref().is_some_and(|host| host.writes)
        });
        Self {
            id,
            nodes,
            before,
            allocations,
            inner,
            writes_host,
        }
    }

    /// Whether it has nodes that allocate or free memory.
    pub(crate) fn allocates(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| matches!(node.work.body, Body::Allocation | Body::Free))
    }

    /// The memory that nodes of the graph allocate at an address.
    pub(crate) fn allocation_at(&self, address: u64) -> Option<Range<u64>> {
        let memory = self
            .allocations
            .iter()
            .find(|memory| memory.address == address)?;
        Some(address..address + memory.bytes)
    }
}

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) device: DeviceId,
    pub(crate) site: Site,
    pub(crate) data: Arc<GraphData>,
    /// Whether the order of its nodes was checked.
    pub(crate) checked: bool,
}

#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) device: DeviceId,
    pub(crate) site: Site,
    pub(crate) data: Arc<GraphData>,
    /// Its latest launch: the next one follows it.
    pub(crate) last: Option<Box<EagerRecord>>,
    /// Whether the order of its nodes was checked since they last changed.
    pub(crate) checked: bool,
    /// Whether a launch frees what an earlier one left allocated.
    pub(crate) auto_free: bool,
}

/// How many graphs and executable graphs hold the addresses of each graph's allocations.
#[derive(Debug, Default)]
pub(crate) struct GraphOwners(BTreeMap<u64, u32>);

/// One launch under way.
#[derive(Debug)]
pub(crate) struct GraphRun {
    data: Arc<GraphData>,
    /// By node.
    pub(crate) pending: Vec<Pending>,
    /// By node: how many nodes it still waits for.
    waits_for: Vec<u32>,
    /// Nodes that can run.
    pub(crate) ready: Vec<u32>,
    /// Nodes that have not finished.
    pub(crate) remaining: usize,
    /// The earlier launch of the same executable graph.
    pub(crate) previous: Option<Epoch>,
    /// The node whose host function runs now.
    pub(crate) running: Option<u32>,
    /// Host functions that have not returned.
    pub(crate) calls: u64,
}

impl GraphRun {
    fn new(data: Arc<GraphData>, pending: Vec<Pending>, previous: Option<Epoch>) -> Self {
        let waits_for: Vec<u32> = data
            .nodes
            .iter()
            .map(|node| node.after.len() as u32)
            .collect();
        let calls = pending
            .iter()
            .filter(|pending| pending.work.is_call())
            .count() as u64;
        let ready = (0..waits_for.len() as u32)
            .filter(|&node| waits_for[node as usize] == 0)
            .collect();
        Self {
            remaining: pending.len(),
            data,
            pending,
            waits_for,
            ready,
            previous,
            running: None,
            calls,
        }
    }

    /// Whether the node calls a host function.
    pub(crate) fn is_call(&self, node: u32) -> bool {
        self.pending[node as usize].work.is_call()
    }

    /// How many nodes can run, host functions only if `may_call`.
    pub(crate) fn ready_nodes(&self, may_call: bool) -> usize {
        self.ready
            .iter()
            .filter(|&&node| may_call || !self.is_call(node))
            .count()
    }

    /// Takes one of [`ready_nodes`](Self::ready_nodes); `None` in an empty graph.
    pub(crate) fn start(&mut self, choice: usize, may_call: bool) -> Option<u32> {
        let mut allowed =
            (0..self.ready.len()).filter(|&i| may_call || !self.is_call(self.ready[i]));
        let index = allowed.nth(choice)?;
        Some(self.ready.remove(index))
    }

    pub(crate) fn finish(&mut self, node: u32) {
        self.remaining -= 1;
        for &next in &self.data.before[node as usize] {
            let waits = &mut self.waits_for[next as usize];
            *waits -= 1;
            if *waits == 0 {
                self.ready.push(next);
            }
        }
    }
}

impl Sim {
    pub(crate) fn adopt_graph(&mut self, data: &GraphData) {
        *self.graph_owners.0.entry(data.id).or_insert(0) += 1;
    }

    /// One owner fewer; with the last one the addresses of the graph's allocations become free.
    pub(crate) fn disown_graph(&mut self, data: &GraphData) {
        let Some(owners) = self.graph_owners.0.get_mut(&data.id) else {
            return;
        };
        *owners -= 1;
        if *owners == 0 {
            self.graph_owners.0.remove(&data.id);
            self.release_graph_memory(&data.allocations);
        }
    }

    pub(crate) fn release_graph_memory(&mut self, allocations: &[GraphAllocation]) {
        for memory in allocations {
            let live = self
                .allocations
                .based_at(memory.address)
                .and_then(|id| self.allocations.get_mut(id));
            match live.filter(|allocation| !allocation.gone && allocation.origin == Origin::Graph) {
                // From now on it is freed like any other.
                Some(allocation) => allocation.origin = Origin::Plain,
                None => {
                    let bytes = memory.bytes.next_multiple_of(crate::address_space::ALIGN);
                    self.devices[memory.device.0 as usize]
                        .memory
                        .give_back(memory.address, bytes);
                }
            }
        }
    }

    /// Frees what earlier launches left allocated, on a lane that comes after them.
    fn free_in_stream(
        &mut self,
        lane: u32,
        memory: &[AllocationId],
        last: Option<&EagerRecord>,
        site: Site,
    ) {
        if memory.is_empty() {
            return;
        }
        if let Some(last) = last.filter(|last| last.epoch.lane != lane && !self.is_done(last.epoch))
        {
            let epoch = self.next_epoch(lane);
            self.push(epoch, Task::Wait(last.epoch));
        }
        for &id in memory {
            let Some(allocation) = self.allocations.get(id) else {
                continue;
            };
            let (device, base) = (allocation.device, allocation.base);
            let stream = self.lanes[lane as usize].stream;
            let freed = self.operation(OperationKind::Free, device, stream, site);
            self.submit(lane, Arc::new(Work::free(device, base)), site);
            let clock = self.lanes[lane as usize].clock.clone();
            self.check_free(id, freed, &clock);
        }
    }

    /// Queues a launch of an executable graph on a lane.
    pub(crate) fn launch_graph(
        &mut self,
        lane: u32,
        exec: u64,
        caller: Caller,
    ) -> Result<(), ErrorCode> {
        let site = caller.site;
        let Some(entry) = self.execs.get(exec) else {
            return Err(ErrorCode::INVALID_VALUE);
        };
        let (data, auto_free) = (Arc::clone(&entry.data), entry.auto_free);
        self.check_modules(&data, caller)?;
        let still_allocated: SmallVec<[AllocationId; 2]> = data
            .allocations
            .iter()
            .filter_map(|memory| self.allocations.based_at(memory.address))
            .filter(|&id| {
                let allocation = self.allocations.get(id);
                allocation.is_some_and(|allocation| allocation.freed.is_none())
            })
            .collect();
        if !still_allocated.is_empty() && !auto_free {
            let rule =
                "memory that a graph allocates must be freed before its next launch, or by it";
            return Err(self.misuse(caller, ErrorCode::INVALID_VALUE, None, rule));
        }
        let Some(entry) = self.execs.get_mut(exec) else {
            return Err(ErrorCode::INVALID_VALUE);
        };
        let last = entry.last.take();
        let unchecked = !std::mem::replace(&mut entry.checked, true);
        if unchecked {
            self.check_graph(&data);
        }
        if let Some(last) = &last {
            self.lane(lane).clock.join(&last.clock);
        }
        self.free_in_stream(lane, &still_allocated, last.as_deref(), site);
        let epoch = self.next_epoch(lane);
        let ready = self
            .submission_time(lane)
            .max(last.as_ref().map_or(0, |last| last.end));
        let stream = self.lanes[lane as usize].stream;
        let mut ends: Vec<u64> = Vec::with_capacity(data.nodes.len());
        let mut pending = Vec::with_capacity(data.nodes.len());
        for (index, node) in data.nodes.iter().enumerate() {
            let work = &node.work;
            let operation = Operation {
                launched_at: Some(site),
                ..self.operation(work.kind, work.device, stream, node.site)
            };
            let memory = match work.body {
                Body::Allocation => {
                    let range = work.spans[0].range.clone();
                    let allocation =
                        Allocation::new(work.device, range, Origin::Graph, operation, epoch);
                    SmallVec::from_elem(Some(self.allocations.insert(allocation)), 1)
                }
                Body::Free => {
                    let id = self.allocations.based_at(work.spans[0].range.start);
                    if let Some(id) = id {
                        let clock = self.lanes[lane as usize].clock.clone();
                        self.check_free(id, operation, &clock);
                    }
                    SmallVec::from_elem(id, 1)
                }
                _ => {
                    self.check_captured_memory(node, operation);
                    self.check(work, operation, epoch)
                }
            };
            let host_before =
                self.look_at_host(work, &memory, epoch, index as u32, !data.writes_host);
            let clock = matches!(work.body, Body::HostFunction(_)).then(|| {
                let mut clock = self.lanes[lane as usize].clock.clone();
                clock.set(lane, epoch.index - 1);
                Box::new(clock)
            });
            let ready = node
                .after
                .iter()
                .map(|&earlier| ends[earlier as usize])
                .max()
                .unwrap_or(ready);
            let (start, end) = self.devices[work.device.0 as usize]
                .engines
                .run(work.cost, ready);
            let span = self.timeline.ran(&operation, work, lane, start, end);
            ends.push(end);
            pending.push(Pending {
                work: Arc::clone(work),
                operation,
                memory,
                host_before,
                span,
                clock,
            });
        }
        let end = ends.into_iter().max().unwrap_or(ready);
        let state = self.lane(lane);
        state.end = end;
        let record = EagerRecord {
            epoch,
            clock: state.clock.clone(),
            end,
            span: None,
        };
        if let Some(entry) = self.execs.get_mut(exec) {
            entry.last = Some(Box::new(record));
        }
        let previous = last
            .map(|last| last.epoch)
            .filter(|epoch| epoch.lane != lane);
        self.push(
            epoch,
            Task::Graph(Box::new(GraphRun::new(data, pending, previous))),
        );
        Ok(())
    }
}
