//! Tensors whose rank only the running program knows.

use crate::tensor::memory_of;
use crate::{CudaTensor, DynLayout, Layout, TensorError, TensorResult, TensorView, TensorViewMut};
use cuda_buffer::{CudaBuffer, DeviceData, ReadRequest, Refused, WriteRequest};
use cuda_driver::CallSite;
use cuda_runtime::Device;
use std::fmt;

/// A [`CudaTensor`] with its rank known at run time only. Operations take it through a view of the rank it has.
///
/// ```
/// # use cuda_runtime::Runtime;
/// # use ndarray::array;
/// # use tensor_cuda::{CudaTensor, DynTensor, to_ndarray};
/// # fn main() -> tensor_cuda::TensorResult<()> {
/// # let runtime = Runtime::builder().build()?;
/// # let device = runtime.default_device();
/// let matrix = CudaTensor::from_ndarray(device, &array![[1.0_f32, 2.0], [3.0, 4.0]].view())?;
/// let any = DynTensor::from(matrix);
/// assert_eq!(any.extents(), [2, 2]);
/// assert_eq!(to_ndarray(any.view::<2>()?.transposed())?, array![[1.0, 3.0], [2.0, 4.0]]);
/// assert!(any.view::<3>().is_err());
/// let matrix: CudaTensor<f32, 2> = any.into_ranked()?;
/// # Ok(())
/// # }
/// ```
pub struct DynTensor<T> {
    buffer: CudaBuffer<T>,
    layout: DynLayout,
}

impl<T: Copy + 'static> DynTensor<T> {
    /// An uninitialised row-major tensor: write before you read.
    ///
    /// # Errors
    /// As for [`CudaTensor::uninitialized`].
    #[track_caller]
    pub fn uninitialized(device: &Device, extents: &[usize]) -> TensorResult<Self> {
        let _site = CallSite::enter();
        let layout = DynLayout::row_major(extents)?;
        let run = CudaTensor::uninitialized(device, [layout.len()])?;
        Ok(Self {
            buffer: run.into_buffer(),
            layout,
        })
    }

    /// The whole tensor with its rank in the type, to be read.
    ///
    /// # Errors
    /// [`TensorError::RankMismatch`].
    pub fn view<const N: usize>(&self) -> TensorResult<TensorView<'_, T, N>> {
        let layout = Layout::try_from(&self.layout)?;
        Ok(TensorView::new(self.buffer.read(), layout))
    }

    /// The whole tensor with its rank in the type, to be written.
    ///
    /// # Errors
    /// [`TensorError::RankMismatch`].
    pub fn view_mut<const N: usize>(&mut self) -> TensorResult<TensorViewMut<'_, T, N>> {
        let layout = Layout::try_from(&self.layout)?;
        Ok(TensorViewMut::new(self.buffer.write(), layout))
    }
}

impl<T> DynTensor<T> {
    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &DynLayout {
        &self.layout
    }

    /// Number of elements in each dimension.
    #[must_use]
    pub fn extents(&self) -> &[usize] {
        self.layout.extents()
    }

    /// The device of the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// The same elements under another layout of the same memory, such as one that this tensor's layout was permuted,
    /// sliced or reshaped to.
    ///
    /// # Errors
    /// [`TensorError::PastMemory`], with the tensor, when the layout reaches past the memory.
    #[expect(clippy::result_large_err, reason = "what was given comes back")]
    pub fn with_layout(self, layout: DynLayout) -> Result<Self, Refused<Self, TensorError>> {
        if let Err(error) = layout.check_memory("a tensor", self.buffer.len()) {
            return Err((self, error).into());
        }
        Ok(Self { layout, ..self })
    }

    /// The tensor with its rank in the type.
    ///
    /// # Errors
    /// [`TensorError::RankMismatch`], with the tensor.
    #[expect(clippy::result_large_err, reason = "what was given comes back")]
    pub fn into_ranked<const N: usize>(
        self,
    ) -> Result<CudaTensor<T, N>, Refused<Self, TensorError>> {
        match Layout::try_from(&self.layout) {
            Ok(layout) => {
                debug_assert!(memory_of(&layout) <= self.buffer.len());
                Ok(CudaTensor::of(self.buffer, layout))
            }
            Err(error) => Err((self, error).into()),
        }
    }
}

/// The memory of the tensor as it lies, gaps included: for operations that know nothing of layouts, and for views with
/// layouts of one's own ([`TensorView::over`]).
impl<T: Copy + 'static> DeviceData for DynTensor<T> {
    type Element = T;

    fn read(&self) -> ReadRequest<'_, T> {
        self.buffer.read()
    }

    fn write(&mut self) -> WriteRequest<'_, T> {
        self.buffer.write()
    }
}

impl<T, const N: usize> From<CudaTensor<T, N>> for DynTensor<T> {
    fn from(tensor: CudaTensor<T, N>) -> Self {
        let layout = DynLayout::from(*tensor.layout());
        Self {
            buffer: tensor.into_buffer(),
            layout,
        }
    }
}

impl<T> fmt::Debug for DynTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynTensor")
            .field("layout", &self.layout)
            .field("buffer", &self.buffer)
            .finish_non_exhaustive()
    }
}
