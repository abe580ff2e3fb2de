//! Order within a graph: nodes that touch the same bytes, or live and die with them, without an edge between them.

use crate::address_space::AddressSpace;
use crate::graph::GraphData;
use crate::memory::Allocation;
use crate::report::{AllocationInfo, Finding, MemorySpace, MemoryUse, Operation, OperationKind};
use crate::sim::Sim;
use crate::work::Body;
use std::collections::HashSet;
use std::ops::Range;

/// One node's use of a range of addresses.
#[derive(Clone, Debug)]
struct Use {
    range: Range<u64>,
    node: usize,
    writes: bool,
}

/// For each node, the set of those before it, as bits.
struct Ancestors(Vec<Vec<u64>>);

impl Ancestors {
    fn of(graph: &GraphData) -> Self {
        let words = graph.nodes.len().div_ceil(64);
        let mut sets: Vec<Vec<u64>> = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let mut set = vec![0_u64; words];
            for &earlier in &node.after {
                let earlier = earlier as usize;
                set[earlier / 64] |= 1 << (earlier % 64);
                set.iter_mut()
                    .zip(&sets[earlier])
                    .for_each(|(mine, theirs)| *mine |= theirs);
            }
            sets.push(set);
        }
        Self(sets)
    }

    /// Whether one of two nodes comes after the other. Nodes only follow nodes with lower numbers.
    fn order(&self, a: usize, b: usize) -> bool {
        let (first, second) = (a.min(b), a.max(b));
        first == second || self.0[second][first / 64] & (1 << (first % 64)) != 0
    }
}

/// All uses of memory in a graph, by address. Allocating and freeing use the whole of an allocation.
fn uses(graph: &GraphData) -> Vec<Use> {
    let mut uses = Vec::new();
    for (number, node) in graph.nodes.iter().enumerate() {
        let work = &node.work;
        let device = work
            .touches
            .iter()
            .map(|touch| (touch.range.clone(), touch.access.writes()));
        let host = work
            .host
            .iter()
            .flat_map(|host| host.row_ranges().map(|row| (row, host.writes)));
        let whole = match work.body {
            Body::Allocation | Body::Free => graph.allocation_at(work.spans[0].range.start),
            _ => None,
        };
        let whole = whole.map(|range| (range, true));
        uses.extend(device.chain(host).chain(whole).map(|(range, writes)| Use {
            range,
            node: number,
            writes,
        }));
    }
    uses.sort_by_key(|a| a.range.start);
    uses
}

impl Sim {
    /// Reports pairs of nodes that need an order and have none.
    pub(crate) fn check_graph(&mut self, graph: &GraphData) {
        let checks = self.config.checks;
        if !checks.races && !checks.lifetime {
            return;
        }
        let ancestors = Ancestors::of(graph);
        let mut reported = HashSet::new();
        let mut open: Vec<Use> = Vec::new();
        for new in uses(graph) {
            open.retain(|earlier| earlier.range.end > new.range.start);
            for other in &open {
                let conflict =
                    (new.writes || other.writes) && !ancestors.order(other.node, new.node);
                let (first, second) = if other.node < new.node {
                    (other, &new)
                } else {
                    (&new, other)
                };
                if conflict && reported.insert((first.node, second.node)) {
                    let range = new.range.start..new.range.end.min(other.range.end);
                    let finding = self.graph_finding(graph, first, second, range);
                    self.reports.add(finding);
                }
            }
            open.push(new);
        }
    }

    fn graph_finding(
        &self,
        graph: &GraphData,
        first: &Use,
        second: &Use,
        range: Range<u64>,
    ) -> Finding {
        let operation = |of: &Use| {
            let node = &graph.nodes[of.node];
            Operation {
                stream: Some(node.stream),
                ..self.operation(node.work.kind, node.work.device, None, node.site)
            }
        };
        let (first_writes, second_writes) = (first.writes, second.writes);
        let (first, second) = (operation(first), operation(second));
        let (space, mut allocation) = if AddressSpace::is_device_address(range.start) {
            let live = self
                .allocations
                .at(range.start)
                .and_then(|id| self.allocations.get(id));
            (
                MemorySpace::Device,
                live.filter(|live| range.end <= live.end())
                    .map(Allocation::info),
            )
        } else {
            (
                MemorySpace::Host,
                self.pinned_at(range.start)
                    .map(crate::objects::PinnedEntry::info),
            )
        };
        // The graph's own memory comes into being with its launches.
        let own = graph
            .allocations
            .iter()
            .find(|own| (own.address..own.address + own.bytes).contains(&range.start));
        if let Some(own) = own {
            let allocating = |node: &&crate::graph::Node| {
                matches!(node.work.body, Body::Allocation)
                    && node.work.spans[0].range.start == own.address
            };
            allocation = graph
                .nodes
                .iter()
                .find(allocating)
                .map(|node| AllocationInfo {
                    base: own.address,
                    bytes: own.bytes,
                    allocated: Operation {
                        stream: Some(node.stream),
                        ..self.operation(node.work.kind, own.device, None, node.site)
                    },
                });
        }
        let memory_use = |operation, writes| MemoryUse {
            operation,
            writes,
            space,
            range,
            allocation,
        };
        match (first.kind, second.kind) {
            (OperationKind::Allocation, _) => Finding::UseBeforeAllocation {
                used: memory_use(second, second_writes),
            },
            (_, OperationKind::Free) => Finding::FreeBeforeUseEnds {
                used: first,
                writes: first_writes,
                freed: memory_use(second, true),
            },
            (OperationKind::Free, _) => Finding::FreeBeforeUseEnds {
                used: second,
                writes: second_writes,
                freed: memory_use(first, true),
            },
            _ => Finding::Race {
                first,
                first_writes,
                second: memory_use(second, second_writes),
            },
        }
    }
}
