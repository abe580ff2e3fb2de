//! Device memory as the ambient space of a thread.

use crate::acquire::{ReadRequest, WriteRequest};
use crate::data::DeviceData;
use crate::device_array::DeviceArray;
use crate::device_space::DeviceSpace;
use crate::domain::DomainId;
use crate::family::DeviceMemory;
use cuda_runtime::Device;
use space_core::{
    AmbientBlock, AmbientFamily, AmbientOf, AmbientSlot, Block, Capturing, Dims, Element, Exemplar,
    Family, Shaped,
};
use std::fmt;
use std::thread::LocalKey;

/// The ambient space of device memory: where code on this thread allocates that was given no space.
///
/// It is bound as that of host memory is, and apart from it: by [`with_space`](space_core::with_space) with a frame of
/// a [`DeviceArena`](crate::DeviceArena), or by entering a [`Scope`](space_core::Scope) of a [`DeviceSpace`], which may
/// cross threads. Under a capture an arena carves, and a scope of the pooled space returns
/// [`CaptureViolation`](space_core::CaptureViolation).
///
/// ```
/// use cuda_buffer::{DeviceAmbient, DeviceArena, DeviceData};
/// use cuda_runtime::Runtime;
/// use space_core::{Space, Undef, with_space};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let stream = device.streams().acquire()?;
/// let mut arena = DeviceArena::with_capacity_on(device, 1 << 16)?;
///
/// let ones = with_space(&mut arena.frame(), || {
///     let mut ones = DeviceAmbient::bound()?.alloc(Undef::<f32, _>::new([4]))?;
///     ones.fill(&stream, 1.0)?;
///     Ok::<_, Box<dyn std::error::Error>>(ones)
/// })?;
/// assert!(arena.reset().is_err()); // the array is alive
/// assert_eq!(ones.to_vec()?, [1.0; 4]);
/// drop(ones);
/// arena.reset()?;
/// # Ok(())
/// # }
/// ```
pub type DeviceAmbient = AmbientOf<DeviceMemory>;

/// An array of the ambient space: no lifetime, and a ledger of its own.
///
/// While it lives, its arena gives back neither its bytes nor any that its frame carved before it.
pub type AmbientDeviceArray<T, D> = HeldArray<AmbientBlock<DeviceMemory>, T, D>;

thread_local! {
    static SLOT: AmbientSlot<DeviceMemory> = const { AmbientSlot::new() };
}

// SAFETY: there is one slot. A place is an address and a pointer to state that is shared between threads, in an `Arc`
// that a block, or the keeper of a slab, holds. A held array holds its block, is dropped before it, and calls no space.
unsafe impl AmbientFamily for DeviceMemory {
    type Array<B: Block<Family = Self>, T: Element, D: Dims> = HeldArray<B, T, D>;

    fn slot() -> &'static LocalKey<AmbientSlot<Self>> {
        &SLOT
    }

    unsafe fn array<B: Block<Family = Self>, T: Element, D: Dims>(
        block: B,
        dims: D,
    ) -> HeldArray<B, T, D> {
        // SAFETY: the block, which is kept unused, lives as long as the array over it, whose lifetime nobody sees.
        let carve = unsafe { DeviceMemory::carve(block.place(), block.bytes()) };
        HeldArray {
            // SAFETY: handed on.
            array: unsafe { carve.typed(dims) },
            _block: block,
        }
    }
}

/// A device array that holds the block it lies in, whatever that is: an ambient one, or one of a user's own space.
///
/// Otherwise it is as a [`DeviceArray`].
pub struct HeldArray<B, T: 'static, D> {
    /// Never handed out: its lifetime is a fiction. Dropped first.
    array: DeviceArray<'static, T, D>,
    /// Dropped with the array, never used.
    _block: B,
}

impl<B, T: 'static, D> HeldArray<B, T, D> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.array.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.array.is_empty()
    }

    /// The device of the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.array.device()
    }

    /// The identity of the value, never reused.
    #[must_use]
    pub fn domain_id(&self) -> DomainId {
        self.array.domain_id()
    }
}

impl<B, T: Element, D: Dims> HeldArray<B, T, D> {
    /// The extents, in elements.
    #[must_use]
    pub fn dims(&self) -> &D {
        self.array.dims()
    }
}

impl<B, T: Element, D> DeviceData for HeldArray<B, T, D> {
    type Element = T;

    fn read(&self) -> ReadRequest<'_, T> {
        self.array.read()
    }

    fn write(&mut self) -> WriteRequest<'_, T> {
        self.array.write()
    }
}

impl<B, T: Element, D: Dims> Shaped for HeldArray<B, T, D> {
    type Element = T;
    type Dims = D;

    fn shape(&self) -> D {
        self.array.shape()
    }
}

impl<B, T: 'static, D> Exemplar for HeldArray<B, T, D> {
    type Space = DeviceSpace;

    fn space(&self) -> DeviceSpace {
        self.array.space()
    }
}

impl<B, T: 'static, D> Capturing for HeldArray<B, T, D> {
    fn is_capturing(&self) -> bool {
        self.array.is_capturing()
    }
}

impl<B, T: 'static, D: fmt::Debug> fmt::Debug for HeldArray<B, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.array.fmt(f)
    }
}
