//! The owning tensor.

use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
use crate::{Layout, TensorResult};
use bytemuck::{AnyBitPattern, NoUninit, Zeroable};
use cuda_buffer::{BufferError, CudaBuffer, DeviceData, ReadRequest, WriteRequest};
use cuda_driver::CallSite;
use cuda_runtime::{Device, Stream};
use ndarray::{Array, ArrayView, Dim, Dimension, IntoDimension};
use std::fmt;

/// A tensor of `N` dimensions that owns its device memory, row-major.
///
/// ```
/// use cuda_runtime::Runtime;
/// use ndarray::array;
/// use tensor_cuda::{CudaTensor, gemm};
///
/// # fn main() -> tensor_cuda::TensorResult<()> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let stream = device.streams().acquire()?;
///
/// let a = CudaTensor::from_ndarray(device, &array![[1.0_f32, 2.0], [3.0, 4.0]].view())?;
/// let mut c = CudaTensor::<f32, 2>::zeros(&stream, [2, 2])?;
/// gemm(&stream, &mut c, 1.0, &a, a.view().transposed(), 0.0)?;
/// assert_eq!(c.to_ndarray()?, array![[5.0, 11.0], [11.0, 25.0]]);
/// # Ok(())
/// # }
/// ```
pub struct CudaTensor<T, const N: usize> {
    buffer: CudaBuffer<T>,
    layout: Layout<N>,
}

impl<T: Copy + 'static, const N: usize> CudaTensor<T, N> {
    /// An uninitialised tensor: write before you read.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`](crate::TensorError::TooLarge); what [`CudaBuffer::new`] returns.
    #[track_caller]
    pub fn uninitialized(device: &Device, extents: [usize; N]) -> TensorResult<Self> {
        let _site = CallSite::enter();
        let layout = Layout::row_major(extents)?;
        let buffer = CudaBuffer::new(device, layout.len())?;
        Ok(Self { buffer, layout })
    }

    /// A tensor of zeros, allocated and filled on `stream`. Only for element types whose zero is all zero bytes.
    ///
    /// # Errors
    /// As for [`uninitialized`](Self::uninitialized), and the driver's own.
    #[track_caller]
    pub fn zeros(stream: &Stream, extents: [usize; N]) -> TensorResult<Self>
    where
        T: Zeroable,
    {
        let _site = CallSite::enter();
        let layout = Layout::row_major(extents)?;
        let mut buffer = CudaBuffer::new_on(stream, layout.len())?;
        buffer.fill_bytes(stream, 0)?;
        Ok(Self { buffer, layout })
    }

    /// A tensor with the elements of a host array. Waits on the host until they are copied.
    ///
    /// # Errors
    /// As for [`uninitialized`](Self::uninitialized) and [`DeviceData::copy_from_slice`].
    #[track_caller]
    pub fn from_ndarray(
        device: &Device,
        array: &ArrayView<'_, T, Dim<[usize; N]>>,
    ) -> TensorResult<Self>
    where
        T: NoUninit,
        Dim<[usize; N]>: Dimension,
    {
        let _site = CallSite::enter();
        let mut extents = [0; N];
        extents.copy_from_slice(array.shape());
        let mut tensor = Self::uninitialized(device, extents)?;
        match array.as_slice() {
            Some(values) => tensor.copy_from_slice(values)?,
            None => {
                let values: Vec<T> = array.iter().copied().collect();
                tensor.copy_from_slice(&values)?;
            }
        }
        Ok(tensor)
    }

    /// The elements as a host array. Waits on the host.
    ///
    /// # Errors
    /// As for [`DeviceData::copy_to_slice`].
    #[track_caller]
    pub fn to_ndarray(&self) -> TensorResult<Array<T, Dim<[usize; N]>>>
    where
        T: AnyBitPattern + NoUninit,
        [usize; N]: IntoDimension<Dim = Dim<[usize; N]>>,
        Dim<[usize; N]>: Dimension,
    {
        let _site = CallSite::enter();
        let values = self.buffer.to_vec()?;
        let extents = self.layout.extents();
        let (src, dst) = (values.len(), self.layout.len());
        Array::from_shape_vec(extents, values)
            .map_err(|_| BufferError::LengthMismatch { src, dst }.into())
    }
}

impl<T: Copy + 'static, const N: usize> CudaTensor<T, N> {
    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout<N> {
        &self.layout
    }

    /// Number of elements in each dimension.
    #[must_use]
    pub fn extents(&self) -> [usize; N] {
        self.layout.extents()
    }

    /// The device of the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// The whole tensor, to be read.
    pub fn view(&self) -> TensorView<'_, T, N> {
        self.into_view()
    }

    /// The whole tensor, to be written.
    pub fn view_mut(&mut self) -> TensorViewMut<'_, T, N> {
        self.into_view_mut()
    }
}

impl<T: Copy + 'static, const N: usize> DeviceData for CudaTensor<T, N> {
    type Element = T;

    fn read(&self) -> ReadRequest<'_, T> {
        self.buffer.read()
    }

    fn write(&mut self) -> WriteRequest<'_, T> {
        self.buffer.write()
    }
}

impl<'a, T: Copy + 'static, const N: usize> IntoView<'a, T, N> for &'a CudaTensor<T, N> {
    fn into_view(self) -> TensorView<'a, T, N> {
        TensorView::new(self.buffer.read(), self.layout)
    }
}

impl<'a, T: Copy + 'static, const N: usize> IntoViewMut<'a, T, N> for &'a mut CudaTensor<T, N> {
    fn into_view_mut(self) -> TensorViewMut<'a, T, N> {
        TensorViewMut::new(self.buffer.write(), self.layout)
    }
}

impl<T, const N: usize> fmt::Debug for CudaTensor<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaTensor")
            .field("extents", &self.layout.extents())
            .field("strides", &self.layout.strides())
            .field("buffer", &self.buffer)
            .finish_non_exhaustive()
    }
}
