//! Lanes: the queue of one stream, and how far it has come.

use crate::clock::{Clock, Epoch};
use crate::graph::GraphRun;
use crate::memory::AllocationId;
use crate::report::Operation;
use crate::time::Picos;
use crate::work::Work;
use cuda_driver::{DeviceId, RawStream};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// The device memory that an operation was resolved to when it was asked for, one for each span of its work; `None`
/// where there is no such memory.
pub(crate) type Resolved = SmallVec<[Option<AllocationId>; 3]>;

/// One operation under way: its work and what was found out when it was asked for.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) work: Arc<Work>,
    pub(crate) operation: Operation,
    pub(crate) memory: Resolved,
    /// How the host memory of an asynchronous copy looked when the copy was asked for.
    pub(crate) host_before: HostBefore,
    /// Its place in the timeline.
    pub(crate) span: Option<usize>,
    /// For a host function: what it is ordered after, which it may tell the host.
    pub(crate) clock: Option<Box<Clock>>,
}

/// What is known of the host memory of a pending copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostBefore {
    /// It may change legally, or is not checked.
    Unknown,
    /// Fingerprint of the source.
    Source(u64),
    /// The destination was poisoned.
    Poisoned,
}

/// What a queue holds.
#[derive(Debug)]
pub(crate) enum Task {
    Run(Pending),
    Record,
    Wait(Epoch),
    Graph(Box<GraphRun>),
}

impl Task {
    /// How many host functions are still to return.
    pub(crate) fn calls(&self) -> u64 {
        match self {
            Self::Run(pending) => u64::from(pending.work.is_call()),
            Self::Graph(run) => run.calls,
            Self::Record | Self::Wait(_) => 0,
        }
    }
}

/// One entry of a queue.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) index: u64,
    pub(crate) task: Task,
}

/// The queue of one stream. Entries are numbered from 1; a lane that is used again goes on counting.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) device: DeviceId,
    /// `None` for a device's legacy stream, on which synchronous copies run.
    pub(crate) stream: Option<RawStream>,
    pub(crate) queue: VecDeque<Queued>,
    /// Smaller is more urgent.
    pub(crate) priority: i32,
    /// Number of the last entry asked for.
    pub(crate) submitted: u64,
    /// Number of the last entry that completed.
    pub(crate) completed: u64,
    /// What the last entry asked for is ordered after, itself included.
    pub(crate) clock: Clock,
    /// The version of the host's clock that `clock` includes.
    pub(crate) host_version: u64,
    /// When the last entry asked for ends, in modelled time.
    pub(crate) end: Picos,
    /// Held by the test: nothing starts.
    pub(crate) held: bool,
    /// A host function of this lane runs, outside the lock.
    pub(crate) busy: bool,
    /// Its stream was destroyed.
    pub(crate) destroyed: bool,
    /// A host function of this lane never returns (an injected fault).
    pub(crate) lost: bool,
}

impl Lane {
    /// Its device is lost: nothing that is queued has an effect. Returns how many host functions are never called, and
    /// what was queued.
    pub(crate) fn abandon(&mut self) -> (u64, VecDeque<Queued>) {
        let calls = self.queue.iter().map(|queued| queued.task.calls()).sum();
        self.completed = self.submitted;
        (calls, std::mem::take(&mut self.queue))
    }

    pub(crate) fn new(device: DeviceId, stream: Option<RawStream>) -> Self {
        Self {
            device,
            stream,
            queue: VecDeque::new(),
            priority: 0,
            submitted: 0,
            completed: 0,
            clock: Clock::default(),
            host_version: 0,
            end: 0,
            held: false,
            busy: false,
            destroyed: false,
            lost: false,
        }
    }
}
