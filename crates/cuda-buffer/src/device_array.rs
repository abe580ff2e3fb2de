//! Arrays of a device space.

use crate::acquire::{ReadRequest, WriteRequest};
use crate::data::DeviceData;
use crate::device_space::{DeviceSpace, is_capturing};
use crate::domain::{Domain, DomainId};
use cuda_runtime::Device;
use space_core::{Capturing, Dims, Element, Exemplar, Shaped};
use std::fmt;
use std::marker::PhantomData;

/// An uninitialised array in device memory with a ledger of its own: a carve that lives as long as its frame (`'s`),
/// or memory of its own (`'static`).
///
/// It has shape and identity, and no element access: work reaches it through guards, like any
/// [`CudaBuffer`](crate::CudaBuffer).
pub struct DeviceArray<'s, T, D> {
    domain: Domain,
    dims: D,
    len: usize,
    elements: PhantomData<&'s mut [T]>,
}

// SAFETY: an array is a handle; what it refers to is guarded by its ledger, and elements are never reached through it.
unsafe impl<T, D: Send> Send for DeviceArray<'_, T, D> {}
// SAFETY: as above.
unsafe impl<T, D: Sync> Sync for DeviceArray<'_, T, D> {}

impl<T: Element, D: Dims> DeviceArray<'_, T, D> {
    pub(crate) fn new(domain: Domain, dims: D) -> Self {
        let len = dims.saturating_len();
        Self {
            domain,
            dims,
            len,
            elements: PhantomData,
        }
    }

    /// The extents, in elements.
    #[must_use]
    pub fn dims(&self) -> &D {
        &self.dims
    }
}

impl<T, D> DeviceArray<'_, T, D> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device of the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.domain.device()
    }

    /// The identity of the value, never reused.
    #[must_use]
    pub fn domain_id(&self) -> DomainId {
        self.domain.id()
    }
}

impl<T: Element, D> DeviceData for DeviceArray<'_, T, D> {
    type Element = T;

    fn read(&self) -> ReadRequest<'_, T> {
        ReadRequest::new(&self.domain, 0, self.len)
    }

    fn write(&mut self) -> WriteRequest<'_, T> {
        WriteRequest::new(&self.domain, 0, self.len)
    }
}

impl<T, D: fmt::Debug> fmt::Debug for DeviceArray<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceArray")
            .field("domain", &self.domain_id())
            .field("dims", &self.dims)
            .finish_non_exhaustive()
    }
}

impl<T: Element, D: Dims> Shaped for DeviceArray<'_, T, D> {
    type Element = T;
    type Dims = D;

    fn shape(&self) -> D {
        self.dims.clone()
    }
}

impl<T, D> Exemplar for DeviceArray<'_, T, D> {
    type Space = DeviceSpace;

    fn space(&self) -> DeviceSpace {
        DeviceSpace::of(self.device())
    }
}

impl<T, D> Capturing for DeviceArray<'_, T, D> {
    fn is_capturing(&self) -> bool {
        is_capturing(self.device())
    }
}
