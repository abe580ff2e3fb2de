//! Copies and fills, ordered by the ledgers of both sides.

use crate::OperandName::{self, Destination, Source};
use crate::acquire::{ReadRequest, WriteRequest, sort};
use crate::domain::Domain;
use crate::ledger::AccessKind;
use crate::operation;
use crate::pinned::{PinnedSlice, PinnedSliceMut};
use crate::rows::Rows;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::{BufferError, BufferResult};
use bytemuck::{NoUninit, Pod};
use cuda_driver::{CallSite, CopyRows, CudaResult, DevicePtr, Driver, Pattern, RawStream};
use cuda_runtime::{Device, RuntimeResult, Standing, Stream};
use std::panic::Location;

pub(crate) fn same_length(src: usize, dst: usize) -> BufferResult<()> {
    match src == dst {
        true => Ok(()),
        false => Err(BufferError::LengthMismatch { src, dst }),
    }
}

/// Whether `len` elements take no bytes: there are none, or they have no size. Drivers refuse some calls for nothing.
pub(crate) fn no_bytes<T>(len: usize) -> bool {
    len == 0 || size_of::<T>() == 0
}

/// Says which operand it is that the stream can't reach.
fn reached(operand: OperandName, checked: RuntimeResult<()>) -> BufferResult<()> {
    checked.map_err(BufferError::of_operand(operand))
}

/// Runs one operation under several accesses, with one completion for all.
///
/// # Safety
/// `operation` queues on the stream it is given only, and touches only memory of the domains, as their kinds allow.
#[track_caller]
pub(crate) unsafe fn operate<const N: usize>(
    stream: &Stream,
    wanted: [(&Domain, AccessKind); N],
    operation: impl FnOnce(&dyn Driver, RawStream) -> CudaResult<()>,
) -> BufferResult<()> {
    let since = CallSite::current().unwrap_or_else(Location::caller);
    let mut wanted = wanted;
    sort(&mut wanted);
    // SAFETY: the caller's promise; the tokens order the operation with every other use of the memory.
    let queue = |standing: &mut Standing<'_>| unsafe { standing.enqueue(operation) };
    operation::operate(&wanted, stream, since, queue)
}

pub(crate) fn at(domain: &Domain, offset_bytes: u64) -> DevicePtr {
    // Within an allocation, so it does not wrap.
    DevicePtr(domain.address().0 + offset_bytes)
}

/// What a copy takes to its destination.
#[derive(Clone, Copy)]
enum Extent {
    /// So many bytes in one run.
    Run(usize),
    Rows(CopyRows),
}

impl Extent {
    /// The rows, or else all elements of two places of one length; `None` when that is nothing.
    fn of<T>(rows: Option<Rows>, src_len: usize, dst_len: usize) -> BufferResult<Option<Self>> {
        if let Some(rows) = rows {
            return Ok(rows.check::<T>(dst_len, src_len)?.map(Self::Rows));
        }
        same_length(src_len, dst_len)?;
        Ok((!no_bytes::<T>(dst_len)).then_some(Self::Run(dst_len * size_of::<T>())))
    }
}

/// Queues a copy between two values: of all their elements, or of rows.
#[track_caller]
pub(crate) fn copy<T: Copy + 'static>(
    stream: &Stream,
    dst: WriteRequest<'_, T>,
    src: ReadRequest<'_, T>,
    rows: Option<Rows>,
) -> BufferResult<()> {
    let _site = CallSite::enter();
    let (dst_device, src_device) = (dst.domain.device(), src.domain.device());
    let peers = reach(stream, dst_device, src_device)?;
    let Some(extent) = Extent::of::<T>(rows, src.len, dst.len)? else {
        return Ok(());
    };
    let device = stream.device().id();
    let (dst_device, src_device) = (dst_device.id(), src_device.id());
    let to = at(dst.domain, dst.offset_bytes);
    let from = at(src.domain, src.offset_bytes);
    let queue = |driver: &dyn Driver, raw| match (extent, peers) {
        (Extent::Run(bytes), false) => {
            // SAFETY: both ranges lie within their domains, which are different ones: the same would be refused.
            unsafe { driver.copy_device_async(device, to, from, bytes, raw) }
        }
        (Extent::Run(bytes), true) => {
            // SAFETY: as above, each on its own device.
            unsafe { driver.copy_peer_async(device, dst_device, to, src_device, from, bytes, raw) }
        }
        (Extent::Rows(rows), false) => {
            // SAFETY: as for a run; that all rows are within was checked.
            unsafe { driver.copy_rows_device_async(device, to, from, rows, raw) }
        }
        (Extent::Rows(rows), true) => {
            // SAFETY: as above, each on its own device.
            unsafe {
                driver.copy_rows_peer_async(device, dst_device, to, src_device, from, rows, raw)
            }
        }
    };
    let wanted = [
        (dst.domain, AccessKind::Write),
        (src.domain, AccessKind::Read),
    ];
    // SAFETY: `queue` queues that one operation, on the stream it is given.
    unsafe { operate(stream, wanted, queue) }
}

/// Whether a copy is between two devices; one of them has to be the stream's.
fn reach(stream: &Stream, dst: &Device, src: &Device) -> BufferResult<bool> {
    let peers = !dst.same(src);
    if peers && stream.device().same(src) {
        reached(Destination, src.check_driver(dst))?;
    } else {
        reached(Destination, stream.check_device(dst))?;
        reached(Source, dst.check_driver(src))?;
    }
    Ok(peers)
}

/// Queues a copy from page-locked memory: of all elements, or of rows.
#[track_caller]
pub(crate) fn copy_in<T: Pod>(
    stream: &Stream,
    dst: WriteRequest<'_, T>,
    src: PinnedSlice<'_, T>,
    rows: Option<Rows>,
) -> BufferResult<()> {
    let _site = CallSite::enter();
    let src = src.part();
    reached(Destination, stream.check_device(dst.domain.device()))?;
    reached(Source, src.domain.check_reach(stream))?;
    let Some(extent) = Extent::of::<T>(rows, src.len, dst.len)? else {
        return Ok(());
    };
    let device = stream.device().id();
    let (to, (from, _)) = (at(dst.domain, dst.offset_bytes), src.place());
    let queue = |driver: &dyn Driver, raw| match extent {
        // SAFETY: both ranges lie within their domains; the ledger of the page-locked memory keeps it alive and unchanged
        // until the copy is done, and a graph that captures the copy keeps it alive for its replays.
        Extent::Run(bytes) => unsafe { driver.copy_to_device_async(device, to, from, bytes, raw) },
        // SAFETY: as above; that all rows are within was checked.
        Extent::Rows(rows) => unsafe {
            driver.copy_rows_to_device_async(device, to, from, rows, raw)
        },
    };
    let wanted = [
        (dst.domain, AccessKind::Write),
        (src.domain, AccessKind::Read),
    ];
    // SAFETY: `queue` queues that one operation, on the stream it is given.
    unsafe { operate(stream, wanted, queue) }
}

/// Queues a copy to page-locked memory: of all elements, or of rows.
#[track_caller]
pub(crate) fn copy_out<T: Pod>(
    stream: &Stream,
    dst: PinnedSliceMut<'_, T>,
    src: ReadRequest<'_, T>,
    rows: Option<Rows>,
) -> BufferResult<()> {
    let _site = CallSite::enter();
    let dst = dst.part();
    reached(Source, stream.check_device(src.domain.device()))?;
    reached(Destination, dst.domain.check_reach(stream))?;
    let Some(extent) = Extent::of::<T>(rows, src.len, dst.len)? else {
        return Ok(());
    };
    let device = stream.device().id();
    let ((to, _), from) = (dst.place(), at(src.domain, src.offset_bytes));
    let queue = |driver: &dyn Driver, raw| match extent {
        // SAFETY: as in `copy_in`, with the page-locked memory untouched by the host until the copy is done.
        Extent::Run(bytes) => unsafe { driver.copy_to_host_async(device, to, from, bytes, raw) },
        // SAFETY: as above; that all rows are within was checked.
        Extent::Rows(rows) => unsafe {
            driver.copy_rows_to_host_async(device, to, from, rows, raw)
        },
    };
    let wanted = [
        (dst.domain, AccessKind::Write),
        (src.domain, AccessKind::Read),
    ];
    // SAFETY: `queue` queues that one operation, on the stream it is given.
    unsafe { operate(stream, wanted, queue) }
}

#[track_caller]
pub(crate) fn fill_bytes<T: Copy + 'static>(
    stream: &Stream,
    dst: WriteRequest<'_, T>,
    byte: u8,
) -> BufferResult<()> {
    let count = dst.len * size_of::<T>();
    fill_pattern(stream, dst, Pattern::U8(byte), count)
}

#[track_caller]
pub(crate) fn fill<T: Copy + NoUninit>(
    stream: &Stream,
    dst: WriteRequest<'_, T>,
    value: T,
) -> BufferResult<()> {
    if no_bytes::<T>(1) {
        return fill_bytes(stream, dst, 0);
    }
    let bytes = bytemuck::bytes_of(&value);
    let pattern = pattern_of(bytes).ok_or(BufferError::FillPattern {
        element_bytes: bytes.len(),
    })?;
    let count = dst.len * size_of::<T>() / pattern.bytes();
    fill_pattern(stream, dst, pattern, count)
}

/// The shortest pattern that the bytes repeat.
fn pattern_of(bytes: &[u8]) -> Option<Pattern> {
    let repeats =
        |n: usize| bytes.len().is_multiple_of(n) && bytes.chunks(n).all(|c| c == &bytes[..n]);
    if repeats(1) {
        return Some(Pattern::U8(bytes[0]));
    }
    if repeats(2) {
        return Some(Pattern::U16(bytemuck::pod_read_unaligned(&bytes[..2])));
    }
    repeats(4).then(|| Pattern::U32(bytemuck::pod_read_unaligned(&bytes[..4])))
}

#[track_caller]
fn fill_pattern<T>(
    stream: &Stream,
    dst: WriteRequest<'_, T>,
    pattern: Pattern,
    count: usize,
) -> BufferResult<()> {
    let _site = CallSite::enter();
    reached(Destination, stream.check_device(dst.domain.device()))?;
    if no_bytes::<T>(dst.len) {
        return Ok(());
    }
    let device = stream.device().id();
    let to = at(dst.domain, dst.offset_bytes);
    let queue = |driver: &dyn Driver, raw| {
        // SAFETY: the range lies within the domain.
        unsafe { driver.fill_async(device, to, pattern, count, raw) }
    };
    // SAFETY: `queue` queues that one operation, on the stream it is given.
    unsafe { operate(stream, [(dst.domain, AccessKind::Write)], queue) }
}

/// What [`DeviceData`](crate::DeviceData) does with a whole value, with a part of one.
impl<T: Copy + 'static> WriteRequest<'_, T> {
    /// As [`DeviceData::copy_from`](crate::DeviceData::copy_from).
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn copy_from(self, src: ReadRequest<'_, T>, stream: &Stream) -> BufferResult<()> {
        copy(stream, self, src, None)
    }

    /// As [`DeviceData::copy_from_pinned`](crate::DeviceData::copy_from_pinned).
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn copy_from_pinned(self, src: PinnedSlice<'_, T>, stream: &Stream) -> BufferResult<()>
    where
        T: Pod,
    {
        copy_in(stream, self, src, None)
    }

    /// As [`DeviceData::copy_from_slice`](crate::DeviceData::copy_from_slice).
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn copy_from_slice(self, src: &[T]) -> BufferResult<()>
    where
        T: NoUninit,
    {
        crate::host_copy::upload(self, src, None)
    }
}

/// What [`DeviceData`](crate::DeviceData) does with a whole value, with a part of one.
impl<T: Copy + 'static> ReadRequest<'_, T> {
    /// As [`DeviceData::copy_to_pinned`](crate::DeviceData::copy_to_pinned).
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn copy_to_pinned(self, dst: PinnedSliceMut<'_, T>, stream: &Stream) -> BufferResult<()>
    where
        T: Pod,
    {
        copy_out(stream, dst, self, None)
    }

    /// As [`DeviceData::copy_to_slice`](crate::DeviceData::copy_to_slice).
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn copy_to_slice(self, dst: &mut [T]) -> BufferResult<()>
    where
        T: bytemuck::AnyBitPattern + NoUninit,
    {
        crate::host_copy::download(dst, self, None)
    }

    /// As [`DeviceData::to_vec`](crate::DeviceData::to_vec).
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn to_vec(self) -> BufferResult<Vec<T>>
    where
        T: bytemuck::AnyBitPattern + NoUninit,
    {
        let mut values = vec![bytemuck::Zeroable::zeroed(); self.len];
        self.copy_to_slice(&mut values)?;
        Ok(values)
    }
}

/// Queues a copy between slices of accesses that are already held on `stream`.
///
/// # Errors
/// [`BufferError::LengthMismatch`]; [`BufferError::WrongStream`] when an access is of another stream; the driver's own.
#[track_caller]
pub fn copy_slice<T: Copy + 'static>(
    stream: &Stream,
    dst: DeviceSliceMut<'_, T>,
    src: DeviceSlice<'_, T>,
) -> BufferResult<()> {
    let _site = CallSite::enter();
    same_length(src.len(), dst.len())?;
    let timeline = stream.timeline();
    for guard in [dst.timeline(), src.timeline()] {
        if guard != timeline {
            return Err(BufferError::WrongStream {
                guard,
                stream: timeline,
            });
        }
    }
    if dst.bytes() == 0 {
        return Ok(());
    }
    let device = stream.device().id();
    let queue = |driver: &dyn Driver, raw| {
        // SAFETY: the slices are of live accesses on this stream, and a mutable one overlaps no other.
        unsafe { driver.copy_device_async(device, dst.address(), src.address(), dst.bytes(), raw) }
    };
    // SAFETY: `queue` queues that one copy, on the stream it is given.
    unsafe { stream.enqueue(queue)? };
    Ok(())
}

/// Queues a fill of every byte of a slice of an access that is already held on `stream`.
///
/// # Errors
/// [`BufferError::WrongStream`] when the access is of another stream; the driver's own.
#[track_caller]
pub fn fill_slice<T>(stream: &Stream, dst: DeviceSliceMut<'_, T>, byte: u8) -> BufferResult<()> {
    let _site = CallSite::enter();
    let (guard, timeline) = (dst.timeline(), stream.timeline());
    if guard != timeline {
        return Err(BufferError::WrongStream {
            guard,
            stream: timeline,
        });
    }
    if dst.bytes() == 0 {
        return Ok(());
    }
    let device = stream.device().id();
    let queue = |driver: &dyn Driver, raw| {
        // SAFETY: the slice is of a live access on this stream.
        unsafe { driver.fill_async(device, dst.address(), Pattern::U8(byte), dst.bytes(), raw) }
    };
    // SAFETY: `queue` queues that one fill, on the stream it is given.
    unsafe { stream.enqueue(queue)? };
    Ok(())
}
