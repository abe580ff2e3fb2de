//! One allocation, several disjoint values: each with a ledger of its own.

use crate::buffer::CudaBuffer;
use crate::domain::{Domain, DomainId, Memory, Whole, byte_count};
use crate::ending::Ending;
use crate::guard::{self, Hold};
use crate::ledger::AccessKind;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::{BufferError, BufferResult, OperandName, Refused};
use cuda_driver::{CallSite, DevicePtr};
use cuda_runtime::{Device, RuntimeResult, Stream};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

/// A buffer cut into disjoint parts, which share its memory and have a ledger each: work on one part is not ordered
/// with work on another. No handle of the whole is left that could bypass the parts.
///
/// Parts are ordinary [`CudaBuffer`]s; they may be moved to other threads and dropped in any order, and the last one gives
/// the memory back. While they are together, all of them can be accessed at once with one completion.
///
/// ```
/// use cuda_buffer::{CudaBuffer, DeviceData, PartitionedCudaBuffer};
/// use cuda_runtime::Runtime;
///
/// # fn main() -> cuda_buffer::BufferResult<()> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let (one, other) = (device.streams().acquire()?, device.streams().acquire()?);
///
/// let whole = CudaBuffer::<u8>::new(device, 8)?;
/// let mut parts = PartitionedCudaBuffer::new(whole, &[0..4, 4..8])?;
/// parts.parts_mut()[0].fill(&one, 1)?;   // not ordered with the next line:
/// parts.parts_mut()[1].fill(&other, 2)?; // they touch different bytes
///
/// let whole = parts.into_whole()?;
/// assert_eq!(whole.to_vec()?, [1, 1, 1, 1, 2, 2, 2, 2]); // after both
/// # Ok(())
/// # }
/// ```
pub struct PartitionedCudaBuffer<T> {
    parts: Vec<CudaBuffer<T>>,
    /// Of the parts, as they were cut: a part can be swapped for another buffer from outside.
    ids: Vec<DomainId>,
    whole: Arc<Whole>,
    /// Elements of the allocation.
    len: usize,
    covers: bool,
}

impl<T: Copy + 'static> PartitionedCudaBuffer<T> {
    /// Cuts `buffer` into `ranges`, in elements, which must be in order and disjoint. Ranges may be empty, and need not
    /// cover the buffer.
    ///
    /// # Errors
    /// With the buffer: [`BufferError::BadRange`], [`BufferError::OutOfBounds`], [`BufferError::Overlap`],
    /// [`BufferError::Unordered`] for ranges; [`BufferError::Held`] when a graph holds the buffer; [`BufferError::Access`] when a
    /// guard of it was forgotten.
    pub fn new(
        buffer: CudaBuffer<T>,
        ranges: &[Range<usize>],
    ) -> Result<Self, Refused<CudaBuffer<T>>> {
        if let Err(error) = check(ranges, buffer.len()) {
            return Err((buffer, error).into());
        }
        let mut next = 0;
        let covers = ranges.iter().all(|range| {
            let follows = range.start == next;
            next = range.end;
            follows
        }) && next == buffer.len();
        Self::cut(buffer, ranges, covers)
    }

    /// Allocates several uninitialised parts of `lens` elements, each starting at a multiple of `align_bytes` bytes. The gaps
    /// between them belong to nobody; an access of all parts covers them.
    ///
    /// # Errors
    /// [`BufferError::BadAlign`] unless the alignment is a power of two up to 256 and a multiple of the element's size or the
    /// reverse; [`BufferError::SizeOverflow`]; what [`CudaBuffer::new`] returns.
    #[track_caller]
    pub fn padded(device: &Device, lens: &[usize], align_bytes: usize) -> BufferResult<Self> {
        let _site = CallSite::enter();
        let element_bytes = size_of::<T>();
        let fits = align_bytes.is_power_of_two()
            && align_bytes <= crate::domain::BASE_ALIGN
            && (align_bytes.is_multiple_of(element_bytes)
                || element_bytes.is_multiple_of(align_bytes));
        if !fits {
            return Err(BufferError::BadAlign {
                align_bytes,
                element_bytes,
            });
        }
        let step = (align_bytes / element_bytes).max(1);
        let overflow = |len| BufferError::SizeOverflow { len, element_bytes };
        let mut ranges = Vec::with_capacity(lens.len());
        let mut end = 0_usize;
        for &len in lens {
            let start = end.checked_next_multiple_of(step);
            let start = start.ok_or_else(|| overflow(len))?;
            end = start.checked_add(len).ok_or_else(|| overflow(len))?;
            ranges.push(start..end);
        }
        byte_count::<T>(end)?;
        let buffer = CudaBuffer::new(device, end)?;
        Self::cut(buffer, &ranges, true).map_err(Into::into)
    }

    fn cut(
        buffer: CudaBuffer<T>,
        ranges: &[Range<usize>],
        covers: bool,
    ) -> Result<Self, Refused<CudaBuffer<T>>> {
        let (device, len) = (buffer.device().clone(), buffer.len());
        let (allocation, outstanding) = buffer.into_allocation()?;
        let whole = Arc::new(Whole::new(allocation));
        let part = |range: &Range<usize>| {
            let memory = match range.len() {
                0 => Memory::Empty,
                _ => Memory::Part {
                    whole: whole.clone(),
                    offset_bytes: range.start * size_of::<T>(),
                },
            };
            let domain = Domain::owned(&device, memory, outstanding.iter().cloned());
            CudaBuffer::from_domain(domain, range.len())
        };
        let parts: Vec<_> = ranges.iter().map(part).collect();
        let ids = parts.iter().map(CudaBuffer::domain_id).collect();
        // What no part covers is used by nobody any more; what was queued before may still be running on it.
        whole.retire(outstanding, false);
        Ok(Self {
            parts,
            ids,
            whole,
            len,
            covers,
        })
    }

    /// Puts the parts together again. Later accesses come after those of all parts.
    ///
    /// # Errors
    /// With the parts: [`BufferError::PartReplaced`]; [`BufferError::Held`] when a graph holds one, [`BufferError::Access`] when a guard of one was forgotten.
    #[expect(
        clippy::result_large_err,
        reason = "the parts come back, as a buffer does elsewhere"
    )]
    pub fn into_whole(self) -> Result<CudaBuffer<T>, Refused<Self>> {
        let sole = || self.parts.iter().try_for_each(CudaBuffer::check_sole);
        if let Err(error) = self.check_parts().and_then(|()| sole()) {
            return Err((self, error).into());
        }
        let device = self.parts.first().map(|part| part.device().clone());
        let Self {
            parts, whole, len, ..
        } = self;
        // Each part leaves what may still use it to the whole.
        drop(parts);
        let whole = Arc::into_inner(whole).expect("the parts were the only other holders");
        let (allocation, outstanding) = whole.into_parts();
        let domain = match (allocation, device) {
            (Some(allocation), _) => Domain::of_allocation(allocation, outstanding),
            (None, Some(device)) => Domain::owned(&device, Memory::Empty, outstanding),
            (None, None) => unreachable!("a buffer of no elements in no parts is not cut"),
        };
        Ok(CudaBuffer::from_domain(domain, len))
    }

    /// The parts.
    #[must_use]
    pub fn parts(&self) -> &[CudaBuffer<T>] {
        &self.parts
    }

    /// The parts, to be written. A part that is swapped for another buffer ends what can be done with all of them.
    pub fn parts_mut(&mut self) -> &mut [CudaBuffer<T>] {
        &mut self.parts
    }

    /// The parts, each on its own from now on.
    #[must_use]
    pub fn into_parts(self) -> Vec<CudaBuffer<T>> {
        self.parts
    }

    /// Number of elements of the allocation, gaps included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the allocation has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads all parts, ordered on `stream` after the latest write of each.
    ///
    /// # Errors
    /// [`BufferError::NotCovered`] when the parts leave elements out; [`BufferError::PartReplaced`]; else as for one part, and then none is held.
    #[track_caller]
    pub fn read_synchronized_with(
        &self,
        stream: &Stream,
    ) -> BufferResult<PartitionedReadAccess<'_, T>> {
        let _site = CallSite::enter();
        self.acquire(AccessKind::Read, stream)
            .map(PartitionedReadAccess)
    }

    /// Writes all parts, ordered on `stream` after everything that uses any of them.
    ///
    /// # Errors
    /// As for [`read_synchronized_with`](Self::read_synchronized_with).
    #[track_caller]
    pub fn write_synchronized_with(
        &mut self,
        stream: &Stream,
    ) -> BufferResult<PartitionedWriteAccess<'_, T>> {
        let _site = CallSite::enter();
        self.acquire(AccessKind::Write, stream)
            .map(PartitionedWriteAccess)
    }

    /// Fails when a part was swapped for another buffer.
    fn check_parts(&self) -> BufferResult<()> {
        let mut parts = self.parts.iter().zip(&self.ids);
        match parts.position(|(part, id)| part.domain_id() != *id) {
            Some(part) => Err(BufferError::PartReplaced { part }),
            None => Ok(()),
        }
    }

    fn acquire(&self, kind: AccessKind, stream: &Stream) -> BufferResult<Aggregate<'_, T>> {
        if !self.covers {
            let parts = self.parts.iter().map(CudaBuffer::len).sum();
            return Err(BufferError::NotCovered {
                parts,
                len: self.len,
            });
        }
        self.check_parts()?;
        if let Some(part) = self.parts.first() {
            let reached = part.domain().check_reach(stream);
            reached.map_err(BufferError::of_operand(OperandName::Value))?;
        }
        let since = CallSite::current().unwrap_or_else(Location::caller);
        // Made one after another, the parts are in order of identity.
        let wanted = self.parts.iter().map(|part| (part.domain(), kind));
        let acquired = guard::acquire_each(wanted, stream, since)?;
        Ok(Aggregate {
            hold: acquired.hold(),
            kind,
            parts: &self.parts,
            address: self.whole.address(),
            len: self.len,
            borrow: PhantomData,
        })
    }
}

fn check(ranges: &[Range<usize>], len: usize) -> BufferResult<()> {
    let mut last: Option<usize> = None;
    for (at, range) in ranges.iter().enumerate() {
        let Range { start, end } = *range;
        if start > end {
            return Err(BufferError::BadRange { start, end });
        }
        if end > len {
            return Err(BufferError::OutOfBounds { start, end, len });
        }
        if range.is_empty() {
            continue;
        }
        if let Some(first) = last {
            let before = &ranges[first];
            if start < before.end && before.start < end {
                return Err(BufferError::Overlap { first, second: at });
            }
            if start < before.end {
                return Err(BufferError::Unordered { first, second: at });
            }
        }
        last = Some(at);
    }
    Ok(())
}

/// Accesses of all parts on one stream, ended by one completion.
struct Aggregate<'a, T> {
    hold: Hold,
    kind: AccessKind,
    parts: &'a [CudaBuffer<T>],
    address: DevicePtr,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

impl<T> Aggregate<'_, T> {
    fn hold(&self) -> &Hold {
        &self.hold
    }
}

fn domains<T>(parts: &[CudaBuffer<T>]) -> impl ExactSizeIterator<Item = &Domain> + Clone {
    parts.iter().map(CudaBuffer::domain)
}

impl<T> Drop for Aggregate<'_, T> {
    fn drop(&mut self) {
        self.hold.release_in_drop(self.kind, domains(self.parts));
    }
}

/// A read access of all parts of a buffer. Dropping it records one completion and publishes it to every part.
#[must_use = "dropping the access at once publishes an access that did nothing"]
pub struct PartitionedReadAccess<'a, T>(Aggregate<'a, T>);

/// A write access of all parts of a buffer. Dropping it records one completion and publishes it to every part.
#[must_use = "dropping the access at once publishes an access that did nothing"]
pub struct PartitionedWriteAccess<'a, T>(Aggregate<'a, T>);

macro_rules! aggregates {
    ($($name:ident)+) => { $(
        impl<T> $name<'_, T> {
            /// Number of elements, gaps included.
            #[must_use]
            pub fn len(&self) -> usize {
                self.0.len
            }

            /// Whether there are no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.len == 0
            }

            /// The stream that the access is ordered on.
            #[must_use]
            pub fn stream(&self) -> &Stream {
                self.0.hold().stream()
            }

            /// All elements of the allocation, readable by work on the access's stream.
            #[must_use]
            pub fn as_slice(&self) -> DeviceSlice<'_, T> {
                DeviceSlice::new(self.0.address, 0, self.0.len, self.0.hold().timeline())
            }

            /// Ends the access, as dropping does, and says what failed.
            ///
            /// # Errors
            /// The failure of the record. The access has ended all the same.
            #[track_caller]
            pub fn release(mut self) -> RuntimeResult<()> {
                let _site = CallSite::enter();
                self.0.hold.release(self.0.kind, domains(self.0.parts))
            }

            pub(crate) fn hold(&self) -> &Hold {
                self.0.hold()
            }

            /// Number of values that are held.
            pub(crate) fn values(&self) -> usize {
                self.0.parts.len()
            }

            pub(crate) fn end_with(&mut self, ending: &mut Ending<'_>) {
                self.0.hold.end(self.0.kind, domains(self.0.parts), ending);
            }
        }

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("parts", &self.0.parts.len())
                    .field("stream", self.0.hold().stream())
                    .field("len", &self.0.len)
                    .finish_non_exhaustive()
            }
        }
    )+ };
}

aggregates!(PartitionedReadAccess PartitionedWriteAccess);

impl<T> PartitionedWriteAccess<'_, T> {
    /// All elements of the allocation, writable by work on the access's stream.
    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.0.address, 0, self.0.len, self.0.hold().timeline())
    }
}

impl<T> fmt::Debug for PartitionedCudaBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionedCudaBuffer")
            .field("len", &self.len)
            .field("parts", &self.parts)
            .field("covers", &self.covers)
            .finish_non_exhaustive()
    }
}
