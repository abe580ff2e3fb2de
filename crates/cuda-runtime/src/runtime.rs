//! The runtime: the devices of one driver, set up once.

use crate::device::{Alive, Device, Setup};
use crate::discover::Found;
use crate::policy::{Behaviour, PoisonPolicy};
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CallSite, DeviceId, Driver};
use std::sync::Arc;

/// The devices of one driver. Cheap to clone; several runtimes may exist side by side.
///
/// Everything made from a runtime keeps the resources of its device alive, so nothing outlives them.
#[derive(Clone, Debug)]
pub struct Runtime(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    driver: Arc<dyn Driver>,
    devices: Box<[Device]>,
    default: usize,
    #[cfg(feature = "sim")]
    simulated: Option<cuda_sim::SimDriver>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.devices.iter().any(Device::is_forked) {
            return;
        }
        // What is kept with a device may hold it, and would keep it for ever.
        self.devices
            .iter()
            .for_each(|device| device.providers().close());
    }
}

/// How a runtime is set up.
#[derive(Clone, Debug)]
pub struct RuntimeBuilder {
    driver: Option<Arc<dyn Driver>>,
    devices: Option<Vec<DeviceId>>,
    default: Option<DeviceId>,
    setup: Setup,
    #[cfg(feature = "sim")]
    simulation: Option<cuda_sim::SimBuilder>,
}

impl Runtime {
    /// Starts to set up a runtime.
    #[must_use]
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder {
            driver: None,
            devices: None,
            default: None,
            setup: Setup {
                streams: 4,
                priorities: Vec::new(),
                threshold_bytes: u64::MAX,
                prime_bytes: 0,
                host_pool_bytes: 0,
                behaviour: Behaviour::default(),
            },
            #[cfg(feature = "sim")]
            simulation: None,
        }
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.0.driver
    }

    /// The simulation behind the devices: its reports, faults, modelled time and timeline. `None` on hardware, and for
    /// a driver that the builder was given.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn simulation(&self) -> Option<&cuda_sim::SimDriver> {
        self.0.simulated.as_ref()
    }

    /// The devices, in the order they were chosen.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.0.devices
    }

    /// The device that the builder named as the default, or else the first.
    #[must_use]
    pub fn default_device(&self) -> &Device {
        &self.0.devices[self.0.default]
    }

    /// Waits for everything queued, on leased streams too, and for pending frees; gives up what is kept with the devices
    /// ([`Device::provider`]), and says for each device what is still alive. Objects that are alive keep working.
    ///
    /// Of a stream that another thread captures, what was queued before its capture is waited for. Functions that release
    /// adopted memory run on threads of their own, and may still run afterwards.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] while this thread captures; the first error of the work waited for, after all
    /// devices were looked at.
    #[track_caller]
    pub fn shutdown(self) -> RuntimeResult<Vec<(DeviceId, Alive)>> {
        let _site = CallSite::enter();
        crate::capture::refuse("shutting the runtime down")?;
        let devices = &self.0.devices;
        devices
            .iter()
            .try_for_each(|device| device.core().origin.check())?;
        devices.iter().for_each(|device| device.providers().clear());
        let drained: Vec<_> = devices.iter().map(Device::drain).collect();
        drained.into_iter().collect::<RuntimeResult<()>>()?;
        let alive = devices.iter().map(|device| (device.id(), device.alive()));
        Ok(alive.collect())
    }
}

/// No pool is empty, nor so large that it can only be a mistake.
fn check_streams(what: &'static str, value: usize) -> RuntimeResult<()> {
    match (1..=RuntimeBuilder::MOST_STREAMS).contains(&value) {
        true => Ok(()),
        false => Err(RuntimeError::BadSetting { what, value }),
    }
}

impl RuntimeBuilder {
    /// The most streams that a pool can have.
    pub const MOST_STREAMS: usize = 4096;

    /// Uses this driver. Without it the runtime looks for one itself: hardware, when feature `cuda` is on and there is
    /// some, or else the simulated device, when feature `sim` is on.
    #[must_use]
    pub fn driver(mut self, driver: Arc<dyn Driver>) -> Self {
        self.driver = Some(driver);
        self
    }

    /// How to simulate, when the runtime finds no hardware.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn simulation(mut self, simulation: cuda_sim::SimBuilder) -> Self {
        self.simulation = Some(simulation);
        self
    }

    /// Uses these devices only, in this order. Default: all.
    #[must_use]
    pub fn devices(mut self, devices: impl IntoIterator<Item = DeviceId>) -> Self {
        self.devices = Some(devices.into_iter().collect());
        self
    }

    /// The device that [`Runtime::default_device`] names. Default: the first.
    #[must_use]
    pub fn default_device(mut self, device: DeviceId) -> Self {
        self.default = Some(device);
        self
    }

    /// Streams in the pool of each device, from 1 to [`MOST_STREAMS`](Self::MOST_STREAMS). Default: 4.
    #[must_use]
    pub fn streams_per_device(mut self, streams: usize) -> Self {
        self.setup.streams = streams;
        self
    }

    /// Bytes that the memory pool of each device keeps when they are not in use. Default: all.
    #[must_use]
    pub fn pool_threshold_bytes(mut self, bytes: u64) -> Self {
        self.setup.threshold_bytes = bytes;
        self
    }

    /// Bytes that the memory pool of each device takes from the system at once. Default: none.
    #[must_use]
    pub fn prime_pool_bytes(mut self, bytes: usize) -> Self {
        self.setup.prime_bytes = bytes;
        self
    }

    /// Adds a pool of `streams` streams of `priority` to each device, from 1 to [`MOST_STREAMS`](Self::MOST_STREAMS), for
    /// [`Device::streams_at`]. Smaller is more urgent, 0 usual;
    /// [`DeviceProperties::priorities`](cuda_driver::DeviceProperties::priorities) tells what a device has. Default: none.
    #[must_use]
    pub fn streams_at_priority(mut self, priority: i32, streams: usize) -> Self {
        self.setup.priorities.push((priority, streams));
        self
    }

    /// Bytes of page-locked host memory that each device keeps for the next who asks, when they are not in use. Requests that
    /// fit are rounded up to powers of two. Default: none.
    #[must_use]
    pub fn host_pool_bytes(mut self, bytes: usize) -> Self {
        self.setup.host_pool_bytes = bytes;
        self
    }

    /// What else is lost with a device whose state a failure leaves unknown. Default: nothing.
    #[must_use]
    pub fn poison_policy(mut self, policy: PoisonPolicy) -> Self {
        self.setup.behaviour.poison = policy;
        self
    }

    /// Waits on the host after each operation outside captures, so that the call that asked for one returns its fault. For
    /// finding faults: nothing overlaps any more. Default: off.
    #[must_use]
    pub fn synchronize_after_each_operation(mut self, on: bool) -> Self {
        self.setup.behaviour.synchronize = on;
        self
    }

    fn check_priorities(&self) -> RuntimeResult<()> {
        for (at, &(priority, streams)) in self.setup.priorities.iter().enumerate() {
            check_streams("the number of streams at a priority", streams)?;
            let mut earlier = self.setup.priorities[..at].iter();
            if priority == 0 || earlier.any(|&(other, _)| other == priority) {
                return Err(RuntimeError::PriorityTwice { priority });
            }
        }
        Ok(())
    }

    /// Opens the devices.
    ///
    /// # Errors
    /// [`RuntimeError::BadSetting`], [`RuntimeError::NoSuchDevice`], [`RuntimeError::DeviceTwice`],
    /// [`RuntimeError::BadPriority`], [`RuntimeError::PriorityTwice`], the driver's own; with feature `cuda`,
    /// `RuntimeError::Hardware` for a driver that is there and can't be used.
    #[track_caller]
    pub fn build(self) -> RuntimeResult<Runtime> {
        let _site = CallSite::enter();
        check_streams("streams_per_device", self.setup.streams)?;
        self.check_priorities()?;
        let found = match self.driver {
            Some(driver) => Found::given(driver),
            #[cfg(feature = "sim")]
            None => Found::by_itself(self.simulation)?,
            #[cfg(not(feature = "sim"))]
            None => Found::by_itself()?,
        };
        let driver = found.driver;
        let count = driver.device_count()?;
        let ids = self
            .devices
            .unwrap_or_else(|| (0..count).map(DeviceId).collect());
        let check = |device: DeviceId| match device.0 < count {
            true => Ok(()),
            false => Err(RuntimeError::NoSuchDevice { device, count }),
        };
        ids.iter().copied().try_for_each(check)?;
        for (at, device) in ids.iter().enumerate() {
            if ids[..at].contains(device) {
                return Err(RuntimeError::DeviceTwice { device: *device });
            }
        }
        let default = self.default.or(ids.first().copied()).unwrap_or(DeviceId(0));
        let default =
            ids.iter()
                .position(|&id| id == default)
                .ok_or(RuntimeError::NoSuchDevice {
                    device: default,
                    count,
                })?;
        let devices = ids
            .iter()
            .map(|&id| Device::open(&driver, id, &self.setup))
            .collect::<RuntimeResult<Box<[_]>>>()?;
        if self.setup.behaviour.poison == PoisonPolicy::Runtime {
            for device in &devices {
                let others = devices.iter().filter(|other| !device.same(other));
                let others = others.map(|other| Arc::downgrade(other.core()));
                device.core().share_fate(others.collect());
            }
        }
        Ok(Runtime(Arc::new(Inner {
            driver,
            devices,
            default,
            #[cfg(feature = "sim")]
            simulated: found.simulated,
        })))
    }
}
