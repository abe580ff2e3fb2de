//! Completion domains: logical values with a ledger of their own, whatever memory they live in.

use crate::arena::CarveDomain;
use crate::foreign::Foreign;
use crate::ledger::{AccessKind, Ledger, Predecessors, Token};
use crate::page_locked::PinnedMemory;
use crate::primitive::{Fault, Mutex, faulty};
use crate::{AccessError, BufferError, BufferResult, rooms};
use cuda_driver::DevicePtr;
use cuda_runtime::{
    Allocation, Completion, Counted, Device, Homed, Last, Room, RuntimeResult, Sole, Spent,
    Standing, Stream,
};
use std::cell::Cell;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Alignment of every allocation, in bytes.
pub(crate) const BASE_ALIGN: usize = 256;

/// The identity of a logical value, never reused in a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DomainId(u64);

impl DomainId {
    /// Higher than the ones before it on the same thread.
    #[inline]
    pub(crate) fn fresh() -> Self {
        thread_local! {
            /// The next one, and where those end that the thread has for itself.
            static NEXT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
        }
        let (mut next, mut end) = NEXT.get();
        if next == end {
            (next, end) = Self::some_more();
        }
        NEXT.set((next + 1, end));
        Self(next)
    }

    #[cold]
    fn some_more() -> (u64, u64) {
        const SOME: u64 = 1024;
        static GIVEN: AtomicU64 = AtomicU64::new(1);
        let next = GIVEN.fetch_add(SOME, Ordering::Relaxed);
        (next, next + SOME)
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    /// The identity as a number, for reports.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A logical value: memory of its own, or a carve of an arena. Clones are handles of the same value.
#[derive(Clone, Debug)]
pub(crate) enum Domain {
    Owned(Counted<OwnedDomain>),
    Carve(CarveDomain),
}

/// A value with memory of its own.
#[derive(Debug)]
pub(crate) struct OwnedDomain {
    id: DomainId,
    /// The device, with its memory where that is the value's own, until that becomes an arena. `None` once the value ends.
    own: Option<Allocation>,
    /// On the device; null for a value of zero length and for page-locked memory.
    address: DevicePtr,
    pub(crate) memory: Memory,
    pub(crate) ledger: Homed<Ledger>,
}

#[derive(Debug)]
pub(crate) enum Memory {
    /// A value of zero length has none.
    Empty,
    /// An allocation of its own.
    Device,
    /// A part of an allocation that other parts share.
    Part {
        whole: Arc<Whole>,
        offset_bytes: usize,
    },
    /// Taken out when the value ends.
    Pinned(Option<PinnedMemory>),
    Foreign(Foreign),
}

/// An allocation that several values share. It goes back with the last of them.
#[derive(Debug)]
pub(crate) struct Whole {
    /// `None` for no bytes, and once it was given up.
    allocation: Option<Allocation>,
    pub(crate) retired: Mutex<Retired>,
}

/// What parts left when they ended.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    outstanding: Vec<Completion>,
    /// A guard of a part was forgotten: its work may go on for ever.
    forgotten: bool,
}

impl Whole {
    pub(crate) fn new(allocation: Option<Allocation>) -> Self {
        Self {
            allocation,
            retired: Mutex::default(),
        }
    }

    pub(crate) fn address(&self) -> DevicePtr {
        self.allocation
            .as_ref()
            .map_or(DevicePtr::NULL, Allocation::address)
    }

    /// Takes over what may still use bytes of the allocation.
    pub(crate) fn retire(
        &self,
        outstanding: impl IntoIterator<Item = Completion>,
        forgotten: bool,
    ) {
        let mut retired = self.retired.lock();
        if faulty(Fault::LostRetirement) {
            let mut all = retired.outstanding.clone();
            drop(retired);
            all.extend(outstanding);
            self.retired.lock().outstanding = all;
            return;
        }
        retired.outstanding.extend(outstanding);
        retired.forgotten |= forgotten;
    }

    /// Gives the allocation up, with what may still use it.
    pub(crate) fn into_parts(mut self) -> (Option<Allocation>, Vec<Completion>) {
        let outstanding = std::mem::take(&mut self.retired.get_mut().outstanding);
        (self.allocation.take(), outstanding)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let retired = std::mem::take(self.retired.get_mut());
        match self.allocation.take() {
            Some(allocation) if !retired.forgotten => allocation.reclaim(retired.outstanding),
            // An allocation that merely drops is leaked and counted.
            other => drop(other),
        }
    }
}

impl Domain {
    /// A value of `memory`, which `before` may still be using.
    pub(crate) fn owned(
        device: &Device,
        memory: Memory,
        before: impl IntoIterator<Item = Completion>,
    ) -> Self {
        let address = match &memory {
            Memory::Foreign(foreign) => foreign.address(),
            Memory::Part {
                whole,
                offset_bytes,
            } => DevicePtr(whole.address().0 + *offset_bytes as u64),
            Memory::Device | Memory::Empty | Memory::Pinned(_) => DevicePtr::NULL,
        };
        let none = Allocation::none(device);
        Self::of(none, address, memory, Ledger::after(before))
    }

    /// A value of device memory, which `before` may still be using.
    pub(crate) fn of_allocation(
        allocation: Allocation,
        before: impl IntoIterator<Item = Completion>,
    ) -> Self {
        let address = allocation.address();
        Self::of(allocation, address, Memory::Device, Ledger::after(before))
    }

    /// A value of `bytes` bytes of new device memory, at least 1, allocated on the device's allocation stream.
    #[inline(always)]
    pub(crate) fn allocate(device: &Device, bytes: usize) -> Result<Self, Box<BufferError>> {
        match OwnedDomain::allocate(device, bytes) {
            Ok(owned) => Ok(Self::Owned(owned)),
            Err(error) => Err(error),
        }
    }

    /// As [`allocate`](Self::allocate), on the stream that will use it first.
    #[inline(always)]
    pub(crate) fn allocate_on(stream: &Stream, bytes: usize) -> Result<Self, Box<BufferError>> {
        match OwnedDomain::allocate_on(stream, bytes) {
            Ok(owned) => Ok(Self::Owned(owned)),
            Err(error) => Err(error),
        }
    }

    fn of(own: Allocation, address: DevicePtr, memory: Memory, ledger: Ledger) -> Self {
        let (room, id) = (rooms::take(), DomainId::fresh());
        Self::Owned(OwnedDomain::fill(room, id, own, address, memory, ledger))
    }

    #[inline]
    pub(crate) fn id(&self) -> DomainId {
        match self {
            Self::Owned(owned) => owned.id,
            Self::Carve(carve) => carve.id(),
        }
    }

    #[inline]
    pub(crate) fn device(&self) -> &Device {
        match self {
            Self::Owned(owned) => owned.device(),
            Self::Carve(carve) => carve.device(),
        }
    }

    /// The base address on the device; null for a value of zero length and for page-locked memory.
    #[inline]
    pub(crate) fn address(&self) -> DevicePtr {
        match self {
            Self::Owned(owned) => owned.address,
            Self::Carve(carve) => carve.address(),
        }
    }

    /// The address on the host; dangling but aligned to 256 for a value of zero length.
    pub(crate) fn host_address(&self) -> NonNull<u8> {
        match self {
            Self::Owned(owned) if let Memory::Pinned(Some(memory)) = &owned.memory => {
                memory.address()
            }
            _ => NonNull::without_provenance(
                NonZero::new(BASE_ALIGN).expect("an alignment is not zero"),
            ),
        }
    }

    /// Fails when work on `stream` can't reach the memory: that of a device is its own, page-locked memory is
    /// everybody's who has the same driver.
    #[inline]
    pub(crate) fn check_reach(&self, stream: &Stream) -> RuntimeResult<()> {
        let (own, other) = (self.device(), stream.device());
        if own.same(other) {
            return Ok(());
        }
        self.check_reach_from_afar(stream)
    }

    fn check_reach_from_afar(&self, stream: &Stream) -> RuntimeResult<()> {
        let (own, other) = (self.device(), stream.device());
        let pinned =
            matches!(self, Self::Owned(owned) if matches!(owned.memory, Memory::Pinned(_)));
        if pinned && Arc::ptr_eq(own.driver(), other.driver()) {
            return Ok(());
        }
        stream.check_device(own)
    }

    /// Prepares the ledger for a first access. It may have to wait for a launch on another thread.
    #[inline]
    pub(crate) fn open(&self) {
        if let Self::Carve(carve) = self {
            carve.open();
        }
    }

    /// Prepares the ledger for an access on `stream`, as [`open`](Self::open) does, and makes it leave another stream.
    #[inline]
    pub(crate) fn expect_visit(&self, stream: &Stream) {
        match self {
            Self::Owned(owned) => owned.ledger.expect_visit(stream.id()),
            Self::Carve(carve) => carve.open(),
        }
    }

    /// Takes a token, and shows what must come first to `before`. The ledger is open, and the thread has no stream's lock.
    #[inline(always)]
    pub(crate) fn begin(
        &self,
        token: Token,
        before: &mut impl FnMut(&Completion),
    ) -> Result<(), AccessError> {
        self.with_ledger(|ledger| ledger.begin(token, before))
    }

    /// Publishes and returns the token, in one step.
    pub(crate) fn end(&self, token: Token, done: Option<Completion>) {
        self.end_with(token, done, &mut Spent::default());
    }

    /// As [`end`](Self::end), among several: what is replaced is spent.
    #[inline(always)]
    pub(crate) fn end_with(&self, token: Token, done: Option<Completion>, spent: &mut Spent) {
        self.with_ledger(|ledger| ledger.end(token, done, spent));
    }

    /// As [`end_with`](Self::end_with), of an access on a stream, by who has this stream's lock.
    #[inline(always)]
    pub(crate) fn end_on(
        &self,
        here: &mut Standing<'_>,
        token: Token,
        done: Option<Completion>,
        spent: &mut Spent,
    ) {
        match self {
            Self::Owned(owned) => match here.at_home(&owned.ledger) {
                Some((ledger, _)) => ledger.end(token, done, spent),
                None => owned.end_visit(here, token, done, spent),
            },
            Self::Carve(carve) => carve.end(token.kind, token.holder, done, spent),
        }
    }

    #[inline(always)]
    pub(crate) fn with_ledger<R>(&self, f: impl FnOnce(&mut Ledger) -> R) -> R {
        match self {
            Self::Owned(owned) => f(&mut owned.ledger.lock()),
            Self::Carve(carve) => carve.with_ledger(f),
        }
    }

    /// Fails when somebody holds an access of the value, or the value itself.
    pub(crate) fn check_sole(&self) -> BufferResult<()> {
        refuse_in_child(self.device())?;
        // A guard holds the value too, and can tell more.
        self.with_ledger(|ledger| ledger.check(AccessKind::Write))?;
        let holders = match self {
            Self::Owned(owned) => Counted::count(owned) - 1,
            Self::Carve(_) => 0,
        };
        match holders {
            0 => Ok(()),
            holders => Err(BufferError::Held { holders }),
        }
    }

    /// The device memory and what may still use it, when nobody else holds the value.
    pub(crate) fn into_allocation(
        self,
    ) -> Result<(Option<Allocation>, Predecessors), (Self, BufferError)> {
        if let Err(error) = self.check_sole() {
            return Err((self, error));
        }
        let Self::Owned(mut owned) = self else {
            return Err((self, BufferError::Held { holders: 1 }));
        };
        let taken = owned.get_mut().and_then(|sole| match &sole.memory {
            Memory::Device => Some(sole.own.as_mut().map(Allocation::take)),
            Memory::Empty => Some(None),
            Memory::Pinned(_) | Memory::Part { .. } | Memory::Foreign(_) => None,
        });
        let Some(allocation) = taken else {
            let error = match owned.memory {
                Memory::Foreign(_) => BufferError::ForeignMemory,
                _ => BufferError::Held { holders: 1 },
            };
            return Err((Self::Owned(owned), error));
        };
        let outstanding = owned.ledger.lock().take_outstanding();
        Ok((allocation, outstanding))
    }
}

impl OwnedDomain {
    fn end_visit(
        &self,
        here: &Standing<'_>,
        token: Token,
        done: Option<Completion>,
        spent: &mut Spent,
    ) {
        let visit = || {
            let visited = here.visit(&self.ledger);
            // Another stream becomes its home only while it holds the only access.
            visited.expect("a ledger is at home on a stream that holds its access, or nowhere")
        };
        if faulty(Fault::SplitEnd) {
            visit().take_back(token.kind, token.holder);
            return visit().publish(token.kind, done, spent);
        }
        visit().end(token, done, spent);
    }
}

impl Domain {
    /// The page-locked memory, of a value that nobody else holds.
    pub(crate) fn pinned_mut(&mut self) -> Option<&mut Option<PinnedMemory>> {
        let Self::Owned(owned) = self else {
            return None;
        };
        match owned.get_mut().map(|sole| &mut sole.memory) {
            Some(Memory::Pinned(memory)) => Some(memory),
            _ => None,
        }
    }
}

impl OwnedDomain {
    /// A value of `bytes` bytes of new device memory, at least 1, allocated on the device's allocation stream.
    #[inline(never)]
    fn allocate(device: &Device, bytes: usize) -> Result<Counted<Self>, Box<BufferError>> {
        Self::of_new(|| device.allocate(bytes))
    }

    /// As [`allocate`](Self::allocate), on the stream that will use it first.
    #[inline(never)]
    fn allocate_on(stream: &Stream, bytes: usize) -> Result<Counted<Self>, Box<BufferError>> {
        Self::of_new(|| stream.device().allocate_on(bytes, stream))
    }

    /// Everything is written where it stays, nothing may unwind while the parts are in registers, and what is returned fits there:
    /// a struct that is copied a moment after its parts were written costs more than the locks.
    #[inline(always)]
    fn of_new(
        allocate: impl FnOnce() -> RuntimeResult<(Allocation, Option<Completion>)>,
    ) -> Result<Counted<Self>, Box<BufferError>> {
        let (room, id) = (rooms::take(), DomainId::fresh());
        match allocate() {
            Ok((own, first_use)) => {
                let (address, ledger) = (own.address(), Ledger::after_one(first_use));
                Ok(Self::fill(room, id, own, address, Memory::Device, ledger))
            }
            Err(error) => {
                rooms::keep(room);
                Err(Box::new(error.into()))
            }
        }
    }

    #[inline(always)]
    fn fill(
        room: Room<Self>,
        id: DomainId,
        own: Allocation,
        address: DevicePtr,
        memory: Memory,
        ledger: Ledger,
    ) -> Counted<Self> {
        Counted::first(room.fill(Self {
            id,
            own: Some(own),
            address,
            memory,
            ledger: Homed::new(ledger),
        }))
    }

    #[inline]
    fn device(&self) -> &Device {
        let own = self.own.as_ref();
        own.expect("there until the value ends").device()
    }
}

impl Last for OwnedDomain {
    fn last(domain: Sole<Self>) {
        rooms::keep(domain.clear());
    }
}

impl Drop for OwnedDomain {
    /// Gives the memory back after its last use. An access that is still held was forgotten: its work may go on
    /// for ever, so the memory is leaked and counted.
    fn drop(&mut self) {
        let ledger = self.ledger.get_mut();
        let forgotten = ledger.held() > 0 && !faulty(Fault::ForgottenFreed);
        if let Memory::Device = self.memory {
            // An allocation that merely drops is leaked and counted.
            if let (Some(own), false) = (self.own.take(), forgotten) {
                ledger.show_outstanding(|outstanding| own.reclaim_after(outstanding));
            }
            return;
        }
        let outstanding = ledger.take_outstanding();
        let own = self.own.as_ref();
        let device = own.expect("there until the value ends").device();
        match &mut self.memory {
            Memory::Empty | Memory::Device => {}
            // In a child the whole, and who may have locked it, is the parent's.
            Memory::Part { .. } if device.is_forked() => {}
            Memory::Part { whole, .. } => whole.retire(outstanding, forgotten),
            Memory::Foreign(foreign) => foreign.give_back(device, outstanding, forgotten),
            Memory::Pinned(memory) => match memory.take() {
                Some(memory) if forgotten => device.count_leak(memory.bytes()),
                Some(memory) => memory.give_back(device, outstanding),
                None => {}
            },
        }
    }
}

/// Refuses in a forked child, before any lock that a thread of the parent may have held.
pub(crate) fn refuse_in_child(device: &Device) -> RuntimeResult<()> {
    match device.is_forked() {
        true => device.check_poison(),
        false => Ok(()),
    }
}

/// The byte count of `len` elements of type `T`.
pub(crate) fn byte_count<T>(len: usize) -> BufferResult<usize> {
    const {
        assert!(
            size_of::<T>() > 0,
            "elements of zero size need no device memory"
        );
        assert!(
            align_of::<T>() <= BASE_ALIGN,
            "device memory is aligned to 256 bytes"
        );
    };
    len.checked_mul(size_of::<T>())
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or(BufferError::SizeOverflow {
            len,
            element_bytes: size_of::<T>(),
        })
}
