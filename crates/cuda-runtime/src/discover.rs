//! Finding a driver: hardware where it is built in and present, or else the simulated device.

use cuda_driver::Driver;
use std::sync::Arc;

/// The driver that a runtime uses when its builder names none.
#[cfg(feature = "sim")]
pub(crate) fn driver(simulation: Option<cuda_sim::SimBuilder>) -> Found {
    let simulated = simulation
        .unwrap_or_else(cuda_sim::SimDriver::builder)
        .build();
    Found {
        driver: simulated.as_driver(),
        simulated: Some(simulated),
    }
}

/// A driver, and its own handle when it is simulated.
#[cfg(feature = "sim")]
pub(crate) struct Found {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) simulated: Option<cuda_sim::SimDriver>,
}

/// Without the simulated device and without hardware support there is nothing to find.
#[cfg(not(feature = "sim"))]
pub(crate) fn driver() -> crate::RuntimeResult<Arc<dyn Driver>> {
    use cuda_driver::{Call, CudaError, ErrorCode};
    Err(CudaError::new(ErrorCode::NO_DEVICE, Call::DeviceGetCount, None).into())
}
