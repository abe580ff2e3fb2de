//! Slabs of device memory, and the arenas over them.

use crate::arena::{ArenaShared, Carves};
use crate::buffer::CudaBuffer;
use crate::domain::BASE_ALIGN;
use crate::family::{DeviceMemory, DeviceRegion, number};
use crate::{BufferError, BufferResult, Refused};
use cuda_runtime::Device;
use space_arena::{Arena, SlabOn};
use space_core::{Keeper, Parts, Slab};
use std::sync::Arc;

/// An arena over device memory. Carves allocate nothing; each has a ledger, from a number fixed by the slab.
///
/// ```
/// use cuda_buffer::{DeviceArena, DeviceData};
/// use cuda_runtime::Runtime;
/// use space_core::{Space, Undef};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let stream = device.streams().acquire()?;
/// let mut arena = DeviceArena::with_capacity_on(device, 1 << 16)?;
///
/// let mut frame = arena.frame();
/// let mut kept = frame.alloc(Undef::<f32, _>::new([16, 16]))?;
/// frame.scratch(|frame| {
///     let mut scratch = frame.alloc(Undef::<f32, _>::new([16, 16]))?;
///     scratch.fill_bytes(&stream, 0)?;
///     kept.copy_from(&scratch, &stream)?;
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })?; // the scratch bytes are free again; their next use comes after the copy
/// assert_eq!(kept.to_vec()?, [0.0; 256]);
/// # Ok(())
/// # }
/// ```
pub type DeviceArena = Arena<DeviceSlab>;

/// A slab of device memory for an arena.
#[derive(Debug)]
pub struct DeviceSlab(Arc<ArenaShared>);

impl DeviceSlab {
    /// Ledgers that a slab has unless told otherwise: that many carves can be alive at once.
    pub const LEDGERS: usize = 1024;

    /// A slab of `bytes` bytes.
    ///
    /// # Errors
    /// What [`CudaBuffer::new`] returns.
    #[track_caller]
    pub fn new(device: &Device, bytes: usize) -> BufferResult<Self> {
        Ok(Self::from_buffer(
            CudaBuffer::new(device, bytes)?,
            Self::LEDGERS,
        )?)
    }

    /// A slab of a buffer's memory, on which at most `ledgers` carves are alive at once. Carves come after whatever
    /// may still use the buffer.
    ///
    /// # Errors
    /// [`BufferError::Held`] when a graph holds the buffer, [`BufferError::Access`] when a guard of it was forgotten,
    /// [`BufferError::Space`] when there is no memory for so many ledgers; the buffer comes back.
    pub fn from_buffer(
        buffer: CudaBuffer<u8>,
        ledgers: usize,
    ) -> Result<Self, Refused<CudaBuffer<u8>>> {
        let carves = match Carves::new(ledgers) {
            Ok(carves) => carves,
            Err(error) => return Err((buffer, error).into()),
        };
        let device = buffer.device().clone();
        let (allocation, outstanding) = buffer.into_allocation()?;
        Ok(Self(ArenaShared::new(
            device,
            allocation,
            outstanding,
            carves,
        )))
    }
}

impl SlabOn for DeviceSlab {
    type Place = Device;
    type Error = BufferError;

    #[track_caller]
    fn slab_on(device: &Device, bytes: usize) -> BufferResult<Self> {
        Self::new(device, bytes)
    }
}

// SAFETY: the shared state owns the allocation, of which nobody else has a handle, and the region holds it; a
// device address range does not wrap; one region is made per slab. The keeper holds the shared
// state, which is all that places refer to, and ends the claims when it is dropped.
unsafe impl Slab for DeviceSlab {
    type Family = DeviceMemory;
    type Owner = Keeper;

    fn keeper(owner: &Keeper) -> Option<Keeper> {
        Some(Arc::clone(owner))
    }

    fn into_parts(self) -> Parts<DeviceMemory, Keeper> {
        let (base, bytes) = (self.0.base().0 as usize, self.0.bytes());
        let (region, owner) = DeviceRegion::of(self.0);
        Parts {
            base: number(base, BASE_ALIGN),
            bytes,
            owner,
            region,
        }
    }
}
