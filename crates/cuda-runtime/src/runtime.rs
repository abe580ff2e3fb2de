//! The runtime: the devices of one driver, set up once.

use crate::device::{Alive, Device, Setup};
use crate::discover::Found;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{CallSite, DeviceId, Driver};
use std::sync::Arc;

/// The devices of one driver. Cheap to clone; several runtimes may exist side by side.
///
/// Everything made from a runtime keeps the resources of its device alive, so nothing outlives them.
#[derive(Clone, Debug)]
pub struct Runtime {
    driver: Arc<dyn Driver>,
    devices: Arc<Devices>,
    default: usize,
    #[cfg(feature = "sim")]
    simulated: Option<cuda_sim::SimDriver>,
}

/// The devices of all handles of one runtime.
#[derive(Debug)]
struct Devices(Box<[Device]>);

impl Drop for Devices {
    fn drop(&mut self) {
        for device in &self.0 {
            device.providers().clear(true);
        }
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
                threshold_bytes: u64::MAX,
                prime_bytes: 0,
            },
            #[cfg(feature = "sim")]
            simulation: None,
        }
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// The simulation behind the devices: its reports, faults, modelled time and timeline. `None` on hardware, and for
    /// a driver that the builder was given.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn simulation(&self) -> Option<&cuda_sim::SimDriver> {
        self.simulated.as_ref()
    }

    /// The devices, in the order they were chosen.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices.0
    }

    /// The device that the builder named as the default, or else the first.
    #[must_use]
    pub fn default_device(&self) -> &Device {
        &self.devices.0[self.default]
    }

    /// Waits for everything queued on streams that are not leased and for pending frees, and says for each device
    /// what is still alive. Objects that are alive keep working.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] while this thread captures; errors of the work waited for.
    #[track_caller]
    pub fn shutdown(self) -> RuntimeResult<Vec<(DeviceId, Alive)>> {
        let _site = CallSite::enter();
        crate::capture::refuse("shutting the runtime down")?;
        self.devices
            .0
            .iter()
            .map(|device| {
                device.providers().clear(false);
                device.drain().map(|()| (device.id(), device.alive()))
            })
            .collect()
    }
}

impl RuntimeBuilder {
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

    /// Streams in the pool of each device, at least 1. Default: 4.
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

    /// Opens the devices.
    ///
    /// # Errors
    /// [`RuntimeError::BadSetting`], [`RuntimeError::NoSuchDevice`], the driver's own; with feature `cuda`,
    /// `RuntimeError::Hardware` for a driver that is there and can't be used.
    #[track_caller]
    pub fn build(self) -> RuntimeResult<Runtime> {
        let _site = CallSite::enter();
        if self.setup.streams == 0 {
            return Err(RuntimeError::BadSetting {
                what: "streams_per_device",
                value: 0,
            });
        }
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
            .map(|&id| Device::open(&driver, id, self.setup))
            .collect::<RuntimeResult<_>>()?;
        Ok(Runtime {
            driver,
            devices: Arc::new(Devices(devices)),
            default,
            #[cfg(feature = "sim")]
            simulated: found.simulated,
        })
    }
}
