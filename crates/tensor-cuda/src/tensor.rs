//! The owning tensor.

use crate::initial::{mark_uninitialized, mark_uninitialized_on_device};
use crate::view::{IntoView, IntoViewMut, TensorView, TensorViewMut};
use crate::{Layout, TensorError, TensorResult, host_transfer, transfer};
use bytemuck::{AnyBitPattern, NoUninit, Zeroable};
use cuda_buffer::{CudaBuffer, DeviceData, DeviceSpace, ReadRequest, Refused, WriteRequest};
use cuda_driver::CallSite;
use cuda_runtime::{Device, Stream};
use ndarray::{Array, ArrayView, Dim, Dimension, IntoDimension};
use space_core::{Capturing, Exemplar, Shaped};
use std::fmt;

/// A tensor of `N` dimensions that owns its device memory: row-major, column-major or strided.
///
/// It gives identity, offsets and mapping, and no element access: addresses come from guards only, which operations acquire.
///
/// | | initial elements | allocated |
/// |---|---|---|
/// | [`new`](Self::new) | 0 | for a stream that is leased for the fill |
/// | [`zeros`](Self::zeros), [`full`](Self::full) | 0, a value | on a stream |
/// | [`uninitialized`](Self::uninitialized), [`uninitialized_on`](Self::uninitialized_on) | none: write before you read | for any stream, on one |
/// | [`from_ndarray`](Self::from_ndarray) | those of a host array | for any stream |
/// | [`duplicate`](Self::duplicate) | those of this tensor | on a stream |
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
    /// A row-major tensor of zeros, filled on a stream that is leased for it: nothing waits for the device. Only for element
    /// types whose zero is all zero bytes; others don't compile.
    ///
    /// # Errors
    /// As for [`zeros`](Self::zeros); what leasing a stream returns.
    #[track_caller]
    pub fn new(device: &Device, extents: [usize; N]) -> TensorResult<Self>
    where
        T: Zeroable,
    {
        let _site = CallSite::enter();
        let layout = Layout::row_major(extents)?;
        let stream = device.streams().acquire()?;
        Self::zeros_with(&stream, layout)
    }

    /// An uninitialised row-major tensor: write before you read.
    ///
    /// With the feature `snan-fill`, `f32`, `f64` and complex elements are signalling NaNs.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`]; what [`CudaBuffer::new`] returns.
    #[track_caller]
    pub fn uninitialized(device: &Device, extents: [usize; N]) -> TensorResult<Self> {
        let _site = CallSite::enter();
        Self::uninitialized_with(device, Layout::row_major(extents)?)
    }

    /// An uninitialised tensor of any layout, in memory from position 0 to the layout's highest one.
    ///
    /// # Errors
    /// As for [`uninitialized`](Self::uninitialized).
    #[track_caller]
    pub fn uninitialized_with(device: &Device, layout: Layout<N>) -> TensorResult<Self> {
        let _site = CallSite::enter();
        let mut buffer = CudaBuffer::new(device, memory_of(&layout))?;
        mark_uninitialized_on_device(&mut buffer, device)?;
        Ok(Self { buffer, layout })
    }

    /// An uninitialised row-major tensor, allocated on the stream that will use it first.
    ///
    /// # Errors
    /// As for [`uninitialized`](Self::uninitialized).
    #[track_caller]
    pub fn uninitialized_on(stream: &Stream, extents: [usize; N]) -> TensorResult<Self> {
        let _site = CallSite::enter();
        let layout = Layout::row_major(extents)?;
        let mut buffer = CudaBuffer::new_on(stream, layout.len())?;
        mark_uninitialized(&mut buffer, stream)?;
        Ok(Self { buffer, layout })
    }

    /// A row-major tensor of zeros, allocated and filled on `stream`. Only for element types whose zero is all zero bytes;
    /// others don't compile.
    ///
    /// # Errors
    /// As for [`uninitialized`](Self::uninitialized), and the driver's own.
    #[track_caller]
    pub fn zeros(stream: &Stream, extents: [usize; N]) -> TensorResult<Self>
    where
        T: Zeroable,
    {
        let _site = CallSite::enter();
        Self::zeros_with(stream, Layout::row_major(extents)?)
    }

    /// A tensor of zeros of any layout, gaps between its elements included.
    ///
    /// # Errors
    /// As for [`zeros`](Self::zeros).
    #[track_caller]
    pub fn zeros_with(stream: &Stream, layout: Layout<N>) -> TensorResult<Self>
    where
        T: Zeroable,
    {
        let _site = CallSite::enter();
        let mut buffer = CudaBuffer::new_on(stream, memory_of(&layout))?;
        buffer.fill_bytes(stream, 0)?;
        Ok(Self { buffer, layout })
    }

    /// A row-major tensor whose elements are all `value`, allocated and filled on `stream`.
    ///
    /// # Errors
    /// As for [`uninitialized`](Self::uninitialized) and [`fill`](crate::fill).
    #[track_caller]
    pub fn full(stream: &Stream, extents: [usize; N], value: T) -> TensorResult<Self>
    where
        T: NoUninit,
    {
        let _site = CallSite::enter();
        let layout = Layout::row_major(extents)?;
        let buffer = CudaBuffer::new_on(stream, layout.len())?;
        let mut tensor = Self { buffer, layout };
        crate::fill(stream, &mut tensor, value)?;
        Ok(tensor)
    }

    /// A row-major tensor with the elements of a host array of any layout. Waits on the host until they are copied.
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
        let layout = Layout::row_major(host_transfer::extents_of(array))?;
        let buffer = CudaBuffer::new(device, layout.len())?;
        let mut tensor = Self { buffer, layout };
        host_transfer::upload(tensor.view_mut(), array)?;
        Ok(tensor)
    }

    /// A tensor over a buffer.
    ///
    /// # Errors
    /// [`TensorError::PastMemory`], with the buffer, when the layout reaches past it.
    #[expect(clippy::result_large_err, reason = "what was given comes back")]
    pub fn from_buffer(
        buffer: CudaBuffer<T>,
        layout: Layout<N>,
    ) -> Result<Self, Refused<CudaBuffer<T>, TensorError>> {
        if let Err(error) = layout.check_memory("a tensor", buffer.len()) {
            return Err((buffer, error).into());
        }
        Ok(Self { buffer, layout })
    }

    /// The elements as a row-major host array. Waits on the host.
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
        host_transfer::download(self.view())
    }

    /// A row-major tensor with the same elements, copied on `stream`.
    ///
    /// # Errors
    /// As for [`uninitialized`](Self::uninitialized) and [`copy`](crate::copy).
    #[track_caller]
    pub fn duplicate(&self, stream: &Stream) -> TensorResult<Self> {
        let _site = CallSite::enter();
        let layout = Layout::row_major(self.extents())?;
        let buffer = CudaBuffer::new_on(stream, layout.len())?;
        let mut tensor = Self { buffer, layout };
        transfer::copy(stream, tensor.view_mut(), self.view())?;
        Ok(tensor)
    }

    /// The same elements in the same order with other extents; the memory stays where it is.
    ///
    /// # Errors
    /// With the tensor: as for [`Layout::reshaped`].
    #[expect(clippy::result_large_err, reason = "what was given comes back")]
    pub fn reshaped<const M: usize>(
        self,
        extents: [usize; M],
    ) -> Result<CudaTensor<T, M>, Refused<Self, TensorError>> {
        match self.layout.reshaped(extents) {
            Ok(layout) => Ok(CudaTensor {
                buffer: self.buffer,
                layout,
            }),
            Err(error) => Err((self, error).into()),
        }
    }
}

impl<T, const N: usize> CudaTensor<T, N> {
    pub(crate) fn of(buffer: CudaBuffer<T>, layout: Layout<N>) -> Self {
        Self { buffer, layout }
    }

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

    /// The buffer, with all elements and gaps.
    #[must_use]
    pub fn buffer(&self) -> &CudaBuffer<T> {
        &self.buffer
    }

    /// The buffer, to be used without its layout.
    #[must_use]
    pub fn into_buffer(self) -> CudaBuffer<T> {
        self.buffer
    }
}

impl<T: Copy + 'static, const N: usize> CudaTensor<T, N> {
    /// The whole tensor, to be read.
    pub fn view(&self) -> TensorView<'_, T, N> {
        self.into_view()
    }

    /// The whole tensor, to be written.
    pub fn view_mut(&mut self) -> TensorViewMut<'_, T, N> {
        self.into_view_mut()
    }
}

/// Elements that the memory of a layout has, from position 0 on.
pub(crate) fn memory_of<const N: usize>(layout: &Layout<N>) -> usize {
    layout.memory().end
}

/// The memory of the tensor as it lies, gaps included: for operations that know nothing of layouts.
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

impl<T: Copy + 'static, const N: usize> Shaped for CudaTensor<T, N> {
    type Element = T;
    type Dims = [usize; N];

    fn shape(&self) -> [usize; N] {
        self.extents()
    }
}

impl<T, const N: usize> Exemplar for CudaTensor<T, N> {
    type Space = DeviceSpace;

    fn space(&self) -> DeviceSpace {
        DeviceSpace::of(self.device())
    }
}

impl<T, const N: usize> Capturing for CudaTensor<T, N> {
    fn is_capturing(&self) -> bool {
        self.buffer.is_capturing()
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
