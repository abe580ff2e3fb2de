//! Copies between host and device, and between devices.

use super::forms::from_one;
use super::lease::lease;
use super::staging;
use super::task::DeviceOf;
use crate::{CudaTensor, TensorResult};
use async_value::{Async, Spawn, compute};
use bytemuck::Pod;
use cuda_driver::CallSite;
use cuda_runtime::{Device, Stream};
use ndarray::{Array, Dim, Dimension, IntoDimension};
use std::panic::Location;

/// Queues `out = a`, on one device or to another. Without a value, `out` becomes a row-major tensor on the device of `a`.
///
/// # Errors
/// [`TensorError::Aliased`](crate::TensorError::Aliased) when `out` is `a`;
/// [`TensorError::Value`](crate::TensorError::Value) when the executor admits no more operations. What
/// [`copy`](crate::copy()) returns fails `out`.
#[track_caller]
pub fn copy<S: Spawn + ?Sized, T: Copy + Send + Sync + 'static, const N: usize>(
    executor: &S,
    out: &Async<CudaTensor<T, N>>,
    a: &Async<CudaTensor<T, N>>,
) -> TensorResult<()> {
    from_one(executor, "copy", out, ("a", a), Ok, |on, out, a| {
        crate::copy(on, out, a)
    })
}

/// Queues a copy of `a` to `device`: the place where a computation goes on there.
///
/// # Errors
/// As for [`copy`].
#[track_caller]
pub fn to_device<S: Spawn + ?Sized, T: Copy + Send + Sync + 'static, const N: usize>(
    executor: &S,
    a: &Async<CudaTensor<T, N>>,
    device: &Device,
) -> TensorResult<Async<CudaTensor<T, N>>> {
    let (site, device) = (Location::caller(), device.clone());
    let prepared = || {
        let a = a.read();
        async move {
            let a = a.await?;
            // The copy runs on the device that it comes to.
            let stream: Stream = lease(&device, &a, DeviceOf::last_writes).await?;
            let _site = CallSite::at(site);
            let mut out = CudaTensor::uninitialized_on(&stream, a.extents())?;
            crate::copy(&stream, &mut out, &*a)?;
            Ok(out)
        }
    };
    Ok(compute(executor, "to_device", prepared)?)
}

/// Queues a copy of a host array to `device`. Its elements are put in page-locked memory first, so that no thread waits; up to 64 MiB of it
/// are kept for the next copies.
///
/// # Errors
/// [`TensorError::Value`](crate::TensorError::Value) when the executor admits no more operations. The driver's own fail the tensor.
#[track_caller]
pub fn from_ndarray<S: Spawn + ?Sized, T: Pod + Send + Sync, const N: usize>(
    executor: &S,
    device: &Device,
    array: Array<T, Dim<[usize; N]>>,
) -> TensorResult<Async<CudaTensor<T, N>>>
where
    Dim<[usize; N]>: Dimension,
{
    let (site, device) = (Location::caller(), device.clone());
    let prepared = || async move {
        let mut extents = [0; N];
        extents.copy_from_slice(array.shape());
        let mut staging = staging::buffer::<T>(&device, array.len())?;
        for (to, from) in staging.host_write_async().await?.iter_mut().zip(&array) {
            *to = *from;
        }
        drop(array);
        let stream: Stream = lease(&device, &(), |_, _| false).await?;
        let _site = CallSite::at(site);
        let mut tensor = CudaTensor::uninitialized_on(&stream, extents)?;
        crate::copy_from_pinned(&stream, &mut tensor, &staging)?;
        // The copy keeps the staging memory for as long as it takes.
        Ok(tensor)
    };
    Ok(compute(executor, "from_ndarray", prepared)?)
}

/// Queues a copy of the elements to the host, as a row-major array that is ready when the copy is done.
///
/// # Errors
/// As for [`from_ndarray`].
#[track_caller]
pub fn to_ndarray<S: Spawn + ?Sized, T, const N: usize>(
    executor: &S,
    a: &Async<CudaTensor<T, N>>,
) -> TensorResult<Async<Array<T, Dim<[usize; N]>>>>
where
    T: Pod + Send + Sync,
    [usize; N]: IntoDimension<Dim = Dim<[usize; N]>>,
    Dim<[usize; N]>: Dimension,
{
    let site = Location::caller();
    let prepared = || {
        let a = a.read();
        async move {
            let a = a.await?;
            let extents = a.extents();
            let device = a.device().clone();
            let stream: Stream = lease(&device, &a, DeviceOf::last_writes).await?;
            let staging = {
                let _site = CallSite::at(site);
                let mut staging = staging::buffer::<T>(&device, a.layout().len())?;
                crate::copy_to_pinned(&stream, &mut staging, &*a)?;
                staging
            };
            // Queued: later writers of the tensor may go on, and the stream is free for others.
            drop((a, stream));
            let values = staging.host_read_async().await?.to_vec();
            Ok(Array::from_shape_vec(extents, values)?)
        }
    };
    Ok(compute(executor, "to_ndarray", prepared)?)
}
