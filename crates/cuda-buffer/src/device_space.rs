//! The pooled space of a device.

use crate::buffer::CudaBuffer;
use crate::domain::BASE_ALIGN;
use crate::family::{DeviceBlock, DeviceMemory};
use cuda_runtime::Device;
use space_core::{AllocError, CaptureViolation, Capturing, Exemplar, Space};
use std::alloc::Layout;

/// The pooled space of a device: every array has memory of its own, through the device's allocator.
///
/// For eager work only: while the thread captures, it returns
/// [`CaptureViolation`](space_core::CaptureViolation). Use an arena there.
#[derive(Clone, Debug)]
pub struct DeviceSpace {
    device: Device,
}

impl DeviceSpace {
    /// The space of `device`.
    #[must_use]
    pub fn of(device: &Device) -> Self {
        Self {
            device: device.clone(),
        }
    }
}

impl Space for DeviceSpace {
    type Family = DeviceMemory;
    type Block = DeviceBlock;

    #[track_caller]
    fn block(&self, layout: Layout) -> Result<DeviceBlock, AllocError> {
        if cuda_runtime::refuse_in_capture("allocating device memory").is_err() {
            let device = self.device.id().to_string();
            return Err(CaptureViolation::new::<u8>(&[layout.size()], device).into());
        }
        // No bytes lie at any alignment.
        if layout.size() > 0 && layout.align() > BASE_ALIGN {
            return Err(AllocError::BadAlign {
                requested: layout.align(),
                max: BASE_ALIGN,
            });
        }
        let domain = CudaBuffer::<u8>::new(&self.device, layout.size())?.into_domain();
        Ok(DeviceBlock::new(domain, layout))
    }
}

impl<T> Exemplar for CudaBuffer<T> {
    type Space = DeviceSpace;

    fn space(&self) -> DeviceSpace {
        DeviceSpace::of(self.device())
    }
}

impl<T> Capturing for CudaBuffer<T> {
    fn is_capturing(&self) -> bool {
        is_capturing(self.device())
    }
}

/// A device that can't even be asked records nothing more.
pub(crate) fn is_capturing(device: &Device) -> bool {
    device.capturing().unwrap_or(false)
}
