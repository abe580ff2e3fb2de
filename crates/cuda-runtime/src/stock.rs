//! Handles of the device that a leased stream has at hand: for memory that is allocated and freed there, which then counts none
//! of its own.
//!
//! The lease keeps the device alive, so the stock keeps nothing alive that would not be. It opens with the first allocation of a
//! lease, and what is in it is given up with the lease.

use crate::counted::Shares;
use crate::device::{Device, DeviceResources};
use crate::primitive::{Fault, faulty};

/// Handles that are counted in one step.
const SOME: usize = 64;

/// Handles of the device, behind the lock of a stream.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// While the stream is leased, once it was asked for a handle.
    open: bool,
    handles: Option<Shares<DeviceResources>>,
}

impl Stock {
    /// A handle of `device`, which the stream's lease keeps alive.
    #[inline]
    pub(crate) fn take(&mut self, device: &Device) -> Device {
        let one = self.handles.as_mut().and_then(Shares::take);
        Device::of(one.unwrap_or_else(|| {
            self.open = true;
            let handles = self.handles.insert(device.share(SOME));
            handles.take().expect("there are some")
        }))
    }

    /// Takes a handle back; hands it on where there is no stock.
    #[inline]
    pub(crate) fn put(&mut self, device: Device) -> Option<Device> {
        if !self.open {
            return Some(device);
        }
        let one = match &mut self.handles {
            Some(handles) => match handles.join(device.into_counted()) {
                Ok(()) => return None,
                Err(one) => one,
            },
            None => device.into_counted(),
        };
        // The last ones were taken.
        let emptied = self.handles.replace(Shares::of(one));
        debug_assert!(emptied.is_none_or(|handles| handles.is_empty()));
        None
    }

    /// What is there at the end of the lease, to be given up without the lock.
    pub(crate) fn close(&mut self) -> Option<Shares<DeviceResources>> {
        self.open = faulty(Fault::OpenStock);
        self.handles.take()
    }
}
