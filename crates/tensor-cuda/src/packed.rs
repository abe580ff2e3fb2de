//! Several tensors in one allocation.

use crate::initial::mark_uninitialized;
use crate::{CudaTensor, Layout, TensorResult, TensorView, TensorViewMut};
use bytemuck::Zeroable;
use cuda_buffer::{
    DeviceData, PartitionedCudaBuffer, PartitionedReadAccess, PartitionedWriteAccess, fill_slice,
};
use cuda_driver::CallSite;
use cuda_runtime::Stream;
use std::fmt;
use std::ops::Range;

/// Alignment of every block, in bytes.
const ALIGN_BYTES: usize = 256;

/// Row-major tensors in one partitioned allocation: each a block with a ledger of its own, so that work on one is not ordered
/// with work on another.
///
/// Blocks start at multiples of 256 bytes. The padding between them is zero, whatever the blocks hold, so that an operation
/// over the whole allocation finds no garbage there.
///
/// ```
/// # use cuda_runtime::Runtime;
/// # use ndarray::array;
/// # use tensor_cuda::{PackedTensors, fill, to_ndarray};
/// # fn main() -> tensor_cuda::TensorResult<()> {
/// # let runtime = Runtime::builder().build()?;
/// # let device = runtime.default_device();
/// let (one, other) = (device.streams().acquire()?, device.streams().acquire()?);
/// let mut sectors = PackedTensors::<f64, 1>::zeros(&one, &[[2], [3]])?;
/// fill(&one, sectors.block_mut(0), 1.0)?;     // not ordered with the next line
/// fill(&other, sectors.block_mut(1), 2.0)?;
/// assert_eq!(to_ndarray(sectors.block(1))?, array![2.0, 2.0, 2.0]);
/// # Ok(())
/// # }
/// ```
pub struct PackedTensors<T, const N: usize> {
    buffer: PartitionedCudaBuffer<T>,
    layouts: Vec<Layout<N>>,
}

impl<T: Copy + 'static, const N: usize> PackedTensors<T, N> {
    /// Blocks of zeros with these extents, filled on `stream`; the completion is published to each.
    ///
    /// # Errors
    /// [`TooLarge`](crate::TensorError::TooLarge); what [`PartitionedCudaBuffer::padded`] returns; the driver's own.
    #[track_caller]
    pub fn zeros(stream: &Stream, blocks: &[[usize; N]]) -> TensorResult<Self>
    where
        T: Zeroable,
    {
        let _site = CallSite::enter();
        let mut packed = Self::allocate(stream, blocks)?;
        let all = 0..packed.buffer.len();
        packed.fill_bytes(stream, &[all])?;
        Ok(packed)
    }

    /// Uninitialised blocks with these extents: write before you read. The padding is zero.
    ///
    /// # Errors
    /// As for [`zeros`](Self::zeros).
    #[track_caller]
    pub fn uninitialized(stream: &Stream, blocks: &[[usize; N]]) -> TensorResult<Self> {
        let _site = CallSite::enter();
        let mut packed = Self::allocate(stream, blocks)?;
        let mut gaps = Vec::new();
        let mut end = 0_usize;
        for layout in &packed.layouts {
            let start = end.next_multiple_of(step::<T>());
            gaps.push(end..start);
            end = start + layout.len();
        }
        gaps.retain(|gap| !gap.is_empty());
        packed.fill_bytes(stream, &gaps)?;
        for block in packed.buffer.parts_mut() {
            mark_uninitialized(block, stream)?;
        }
        Ok(packed)
    }

    #[track_caller]
    fn allocate(stream: &Stream, blocks: &[[usize; N]]) -> TensorResult<Self> {
        let layouts: Vec<_> = blocks
            .iter()
            .map(|&extents| Layout::row_major(extents))
            .collect::<TensorResult<_>>()?;
        let lens: Vec<_> = layouts.iter().map(Layout::len).collect();
        let buffer = PartitionedCudaBuffer::padded(stream.device(), &lens, ALIGN_BYTES)?;
        Ok(Self { buffer, layouts })
    }

    /// Fills ranges of the allocation with zeros, under one access of all blocks.
    #[track_caller]
    fn fill_bytes(&mut self, stream: &Stream, ranges: &[Range<usize>]) -> TensorResult<()> {
        if ranges.iter().all(Range::is_empty) {
            return Ok(());
        }
        let mut access = self.buffer.write_synchronized_with(stream)?;
        for range in ranges {
            let part = access.as_slice_mut().slice(range.clone())?;
            fill_slice(stream, part, 0)?;
        }
        Ok(access.release()?)
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layouts.len()
    }

    /// Whether there are no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layouts.is_empty()
    }

    /// Block `i`, to be read.
    ///
    /// # Panics
    /// When there are not that many.
    pub fn block(&self, i: usize) -> TensorView<'_, T, N> {
        TensorView::new(self.buffer.parts()[i].read(), self.layouts[i])
    }

    /// Block `i`, to be written.
    ///
    /// # Panics
    /// When there are not that many.
    pub fn block_mut(&mut self, i: usize) -> TensorViewMut<'_, T, N> {
        TensorViewMut::new(self.buffer.parts_mut()[i].write(), self.layouts[i])
    }

    /// All blocks, to be written independently of each other.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = TensorViewMut<'_, T, N>> {
        let parts = self.buffer.parts_mut().iter_mut();
        parts
            .zip(&self.layouts)
            .map(|(part, layout)| TensorViewMut::new(part.write(), *layout))
    }

    /// The blocks as tensors of their own, which share the allocation: the last one gives it back.
    #[must_use]
    pub fn into_blocks(self) -> Vec<CudaTensor<T, N>> {
        let parts = self.buffer.into_parts().into_iter();
        parts
            .zip(self.layouts)
            .map(|(part, layout)| CudaTensor::of(part, layout))
            .collect()
    }

    /// Reads the whole allocation, padding included, ordered on `stream` after the latest write of every block.
    ///
    /// # Errors
    /// As for [`PartitionedCudaBuffer::read_synchronized_with`].
    #[track_caller]
    pub fn read_all(&self, stream: &Stream) -> TensorResult<PartitionedReadAccess<'_, T>> {
        let _site = CallSite::enter();
        Ok(self.buffer.read_synchronized_with(stream)?)
    }

    /// Writes the whole allocation, padding included, ordered on `stream` after everything that uses any block.
    ///
    /// # Errors
    /// As for [`PartitionedCudaBuffer::write_synchronized_with`].
    #[track_caller]
    pub fn write_all(&mut self, stream: &Stream) -> TensorResult<PartitionedWriteAccess<'_, T>> {
        let _site = CallSite::enter();
        Ok(self.buffer.write_synchronized_with(stream)?)
    }
}

/// Elements from one possible start of a block to the next.
fn step<T>() -> usize {
    (ALIGN_BYTES / size_of::<T>()).max(1)
}

impl<T, const N: usize> fmt::Debug for PackedTensors<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedTensors")
            .field("layouts", &self.layouts)
            .field("buffer", &self.buffer)
            .finish()
    }
}
