//! What a new tensor holds.

use crate::TensorResult;
use cuda_buffer::CudaBuffer;
use cuda_runtime::{Device, Stream};

/// Whether uninitialised tensors are filled with signalling NaNs.
pub(crate) const FILLS: bool = cfg!(feature = "snan-fill");

/// The bits of a signalling NaN.
#[cfg(feature = "snan-fill")]
mod bits {
    pub(super) const F32: u32 = 0x7fa0_0000;
    pub(super) const F64: u64 = 0x7ff4_0000_0000_0000;
}

/// Fills a new buffer with signalling NaNs, where the feature asks for it and the type has them.
#[cfg_attr(
    not(feature = "snan-fill"),
    expect(clippy::unnecessary_wraps, reason = "filling can fail")
)]
#[track_caller]
pub(crate) fn mark_uninitialized<T: Copy + 'static>(
    buffer: &mut CudaBuffer<T>,
    stream: &Stream,
) -> TensorResult<()> {
    #[cfg(feature = "snan-fill")]
    fill::with_nans(buffer, stream)?;
    #[cfg(not(feature = "snan-fill"))]
    let _ = (buffer, stream);
    Ok(())
}

/// As [`mark_uninitialized`], on a stream that is leased for it.
#[track_caller]
pub(crate) fn mark_uninitialized_on_device<T: Copy + 'static>(
    buffer: &mut CudaBuffer<T>,
    device: &Device,
) -> TensorResult<()> {
    match FILLS && !buffer.is_empty() {
        true => mark_uninitialized(buffer, &device.streams().acquire()?),
        false => Ok(()),
    }
}

#[cfg(feature = "snan-fill")]
mod fill {
    use super::bits;
    use crate::kernels::{FILL, KernelId};
    use crate::operation::Operation;
    use crate::plan::Plan;
    use crate::{Layout, TensorResult};
    use cuda_buffer::{CudaBuffer, DeviceData, ReadAccess, acquire_all};
    use cuda_driver::Scalar;
    use cuda_runtime::Stream;
    use num_complex::Complex;
    use std::any::TypeId;

    /// The fill kernel and the value of a type that has signalling NaNs: exact bits, never a conversion of numbers.
    fn pattern<T: 'static>() -> Option<(KernelId, Scalar)> {
        let id = TypeId::of::<T>();
        if id == TypeId::of::<f32>() {
            Some((FILL.at(2), Scalar::new(bits::F32)))
        } else if id == TypeId::of::<f64>() {
            Some((FILL.at(3), Scalar::new(bits::F64)))
        } else if id == TypeId::of::<Complex<f32>>() {
            Some((FILL.at(3), Scalar::new([bits::F32; 2])))
        } else if id == TypeId::of::<Complex<f64>>() {
            Some((FILL.at(4), Scalar::new([bits::F64; 2])))
        } else {
            None
        }
    }

    #[track_caller]
    pub(super) fn with_nans<T: Copy + 'static>(
        buffer: &mut CudaBuffer<T>,
        stream: &Stream,
    ) -> TensorResult<()> {
        let Some((kernel, value)) = pattern::<T>().filter(|_| !buffer.is_empty()) else {
            return Ok(());
        };
        let operation = Operation::new("uninitialized", stream);
        operation.device("out", buffer.device())?;
        let layout = Layout::row_major([buffer.len()])?;
        let plan = Plan::new(&layout.extents(), [&layout.strides()]);
        let kernel = kernel.on(stream.device())?;
        let (mut out,) = acquire_all(stream, (buffer.write(),))?;
        let inputs = [None::<&ReadAccess<'_, T>>; 0];
        let codes = |rank, wide| [rank, wide, 0, 0];
        let launched = match value.as_bytes().len() {
            4 => operation.launch(
                &kernel,
                &plan,
                &mut out,
                inputs,
                codes,
                &[value.get::<u32>().unwrap_or_default()],
            ),
            8 => operation.launch(
                &kernel,
                &plan,
                &mut out,
                inputs,
                codes,
                &[value.get::<u64>().unwrap_or_default()],
            ),
            _ => operation.launch(
                &kernel,
                &plan,
                &mut out,
                inputs,
                codes,
                &[value.get::<u128>().unwrap_or_default()],
            ),
        };
        operation.finish((out,), launched)
    }
}
