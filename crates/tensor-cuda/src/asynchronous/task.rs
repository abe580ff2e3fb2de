//! Device tasks: tickets, then leases, then a leaf that does not suspend.

use super::lease;
use crate::{CudaTensor, TensorError, TensorResult};
use async_value::{All, Async, ReadGuard, Spawn, Tickets, WriteGuard, all, spawn};
use cuda_runtime::{Device, Stream};
use std::panic::Location;

use crate::Execution;
use cuda_driver::CallSite;

/// Queues an operation of your own: `tickets` runs now and takes them; once their turn has come, `leaf` gets a stream of their
/// device and the guards.
///
/// The leaf queues work and returns; it should not wait for anything. Writes that it does not release fail, as do all when it returns an
/// error.
///
/// ```
/// # use async_value::{All, Async, SeededExecutor};
/// # use cuda_runtime::Runtime;
/// # use tensor_cuda::{CudaTensor, TensorResult, asynchronous::device_task};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::builder().build()?;
/// # let device = runtime.default_device();
/// # let executor = SeededExecutor::new(0);
/// let x = Async::new(CudaTensor::<f32, 1>::new(device, [4])?);
/// let fill = |stream: &_, (mut x,): (async_value::WriteGuard<CudaTensor<f32, 1>>,)| {
///     tensor_cuda::fill(stream, x.get_mut()?, 3.0)?;
///     x.release();
///     Ok(())
/// };
/// device_task(&executor, "fill with three", || (x.write(),), fill)?;
/// executor.run()?;
/// assert_eq!(x.try_read()?.to_ndarray()?[3], 3.0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`TensorError::Value`] when the executor admits no more operations.
#[track_caller]
pub fn device_task<S, K, P, L>(
    executor: &S,
    operation: &'static str,
    tickets: P,
    leaf: L,
) -> TensorResult<()>
where
    S: Spawn + ?Sized,
    K: Tickets + Send + 'static,
    K::Guards: DeviceOf + Send,
    All<K>: Send,
    P: FnOnce() -> K,
    L: FnOnce(&Stream, K::Guards) -> TensorResult<()> + Send + 'static,
{
    let site = Location::caller();
    let prepared = || {
        let tickets = all(tickets());
        async move {
            let guards = tickets.await?;
            let device = guards.device_of()?;
            let stream = lease::stream(&device).await?;
            let _site = CallSite::at(site);
            Ok(leaf(&stream, guards)?)
        }
    };
    Ok(spawn(executor, operation, prepared)?)
}

/// As [`device_task`], with a lease of a handle and a stream, for several products at once: they share the stream, and none of them
/// waits for another.
///
/// # Errors
/// As for [`device_task`].
#[track_caller]
pub fn product_task<S, K, P, L>(
    executor: &S,
    operation: &'static str,
    tickets: P,
    leaf: L,
) -> TensorResult<()>
where
    S: Spawn + ?Sized,
    K: Tickets + Send + 'static,
    K::Guards: DeviceOf + Send,
    All<K>: Send,
    P: FnOnce() -> K,
    L: FnOnce(&Execution, K::Guards) -> TensorResult<()> + Send + 'static,
{
    let site = Location::caller();
    let prepared = || {
        let tickets = all(tickets());
        async move {
            let guards = tickets.await?;
            let device = guards.device_of()?;
            let execution = lease::execution(&device).await?;
            let _site = CallSite::at(site);
            Ok(leaf(&execution, guards)?)
        }
    };
    Ok(spawn(executor, operation, prepared)?)
}

/// Guards that know their device: that of the first tensor which is there. Inputs come before outputs, which may have no value yet.
pub trait DeviceOf {
    /// The device.
    ///
    /// # Errors
    /// The failure or absence of a value that must be there.
    fn device_of(&self) -> TensorResult<Device>;
}

impl<T: Copy + 'static, const N: usize> DeviceOf for ReadGuard<CudaTensor<T, N>> {
    fn device_of(&self) -> TensorResult<Device> {
        Ok(self.device().clone())
    }
}

impl<T: Copy + 'static, const N: usize> DeviceOf for WriteGuard<CudaTensor<T, N>> {
    fn device_of(&self) -> TensorResult<Device> {
        Ok(self.get()?.device().clone())
    }
}

impl<G: DeviceOf> DeviceOf for Vec<G> {
    /// # Errors
    /// [`TensorError::NoOperand`] for none.
    fn device_of(&self) -> TensorResult<Device> {
        self.first().ok_or(TensorError::NoOperand)?.device_of()
    }
}

macro_rules! tuples {
    ($($first:ident $($rest:ident)*;)+) => { $(
        impl<$first: DeviceOf $(, $rest)*> DeviceOf for ($first, $($rest,)*) {
            fn device_of(&self) -> TensorResult<Device> {
                self.0.device_of()
            }
        }
    )+ };
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

/// Fails when an output is one of the inputs: the task would wait for itself.
pub(super) fn distinct<T, const N: usize, const M: usize>(
    operation: &'static str,
    out: &Async<CudaTensor<T, N>>,
    inputs: &[(&'static str, &Async<CudaTensor<T, M>>)],
) -> TensorResult<()> {
    match inputs.iter().find(|(_, input)| out.is_same(input)) {
        Some(&(operand, _)) => Err(TensorError::Aliased { operation, operand }),
        None => Ok(()),
    }
}

/// The tensor of an output that is overwritten as a whole, made on `stream` when there is none.
pub(super) fn output<'g, T: Copy + 'static, const N: usize>(
    stream: &Stream,
    out: &'g mut WriteGuard<CudaTensor<T, N>>,
    extents: [usize; N],
) -> TensorResult<&'g mut CudaTensor<T, N>> {
    if out.overwrite().is_none() {
        out.put(CudaTensor::uninitialized_on(stream, extents)?);
    }
    Ok(out.overwrite().expect("it is there now"))
}
