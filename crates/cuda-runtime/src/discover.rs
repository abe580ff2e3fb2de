//! Finding a driver: hardware where it is built in and present, or else the simulated device.

use crate::RuntimeResult;
use cuda_driver::Driver;
use std::sync::Arc;

/// A driver, and its own handle when it is simulated.
pub(crate) struct Found {
    pub(crate) driver: Arc<dyn Driver>,
    #[cfg(feature = "sim")]
    pub(crate) simulated: Option<cuda_sim::SimDriver>,
}

impl Found {
    /// A driver of which no more is known than its interface.
    pub(crate) fn given(driver: Arc<dyn Driver>) -> Self {
        Self {
            driver,
            #[cfg(feature = "sim")]
            simulated: None,
        }
    }

    /// The driver that a runtime uses when its builder names none.
    #[cfg(feature = "sim")]
    pub(crate) fn by_itself(simulation: Option<cuda_sim::SimBuilder>) -> RuntimeResult<Self> {
        if let Some(driver) = hardware()? {
            return Ok(Self::given(driver));
        }
        let simulated = simulation
            .unwrap_or_else(cuda_sim::SimDriver::builder)
            .try_build()
            .map_err(|error| {
                crate::RuntimeError::no_thread("stands for the simulated device", &error)
            })?;
        Ok(Self {
            driver: simulated.as_driver(),
            simulated: Some(simulated),
        })
    }

    /// As above, with nothing to fall back on.
    #[cfg(not(feature = "sim"))]
    pub(crate) fn by_itself() -> RuntimeResult<Self> {
        use cuda_driver::{Call, CudaError, ErrorCode};
        let none = CudaError::new(ErrorCode::NO_DEVICE, Call::DeviceGetCount, None);
        hardware()?.map(Self::given).ok_or(none.into())
    }
}

/// The hardware, if there is any. A driver that is there and can't be used is an error, not a reason to simulate.
#[cfg(feature = "cuda")]
fn hardware() -> RuntimeResult<Option<Arc<dyn Driver>>> {
    match cuda_driver::hardware::open() {
        Ok(hardware) => Ok(Some(Arc::new(hardware))),
        Err(error) if error.is_absence() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// No hardware is built in.
#[cfg(not(feature = "cuda"))]
#[expect(clippy::unnecessary_wraps, reason = "as with hardware built in")]
fn hardware() -> RuntimeResult<Option<Arc<dyn Driver>>> {
    Ok(None)
}
