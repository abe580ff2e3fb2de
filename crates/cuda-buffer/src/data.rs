//! What every kind of device data can do: be accessed, copied and filled.

use crate::access::{ReadAccess, WriteAccess};
use crate::acquire::{ReadRequest, WriteRequest};
use crate::blocking::{BlockingReadAccess, BlockingWriteAccess};
use crate::pinned::{PinnedSlice, PinnedSliceMut};
use crate::rows::Rows;
use crate::view::{CudaBufferView, CudaBufferViewMut};
use crate::{BufferResult, host_copy, transfer};
use bytemuck::{AnyBitPattern, NoUninit, Pod};
use cuda_runtime::Stream;
use std::panic::Location;

/// Contiguous elements in device memory with a ledger: buffers, carved arrays, tensors.
///
/// | | from | to |
/// |---|---|---|
/// | device data, ordered on a stream | [`copy_from`](Self::copy_from) | |
/// | page-locked memory, ordered on a stream | [`copy_from_pinned`](Self::copy_from_pinned) | [`copy_to_pinned`](Self::copy_to_pinned) |
/// | ordinary memory, waiting on the host | [`copy_from_slice`](Self::copy_from_slice) | [`copy_to_slice`](Self::copy_to_slice), [`to_vec`](Self::to_vec) |
/// | ordinary memory, awaited | [`copy_from_slice_async`](Self::copy_from_slice_async) | [`copy_to_slice_async`](Self::copy_to_slice_async), [`to_vec_async`](Self::to_vec_async) |
pub trait DeviceData {
    /// The element type.
    type Element: Copy + 'static;

    /// A read access, to be acquired alone or with others.
    fn read(&self) -> ReadRequest<'_, Self::Element>;

    /// A write access, to be acquired alone or with others.
    fn write(&mut self) -> WriteRequest<'_, Self::Element>;

    /// All elements as a view, to be read: it can be cut, and names them without touching them.
    fn view(&self) -> CudaBufferView<'_, Self::Element> {
        CudaBufferView::new(self.read())
    }

    /// All elements as a view, to be written.
    fn view_mut(&mut self) -> CudaBufferViewMut<'_, Self::Element> {
        CudaBufferViewMut::new(self.write())
    }

    /// Reads, ordered on `stream` after the latest write.
    ///
    /// # Errors
    /// [`BufferError::Access`](crate::BufferError::Access) when somebody holds a write access; a failed wait.
    #[track_caller]
    fn read_synchronized_with(
        &self,
        stream: &Stream,
    ) -> BufferResult<ReadAccess<'_, Self::Element>> {
        self.read().synchronized_with(stream)
    }

    /// Writes, ordered on `stream` after the latest write and all reads since.
    ///
    /// # Errors
    /// [`BufferError::Access`](crate::BufferError::Access) when somebody holds an access; a failed wait.
    #[track_caller]
    fn write_synchronized_with(
        &mut self,
        stream: &Stream,
    ) -> BufferResult<WriteAccess<'_, Self::Element>> {
        self.write().synchronized_with(stream)
    }

    /// Reads by synchronous driver calls: waits on the host for the latest write.
    ///
    /// # Errors
    /// As for [`ReadRequest::blocking`].
    #[track_caller]
    fn blocking_read_access(&self) -> BufferResult<BlockingReadAccess<'_, Self::Element>> {
        self.read().blocking()
    }

    /// Writes by synchronous driver calls: waits on the host for everything that uses the value.
    ///
    /// # Errors
    /// As for [`WriteRequest::blocking`].
    #[track_caller]
    fn blocking_write_access(&mut self) -> BufferResult<BlockingWriteAccess<'_, Self::Element>> {
        self.write().blocking()
    }

    /// Queues a copy of `src`, a value or a view of the same length, on `stream`. The source may be on another device of the same driver;
    /// then the stream may be of either device.
    ///
    /// # Errors
    /// [`BufferError::LengthMismatch`](crate::BufferError::LengthMismatch); those of the accesses; the driver's own.
    #[track_caller]
    fn copy_from<'s>(
        &mut self,
        src: impl Into<ReadRequest<'s, Self::Element>>,
        stream: &Stream,
    ) -> BufferResult<()> {
        transfer::copy(stream, self.write(), src.into(), None)
    }

    /// Queues a copy of page-locked memory, or a slice of it, of the same length on `stream`. The memory stays alive and unchanged until
    /// the copy is done.
    ///
    /// # Errors
    /// [`BufferError::LengthMismatch`](crate::BufferError::LengthMismatch); those of the accesses; the driver's own.
    #[track_caller]
    fn copy_from_pinned<'p>(
        &mut self,
        src: impl Into<PinnedSlice<'p, Self::Element>>,
        stream: &Stream,
    ) -> BufferResult<()>
    where
        Self::Element: Pod,
    {
        transfer::copy_in(stream, self.write(), src.into(), None)
    }

    /// Queues a copy to page-locked memory, or a slice of it, of the same length on `stream`.
    ///
    /// # Errors
    /// [`BufferError::LengthMismatch`](crate::BufferError::LengthMismatch); those of the accesses; the driver's own.
    #[track_caller]
    fn copy_to_pinned<'p>(
        &self,
        dst: impl Into<PinnedSliceMut<'p, Self::Element>>,
        stream: &Stream,
    ) -> BufferResult<()>
    where
        Self::Element: Pod,
    {
        transfer::copy_out(stream, dst.into(), self.read(), None)
    }

    /// Queues a copy of rows of `src` on `stream`: both start with their first row. Elements between the rows are not touched. Where
    /// the two are on different devices, the stream is of one of them.
    ///
    /// ```
    /// use cuda_buffer::{CudaBuffer, DeviceData, Rows};
    /// use cuda_runtime::Runtime;
    ///
    /// # fn main() -> cuda_buffer::BufferResult<()> {
    /// let runtime = Runtime::builder().build()?;
    /// let device = runtime.default_device();
    /// let stream = device.streams().acquire()?;
    /// // The two left columns of a 2 by 3 matrix.
    /// let matrix = CudaBuffer::from_slice(device, &[1, 2, 3, 4, 5, 6])?;
    /// let mut left = CudaBuffer::<i32>::new(device, 4)?;
    /// let rows = Rows { width: 2, rows: 2, dst_pitch: 2, src_pitch: 3 };
    /// left.copy_rows_from(&matrix, rows, &stream)?;
    /// assert_eq!(left.to_vec()?, [1, 2, 4, 5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BufferError::BadPitch`](crate::BufferError::BadPitch), [`BufferError::OutOfBounds`](crate::BufferError::OutOfBounds); those of the
    /// accesses; the driver's own.
    #[track_caller]
    fn copy_rows_from<'s>(
        &mut self,
        src: impl Into<ReadRequest<'s, Self::Element>>,
        rows: Rows,
        stream: &Stream,
    ) -> BufferResult<()> {
        transfer::copy(stream, self.write(), src.into(), Some(rows))
    }

    /// Queues a copy of rows of page-locked memory, or of a slice of it, on `stream`, as
    /// [`copy_rows_from`](Self::copy_rows_from) does.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    fn copy_rows_from_pinned<'p>(
        &mut self,
        src: impl Into<PinnedSlice<'p, Self::Element>>,
        rows: Rows,
        stream: &Stream,
    ) -> BufferResult<()>
    where
        Self::Element: Pod,
    {
        transfer::copy_in(stream, self.write(), src.into(), Some(rows))
    }

    /// Queues a copy of rows to page-locked memory, or to a slice of it, on `stream`, as
    /// [`copy_rows_from`](Self::copy_rows_from) does.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    fn copy_rows_to_pinned<'p>(
        &self,
        dst: impl Into<PinnedSliceMut<'p, Self::Element>>,
        rows: Rows,
        stream: &Stream,
    ) -> BufferResult<()>
    where
        Self::Element: Pod,
    {
        transfer::copy_out(stream, dst.into(), self.read(), Some(rows))
    }

    /// Copies ordinary host memory of the same length, by way of page-locked memory and the device's own transfer
    /// stream, and waits on the host until the copy is done.
    ///
    /// # Errors
    /// [`BufferError::LengthMismatch`](crate::BufferError::LengthMismatch);
    /// [`RuntimeError::CaptureActive`](cuda_runtime::RuntimeError::CaptureActive) while this thread captures; those of the
    /// access; the driver's own.
    #[track_caller]
    fn copy_from_slice(&mut self, src: &[Self::Element]) -> BufferResult<()>
    where
        Self::Element: NoUninit,
    {
        host_copy::upload(self.write(), src, None)
    }

    /// Copies to ordinary host memory of the same length, by way of page-locked memory and the device's own transfer
    /// stream, and waits on the host until the copy is done.
    ///
    /// # Errors
    /// As for [`copy_from_slice`](Self::copy_from_slice).
    #[track_caller]
    fn copy_to_slice(&self, dst: &mut [Self::Element]) -> BufferResult<()>
    where
        Self::Element: AnyBitPattern + NoUninit,
    {
        host_copy::download(dst, self.read(), None)
    }

    /// The elements, in ordinary host memory. Waits on the host.
    ///
    /// # Errors
    /// As for [`copy_from_slice`](Self::copy_from_slice).
    #[track_caller]
    fn to_vec(&self) -> BufferResult<Vec<Self::Element>>
    where
        Self::Element: AnyBitPattern + NoUninit,
    {
        self.read().to_vec()
    }

    /// As [`copy_from_slice`](Self::copy_from_slice), awaited: nothing is copied before the first poll, and a future that is
    /// dropped later leaves a copy under way that touches `src` no more.
    ///
    /// # Errors
    /// As for [`copy_from_slice`](Self::copy_from_slice).
    #[track_caller]
    fn copy_from_slice_async(
        &mut self,
        src: &[Self::Element],
    ) -> impl Future<Output = BufferResult<()>>
    where
        Self::Element: NoUninit,
    {
        host_copy::upload_async(self.write(), src, Location::caller())
    }

    /// As [`copy_to_slice`](Self::copy_to_slice), awaited.
    ///
    /// # Errors
    /// As for [`copy_from_slice`](Self::copy_from_slice).
    #[track_caller]
    fn copy_to_slice_async(
        &self,
        dst: &mut [Self::Element],
    ) -> impl Future<Output = BufferResult<()>>
    where
        Self::Element: AnyBitPattern + NoUninit,
    {
        host_copy::download_async(dst, self.read(), Location::caller())
    }

    /// The elements, in ordinary host memory, awaited.
    ///
    /// ```
    /// use cuda_buffer::{BufferResult, CudaBuffer, DeviceData};
    ///
    /// async fn doubled(x: &mut CudaBuffer<u32>, values: &[u32]) -> BufferResult<Vec<u32>> {
    ///     x.copy_from_slice_async(values).await?;
    ///     let back = x.to_vec_async().await?;
    ///     Ok(back.iter().map(|value| 2 * value).collect())
    /// }
    /// ```
    ///
    /// # Errors
    /// As for [`copy_from_slice`](Self::copy_from_slice).
    #[track_caller]
    fn to_vec_async(&self) -> impl Future<Output = BufferResult<Vec<Self::Element>>>
    where
        Self::Element: AnyBitPattern + NoUninit,
    {
        let (src, site) = (self.read(), Location::caller());
        async move {
            let mut values = vec![bytemuck::Zeroable::zeroed(); src.len()];
            host_copy::download_async(&mut values, src, site).await?;
            Ok(values)
        }
    }

    /// Queues a fill of every byte on `stream`.
    ///
    /// # Errors
    /// Those of the access; the driver's own.
    #[track_caller]
    fn fill_bytes(&mut self, stream: &Stream, byte: u8) -> BufferResult<()> {
        transfer::fill_bytes(stream, self.write(), byte)
    }

    /// Queues a fill of every element on `stream`, for values of 1, 2 or 4 bytes, or that repeat these.
    ///
    /// # Errors
    /// [`BufferError::FillPattern`](crate::BufferError::FillPattern) for other values; those of the access; the driver's own.
    #[track_caller]
    fn fill(&mut self, stream: &Stream, value: Self::Element) -> BufferResult<()>
    where
        Self::Element: NoUninit,
    {
        transfer::fill(stream, self.write(), value)
    }
}
