//! The driver that the matrix runs on.

use crate::Outcome;
use cuda_contract::Failing;
use cuda_driver::{DeviceId, Devices, Driver};
use cuda_sim::SimDriver;
use std::sync::Arc;

/// Which driver.
#[derive(Debug)]
pub(crate) enum Subject {
    /// A simulated device of its own for each step.
    Simulated,
    /// The driver that the loader finds, real or emulated.
    Driver(Arc<cuda_driver::hardware::Hardware>),
}

/// A driver for one step.
pub(crate) struct Made {
    pub(crate) failing: Arc<Failing>,
    sim: Option<SimDriver>,
}

impl Subject {
    pub(crate) fn hardware() -> Outcome<Self> {
        Ok(Self::Driver(Arc::new(cuda_driver::hardware::open()?)))
    }

    /// What it is, with its devices.
    pub(crate) fn name(&self) -> Outcome<String> {
        match self {
            Self::Simulated => Ok("the simulated device, two of them".to_owned()),
            Self::Driver(driver) => {
                let names = (0..driver.device_count()?)
                    .map(|device| Ok(driver.device_properties(DeviceId(device))?.name))
                    .collect::<Outcome<Vec<String>>>()?;
                Ok(format!("{}: {}", driver.name(), names.join(", ")))
            }
        }
    }

    pub(crate) fn device_count(&self) -> Outcome<u32> {
        match self {
            Self::Simulated => Ok(2),
            Self::Driver(driver) => Ok(driver.device_count()?),
        }
    }

    /// The driver for a step; a simulated one runs under this seed.
    pub(crate) fn driver(&self, seed: u64) -> Outcome<Made> {
        match self {
            Self::Simulated => {
                let sim = SimDriver::builder().devices(2).seed(seed).build();
                Ok(Made {
                    failing: Arc::new(Failing::new(sim.as_driver())),
                    sim: Some(sim),
                })
            }
            Self::Driver(driver) => Ok(Made {
                failing: Arc::new(Failing::new(driver.clone())),
                sim: None,
            }),
        }
    }
}

impl Made {
    /// What the simulation found wrong is an error, other than objects that were left where `leaves`; a real driver finds
    /// nothing.
    pub(crate) fn reports(self, leaves: bool) -> Outcome {
        match self.sim {
            Some(sim) => {
                sim.shutdown();
                let reports = sim.take_reports();
                let mut wrong = reports
                    .iter()
                    .filter(|report| !leaves || report.kind() != "leak");
                match wrong.next() {
                    Some(report) => Err(report.to_string().into()),
                    None => Ok(()),
                }
            }
            None => match cuda_contract::emulated::take_reports() {
                0 => Ok(()),
                found => Err(format!("the emulated driver found {found} wrong").into()),
            },
        }
    }
}
