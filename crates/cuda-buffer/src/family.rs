//! Device memory as a family of spaces: places, blocks, carves, regions.

use crate::BufferError;
use crate::arena::{ArenaShared, CarveDomain, ClaimError};
use crate::device_array::DeviceArray;
use crate::domain::{BASE_ALIGN, Domain, DomainId, Memory, OwnedDomain};
use cuda_runtime::{Counted, Device, Place, RuntimeError};
use space_core::{
    AllocError, AmbientBlock, Block, Dims, Element, Family, FrameBlock, IntoAmbient, Keeper,
};
use std::alloc::Layout;
use std::cell::Cell;
use std::marker::PhantomData;
use std::num::NonZero;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// The family of device memory: arrays are [`DeviceArray`]s, each with a ledger of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceMemory {}

/// Where a device block lies, and how its ledger is reached.
#[derive(Clone, Copy, Debug)]
pub struct DevicePlace {
    address: NonNull<u8>,
    ledger: LedgerPlace,
}

#[derive(Clone, Copy, Debug)]
enum LedgerPlace {
    /// A value with memory of its own.
    Owned(Place<OwnedDomain>),
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
///
/// It stays on one thread at a time: that one alone carves and retracts.
#[derive(Debug)]
pub struct DeviceRegion {
    claims: Arc<Claims>,
    one_thread: PhantomData<Cell<()>>,
}

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
    /// The region of a slab's shared state, and what keeps its claims while one of them may be used.
    pub(crate) fn of(shared: Arc<ArenaShared>) -> (Self, Keeper) {
        let claims = Arc::new(Claims(shared));
        let keeper = Arc::clone(&claims) as Keeper;
        let region = Self {
            claims,
            one_thread: PhantomData,
        };
        (region, keeper)
    }

    fn shared(&self) -> &Arc<ArenaShared> {
        &self.claims.0
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
// a space or unwinds: they take locks, move plain data and drop completions, whose drop returns an event. A region is
// not `Sync`, so that claims and retracts are one thread's at a time.
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
                // SAFETY: the place is of the reference in a block that lives as long as `'s`.
                Domain::Owned(unsafe { owned.share() })
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

impl DeviceBlock {
    /// A block of a value with memory of its own, of the size that `layout` says.
    pub(crate) fn new(domain: Domain, layout: Layout) -> Self {
        let address = number(domain.address().0 as usize, layout.align());
        Self {
            domain,
            address,
            bytes: layout.size(),
        }
    }
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
    const INTO_AMBIENT: IntoAmbient<Self> = Some(AmbientBlock::of);

    fn place(&self) -> DevicePlace {
        let Domain::Owned(owned) = &self.domain else {
            unreachable!("a block of its own owns its memory")
        };
        DevicePlace {
            address: self.address,
            ledger: LedgerPlace::Owned(Counted::place(owned)),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> DeviceArray<'static, T, D> {
        DeviceArray::new(self.domain, dims)
    }
}

/// A device address as the number that spaces handle; `align` where there is no memory.
pub(crate) fn number(address: usize, align: usize) -> NonNull<u8> {
    let number = NonZero::new(address)
        .or(NonZero::new(align))
        .expect("an alignment is not zero");
    NonNull::without_provenance(number)
}
