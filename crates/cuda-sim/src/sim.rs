//! The state of the simulation, and how operations enter it.

use crate::builder::{Config, Schedule};
use crate::capture::CaptureState;
use crate::checks::Checks;
use crate::clock::{Clock, Epoch, HOST};
use crate::faults::FaultPlan;
use crate::graph::{Exec, Graph, GraphOwners};
use crate::handles::{Site, Table};
use crate::host_memory::HostPtr;
use crate::lane::{HostBefore, Lane, Pending, Queued, Resolved, Task};
use crate::locked::Discarded;
use crate::memory::Allocations;
use crate::objects::{
    DeviceState, EventEntry, FunctionEntry, ModuleEntry, PinnedEntry, PinnedId, StreamEntry,
};
use crate::pool::{DeviceMemory, Pool, PoolId};
use crate::random::Random;
use crate::report::{Finding, Operation, OperationKind};
use crate::report_log::ReportLog;
use crate::shadow::Shadow;
use crate::time::{Engines, Picos, picos};
use crate::timeline::Timeline;
use crate::work::{Body, Work};
use crate::workers::WorkerState;
use cuda_driver::{Call, CaptureMode, DeviceId, ErrorCode, RawStream};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::thread::ThreadId;

/// One call of the port: what the reports need to know of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) call: Call,
    pub(crate) site: Site,
}

/// A host range that a queued copy will use.
#[derive(Clone, Debug)]
pub(crate) struct PendingHost {
    pub(crate) range: Range<u64>,
    pub(crate) writes: bool,
}

#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) config: Arc<Config>,
    pub(crate) random: Random,
    /// How eager the device is at present: chance, in 256, of one more step at a driver call.
    pub(crate) eagerness: u8,
    pub(crate) host_clock: Clock,
    pub(crate) host_version: u64,
    /// The host's modelled time.
    pub(crate) host_end: Picos,
    pub(crate) call_picos: Picos,
    /// By number; lane 0 is the host and has no queue.
    pub(crate) lanes: Vec<Lane>,
    /// Lanes with entries in their queues.
    pub(crate) active: Vec<u32>,
    pub(crate) running_host_functions: u32,
    /// Operations that have run, on whatever lane.
    pub(crate) steps: u64,
    /// Host threads that wait for something to happen.
    pub(crate) waiting: u32,
    pub(crate) workers: WorkerState,
    pub(crate) devices: Vec<DeviceState>,
    pub(crate) streams: Table<StreamEntry>,
    pub(crate) events: Table<EventEntry>,
    pub(crate) pool_handles: Table<PoolId>,
    pub(crate) pools: BTreeMap<PoolId, Pool>,
    pub(crate) next_pool: PoolId,
    pub(crate) modules: Table<ModuleEntry>,
    pub(crate) next_module: u64,
    /// The latest unloads, with the modules' names, for reports.
    pub(crate) unloaded: BTreeMap<u64, (&'static str, Site)>,
    pub(crate) functions: Table<FunctionEntry>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) execs: Table<Exec>,
    pub(crate) graph_owners: GraphOwners,
    pub(crate) captures: BTreeMap<u64, CaptureState>,
    pub(crate) next_capture: u64,
    pub(crate) thread_modes: HashMap<ThreadId, CaptureMode>,
    pub(crate) allocations: Allocations,
    pub(crate) pinned: BTreeMap<u64, PinnedEntry>,
    pub(crate) next_pinned: PinnedId,
    /// The latest frees of page-locked memory, for reports.
    pub(crate) unpinned: BTreeMap<PinnedId, Operation>,
    /// Page-locked memory that was freed while copies of it were pending.
    pub(crate) freed_pinned: Vec<PinnedEntry>,
    pub(crate) host_shadow: Shadow,
    pub(crate) host_shadow_limit: usize,
    pub(crate) pending_host: HashMap<(u32, u64, u32), PendingHost>,
    pub(crate) pending_host_functions: u64,
    /// What is to be dropped without the lock.
    pub(crate) discarded: Discarded,
    pub(crate) reports: ReportLog,
    pub(crate) timeline: Timeline,
    pub(crate) faults: FaultPlan,
    pub(crate) launches: u64,
}

impl Sim {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let mut lanes = vec![Lane::new(DeviceId(0), None)];
        let devices = (0..config.devices)
            .map(|device| {
                lanes.push(Lane::new(DeviceId(device), None));
                DeviceState {
                    memory: DeviceMemory::new(device, config.memory_bytes),
                    fault: None,
                    engines: Engines::default(),
                    legacy: lanes.len() as u32 - 1,
                }
            })
            .collect();
        let seed = match config.schedule {
            Schedule::Stepped { seed } => seed,
            Schedule::Eager | Schedule::Threaded => 0,
        };
        Self {
            random: Random::new(seed),
            eagerness: 128,
            host_clock: Clock::default(),
            host_version: 1,
            host_end: 0,
            call_picos: picos(config.profile.call_overhead),
            lanes,
            active: Vec::new(),
            running_host_functions: 0,
            steps: 0,
            waiting: 0,
            workers: WorkerState::default(),
            devices,
            streams: Table::new(1),
            events: Table::new(2),
            pool_handles: Table::new(3),
            pools: BTreeMap::new(),
            next_pool: 0,
            modules: Table::new(4),
            next_module: 0,
            unloaded: BTreeMap::new(),
            functions: Table::new(5),
            graphs: Table::new(6),
            execs: Table::new(7),
            graph_owners: GraphOwners::default(),
            captures: BTreeMap::new(),
            next_capture: 1,
            thread_modes: HashMap::new(),
            allocations: Allocations::default(),
            pinned: BTreeMap::new(),
            next_pinned: 0,
            unpinned: BTreeMap::new(),
            freed_pinned: Vec::new(),
            host_shadow: Shadow::default(),
            host_shadow_limit: 1024,
            pending_host: HashMap::new(),
            pending_host_functions: 0,
            discarded: Discarded::default(),
            reports: ReportLog::new(config.checks),
            timeline: Timeline::new(config.timeline),
            faults: FaultPlan::default(),
            launches: 0,
            config,
        }
    }

    pub(crate) fn checks(&self) -> Checks {
        self.config.checks
    }

    pub(crate) fn device(&mut self, device: DeviceId) -> Result<&mut DeviceState, ErrorCode> {
        self.devices
            .get_mut(device.0 as usize)
            .ok_or(ErrorCode::INVALID_DEVICE)
    }

    pub(crate) fn lane(&mut self, lane: u32) -> &mut Lane {
        &mut self.lanes[lane as usize]
    }

    /// Whether an entry has completed.
    pub(crate) fn is_done(&self, epoch: Epoch) -> bool {
        epoch.lane == HOST || self.lanes[epoch.lane as usize].completed >= epoch.index
    }

    /// Looks a stream up, for a call on `device`.
    pub(crate) fn stream(
        &mut self,
        device: DeviceId,
        raw: RawStream,
        caller: Caller,
    ) -> Result<(u32, Option<u64>), ErrorCode> {
        match self.streams.get(raw.raw()) {
            Some(entry) if entry.device == device => Ok((entry.lane, entry.capture)),
            Some(_) => Err(ErrorCode::INVALID_HANDLE),
            None => Err(self.bad_handle(
                self.streams.destroyed_at(raw.raw()),
                raw.raw(),
                caller,
                ErrorCode::INVALID_HANDLE,
            )),
        }
    }

    /// Reports the use of a destroyed object; returns `code`.
    pub(crate) fn bad_handle(
        &mut self,
        destroyed_at: Option<Site>,
        raw: u64,
        caller: Caller,
        code: ErrorCode,
    ) -> ErrorCode {
        if let Some(destroyed_at) = destroyed_at {
            self.reports.add(Finding::DestroyedHandle {
                call: caller.call,
                raw,
                site: caller.site,
                destroyed_at,
            });
        }
        code
    }

    /// The host is ordered after `clock`.
    pub(crate) fn host_joins(&mut self, clock: &Clock, end: Picos) {
        self.host_clock.join(clock);
        self.host_version += 1;
        self.host_end = self.host_end.max(end);
    }

    /// A new number on the host's own lane.
    pub(crate) fn host_epoch(&mut self) -> Epoch {
        let index = self.host_clock.get(HOST) + 1;
        self.host_clock.set(HOST, index);
        self.host_version += 1;
        Epoch { lane: HOST, index }
    }

    /// The next entry of a lane: orders it after the host and after what the lane holds.
    pub(crate) fn next_epoch(&mut self, lane: u32) -> Epoch {
        let Self {
            lanes,
            host_clock,
            host_version,
            ..
        } = self;
        let state = &mut lanes[lane as usize];
        if state.host_version != *host_version {
            state.clock.join(host_clock);
            state.host_version = *host_version;
        }
        state.submitted += 1;
        let index = state.submitted;
        state.clock.set(lane, index);
        Epoch { lane, index }
    }

    pub(crate) fn push(&mut self, epoch: Epoch, task: Task) {
        let lane = &mut self.lanes[epoch.lane as usize];
        if lane.queue.is_empty() {
            self.active.push(epoch.lane);
        }
        lane.queue.push_back(Queued {
            index: epoch.index,
            task,
        });
    }

    pub(crate) fn operation(
        &self,
        kind: OperationKind,
        device: DeviceId,
        stream: Option<RawStream>,
        site: Site,
    ) -> Operation {
        Operation {
            kind,
            device,
            stream,
            site,
            launched_at: None,
        }
    }

    /// Queues work on a lane: checks it against everything before it and models its time.
    pub(crate) fn submit(&mut self, lane: u32, work: Arc<Work>, site: Site) -> Epoch {
        let epoch = self.next_epoch(lane);
        let stream = self.lanes[lane as usize].stream;
        let operation = self.operation(work.kind, work.device, stream, site);
        let memory = self.check(&work, operation, epoch);
        let host_before = self.look_at_host(&work, &memory, epoch, 0, true);
        let start = self.submission_time(lane);
        let (start, end) = self.devices[work.device.0 as usize]
            .engines
            .run(work.cost, start);
        self.lane(lane).end = end;
        let span = self.timeline.ran(&operation, &work, lane, start, end);
        let clock = matches!(work.body, Body::HostFunction(_))
            .then(|| Box::new(self.lanes[lane as usize].clock.clone()));
        self.push(
            epoch,
            Task::Run(Pending {
                work,
                operation,
                memory,
                host_before,
                span,
                clock,
            }),
        );
        epoch
    }

    /// When an entry that is queued now could start in modelled time.
    pub(crate) fn submission_time(&mut self, lane: u32) -> Picos {
        self.host_end = self.host_end.saturating_add(self.call_picos);
        self.lanes[lane as usize].end.max(self.host_end)
    }

    /// Notes that work will use host memory, and how that memory looks now.
    pub(crate) fn look_at_host(
        &mut self,
        work: &Work,
        memory: &Resolved,
        epoch: Epoch,
        node: u32,
        alone: bool,
    ) -> HostBefore {
        if matches!(work.body, Body::HostFunction(_)) {
            self.pending_host_functions += 1;
        }
        let Some(host) = &work.host else {
            return HostBefore::Unknown;
        };
        let range = host.range();
        let may_change = !alone
            || memory.contains(&None)
            || self.pending_host_functions > 0
            || self.pending_host.values().any(|other| {
                (other.writes || host.writes)
                    && other.range.start < range.end
                    && range.start < other.range.end
            });
        self.pending_host.insert(
            (epoch.lane, epoch.index, node),
            PendingHost {
                range,
                writes: host.writes,
            },
        );
        if may_change || !self.config.checks.host_memory {
            HostBefore::Unknown
        } else if host.writes {
            host.poison();
            HostBefore::Poisoned
        } else {
            HostBefore::Source(host.fingerprint())
        }
    }

    /// The page-locked allocation that an address lies in.
    pub(crate) fn pinned_at(&self, address: u64) -> Option<&PinnedEntry> {
        let (&base, entry) = self.pinned.range(..=address).next_back()?;
        (address < base + entry.block.bytes() as u64).then_some(entry)
    }

    /// Whether all of a host range is page-locked.
    pub(crate) fn is_pinned(&self, pointer: HostPtr, bytes: usize) -> bool {
        let address = pointer.address();
        self.pinned_at(address).is_some_and(|entry| {
            let info = entry.info();
            address + bytes as u64 <= info.base + info.bytes
        })
    }

    /// The device is lost: nothing queued on it has an effect any more.
    pub(crate) fn lose_device(&mut self, device: DeviceId, code: ErrorCode) {
        let state = &mut self.devices[device.0 as usize];
        if state.fault.is_some() {
            return;
        }
        state.fault = Some(code);
        for (number, lane) in self
            .lanes
            .iter_mut()
            .enumerate()
            .filter(|(_, lane)| lane.device == device)
        {
            if !lane.busy {
                let (calls, queue) = lane.abandon();
                self.pending_host_functions -= calls;
                self.discarded.add(queue);
                self.active.retain(|&active| active != number as u32);
            }
            (lane.held, lane.lost) = (false, false);
        }
        let lanes = &self.lanes;
        self.pending_host
            .retain(|&(lane, ..), _| lanes[lane as usize].device != device);
        self.end_freed_pinned();
    }
}
