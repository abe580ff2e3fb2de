//! What an operation does when its turn comes.

use crate::backing::POISON;
use crate::lane::{HostBefore, Pending};
use crate::memory::{AllocationId, Origin};
use crate::report::{Finding, MemorySpace, MemoryUse};
use crate::sim::Sim;
use crate::work::Body;
use cuda_driver::{ErrorCode, Pattern};
use std::ops::Range;

/// What is behind a span at the moment of execution.
enum Behind {
    Memory(AllocationId),
    /// Freed memory that is still mapped: reads give poison, writes go nowhere.
    Freed,
    /// Nothing: an illegal address.
    Nothing,
}

impl Sim {
    /// Runs one operation. An access to memory that does not exist loses the device.
    pub(crate) fn execute(&mut self, pending: &Pending, lane: u32, index: u64, node: u32) {
        let work = &pending.work;
        if let Some(host) = &work.host {
            let touched = match pending.host_before {
                HostBefore::Unknown => false,
                HostBefore::Source(print) => host.fingerprint() != print,
                HostBefore::Poisoned => !host.is_poisoned(),
            };
            if touched {
                let used = MemoryUse {
                    operation: pending.operation,
                    writes: host.writes,
                    space: MemorySpace::Host,
                    range: host.range(),
                    allocation: self
                        .pinned_at(host.pointer.address())
                        .map(crate::objects::PinnedEntry::info),
                };
                self.reports.add(Finding::HostMemoryTouched { used });
            }
        }
        if let Err(code) = self.run_body(pending) {
            self.lose_device(work.device, code);
        }
        if work.host.is_some() {
            self.pending_host.remove(&(lane, index, node));
            self.end_freed_pinned();
        }
    }

    fn run_body(&mut self, pending: &Pending) -> Result<(), ErrorCode> {
        let work = &pending.work;
        match &work.body {
            Body::HostFunction(_) | Body::Nothing => {}
            Body::Allocation => {
                if let Some(allocation) =
                    pending.memory[0].and_then(|id| self.allocations.get_mut(id))
                {
                    allocation.drop_backing();
                }
            }
            Body::Free => {
                if let Some(id) = pending.memory[0] {
                    self.free_executed(id);
                }
            }
            Body::Fill { pattern } => {
                for row in &work.touches {
                    self.write(&row.range, pending.memory[0], &mut |bytes| {
                        fill(bytes, *pattern)
                    })?;
                }
            }
            Body::CopyToDevice => {
                for (row, src) in work.touches.iter().zip(work.host_rows()) {
                    self.write(&row.range, pending.memory[0], &mut |bytes| src.read(bytes))?;
                }
            }
            Body::StagedToDevice { bytes: staged } => {
                self.write(&work.spans[0].range, pending.memory[0], &mut |bytes| {
                    bytes.copy_from_slice(staged)
                })?;
            }
            Body::CopyToHost => {
                for (row, dst) in work.touches.iter().zip(work.host_rows()) {
                    self.read(&row.range, pending.memory[0], &mut |bytes| dst.write(bytes))?;
                }
            }
            Body::CopyDevice => {
                let (src, dst) = work.touches.split_at(work.touches.len() / 2);
                let mut copied = Vec::new();
                for row in src {
                    self.read(&row.range, pending.memory[0], &mut |bytes| {
                        copied.extend_from_slice(bytes)
                    })?;
                }
                let mut left = copied.as_slice();
                for row in dst {
                    self.write(&row.range, pending.memory[1], &mut |bytes| {
                        let (row, more) = left.split_at(bytes.len());
                        bytes.copy_from_slice(row);
                        left = more;
                    })?;
                }
            }
            Body::Kernel { .. } => return self.run_kernel(pending),
        }
        Ok(())
    }

    /// Page-locked memory that was freed too early ends with the last copy that needed it.
    pub(crate) fn end_freed_pinned(&mut self) {
        let Self {
            freed_pinned,
            pending_host,
            ..
        } = self;
        freed_pinned.retain(|entry| {
            let info = entry.info();
            pending_host
                .values()
                .any(|p| p.range.start < info.base + info.bytes && info.base < p.range.end)
        });
    }

    fn behind(&self, id: Option<AllocationId>) -> Behind {
        match id.map(|id| (id, self.allocations.get(id))) {
            None => Behind::Nothing,
            Some((id, Some(allocation))) if !allocation.gone => Behind::Memory(id),
            Some((_, Some(allocation))) if allocation.origin == Origin::Plain => Behind::Nothing,
            Some(_) => Behind::Freed,
        }
    }

    /// Whether a kernel finds memory behind an operand; `Ok(None)` for freed memory that is still mapped.
    pub(crate) fn memory_behind(
        &self,
        id: Option<AllocationId>,
    ) -> Result<Option<AllocationId>, ErrorCode> {
        match self.behind(id) {
            Behind::Memory(id) => Ok(Some(id)),
            Behind::Freed => Ok(None),
            Behind::Nothing => Err(ErrorCode::ILLEGAL_ADDRESS),
        }
    }

    fn write(
        &mut self,
        range: &Range<u64>,
        id: Option<AllocationId>,
        with: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), ErrorCode> {
        if let Some(id) = self.memory_behind(id)?
            && let Some(allocation) = self.allocations.get_mut(id)
        {
            with(allocation.bytes_mut(range));
        }
        Ok(())
    }

    fn read(
        &mut self,
        range: &Range<u64>,
        id: Option<AllocationId>,
        with: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ErrorCode> {
        match self
            .memory_behind(id)?
            .and_then(|id| self.allocations.get_mut(id))
        {
            Some(allocation) => with(allocation.bytes_mut(range)),
            None => with(&vec![POISON; (range.end - range.start) as usize]),
        }
        Ok(())
    }

    /// A free has executed: the contents are gone, and plain memory returns to the device.
    pub(crate) fn free_executed(&mut self, id: AllocationId) {
        let Some(allocation) = self.allocations.get(id) else {
            return;
        };
        let (device, base, bytes, origin) = (
            allocation.device,
            allocation.base,
            allocation.bytes,
            allocation.origin,
        );
        self.allocations.retire(id);
        if origin == Origin::Plain {
            let memory = &mut self.devices[device.0 as usize].memory;
            memory.give_back(base, bytes.next_multiple_of(crate::address_space::ALIGN));
        }
    }
}

fn fill(bytes: &mut [u8], pattern: Pattern) {
    match pattern {
        Pattern::U8(value) => bytes.fill(value),
        Pattern::U16(value) => bytes.as_chunks_mut().0.fill(value.to_ne_bytes()),
        Pattern::U32(value) => bytes.as_chunks_mut().0.fill(value.to_ne_bytes()),
    }
}
