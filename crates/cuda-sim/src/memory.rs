//! Device allocations: which exist, where, who may use them, and the bytes behind them.

use crate::backing::Backing;
use crate::clock::Epoch;
use crate::pool::PoolId;
use crate::ranges::Ranges;
use crate::report::{AllocationInfo, Operation};
use crate::shadow::Shadow;
use cuda_driver::DeviceId;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// An allocation, never reused, unlike its address.
pub(crate) type AllocationId = u64;

/// How many frees of memory that graphs may have reports can still name.
const REMEMBERED_FREES: usize = 4096;

/// Where an allocation's addresses go when it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Plain memory: back to the device.
    Plain,
    /// Back to the pool.
    Pool(PoolId),
    /// They stay with the graph whose node allocates them.
    Graph,
}

/// One allocation of device memory, from the call that allocates it until its free has executed.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) device: DeviceId,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) origin: Origin,
    pub(crate) allocated: Operation,
    /// The allocating operation; what is not ordered after it must not use the memory.
    pub(crate) epoch: Epoch,
    /// The free, from when it is asked for.
    pub(crate) freed: Option<Operation>,
    /// Whether the free has executed.
    pub(crate) gone: bool,
    /// Whether a graph has its address.
    pub(crate) captured: bool,
    pub(crate) shadow: Shadow,
    /// Bytes that nobody has written.
    pub(crate) unwritten: Ranges,
    /// `None` until first used: all poison.
    backing: Option<Backing>,
}

impl Allocation {
    pub(crate) fn new(
        device: DeviceId,
        range: Range<u64>,
        origin: Origin,
        allocated: Operation,
        epoch: Epoch,
    ) -> Self {
        Self {
            device,
            base: range.start,
            bytes: range.end - range.start,
            origin,
            allocated,
            epoch,
            freed: None,
            gone: false,
            captured: false,
            shadow: Shadow::default(),
            unwritten: Ranges::of(range),
            backing: None,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.bytes
    }

    pub(crate) fn info(&self) -> AllocationInfo {
        AllocationInfo {
            base: self.base,
            bytes: self.bytes,
            allocated: self.allocated,
        }
    }

    /// The bytes behind a range of the allocation, for writing.
    pub(crate) fn bytes_mut(&mut self, range: &Range<u64>) -> &mut [u8] {
        let (base, len) = (self.base, self.bytes as usize);
        let backing = self
            .backing
            .get_or_insert_with(|| Backing::poisoned(len, 0));
        &mut backing.as_mut_slice()[(range.start - base) as usize..(range.end - base) as usize]
    }

    /// Takes the bytes away for a while; [`put_backing`](Self::put_backing) returns them.
    pub(crate) fn take_backing(&mut self) -> Backing {
        self.backing
            .take()
            .unwrap_or_else(|| Backing::poisoned(self.bytes as usize, 0))
    }

    pub(crate) fn put_backing(&mut self, backing: Backing) {
        self.backing = Some(backing);
    }

    /// Fresh or freed: the contents are gone.
    pub(crate) fn drop_backing(&mut self) {
        self.backing = None;
    }
}

/// Ids count up, so spreading their bits is all the hashing they need.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.write_u64(self.0.rotate_left(8) ^ u64::from(byte)));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// All allocations of all devices.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    by_id: HashMap<AllocationId, Box<Allocation>, BuildHasherDefault<IdHasher>>,
    /// The latest allocation at each base, live or freed. Ranges do not overlap.
    by_base: BTreeMap<u64, AllocationId>,
    /// The latest frees of memory that graphs may have, for reports.
    freed_captured: BTreeMap<AllocationId, (AllocationInfo, Operation)>,
    next: AllocationId,
}

impl Allocations {
    /// Adds an allocation; earlier ones at these addresses must have been freed and are found by id only.
    pub(crate) fn insert(&mut self, allocation: Allocation) -> AllocationId {
        let id = self.next;
        self.next += 1;
        let (base, end) = (allocation.base, allocation.end());
        while let Some((&other, &old)) = self.by_base.range(..end).next_back() {
            let overlaps = self.by_id.get(&old).is_none_or(|old| old.end() > base);
            if !overlaps {
                break;
            }
            self.by_base.remove(&other);
            if self.by_id.get(&old).is_some_and(|old| old.gone) {
                self.by_id.remove(&old);
            }
        }
        self.by_base.insert(base, id);
        self.by_id.insert(id, Box::new(allocation));
        id
    }

    pub(crate) fn get(&self, id: AllocationId) -> Option<&Allocation> {
        self.by_id.get(&id).map(|allocation| &**allocation)
    }

    pub(crate) fn get_mut(&mut self, id: AllocationId) -> Option<&mut Allocation> {
        self.by_id.get_mut(&id).map(|allocation| &mut **allocation)
    }

    /// The latest allocation whose base is at or below `address`.
    pub(crate) fn at(&self, address: u64) -> Option<AllocationId> {
        self.by_base
            .range(..=address)
            .next_back()
            .map(|(_, &id)| id)
    }

    /// Whether a range lies in one allocation.
    pub(crate) fn cover(&self, range: &Range<u64>) -> bool {
        let found = self.at(range.start).and_then(|id| self.get(id));
        found.is_some_and(|found| range.end <= found.end())
    }

    /// The latest allocation whose base is `address`.
    pub(crate) fn based_at(&self, address: u64) -> Option<AllocationId> {
        self.by_base.get(&address).copied()
    }

    /// The free of an allocation has executed. It stays known by its address until another takes the place.
    pub(crate) fn retire(&mut self, id: AllocationId) {
        let Some(allocation) = self.by_id.get_mut(&id) else {
            return;
        };
        allocation.gone = true;
        if let Some(freed) = allocation.freed.filter(|_| allocation.captured) {
            self.freed_captured.insert(id, (allocation.info(), freed));
            if self.freed_captured.len() > REMEMBERED_FREES {
                self.freed_captured.pop_first();
            }
        }
        allocation.drop_backing();
        allocation.shadow = Shadow::default();
        allocation.unwritten = Ranges::default();
        if self.by_base.get(&allocation.base) != Some(&id) {
            self.by_id.remove(&id);
        }
    }

    /// Memory that graphs may have and that was freed, with its free, if that is still known.
    pub(crate) fn freed_captured(&self, id: AllocationId) -> Option<(AllocationInfo, Operation)> {
        match self.get(id) {
            Some(allocation) => Some((allocation.info(), allocation.freed?)),
            None => self.freed_captured.get(&id).copied(),
        }
    }

    /// Number of allocations known, those included that were freed and whose address nobody took since.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.by_id.len()
    }

    /// Allocations whose free was not asked for, by address.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Allocation> + '_ {
        self.by_base
            .values()
            .filter_map(|id| self.get(*id))
            .filter(|allocation| allocation.freed.is_none())
    }
}
