//! What the addresses in a graph meant when they were captured: memory may have been freed since, and others have its place.

use crate::graph::Node;
use crate::lane::Resolved;
use crate::memory::Origin;
use crate::report::{Finding, MemorySpace, MemoryUse, Operation};
use crate::sim::Sim;
use crate::work::Work;

impl Sim {
    /// The memory that the addresses of captured work mean now. What graphs allocate themselves is other memory at each
    /// launch, and not told.
    pub(crate) fn captured_memory(&mut self, work: &Work) -> Resolved {
        let mut memory = Resolved::new();
        for span in &work.spans {
            let id = self.allocations.at(span.range.start);
            let known = id.and_then(|id| self.allocations.get_mut(id));
            let known = known.filter(|allocation| {
                let inside = span.range.end <= allocation.end();
                inside && allocation.freed.is_none() && allocation.origin != Origin::Graph
            });
            memory.push(known.and_then(|allocation| {
                allocation.captured = true;
                id
            }));
        }
        memory
    }

    /// Finds addresses of a node that mean other memory than when it was captured.
    pub(crate) fn check_captured_memory(&mut self, node: &Node, operation: Operation) {
        for (span, captured) in node.work.spans.iter().zip(&node.memory) {
            let now = self.allocations.at(span.range.start);
            let Some(captured) = captured.filter(|id| now != Some(*id)) else {
                continue;
            };
            if let Some((allocation, freed)) = self.allocations.freed_captured(captured) {
                let used = MemoryUse {
                    operation,
                    writes: span.writes,
                    space: MemorySpace::Device,
                    range: span.range.clone(),
                    allocation: Some(allocation),
                };
                self.reports.add(Finding::UseAfterFree { used, freed });
            }
        }
    }
}
