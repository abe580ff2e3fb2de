//! Device tasks: tickets, then leases, then a leaf that does not suspend.

use super::lease::{Follow, Leased, Resource, StreamSearch, lease};
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
    K::Guards: DeviceOf + Send + Sync,
    All<K>: Send,
    P: FnOnce() -> K,
    L: FnOnce(&Stream, K::Guards) -> TensorResult<()> + Send + 'static,
{
    queue::<Stream, _, _, _, _>(executor, operation, tickets, DeviceOf::last_writes, leaf)
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
    K::Guards: DeviceOf + Send + Sync,
    All<K>: Send,
    P: FnOnce() -> K,
    L: FnOnce(&Execution, K::Guards) -> TensorResult<()> + Send + 'static,
{
    queue::<Leased, _, _, _, _>(executor, operation, tickets, DeviceOf::last_writes, leaf)
}

/// Queues a task that leases `R`. See [`lease`] for `follow`.
#[track_caller]
pub(super) fn queue<R, S, K, P, L>(
    executor: &S,
    operation: &'static str,
    tickets: P,
    follow: Follow<K::Guards>,
    leaf: L,
) -> TensorResult<()>
where
    R: Resource,
    S: Spawn + ?Sized,
    K: Tickets + Send + 'static,
    K::Guards: DeviceOf + Send + Sync,
    All<K>: Send,
    P: FnOnce() -> K,
    L: FnOnce(&R::Given, K::Guards) -> TensorResult<()> + Send + 'static,
{
    let site = Location::caller();
    let prepared = || {
        let tickets = all(tickets());
        async move {
            let guards = tickets.await?;
            let device = guards.device_of()?;
            let leased: R = lease(&device, &guards, follow).await?;
            let _site = CallSite::at(site);
            Ok(leaf(leased.given(), guards)?)
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

    /// Names the writes that the operation comes after, the best one first, until the search is over: where the stream of one is free
    /// and did nothing since, the operation gets that.
    fn last_writes(&self, search: &mut StreamSearch<'_>) -> bool {
        let _ = search;
        false
    }
}

impl<T: Copy + 'static, const N: usize> DeviceOf for CudaTensor<T, N> {
    fn device_of(&self) -> TensorResult<Device> {
        Ok(self.device().clone())
    }

    fn last_writes(&self, search: &mut StreamSearch<'_>) -> bool {
        search.after(self.buffer().last_write())
    }
}

impl<V: DeviceOf> DeviceOf for ReadGuard<V> {
    fn device_of(&self) -> TensorResult<Device> {
        (**self).device_of()
    }

    fn last_writes(&self, search: &mut StreamSearch<'_>) -> bool {
        (**self).last_writes(search)
    }
}

impl<V: DeviceOf> DeviceOf for WriteGuard<V> {
    fn device_of(&self) -> TensorResult<Device> {
        self.get()?.device_of()
    }

    fn last_writes(&self, search: &mut StreamSearch<'_>) -> bool {
        self.get().is_ok_and(|value| value.last_writes(search))
    }
}

impl<G: DeviceOf> DeviceOf for Vec<G> {
    /// # Errors
    /// [`TensorError::NoOperand`] for none.
    fn device_of(&self) -> TensorResult<Device> {
        self.first().ok_or(TensorError::NoOperand)?.device_of()
    }

    fn last_writes(&self, search: &mut StreamSearch<'_>) -> bool {
        self.iter().any(|guard| guard.last_writes(search))
    }
}

macro_rules! tuples {
    ($($first:ident $($rest:ident)*;)+) => { $(
        /// Those of the first.
        impl<$first: DeviceOf $(, $rest)*> DeviceOf for ($first, $($rest,)*) {
            fn device_of(&self) -> TensorResult<Device> {
                self.0.device_of()
            }

            fn last_writes(&self, search: &mut StreamSearch<'_>) -> bool {
                self.0.last_writes(search)
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

/// Fails when an output is an input: the task would wait for itself.
pub(super) fn distinct<T, U>(
    operation: &'static str,
    out: &Async<T>,
    (operand, input): (&'static str, &Async<U>),
) -> TensorResult<()> {
    match out.is_same(input) {
        true => Err(TensorError::Aliased { operation, operand }),
        false => Ok(()),
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
