//! Checks of an operation at the moment it is asked for.
//!
//! Order is a matter of the program, not of the schedule: what an operation is ordered after is known when it is
//! queued. So every check of order, bounds and initialisation happens here, and its reports are the same whatever
//! order the schedule takes.

use crate::clock::{Clock, Epoch};
use crate::lane::Resolved;
use crate::memory::{Allocation, AllocationId, Origin};
use crate::objects::PinnedEntry;
use crate::report::{Finding, MemorySpace, MemoryUse, Operation};
use crate::shadow::Access;
use crate::sim::Sim;
use crate::work::{Body, Span, Work};
use smallvec::SmallVec;
use std::ops::Range;

impl Sim {
    /// Checks work that is entry `epoch` of its lane, and notes what it touches. Returns the memory it will use.
    pub(crate) fn check(&mut self, work: &Work, operation: Operation, epoch: Epoch) -> Resolved {
        // Allocations and frees are looked at where they are asked for.
        if matches!(work.body, Body::Allocation | Body::Free) {
            let id = work
                .spans
                .first()
                .and_then(|span| self.allocations.based_at(span.range.start));
            return SmallVec::from_elem(id, 1);
        }
        self.note_launch(work, operation, epoch);
        let mut resolved: Resolved = work
            .spans
            .iter()
            .map(|span| self.resolve(span, work, operation, epoch))
            .collect();
        let checks = self.config.checks;
        let Self {
            allocations,
            lanes,
            host_clock,
            reports,
            ..
        } = self;
        let clock = &lanes[epoch.lane as usize].clock;
        if checks.races || checks.lifetime {
            // One report for each earlier operation, however many runs of bytes both touch.
            let mut reported: SmallVec<[Epoch; 4]> = SmallVec::new();
            for touch in &work.touches {
                let Some(allocation) = resolved[touch.span]
                    .and_then(|id| allocations.get_mut(id))
                    .filter(|allocation| allocation.freed.is_none())
                else {
                    continue;
                };
                let info = allocation.info();
                let writes = touch.access.writes();
                let access = Access {
                    epoch,
                    writes,
                    operation,
                };
                allocation.shadow.access(
                    touch.range.clone(),
                    access,
                    clock,
                    host_clock,
                    &mut |conflict| {
                        if reported.contains(&conflict.earlier.epoch) {
                            return;
                        }
                        reported.push(conflict.earlier.epoch);
                        reports.add(Finding::Race {
                            first: conflict.earlier.operation,
                            first_writes: conflict.earlier.writes,
                            second: MemoryUse {
                                operation,
                                writes,
                                space: MemorySpace::Device,
                                range: conflict.range,
                                allocation: Some(info),
                            },
                        });
                    },
                );
            }
        }
        if checks.uninitialised {
            self.check_written(work, &resolved, operation);
        }
        if !self.check_host(work, operation, epoch) {
            // Such a copy must not run at all: it would write over what the host has there.
            resolved.fill(None);
        }
        resolved
    }

    /// The allocation that a span lies in, when the operation may use it at all.
    fn resolve(
        &mut self,
        span: &Span,
        work: &Work,
        operation: Operation,
        epoch: Epoch,
    ) -> Option<AllocationId> {
        let id = self.allocations.at(span.range.start);
        let found = id.and_then(|id| self.allocations.get(id));
        let used = |allocation: Option<&Allocation>| MemoryUse {
            operation,
            writes: span.writes,
            space: MemorySpace::Device,
            range: span.range.clone(),
            allocation: allocation.map(Allocation::info),
        };
        let Some(allocation) = found.filter(|allocation| {
            span.range.end <= allocation.end() && span.range.start < allocation.end()
        }) else {
            let used = used(found);
            self.reports.add(Finding::OutOfBounds { used });
            return None;
        };
        if let Some(freed) = allocation.freed {
            let used = used(Some(allocation));
            self.reports.add(Finding::UseAfterFree { used, freed });
            return id;
        }
        let clock = &self.lanes[epoch.lane as usize].clock;
        if !clock.has_passed(allocation.epoch) {
            let used = used(Some(allocation));
            self.reports.add(Finding::UseBeforeAllocation { used });
        }
        if allocation.device != work.device && matches!(work.body, Body::Kernel { .. }) {
            let reachable = match allocation.origin {
                Origin::Pool(pool) => self
                    .pools
                    .get(&pool)
                    .is_some_and(|pool| pool.peers.contains(&work.device)),
                Origin::Plain | Origin::Graph => false,
            };
            if !reachable {
                let (used, owner) = (used(Some(allocation)), allocation.device);
                self.reports.add(Finding::NoPeerAccess { used, owner });
                return None;
            }
        }
        id
    }

    /// Reads of bytes that nobody wrote; writes are noted. A copy on the device carries the state along.
    fn check_written(&mut self, work: &Work, resolved: &Resolved, operation: Operation) {
        let Self {
            allocations,
            reports,
            ..
        } = self;
        let mut carried: SmallVec<[Range<u64>; 2]> = SmallVec::new();
        for (index, touch) in work
            .touches
            .iter()
            .enumerate()
            .filter(|(_, touch)| touch.access.reads())
        {
            let Some(allocation) = resolved[touch.span].and_then(|id| allocations.get_mut(id))
            else {
                continue;
            };
            if allocation.unwritten.is_empty() {
                continue;
            }
            if let Body::CopyDevice = work.body {
                // As many rows are read as are written.
                let target = &work.touches[index + work.touches.len() / 2];
                let (from, to) = (touch.range.start, target.range.start);
                let parts = allocation.unwritten.within(touch.range.clone());
                carried.extend(parts.map(|part| part.start - from + to..part.end - from + to));
                continue;
            }
            let Some(first) = allocation.unwritten.within(touch.range.clone()).next() else {
                continue;
            };
            reports.add(Finding::Uninitialised {
                used: MemoryUse {
                    operation,
                    writes: false,
                    space: MemorySpace::Device,
                    range: first,
                    allocation: Some(allocation.info()),
                },
            });
            // Once is enough: what follows from it is not reported again.
            allocation.unwritten.remove(touch.range.clone());
        }
        for touch in work.touches.iter().filter(|touch| touch.access.writes()) {
            let Some(allocation) = resolved[touch.span].and_then(|id| allocations.get_mut(id))
            else {
                continue;
            };
            allocation.unwritten.remove(touch.range.clone());
        }
        if carried.is_empty() {
            return;
        }
        let target = work.touches.last().and_then(|touch| resolved[touch.span]);
        if let Some(allocation) = target.and_then(|id| allocations.get_mut(id)) {
            for part in carried {
                allocation.unwritten.insert(part);
            }
        }
    }

    /// Host memory of an asynchronous copy: its page-locked bounds, and races between copies. False when it reaches
    /// past its bounds.
    fn check_host(&mut self, work: &Work, operation: Operation, epoch: Epoch) -> bool {
        let Some(host) = &work.host else { return true };
        let (range, writes) = (host.range(), host.writes);
        let entry = self.pinned_at(range.start);
        // A graph keeps the address of memory that may have been freed since, and which then is not its own.
        if let Some(id) = host
            .pinned
            .filter(|&id| entry.is_none_or(|entry| entry.id != id))
        {
            if let Some(&freed) = self.unpinned.get(&id) {
                let space = MemorySpace::Host;
                let used = MemoryUse {
                    operation,
                    writes,
                    space,
                    range,
                    allocation: None,
                };
                self.reports.add(Finding::UseAfterFree { used, freed });
            }
            return false;
        }
        let pinned = entry.map(PinnedEntry::info);
        if let Some(info) = pinned.filter(|info| range.end > info.base + info.bytes) {
            let used = MemoryUse {
                operation,
                writes,
                space: MemorySpace::Host,
                range,
                allocation: Some(info),
            };
            self.reports.add(Finding::OutOfBounds { used });
            return false;
        }
        for row in host.row_ranges() {
            self.touch_host(row, writes, operation, epoch);
        }
        true
    }

    /// Notes a use of host memory by entry `epoch`; reports races with earlier uses.
    pub(crate) fn touch_host(
        &mut self,
        range: Range<u64>,
        writes: bool,
        operation: Operation,
        epoch: Epoch,
    ) {
        let checks = self.config.checks;
        if !checks.races && !checks.lifetime {
            return;
        }
        let allocation = self.pinned_at(range.start).map(PinnedEntry::info);
        let Self {
            host_shadow,
            lanes,
            host_clock,
            reports,
            ..
        } = self;
        let clock: &Clock = if epoch.lane == crate::clock::HOST {
            host_clock
        } else {
            &lanes[epoch.lane as usize].clock
        };
        let access = Access {
            epoch,
            writes,
            operation,
        };
        host_shadow.access(range, access, clock, host_clock, &mut |conflict| {
            reports.add(Finding::Race {
                first: conflict.earlier.operation,
                first_writes: conflict.earlier.writes,
                second: MemoryUse {
                    operation,
                    writes,
                    space: MemorySpace::Host,
                    range: conflict.range,
                    allocation,
                },
            });
        });
        // What the host has synchronised with is forgotten, so that memory follows the work under way.
        if host_shadow.fragments() > self.host_shadow_limit {
            host_shadow.sweep(host_clock);
            self.host_shadow_limit = 2 * host_shadow.fragments() + 1024;
        }
    }

    /// Checks that a free, whose owner has this clock, is ordered after every use of the allocation.
    pub(crate) fn check_free(&mut self, id: AllocationId, freed: Operation, clock: &Clock) {
        let checks = self.config.checks;
        let Some(allocation) = self.allocations.get_mut(id) else {
            return;
        };
        allocation.freed = Some(freed);
        if !checks.lifetime {
            return;
        }
        let info = allocation.info();
        let whole = allocation.base..allocation.end();
        let used = |range| MemoryUse {
            operation: freed,
            writes: true,
            space: MemorySpace::Device,
            range,
            allocation: Some(info),
        };
        if !clock.has_passed(allocation.epoch) {
            self.reports.add(Finding::UseBeforeAllocation {
                used: used(whole.clone()),
            });
        }
        let reports = &mut self.reports;
        allocation.shadow.unordered(whole, clock, &mut |conflict| {
            reports.add(Finding::FreeBeforeUseEnds {
                used: conflict.earlier.operation,
                writes: conflict.earlier.writes,
                freed: used(conflict.range),
            });
        });
    }
}
