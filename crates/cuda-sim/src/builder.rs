//! What is simulated: devices, schedule, checks, time.

use crate::checks::Checks;
use crate::driver::SimDriver;
use crate::time::TimeProfile;
use cuda_driver::{DeviceId, DeviceProperties};
use std::time::Duration;

/// In which order operations of different streams run.
///
/// But for `Threaded` there are no threads: host functions run on a thread that waits for a stream, an event or a device,
/// or asks whether it is done, and on no other, which might hold locks that they need.
///
/// Reports don't depend on the schedule: what is ordered before what is a matter of the calls that were made, and is
/// looked at when they are made. (Host memory that is touched too early is the exception: it is noticed when the copy
/// runs.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// In any legal order, chosen by the seed, step by step: some operations run at each driver call, often none,
    /// and a waiting call runs random ones until what it waits for has happened. No threads: the same seed and the
    /// same calls from one thread give the same run.
    Stepped {
        /// Chooses the order.
        seed: u64,
    },
    /// In the order in which they are asked for, at once; for speed.
    Eager,
    /// Beside the host, on threads of the simulated device, in an order that no seed repeats: for how a program waits, is
    /// woken and shuts down. One thread runs operations; the other is the driver's callback thread, which runs host
    /// functions one after the other. Operations run one at a time, under the simulation's lock; a call that waits
    /// sleeps. With the last handle of the driver the threads end: what is queued then never runs, and a host function
    /// that runs is waited for, at most for the [wait limit](SimBuilder::wait_limit).
    Threaded,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) devices: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) pools: bool,
    pub(crate) peers: bool,
    /// Pairs that can't reach each other, smaller id first.
    pub(crate) apart: Vec<(DeviceId, DeviceId)>,
    pub(crate) priorities: (i32, i32),
    /// The newest PTX that the driver knows; `None` for any.
    pub(crate) ptx: Option<(u32, u32)>,
    pub(crate) schedule: Schedule,
    pub(crate) checks: Checks,
    pub(crate) profile: TimeProfile,
    pub(crate) timeline: bool,
    pub(crate) lazy_loading: bool,
    pub(crate) function_load: bool,
    pub(crate) staged_copies: bool,
    pub(crate) wait_limit: Duration,
}

/// Shared memory of a block that a function can ask for, in bytes: compute capability 9.0 has 227 KiB.
pub(crate) const SHARED_BYTES_OPT_IN: u32 = 227 * 1024;

impl Config {
    /// What each device is and can do.
    pub(crate) fn properties(&self, name: &str) -> DeviceProperties {
        let mut properties = DeviceProperties::new(name, self.memory_bytes);
        properties.multiprocessors = self.profile.multiprocessors;
        properties.memory_pools = self.pools;
        properties.priorities = self.priorities;
        properties.shared_bytes_per_block_opt_in = SHARED_BYTES_OPT_IN;
        properties
    }

    /// Whether devices can be given access to each other's memory.
    pub(crate) fn reaches(&self, a: DeviceId, b: DeviceId) -> bool {
        self.peers && !self.apart.contains(&(a.min(b), a.max(b)))
    }
}

/// Builds a [`SimDriver`]; begin with [`SimDriver::builder`].
///
/// Unless told otherwise: one device of 16 GiB with pools, a stepped schedule with seed 0, all checks, the time
/// profile of an H100, no timeline.
#[derive(Clone, Debug)]
#[must_use = "nothing is simulated before `build`"]
pub struct SimBuilder(Config);

impl SimBuilder {
    pub(crate) fn new() -> Self {
        Self(Config {
            devices: 1,
            memory_bytes: 16 << 30,
            pools: true,
            peers: true,
            apart: Vec::new(),
            priorities: (0, -5),
            ptx: None,
            schedule: Schedule::Stepped { seed: 0 },
            checks: Checks::ALL,
            profile: TimeProfile::default(),
            timeline: false,
            lazy_loading: true,
            function_load: true,
            staged_copies: true,
            wait_limit: Duration::from_secs(10),
        })
    }

    /// Number of devices. At least 1 and at most 256: more are cut off.
    pub fn devices(mut self, devices: u32) -> Self {
        self.0.devices = devices.clamp(1, 256);
        self
    }

    /// Memory of each device, in bytes. Host memory is taken for an allocation when it is first touched.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.0.memory_bytes = bytes;
        self
    }

    /// Whether devices have stream-ordered memory pools.
    pub fn pools(mut self, pools: bool) -> Self {
        self.0.pools = pools;
        self
    }

    /// Whether devices can be given access to each other's memory.
    pub fn peers(mut self, peers: bool) -> Self {
        self.0.peers = peers;
        self
    }

    /// These two devices can't be given access to each other's memory, whatever others can.
    pub fn apart(mut self, a: DeviceId, b: DeviceId) -> Self {
        self.0.apart.push((a.min(b), a.max(b)));
        self
    }

    /// The least and the most urgent priority of streams; smaller is more urgent, 0 and -5 unless told otherwise. They
    /// are exchanged when given the other way round. Of what can run, the eager schedule takes the
    /// most urgent first, and the stepped one mostly does. Modelled time knows nothing of priorities.
    pub fn priorities(mut self, least: i32, greatest: i32) -> Self {
        self.0.priorities = (least.max(greatest), least.min(greatest));
        self
    }

    /// The newest version of PTX that the driver knows, major and minor: images that say `.version` with a newer one don't
    /// load. Unless told otherwise it knows all.
    pub fn newest_ptx(mut self, major: u32, minor: u32) -> Self {
        self.0.ptx = Some((major, minor));
        self
    }

    /// The order of operations.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.0.schedule = schedule;
        self
    }

    /// A stepped schedule with this seed.
    pub fn seed(self, seed: u64) -> Self {
        self.schedule(Schedule::Stepped { seed })
    }

    /// Which checks report.
    pub fn checks(mut self, checks: Checks) -> Self {
        self.0.checks = checks;
        self
    }

    /// What modelled time is worked out from.
    pub fn profile(mut self, profile: TimeProfile) -> Self {
        self.0.profile = profile;
        self
    }

    /// Whether each operation is recorded in the timeline. It grows with the run.
    pub fn timeline(mut self, on: bool) -> Self {
        self.0.timeline = on;
        self
    }

    /// Whether kernels load at their first launch, as drivers do by default: a kernel that was neither loaded by a call
    /// nor launched outside a capture can't be captured. On by default.
    pub fn lazy_loading(mut self, on: bool) -> Self {
        self.0.lazy_loading = on;
        self
    }

    /// Whether kernels can be loaded by a call, which drivers have from CUDA 12.4 on. On by default.
    pub fn function_load(mut self, on: bool) -> Self {
        self.0.function_load = on;
        self
    }

    /// Whether a synchronous copy from pageable memory to a device returns once the source has been staged, while
    /// the last of the transfer is under way on the legacy stream, as drivers may do. On by default; when off, it
    /// returns when the transfer is done.
    pub fn staged_copies(mut self, on: bool) -> Self {
        self.0.staged_copies = on;
        self
    }

    /// How long a waiting call waits for a held stream or a running host function before it reports a deadlock.
    pub fn wait_limit(mut self, limit: Duration) -> Self {
        self.0.wait_limit = limit;
        self
    }

    /// The simulated driver.
    ///
    /// # Panics
    /// Where [`try_build`](Self::try_build) fails.
    #[must_use]
    pub fn build(self) -> SimDriver {
        self.try_build()
            .expect("the system gives the threads of the simulated device")
    }

    /// The simulated driver.
    ///
    /// # Errors
    /// The system's own, when its threads can't be started: only a [`Schedule::Threaded`] has some.
    pub fn try_build(self) -> std::io::Result<SimDriver> {
        SimDriver::from_config(self.0)
    }
}
