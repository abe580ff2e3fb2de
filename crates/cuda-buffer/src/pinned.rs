//! Page-locked host memory with a ledger of its own.

use crate::blocking::host_token;
use crate::domain::{Domain, Memory, byte_count, refuse_in_child};
use crate::ledger::{AccessKind, Predecessors, Token};
use crate::page_locked::PinnedMemory;
use crate::{BufferError, BufferResult};
use bytemuck::Pod;
use cuda_driver::CallSite;
use cuda_runtime::{Completion, Device};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::panic::Location;

/// Page-locked host memory. Asynchronous copies from and to it are truly asynchronous.
///
/// Its ledger orders copies and the host: a copy under way keeps the memory alive, and the host reaches it only when
/// nothing conflicts.
///
/// | | at once, or [`BufferError::Busy`] | waits | awaited |
/// |---|---|---|---|
/// | read | [`try_host_read`](Self::try_host_read) | [`host_read`](Self::host_read) | [`host_read_async`](Self::host_read_async) |
/// | write | [`try_host_write`](Self::try_host_write) | [`host_write`](Self::host_write) | [`host_write_async`](Self::host_write_async) |
///
/// Memory that is needed again and again comes from a [`PinnedPool`](crate::PinnedPool); a vector that is there already
/// is [registered](Self::register).
pub struct PinnedBuffer<T> {
    domain: Domain,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Pod> PinnedBuffer<T> {
    /// Page-locked memory for `len` elements, all zero. No elements make no driver call.
    ///
    /// # Errors
    /// [`BufferError::SizeOverflow`]; [`RuntimeError::CaptureActive`](cuda_runtime::RuntimeError::CaptureActive) while this
    /// thread captures; the driver's own.
    #[track_caller]
    pub fn new(device: &Device, len: usize) -> BufferResult<Self> {
        let _site = CallSite::enter();
        let bytes = byte_count::<T>(len)?;
        let memory = match bytes {
            0 => Memory::Empty,
            _ => Memory::Pinned(Some(PinnedMemory::allocate(device, bytes, None)?)),
        };
        Ok(Self {
            domain: Domain::owned(device, memory, None),
            len,
            elements: PhantomData,
        })
    }

    /// Reads on the host. Waits until no copy writes the memory.
    ///
    /// # Errors
    /// [`BufferError::Access`] when somebody holds a write access; errors of the work waited for.
    #[track_caller]
    pub fn host_read(&self) -> BufferResult<HostReadAccess<'_, T>> {
        let _site = CallSite::enter();
        HostAccess::begin(self, AccessKind::Read, wait).map(HostReadAccess)
    }

    /// Reads on the host, if no copy writes the memory.
    ///
    /// # Errors
    /// [`BufferError::Busy`] when a copy does; [`BufferError::Access`] when somebody holds a write access.
    #[track_caller]
    pub fn try_host_read(&self) -> BufferResult<HostReadAccess<'_, T>> {
        let _site = CallSite::enter();
        HostAccess::begin(self, AccessKind::Read, busy).map(HostReadAccess)
    }

    /// Reads on the host, once no copy writes the memory. The access begins at the first poll.
    ///
    /// # Errors
    /// As for [`host_read`](Self::host_read).
    #[track_caller]
    pub fn host_read_async(&self) -> impl Future<Output = BufferResult<HostReadAccess<'_, T>>> {
        let access = HostAccess::begin_async(self, AccessKind::Read, Location::caller());
        async move { access.await.map(HostReadAccess) }
    }

    /// Writes on the host. Waits until no copy uses the memory.
    ///
    /// # Errors
    /// [`BufferError::Access`] when somebody holds an access; errors of the work waited for.
    #[track_caller]
    pub fn host_write(&mut self) -> BufferResult<HostWriteAccess<'_, T>> {
        let _site = CallSite::enter();
        HostAccess::begin(self, AccessKind::Write, wait).map(HostWriteAccess)
    }

    /// Writes on the host, if no copy uses the memory.
    ///
    /// # Errors
    /// [`BufferError::Busy`] when a copy does; [`BufferError::Access`] when somebody holds an access.
    #[track_caller]
    pub fn try_host_write(&mut self) -> BufferResult<HostWriteAccess<'_, T>> {
        let _site = CallSite::enter();
        HostAccess::begin(self, AccessKind::Write, busy).map(HostWriteAccess)
    }
}

impl<T: Pod> PinnedBuffer<T> {
    /// Writes on the host, once no copy uses the memory. The access begins at the first poll.
    ///
    /// # Errors
    /// As for [`host_write`](Self::host_write).
    #[track_caller]
    pub fn host_write_async(
        &mut self,
    ) -> impl Future<Output = BufferResult<HostWriteAccess<'_, T>>> {
        let access = HostAccess::begin_async(self, AccessKind::Write, Location::caller());
        async move { access.await.map(HostWriteAccess) }
    }
}

impl<T> PinnedBuffer<T> {
    /// The first `len` elements of page-locked memory that is initialised.
    pub(crate) fn from_domain(domain: Domain, len: usize) -> Self {
        Self {
            domain,
            len,
            elements: PhantomData,
        }
    }

    #[cfg(test)]
    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) fn domain_mut(&mut self) -> &mut Domain {
        &mut self.domain
    }

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
}

impl<T> PinnedBuffer<T> {
    /// The elements of `range`, for copies to a device. The ledger still takes the copy for the whole memory.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::BadRange`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> BufferResult<PinnedSlice<'_, T>> {
        Ok(PinnedSlice(self.part(range)?))
    }

    /// The elements of `range`, for copies from a device. The ledger still takes the copy for the whole memory.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::BadRange`].
    pub fn slice_mut(
        &mut self,
        range: impl RangeBounds<usize>,
    ) -> BufferResult<PinnedSliceMut<'_, T>> {
        Ok(PinnedSliceMut(self.part(range)?))
    }

    fn part(&self, range: impl RangeBounds<usize>) -> BufferResult<Part<'_, T>> {
        let range = BufferError::within(range, self.len)?;
        Ok(Part {
            domain: &self.domain,
            offset: range.start,
            len: range.len(),
            elements: PhantomData,
        })
    }
}

/// Elements of page-locked memory, as the source of a copy.
#[derive(Clone, Copy, Debug)]
pub struct PinnedSlice<'a, T>(Part<'a, T>);

/// Elements of page-locked memory, as the destination of a copy.
#[derive(Debug)]
pub struct PinnedSliceMut<'a, T>(Part<'a, T>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a, T> {
    pub(crate) domain: &'a Domain,
    offset: usize,
    pub(crate) len: usize,
    elements: PhantomData<T>,
}

impl<T> Part<'_, T> {
    /// The host address of the first element, and the bytes of all.
    pub(crate) fn place(&self) -> (*mut u8, usize) {
        // Within the memory, or any address for no elements.
        let first = self.domain.host_address().as_ptr().cast::<T>();
        (
            first.wrapping_add(self.offset).cast(),
            self.len * size_of::<T>(),
        )
    }
}

impl<'a, T> PinnedSlice<'a, T> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    pub(crate) fn part(self) -> Part<'a, T> {
        self.0
    }
}

impl<'a, T> PinnedSliceMut<'a, T> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    pub(crate) fn part(self) -> Part<'a, T> {
        self.0
    }
}

impl<'a, T> From<&'a PinnedBuffer<T>> for PinnedSlice<'a, T> {
    fn from(buffer: &'a PinnedBuffer<T>) -> Self {
        Self(Part {
            domain: &buffer.domain,
            offset: 0,
            len: buffer.len,
            elements: PhantomData,
        })
    }
}

impl<'a, T> From<&'a mut PinnedBuffer<T>> for PinnedSliceMut<'a, T> {
    fn from(buffer: &'a mut PinnedBuffer<T>) -> Self {
        Self(PinnedSlice::from(&*buffer).0)
    }
}

impl<T> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer")
            .field("domain", &self.domain.id())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

fn wait(copies: &Predecessors) -> BufferResult<()> {
    Ok(Completion::wait_all(copies)?)
}

fn busy(copies: &Predecessors) -> BufferResult<()> {
    let mut unfinished = 0;
    for copy in copies {
        unfinished += usize::from(!copy.is_complete()?);
    }
    match unfinished {
        0 => Ok(()),
        copies => Err(BufferError::Busy { copies }),
    }
}

/// A live access of the host, which holds a token like any other.
struct HostAccess<'a, T> {
    domain: &'a Domain,
    token: Token,
    len: usize,
    elements: PhantomData<&'a mut [T]>,
}

impl<'a, T> HostAccess<'a, T> {
    fn begin(
        buffer: &'a PinnedBuffer<T>,
        kind: AccessKind,
        finish: impl FnOnce(&Predecessors) -> BufferResult<()>,
    ) -> BufferResult<Self> {
        let since = CallSite::current().unwrap_or_else(Location::caller);
        refuse_in_child(buffer.domain.device())?;
        let (token, mut copies) = (host_token(kind, since), Predecessors::new());
        let mut add = |completion: &Completion| copies.push(completion.clone());
        buffer.domain.begin(token, &mut add)?;
        let access = Self {
            domain: &buffer.domain,
            token,
            len: buffer.len,
            elements: PhantomData,
        };
        // On an error the access drops, and the token is back.
        finish(&copies)?;
        Ok(access)
    }

    async fn begin_async(
        buffer: &'a PinnedBuffer<T>,
        kind: AccessKind,
        since: &'static Location<'static>,
    ) -> BufferResult<Self> {
        let mut before = Predecessors::new();
        let access = {
            let _site = CallSite::at(since);
            Self::begin(buffer, kind, |copies| {
                before.clone_from(copies);
                Ok(())
            })?
        };
        for copy in before {
            copy.await?;
        }
        Ok(access)
    }

    fn first(&self) -> *mut T {
        self.domain.host_address().as_ptr().cast()
    }
}

impl<T> Drop for HostAccess<'_, T> {
    fn drop(&mut self) {
        // A child leaves the parent's ledgers, and who may have locked them, alone.
        if !self.domain.device().is_forked() {
            self.domain.end(self.token, None);
        }
    }
}

/// A read access of the host to page-locked memory.
#[must_use = "the access ends when this value drops"]
pub struct HostReadAccess<'a, T>(HostAccess<'a, T>);

/// A write access of the host to page-locked memory.
#[must_use = "the access ends when this value drops"]
pub struct HostWriteAccess<'a, T>(HostAccess<'a, T>);

impl<T: Pod> Deref for HostReadAccess<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory has that many elements, initialised at its allocation, of a type that any bytes are a
        // value of; the token excludes writers while this value lives, and earlier copies into it are done.
        unsafe { std::slice::from_raw_parts(self.0.first(), self.0.len) }
    }
}

impl<T: Pod> Deref for HostWriteAccess<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as for reading.
        unsafe { std::slice::from_raw_parts(self.0.first(), self.0.len) }
    }
}

impl<T: Pod> DerefMut for HostWriteAccess<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for reading; the token excludes everybody else while this value lives, and earlier copies from
        // and into the memory are done.
        unsafe { std::slice::from_raw_parts_mut(self.0.first(), self.0.len) }
    }
}

macro_rules! debug {
    ($($name:ident)+) => { $(
        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("len", &self.0.len).finish_non_exhaustive()
            }
        }
    )+ };
}

debug!(HostReadAccess HostWriteAccess);
