//! What a version of cuBLAS needs: of the driver, and of the device.

use super::error::CublasError;
use super::library::Version;
use cuda_driver::{DeviceId, hardware};
use cuda_runtime::Device;
use std::path::Path;

/// A major version whose interface is known, with what it needs at least.
struct Known {
    major: u32,
    /// What the driver supports: any of the same major version, since minor ones are compatible.
    driver: u32,
    /// Compute capability.
    capability: (u32, u32),
}

/// The newest first.
///
/// Sources: of drivers, NVIDIA's "CUDA Compatibility", minor version compatibility (CUDA 12 needs a driver from 525 on, CUDA 13 one
/// from 580 on); of devices, the release notes of CUDA 12.0, which removed Kepler, and of CUDA 13.0, which removed Maxwell, Pascal
/// and Volta.
const KNOWN: [Known; 2] = [
    Known {
        major: 13,
        driver: 13_000,
        capability: (7, 5),
    },
    Known {
        major: 12,
        driver: 12_000,
        capability: (5, 0),
    },
];

/// A device, with all that a choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) device: DeviceId,
    pub(super) capability: (u32, u32),
    /// What the driver supports, as 1000 times CUDA's major version plus 10 times its minor one.
    pub(super) driver: u32,
}

impl Target {
    /// Fails for a simulated device, and where there is no driver.
    pub(super) fn of(device: &Device) -> Result<Self, CublasError> {
        if device.driver().is_simulated() {
            let device = device.id();
            return Err(CublasError::Simulated { device });
        }
        Ok(Self {
            device: device.id(),
            capability: device.properties().compute_capability,
            driver: hardware::open()?.version(),
        })
    }

    /// Whether a library of this major version can be used.
    pub(super) fn takes(&self, major: u32) -> bool {
        let known = KNOWN.iter().find(|known| known.major == major);
        known
            .is_some_and(|known| self.driver >= known.driver && self.capability >= known.capability)
    }

    /// Major versions of libraries that can be used, the newest first.
    pub(super) fn majors(self) -> impl Iterator<Item = u32> {
        let majors = KNOWN.iter().map(|known| known.major);
        majors.filter(move |major| self.takes(*major))
    }

    /// Fails unless the library at `path`, of this version, can be used.
    pub(super) fn check(&self, path: &Path, version: Version) -> Result<(), CublasError> {
        let known = known(path, version)?;
        let path = || path.to_owned();
        if self.driver < known.driver {
            return Err(CublasError::DriverTooOld {
                path: path(),
                version,
                driver: self.driver,
            });
        }
        if self.capability < known.capability {
            return Err(CublasError::DeviceTooOld {
                path: path(),
                version,
                device: self.device,
                capability: self.capability,
                needed: known.capability,
            });
        }
        Ok(())
    }
}

/// Fails for versions whose interface is not known.
pub(super) fn check_version(path: &Path, version: Version) -> Result<(), CublasError> {
    known(path, version).map(|_| ())
}

fn known(path: &Path, version: Version) -> Result<&'static Known, CublasError> {
    let [newest, .., _] = &KNOWN;
    let known = KNOWN.iter().find(|known| known.major == version.major);
    known.ok_or_else(|| {
        let path = path.to_owned();
        match version.major > newest.major {
            true => CublasError::TooNew { path, version },
            false => CublasError::TooOld { path, version },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(driver: u32, capability: (u32, u32)) -> Target {
        Target {
            device: DeviceId(3),
            capability,
            driver,
        }
    }

    /// Cards from Kepler to Blackwell, with drivers for CUDA 11.8 to 13.1.
    #[test]
    fn the_newest_that_driver_and_device_allow_comes_first() {
        let all = |driver, capability| target(driver, capability).majors().collect::<Vec<_>>();
        for capability in [(7, 5), (8, 0), (9, 0), (12, 1)] {
            assert_eq!(all(13_010, capability), [13, 12]);
            assert_eq!(all(13_000, capability), [13, 12]);
            assert_eq!(all(12_090, capability), [12]);
            assert_eq!(all(12_000, capability), [12]);
            assert_eq!(all(11_080, capability), []);
        }
        for capability in [(5, 0), (6, 1), (7, 0), (7, 2)] {
            assert_eq!(all(13_010, capability), [12]);
            assert_eq!(all(12_040, capability), [12]);
            assert_eq!(all(11_080, capability), []);
        }
        assert_eq!(all(13_000, (3, 7)), []);
    }

    #[test]
    fn what_is_missing_is_told_with_its_numbers() {
        let version = |major| Version {
            major,
            minor: 2,
            patch: 1,
        };
        let told = |target: Target, major| {
            let checked = target.check(Path::new("/x/libcublas.so"), version(major));
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(told(target(13_000, (7, 0)), 12), Ok(()));
        assert_eq!(told(target(12_000, (9, 0)), 12), Ok(()), "minor versions");
        let device = told(target(13_000, (7, 0)), 13).unwrap_err();
        assert_eq!(
            device,
            "/x/libcublas.so is cuBLAS 13.2.1, which needs compute capability 7.5, and device 3 has 7.0: install cuBLAS 12, or name one \
             by CARVE_CUBLAS"
        );
        let driver = told(target(12_080, (9, 0)), 13).unwrap_err();
        assert!(
            driver.contains("needs a driver for CUDA 13.0, and this one is for CUDA 12.8"),
            "{driver}"
        );
        let kepler = told(target(12_080, (3, 5)), 12).unwrap_err();
        assert!(
            kepler.contains("needs compute capability 5.0, and device 3 has 3.5: no cuBLAS"),
            "{kepler}"
        );
        let [old, new] = [11, 14].map(|major| told(target(13_000, (9, 0)), major).unwrap_err());
        assert!(old.contains("12 or 13 is needed"), "{old}");
        assert!(new.contains("is not known here"), "{new}");
    }
}
