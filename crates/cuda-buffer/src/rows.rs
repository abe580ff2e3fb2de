//! Copies of rows that lie at a distance from one another: parts of matrices.

use crate::acquire::{ReadRequest, WriteRequest};
use crate::pinned::{PinnedSlice, PinnedSliceMut};
use crate::transfer::{self, no_bytes, same_length};
use crate::{BufferError, BufferResult, host_copy};
use bytemuck::{AnyBitPattern, NoUninit, Pod};
use cuda_driver::CopyRows;
use cuda_runtime::Stream;

/// Rows of elements in two places, in each of them at a distance of its own. All is counted in elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows {
    /// Elements of one row.
    pub width: usize,
    /// Number of rows.
    pub rows: usize,
    /// Distance between the starts of two rows at the destination, at least `width`.
    pub dst_pitch: usize,
    /// Distance between the starts of two rows at the source, at least `width`.
    pub src_pitch: usize,
}

/// The driver's limit for a distance between rows.
const MOST_PITCH_BYTES: usize = i32::MAX as usize;

impl Rows {
    /// The shape in bytes, when both places have room for it; `None` when there is nothing to copy.
    pub(crate) fn check<T>(self, dst_len: usize, src_len: usize) -> BufferResult<Option<CopyRows>> {
        if self.is_empty() {
            return Ok(None);
        }
        for (pitch, len) in [(self.dst_pitch, dst_len), (self.src_pitch, src_len)] {
            let width = self.width;
            let pitch_bytes = pitch.checked_mul(size_of::<T>());
            let fits = pitch >= width && pitch_bytes.is_some_and(|bytes| bytes <= MOST_PITCH_BYTES);
            let end = (self.rows - 1).checked_mul(pitch);
            let end = end.and_then(|start| start.checked_add(width));
            match end {
                Some(end) if fits && end <= len => {}
                _ if !fits => return Err(BufferError::BadPitch { pitch, width }),
                end => {
                    let (start, end) = (0, end.unwrap_or(usize::MAX));
                    return Err(BufferError::OutOfBounds { start, end, len });
                }
            }
        }
        if no_bytes::<T>(self.width) {
            return Ok(None);
        }
        // No overflow: all of it lies within memory, or is a distance that was checked.
        let bytes = |elements: usize| elements * size_of::<T>();
        Ok(Some(CopyRows {
            width_bytes: bytes(self.width),
            rows: self.rows,
            dst_pitch_bytes: bytes(self.dst_pitch),
            src_pitch_bytes: bytes(self.src_pitch),
        }))
    }
}

impl Rows {
    /// Rows of `width` elements that fill `len` elements of ordinary memory, and start `pitch` elements apart elsewhere; the memory
    /// is the source, or else the destination.
    fn of_run(len: usize, width: usize, pitch: usize, is_source: bool) -> BufferResult<Self> {
        let rows = match width {
            // Rows of no elements fill nothing.
            0 => same_length(len, 0).map(|()| 0)?,
            width => len.div_ceil(width),
        };
        let (dst_pitch, src_pitch) = match is_source {
            true => (pitch, width),
            false => (width, pitch),
        };
        Ok(Self {
            width,
            rows,
            dst_pitch,
            src_pitch,
        })
    }

    /// Whether there is nothing to copy.
    pub(crate) fn is_empty(self) -> bool {
        self.width == 0 || self.rows == 0
    }

    /// As [`check`](Self::check), with no more to do.
    pub(crate) fn check_lens<T>(self, dst_len: usize, src_len: usize) -> BufferResult<()> {
        self.check::<T>(dst_len, src_len).map(drop)
    }

    /// The same rows of elements that were checked, as rows of bytes.
    pub(crate) fn in_bytes<T>(self) -> Self {
        let bytes = |elements: usize| elements * size_of::<T>();
        Self {
            width: bytes(self.width),
            rows: self.rows,
            dst_pitch: bytes(self.dst_pitch),
            src_pitch: bytes(self.src_pitch),
        }
    }
}

/// What [`DeviceData`](crate::DeviceData) does with rows of a whole value, with those of a part of one.
impl<T: Copy + 'static> WriteRequest<'_, T> {
    /// As [`DeviceData::copy_rows_from_pinned`](crate::DeviceData::copy_rows_from_pinned).
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn copy_rows_from_pinned(
        self,
        src: PinnedSlice<'_, T>,
        rows: Rows,
        stream: &Stream,
    ) -> BufferResult<()>
    where
        T: Pod,
    {
        transfer::copy_in(stream, self, src, Some(rows))
    }

    /// Copies ordinary memory to rows of `width` elements whose starts are `pitch` elements apart, as
    /// [`DeviceData::copy_from_slice`](crate::DeviceData::copy_from_slice) copies it to one run.
    ///
    /// # Errors
    /// [`BufferError::BadPitch`]; [`BufferError::OutOfBounds`], also when the memory does not end with a row;
    /// [`BufferError::LengthMismatch`] for rows of no elements; else as there.
    #[track_caller]
    pub fn copy_rows_from_slice(self, src: &[T], width: usize, pitch: usize) -> BufferResult<()>
    where
        T: NoUninit,
    {
        let rows = Rows::of_run(src.len(), width, pitch, true)?;
        host_copy::upload(self, src, Some(rows))
    }
}

/// What [`DeviceData`](crate::DeviceData) does with rows of a whole value, with those of a part of one.
impl<T: Copy + 'static> ReadRequest<'_, T> {
    /// As [`DeviceData::copy_rows_to_pinned`](crate::DeviceData::copy_rows_to_pinned).
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn copy_rows_to_pinned(
        self,
        dst: PinnedSliceMut<'_, T>,
        rows: Rows,
        stream: &Stream,
    ) -> BufferResult<()>
    where
        T: Pod,
    {
        transfer::copy_out(stream, dst, self, Some(rows))
    }

    /// Copies rows of `width` elements whose starts are `pitch` elements apart to ordinary memory, as
    /// [`DeviceData::copy_to_slice`](crate::DeviceData::copy_to_slice) copies one run.
    ///
    /// # Errors
    /// [`BufferError::BadPitch`]; [`BufferError::OutOfBounds`], also when the memory does not end with a row;
    /// [`BufferError::LengthMismatch`] for rows of no elements; else as there.
    #[track_caller]
    pub fn copy_rows_to_slice(self, dst: &mut [T], width: usize, pitch: usize) -> BufferResult<()>
    where
        T: AnyBitPattern + NoUninit,
    {
        let rows = Rows::of_run(dst.len(), width, pitch, false)?;
        host_copy::download(dst, self, Some(rows))
    }
}
