//! What the handles of the port name.

use crate::clock::{Clock, Epoch};
use crate::handles::Site;
use crate::host_memory::PinnedBlock;
use crate::module_use::{Launches, ModuleId};
use crate::pool::DeviceMemory;
use crate::report::{AllocationInfo, Operation};
use crate::time::{Engines, Picos};
use cuda_driver::{DeviceId, ErrorCode, EventFlags, KernelDeclaration, ModuleImage};
use smallvec::SmallVec;

/// A stream: its work is in its lane.
#[derive(Debug)]
pub(crate) struct StreamEntry {
    pub(crate) device: DeviceId,
    pub(crate) lane: u32,
    pub(crate) site: Site,
    /// The capture that it is part of.
    pub(crate) capture: Option<u64>,
}

/// An event and its most recent record.
#[derive(Debug)]
pub(crate) struct EventEntry {
    pub(crate) device: DeviceId,
    pub(crate) flags: EventFlags,
    pub(crate) site: Site,
    pub(crate) record: Option<Record>,
}

/// The most recent record of an event.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Eager(Box<EagerRecord>),
    Captured {
        capture: u64,
        nodes: SmallVec<[u32; 2]>,
    },
}

/// A place in a lane, and what is ordered before it.
#[derive(Clone, Debug)]
pub(crate) struct EagerRecord {
    pub(crate) epoch: Epoch,
    pub(crate) clock: Clock,
    pub(crate) end: Picos,
    /// The last operation before it, in the timeline.
    pub(crate) span: Option<usize>,
}

/// A loaded module.
#[derive(Debug)]
pub(crate) struct ModuleEntry {
    /// Never used again, unlike its handle.
    pub(crate) number: u64,
    pub(crate) device: DeviceId,
    pub(crate) image: &'static ModuleImage,
    pub(crate) site: Site,
    pub(crate) functions: Vec<u64>,
    pub(crate) launches: Launches,
}

/// A function of a module.
#[derive(Debug)]
pub(crate) struct FunctionEntry {
    pub(crate) device: DeviceId,
    pub(crate) module: ModuleId,
    pub(crate) declaration: &'static KernelDeclaration,
    /// Whether it was launched outside a capture before, which loads it.
    pub(crate) loaded: bool,
    /// Dynamic shared memory that was asked for, in bytes; 0 for what every function has.
    pub(crate) shared_bytes: u32,
}

/// A page-locked allocation, never reused, unlike its address.
pub(crate) type PinnedId = u64;

/// Page-locked host memory.
#[derive(Debug)]
pub(crate) struct PinnedEntry {
    pub(crate) id: PinnedId,
    pub(crate) device: DeviceId,
    pub(crate) block: PinnedBlock,
    pub(crate) allocated: Operation,
}

impl PinnedEntry {
    pub(crate) fn info(&self) -> AllocationInfo {
        let base = self
            .block
            .pointer()
            .map_or(0, |pointer| pointer.addr().get() as u64);
        AllocationInfo {
            base,
            bytes: self.block.bytes() as u64,
            allocated: self.allocated,
        }
    }
}

/// One device.
#[derive(Debug)]
pub(crate) struct DeviceState {
    pub(crate) memory: DeviceMemory,
    /// The device is lost: every call returns this.
    pub(crate) fault: Option<ErrorCode>,
    pub(crate) engines: Engines,
    /// The lane of the legacy stream.
    pub(crate) legacy: u32,
}
