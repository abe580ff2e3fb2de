//! Device memory as a family of spaces: blocks, carves, slabs, and the pooled space of a device.

use crate::acquire::{ReadRequest, WriteRequest};
use crate::arena::{ArenaShared, CarveDomain, ClaimError};
use crate::buffer::CudaBuffer;
use crate::data::DeviceData;
use crate::domain::{BASE_ALIGN, Domain, DomainId, Memory, OwnedDomain};
use crate::{BufferError, BufferResult};
use cuda_runtime::{Device, RuntimeError};
use space_arena::Arena;
use space_core::{
    AllocError, Block, CaptureViolation, Capturing, Dims, Element, Exemplar, Family, FrameBlock,
    Keeper, Parts, Shaped, Slab, Space,
};
use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZero;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// The family of device memory: arrays are [`DeviceArray`]s, each with a ledger of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceMemory {}

/// An arena over device memory. Carves allocate nothing; each has a ledger, from a number fixed by the slab.
///
/// ```
/// use cuda_buffer::{DeviceArena, DeviceData, DeviceSlab};
/// use cuda_runtime::Runtime;
/// use space_core::{Space, Undef};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let stream = device.streams().acquire()?;
/// let mut arena = DeviceArena::over(DeviceSlab::new(device, 1 << 16)?)?;
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

/// Where a device block lies, and how its ledger is reached.
#[derive(Clone, Copy, Debug)]
pub struct DevicePlace {
    address: NonNull<u8>,
    ledger: LedgerPlace,
}

#[derive(Clone, Copy, Debug)]
enum LedgerPlace {
    /// A value with memory of its own; the pointer is of its `Arc`.
    Owned(NonNull<OwnedDomain>),
    /// A live carve; the pointer is of the arena's `Arc`.
    Carve {
        shared: NonNull<ArenaShared>,
        id: DomainId,
        at: usize,
        start: usize,
    },
    /// A carve of no bytes.
    Empty(NonNull<ArenaShared>),
}

/// What all carves of one device arena share.
#[derive(Debug)]
pub struct DeviceRegion(Arc<Claims>);

/// The carves of an arena, for as long as one of them may be used: held by the arena, and by arrays without a lifetime.
#[derive(Debug)]
struct Claims(Arc<ArenaShared>);

impl Drop for Claims {
    /// The arena is gone, and with it every carve: no graph over its bytes has to heed them any more.
    fn drop(&mut self) {
        self.0.retract(0..usize::MAX);
    }
}

impl DeviceRegion {
    fn shared(&self) -> &Arc<ArenaShared> {
        &self.0.0
    }
}

impl DeviceRegion {
    /// The device of the slab.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.shared().device()
    }

    /// Bytes that are lost to the arena because a guard on them was forgotten.
    #[must_use]
    pub fn quarantined_bytes(&self) -> usize {
        self.shared().quarantined_bytes()
    }
}

impl From<ClaimError> for AllocError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::OutOfLedgers { capacity } => Self::OutOfLedgers { capacity },
            other => Self::other(other),
        }
    }
}

impl From<BufferError> for AllocError {
    fn from(error: BufferError) -> Self {
        match error {
            BufferError::Runtime(RuntimeError::OutOfMemory { wanted_bytes, .. }) => {
                Self::OutOfMemory {
                    bytes: wanted_bytes,
                    align: BASE_ALIGN,
                }
            }
            other => Self::other(other),
        }
    }
}

// SAFETY: `claim` keeps the address, `carve` makes a block of the place it is given, and no method calls back into
// a space or unwinds: they take locks, move plain data and drop completions, whose drop returns an event.
unsafe impl Family for DeviceMemory {
    type Region = DeviceRegion;
    type Place = DevicePlace;
    type Carve<'s> = DeviceCarve<'s>;

    fn address(place: DevicePlace) -> NonNull<u8> {
        place.address
    }

    unsafe fn claim(
        region: &DeviceRegion,
        address: NonNull<u8>,
        bytes: usize,
    ) -> Result<DevicePlace, AllocError> {
        let shared = pointer_of(region.shared());
        if bytes == 0 {
            let ledger = LedgerPlace::Empty(shared);
            return Ok(DevicePlace { address, ledger });
        }
        let start = address.addr().get() - region.shared().base().0 as usize;
        let (id, at) = region.shared().claim(start..start + bytes)?;
        let ledger = LedgerPlace::Carve {
            shared,
            id,
            at,
            start,
        };
        Ok(DevicePlace { address, ledger })
    }

    unsafe fn retract(region: &DeviceRegion, addresses: Range<usize>) {
        let base = region.shared().base().0 as usize;
        // Addresses of an arena are never below its slab; an empty range may be anything.
        let offset = |address: usize| address.saturating_sub(base);
        region
            .shared()
            .retract(offset(addresses.start)..offset(addresses.end));
    }

    unsafe fn carve<'s>(place: DevicePlace, bytes: usize) -> DeviceCarve<'s> {
        let domain = match place.ledger {
            LedgerPlace::Owned(owned) => {
                // SAFETY: the pointer is of the `Arc` in a block that lives as long as `'s`.
                unsafe { Arc::increment_strong_count(owned.as_ptr()) };
                // SAFETY: the count was raised for this handle.
                Domain::Owned(unsafe { Arc::from_raw(owned.as_ptr()) })
            }
            LedgerPlace::Carve {
                shared,
                id,
                at,
                start,
            } => Domain::Carve(CarveDomain::new(
                // SAFETY: the pointer is of the `Arc` in the region of a claim that lives as long as `'s`.
                unsafe { share(shared) },
                id,
                at,
                start,
                bytes,
            )),
            LedgerPlace::Empty(shared) => {
                // SAFETY: as above.
                let shared = unsafe { share(shared) };
                Domain::owned(shared.device(), Memory::Empty, None)
            }
        };
        DeviceCarve {
            domain,
            place,
            bytes,
            frame: PhantomData,
        }
    }
}

/// The pointer that a handle can be made from again: one to the counts as well as to the value.
fn pointer_of<T>(shared: &Arc<T>) -> NonNull<T> {
    NonNull::new(Arc::as_ptr(shared).cast_mut()).expect("an `Arc` points to something")
}

/// One more handle of an arena.
///
/// # Safety
/// The pointer is of an `Arc` that is alive.
unsafe fn share(shared: NonNull<ArenaShared>) -> Arc<ArenaShared> {
    // SAFETY: the caller's promise.
    unsafe { Arc::increment_strong_count(shared.as_ptr()) };
    // SAFETY: the count was raised for this handle.
    unsafe { Arc::from_raw(shared.as_ptr()) }
}

/// A block of device memory that a frame gives back.
#[derive(Debug)]
pub struct DeviceCarve<'s> {
    domain: Domain,
    place: DevicePlace,
    bytes: usize,
    frame: PhantomData<&'s mut [u8]>,
}

/// A block of device memory of its own.
#[derive(Debug)]
pub struct DeviceBlock {
    domain: Domain,
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the address is a number, and the domain may be used on any thread.
unsafe impl Send for DeviceBlock {}
// SAFETY: as above.
unsafe impl Sync for DeviceBlock {}

// SAFETY: the bytes are the claim's, or the kept block's, alone for `'s`; place and size are fields that no move
// changes; the block is a handle and asserts nothing when it moves.
unsafe impl<'s> Block for DeviceCarve<'s> {
    type Family = DeviceMemory;
    type Array<T: Element, D: Dims> = DeviceArray<'s, T, D>;

    fn place(&self) -> DevicePlace {
        self.place
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> DeviceArray<'s, T, D> {
        DeviceArray::new(self.domain, dims)
    }
}

impl FrameBlock for DeviceCarve<'_> {}

// SAFETY: the bytes are of an allocation that the domain alone owns; place and size are fields that no move changes;
// the block is a handle and asserts nothing when it moves.
unsafe impl Block for DeviceBlock {
    type Family = DeviceMemory;
    type Array<T: Element, D: Dims> = DeviceArray<'static, T, D>;

    fn place(&self) -> DevicePlace {
        let Domain::Owned(owned) = &self.domain else {
            unreachable!("a block of its own owns its memory")
        };
        DevicePlace {
            address: self.address,
            ledger: LedgerPlace::Owned(pointer_of(owned)),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> DeviceArray<'static, T, D> {
        DeviceArray::new(self.domain, dims)
    }
}

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
fn is_capturing(device: &Device) -> bool {
    device.capturing().unwrap_or(false)
}

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
        if layout.align() > BASE_ALIGN {
            return Err(AllocError::BadAlign {
                requested: layout.align(),
                max: BASE_ALIGN,
            });
        }
        let domain = CudaBuffer::<u8>::new(&self.device, layout.size())?.into_domain();
        let address = number(domain.address().0 as usize, layout.align());
        Ok(DeviceBlock {
            domain,
            address,
            bytes: layout.size(),
        })
    }
}

/// A device address as the number that spaces handle; `align` where there is no memory.
fn number(address: usize, align: usize) -> NonNull<u8> {
    let number = NonZero::new(address)
        .or(NonZero::new(align))
        .expect("an alignment is not zero");
    NonNull::without_provenance(number)
}

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
        Self::from_buffer(CudaBuffer::new(device, bytes)?, Self::LEDGERS)
            .map_err(|(_, error)| error)
    }

    /// A slab of a buffer's memory, on which at most `ledgers` carves are alive at once. Carves come after whatever
    /// may still use the buffer.
    ///
    /// # Errors
    /// [`BufferError::Held`] when a graph holds the buffer, [`BufferError::Access`] when a guard of it was forgotten; the
    /// buffer comes back.
    pub fn from_buffer(
        buffer: CudaBuffer<u8>,
        ledgers: usize,
    ) -> Result<Self, (CudaBuffer<u8>, BufferError)> {
        let device = buffer.device().clone();
        let (allocation, outstanding) = buffer.into_allocation()?;
        Ok(Self(ArenaShared::new(
            device,
            allocation,
            outstanding,
            ledgers,
        )))
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
        let claims = Arc::new(Claims(self.0));
        Parts {
            base: number(base, BASE_ALIGN),
            bytes,
            owner: Arc::clone(&claims) as Keeper,
            region: DeviceRegion(claims),
        }
    }
}
