//! Why there is no hardware to use.

use super::process::OLDEST_VERSION;
use crate::ErrorCode;

/// Why the driver could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// `libcuda.so.1` was not found, or can't be loaded.
    #[error(
        "no NVIDIA driver: libcuda.so.1 is not in the loader's path; install the driver, or simulate"
    )]
    NoDriver,
    /// The driver is older than [`Hardware`](super::Hardware) needs.
    #[error("the NVIDIA driver supports {}, and CUDA 11.7 or newer is needed: update the driver", told(*.version))]
    TooOld {
        /// What the driver supports, as 1000 times the major number plus 10 times the minor one; `None` when it is too
        /// old to be asked.
        version: Option<u32>,
    },
    /// The driver sees no device.
    #[error("the NVIDIA driver sees no device{}", told_visible(.visible))]
    NoDevice {
        /// The value of `CUDA_VISIBLE_DEVICES`, which can hide devices; `None` when it is not set.
        visible: Option<String>,
    },
    /// This process was forked from one that had opened the driver already.
    #[error(
        "process {child} was forked from {}, which uses the driver: a child can't; fork before, or start a new process",
        told_parent(*.opened_by)
    )]
    Forked {
        /// The process that opened the driver; `None` when that was not done through Carve.
        opened_by: Option<u32>,
        /// This process.
        child: u32,
    },
    /// The driver is there and refuses to start.
    #[error("the NVIDIA driver does not start: {code}")]
    Refused {
        /// What it returned.
        code: ErrorCode,
    },
}

impl OpenError {
    /// Whether there is nothing to use, rather than something that does not work.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NoDriver | Self::NoDevice { .. })
    }

    pub(super) fn from_init(code: ErrorCode) -> Self {
        match code {
            ErrorCode::STUB_LIBRARY => Self::NoDriver,
            ErrorCode::CALL_REQUIRES_NEWER_DRIVER => Self::TooOld { version: None },
            ErrorCode::NO_DEVICE => Self::no_device(),
            ErrorCode::NOT_INITIALIZED => Self::forked(),
            code => Self::Refused { code },
        }
    }

    pub(super) fn forked() -> Self {
        Self::Forked {
            opened_by: super::process::opened_by(),
            child: std::process::id(),
        }
    }

    pub(super) fn no_device() -> Self {
        Self::NoDevice {
            visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        }
    }
}

fn told(version: Option<u32>) -> String {
    match version {
        Some(version) => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        None => format!("less than CUDA {}", OLDEST_VERSION / 1000),
    }
}

fn told_parent(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "one".to_owned(),
    }
}

fn told_visible(visible: &Option<String>) -> String {
    match visible {
        Some(value) => format!(" that CUDA_VISIBLE_DEVICES={value:?} lets it show"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_its_own_error_and_says_what_to_do() {
        let texts = [
            OpenError::from_init(ErrorCode::STUB_LIBRARY),
            OpenError::from_init(ErrorCode::CALL_REQUIRES_NEWER_DRIVER),
            OpenError::TooOld {
                version: Some(11_020),
            },
            OpenError::NoDevice {
                visible: Some(String::new()),
            },
            OpenError::NoDevice { visible: None },
            OpenError::from_init(ErrorCode::NOT_INITIALIZED),
            OpenError::from_init(ErrorCode(999)),
        ]
        .map(|error| error.to_string());
        for (text, part) in texts.iter().zip([
            "libcuda.so.1",
            "less than CUDA 11",
            "supports CUDA 11.2,",
            "CUDA_VISIBLE_DEVICES=\"\"",
            "sees no device",
            "fork",
            "CUDA_ERROR_UNKNOWN [999]",
        ]) {
            assert!(text.contains(part), "{text}");
        }
    }
}
