//! Why there is no cuBLAS to use, and what it returned.

use super::library::Version;
use crate::ElementType;
use cuda_driver::DeviceId;
use cuda_driver::hardware::OpenError;
use std::fmt;
use std::path::PathBuf;

/// Why cuBLAS can't be used, or what a call of it returned.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CublasError {
    /// None of the places has one that can be used.
    #[error(
        "no cuBLAS was found that {device}, of compute capability {}.{}, can use with a driver for CUDA {}.{}; {}",
        .capability.0, .capability.1, .driver / 1000, .driver % 1000 / 10, told(.names, .tried)
    )]
    NotFound {
        /// The device that it is for.
        device: DeviceId,
        /// Its compute capability.
        capability: (u32, u32),
        /// What the driver supports, as 1000 times CUDA's major version plus 10 times its minor one.
        driver: u32,
        /// Names of libraries that could be used, the one that is preferred first.
        names: Vec<String>,
        /// Where it was looked for, in order; nowhere when `CARVE_CUBLAS` is set to nothing.
        tried: Vec<TriedPlace>,
    },
    /// There is no such file, or it can't be loaded.
    #[error("{} can't be loaded: {reason}", .path.display())]
    Load {
        /// The library.
        path: PathBuf,
        /// What the loader says.
        reason: String,
    },
    /// The library is older than cuBLAS 12.
    #[error("{} is cuBLAS {version}, and 12 or 13 is needed: install a newer one", .path.display())]
    TooOld {
        /// The library.
        path: PathBuf,
        /// Its version.
        version: Version,
    },
    /// The library is newer than cuBLAS 13, and may have another interface.
    #[error("{} is cuBLAS {version}, which is not known here: install 12 or 13", .path.display())]
    TooNew {
        /// The library.
        path: PathBuf,
        /// Its version.
        version: Version,
    },
    /// The library is of a newer CUDA than the driver.
    #[error(
        "{} is cuBLAS {version}, which needs a driver for CUDA {}.0, and this one is for CUDA {}.{}: update the driver, or install an \
         older cuBLAS",
        .path.display(), .version.major, .driver / 1000, .driver % 1000 / 10
    )]
    DriverTooOld {
        /// The library.
        path: PathBuf,
        /// Its version, or the first one that its name can mean.
        version: Version,
        /// What the driver supports, as 1000 times CUDA's major version plus 10 times its minor one.
        driver: u32,
    },
    /// The library does not support devices as old as this one.
    #[error(
        "{} is cuBLAS {version}, which needs compute capability {}.{}, and {device} has {}.{}: {}",
        .path.display(), .needed.0, .needed.1, .capability.0, .capability.1,
        match .version.major > 12 {
            true => "install cuBLAS 12, or name one by CARVE_CUBLAS",
            false => "no cuBLAS that is known here can be used; set CARVE_CUBLAS to nothing to do without",
        }
    )]
    DeviceTooOld {
        /// The library.
        path: PathBuf,
        /// Its version, or the first one that its name can mean.
        version: Version,
        /// The device.
        device: DeviceId,
        /// Its compute capability, major and minor.
        capability: (u32, u32),
        /// The compute capability that the library needs at least.
        needed: (u32, u32),
    },
    /// The library lacks a function.
    #[error("{} has no function {function}: is it cuBLAS?", .path.display())]
    MissingFunction {
        /// The library.
        path: PathBuf,
        /// The function.
        function: &'static str,
    },
    /// There is no driver that cuBLAS could use.
    #[error(transparent)]
    Driver(#[from] OpenError),
    /// The device is simulated.
    #[error("cuBLAS works on hardware, and {device} is simulated: use `HostBlas` there")]
    Simulated {
        /// The device.
        device: DeviceId,
    },
    /// A call returned a status other than success.
    #[error(transparent)]
    Call(Box<FailedCall>),
    /// A product could not be captured: cuBLAS did not find or load its kernel while a capture was open. Nothing of it is captured, and
    /// the capture fails with this.
    #[error(
        "{0}. That was a trial, before the product was to be captured: some drivers load no kernel while a capture is open, so run the \
         step once before capturing it, or start the program with CUDA_MODULE_LOADING=EAGER"
    )]
    NotCaptured(Box<FailedCall>),
}

impl CublasError {
    /// Whether there is nothing to use, rather than something that does not work.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::NotFound { tried, .. } => {
                let mut files = tried.iter().flat_map(|place| &place.files);
                files.all(|file| file.problem.is_none())
            }
            Self::Driver(error) => error.is_absence(),
            _ => false,
        }
    }
}

/// A place where cuBLAS was looked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TriedPlace {
    /// What kind of place it is, with its path.
    pub place: String,
    /// The files that were looked at, in order.
    pub files: Vec<TriedFile>,
}

/// A file that may have been cuBLAS.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TriedFile {
    /// Its path, or a name for the loader.
    pub path: PathBuf,
    /// What is wrong with the library there; `None` when there is none.
    pub problem: Option<Box<CublasError>>,
}

fn told(names: &[String], tried: &[TriedPlace]) -> String {
    if tried.is_empty() {
        return "it was not looked for, since CARVE_CUBLAS is set to nothing".to_owned();
    }
    let advice = match names {
        [] => "there is none that could be: set CARVE_CUBLAS to nothing to do without".to_owned(),
        names => format!(
            "install one, or set CARVE_CUBLAS to the path of {}, or to nothing to do without",
            names.join(" or ")
        ),
    };
    let line = |TriedPlace { place, files }: &TriedPlace| {
        let file = |TriedFile { path, problem }: &TriedFile| match problem {
            Some(problem) => problem.to_string(),
            None => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                format!("no {}", name.to_string_lossy())
            }
        };
        let files: Vec<_> = files.iter().map(file).collect();
        format!("\n  {place}: {}", files.join("; "))
    };
    let lines: String = tried.iter().map(line).collect();
    format!("{advice}. Looked at:{lines}")
}

/// A call of cuBLAS that returned a status other than success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function} of {library} returned {status}{}: {}", sizes(.product), .status.advice())]
#[non_exhaustive]
pub struct FailedCall {
    /// The function.
    pub function: &'static str,
    /// The library, with its version.
    pub library: &'static str,
    /// What it returned.
    pub status: CublasStatus,
    /// The sizes of the product, for a function that queues one.
    pub product: Option<ProductSizes>,
}

/// The sizes of a product, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProductSizes {
    /// The element type.
    pub element: ElementType,
    /// Rows of C, columns of C, columns of op(A).
    pub sizes: [usize; 3],
    /// Leading dimensions of A, B and C.
    pub leading: [usize; 3],
    /// How many products.
    pub batch: usize,
}

fn sizes(product: &Option<ProductSizes>) -> String {
    let Some(product) = product else {
        return String::new();
    };
    let ([m, n, k], [a, b, c]) = (product.sizes, product.leading);
    format!(
        " for {} product(s) of {:?} with m = {m}, n = {n}, k = {k} and leading dimensions {a}, {b}, {c}",
        product.batch, product.element
    )
}

/// A status of cuBLAS, as the plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CublasStatus(pub u32);

impl CublasStatus {
    /// The name in the header; newer ones than this table have none.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "CUBLAS_STATUS_SUCCESS",
            1 => "CUBLAS_STATUS_NOT_INITIALIZED",
            3 => "CUBLAS_STATUS_ALLOC_FAILED",
            7 => "CUBLAS_STATUS_INVALID_VALUE",
            8 => "CUBLAS_STATUS_ARCH_MISMATCH",
            11 => "CUBLAS_STATUS_MAPPING_ERROR",
            13 => "CUBLAS_STATUS_EXECUTION_FAILED",
            14 => "CUBLAS_STATUS_INTERNAL_ERROR",
            15 => "CUBLAS_STATUS_NOT_SUPPORTED",
            16 => "CUBLAS_STATUS_LICENSE_ERROR",
            _ => return None,
        })
    }

    /// What to do about it.
    fn advice(self) -> &'static str {
        match self.0 {
            1 => "the driver does not work for it, or the context is lost",
            3 => {
                "no memory is left for it on the device or the host, or its workspace is smaller than 16 KiB"
            }
            7 => {
                "it takes no such argument, which is a fault of Carve unless the provider was called directly"
            }
            8 => {
                "it has nothing for a device of this compute capability: a newer device needs a newer cuBLAS"
            }
            13 => {
                "its kernel did not start: earlier work may have failed, or the kernel could not be loaded"
            }
            15 => "it does not have this product on this device",
            _ => "see the documentation of cuBLAS",
        }
    }
}

impl fmt::Display for CublasStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} [{}]", self.0),
            None => write!(f, "status [{}]", self.0),
        }
    }
}
