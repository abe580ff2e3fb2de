//! Which host memory is page-locked: what the program was given, and what it registered of its own.

use crate::host_memory::PinnedBlock;
use crate::objects::PinnedEntry;
use crate::report::{Finding, MemorySpace, MemoryUse, Operation};
use crate::sim::Sim;
use cuda_driver::{DeviceId, ErrorCode};

/// How many frees of page-locked memory reports can still name.
const REMEMBERED_FREES: usize = 4096;

impl Sim {
    /// Notes a block, based at `base`, that overlaps no other.
    pub(crate) fn lock_host(
        &mut self,
        device: DeviceId,
        base: u64,
        block: PinnedBlock,
        allocated: Operation,
    ) {
        let id = self.next_pinned;
        self.next_pinned += 1;
        let entry = PinnedEntry {
            id,
            device,
            block,
            allocated,
        };
        self.pinned.insert(base, entry);
    }

    /// Notes memory of the program, unless some of it is page-locked already.
    pub(crate) fn register_host(
        &mut self,
        device: DeviceId,
        block: PinnedBlock,
        allocated: Operation,
    ) -> Result<(), ErrorCode> {
        let pointer = block.pointer().ok_or(ErrorCode::INVALID_VALUE)?;
        let base = pointer.addr().get() as u64;
        let end = base
            .checked_add(block.bytes() as u64)
            .ok_or(ErrorCode::INVALID_VALUE)?;
        let below = self.pinned.range(..end).next_back();
        if below.is_some_and(|(&other, entry)| other + entry.block.bytes() as u64 > base) {
            return Err(ErrorCode::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.lock_host(device, base, block, allocated);
        Ok(())
    }

    /// Ends a block; false when none of its kind starts at `base`. Copies that may still use it are reported.
    pub(crate) fn unlock_host(&mut self, base: u64, registered: bool, freed: Operation) -> bool {
        let found = self.pinned.get(&base);
        let found = found.filter(|entry| entry.block.is_registered() == registered);
        let Some(info) = found.map(PinnedEntry::info) else {
            return false;
        };
        let range = base..base + info.bytes;
        if self.checks().lifetime {
            let Self {
                host_shadow,
                host_clock,
                reports,
                ..
            } = self;
            host_shadow.unordered(range.clone(), host_clock, &mut |conflict| {
                reports.add(Finding::FreeBeforeUseEnds {
                    used: conflict.earlier.operation,
                    writes: conflict.earlier.writes,
                    freed: MemoryUse {
                        operation: freed,
                        writes: true,
                        space: MemorySpace::Host,
                        range: conflict.range,
                        allocation: Some(info),
                    },
                });
            });
        }
        self.host_shadow.forget(range.clone());
        let entry = self.pinned.remove(&base);
        if let Some(entry) = &entry {
            self.unpinned.insert(entry.id, freed);
            if self.unpinned.len() > REMEMBERED_FREES {
                self.unpinned.pop_first();
            }
        }
        // A copy that still needs the memory must not reach what the host puts there next. The program's own memory is not
        // the device's to keep: the copy's contract makes it last.
        let needed = |range: &std::ops::Range<u64>| {
            self.pending_host
                .values()
                .any(|pending| pending.range.start < range.end && range.start < pending.range.end)
        };
        if !registered && needed(&range) {
            self.freed_pinned
                .extend(entry.inspect(|entry| entry.block.poison()));
        }
        true
    }
}
