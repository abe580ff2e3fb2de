//! Capturing a program of asynchronous operations.

use super::lease::{Mode, up_to_the_lease, with_mode};
use crate::{Execution, TensorError, TensorResult};
use async_value::{Admission, AsyncError, Batch, Spawn, Task};
use cuda_buffer::{CaptureStep, Graph};
use std::sync::Arc;

/// Operations that are queued to be captured together, as one graph.
///
/// ```
/// use async_value::{Async, SeededExecutor};
/// use cuda_runtime::Runtime;
/// use ndarray::array;
/// use std::sync::Arc;
/// use tensor_cuda::{Blas, CudaTensor};
/// use tensor_cuda::asynchronous::{Recording, assign_product, scale};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().build()?;
/// let device = runtime.default_device();
/// let a = Async::new(CudaTensor::from_ndarray(device, &array![[0.0_f64, 1.0], [1.0, 0.0]].view())?);
/// let x = Async::new(CudaTensor::from_ndarray(device, &array![[1.0, 2.0], [3.0, 4.0]].view())?);
/// let y = Async::new(CudaTensor::from_ndarray(device, &array![[0.0, 0.0], [0.0, 0.0]].view())?);
/// let lease = Arc::new(Blas::of(device).lease()?);
/// # let executor = SeededExecutor::new(0);
/// # assign_product(&executor, &y, &a, &x)?; // loads the kernels
/// # scale(&executor, &y, 10.0)?;
/// # executor.run_until(async { y.read().await.map(drop) })??;
///
/// let recording = Recording::new();
/// assign_product(&recording, &y, &a, &x)?;
/// scale(&recording, &y, 10.0)?;
/// let graph = recording.capture(&lease)?;     // nothing has run
/// graph.launch(lease.stream())?;
/// assert_eq!(y.try_read()?.to_ndarray()?, array![[30.0, 40.0], [10.0, 20.0]]);
/// # Ok(())
/// # }
/// ```
///
/// What operations need must be there before: values, the lease, loaded kernels. Once captured, an operation has happened as far as
/// the order of its values goes; what they hold is that of the graph's last launch. A launch is ordered with queued work by the
/// ledgers; queue it as a [`device_task`](super::device_task) with tickets of the values to order it with work that is not queued yet.
#[derive(Debug, Default)]
pub struct Recording(Batch);

impl Recording {
    /// Without operations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many operations are not captured yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Captures the operations, in the order of their calls, on the stream of a lease. It waits for nothing.
    ///
    /// # Errors
    /// Before the capture begins: [`TensorError::Value`] with [`AsyncError::Pending`] when an operation would wait for an access
    /// that is not of this recording; nothing has changed then, and it may be tried again. With [`AsyncError::Failed`] when an
    /// operation fails; those before it are lost, without an effect, and so is the capture. [`TensorError::Suspended`] when
    /// an operation waits for something that is no value: before the capture begins, unless that comes after the values which it waits
    /// for. The driver's own.
    #[track_caller]
    pub fn capture(&self, lease: &Arc<Execution>) -> TensorResult<Graph> {
        let (polled, at_lease) = up_to_the_lease(|| self.0.poll_each());
        polled?;
        self.0.check_alone()?;
        match self.0.waiting_elsewhere().saturating_sub(at_lease) {
            0 => {}
            left => return Err(TensorError::Suspended { left }),
        }
        lease.stream().capture(|_| {
            match with_mode(Mode::Recording(lease.clone()), || self.0.poll_each())? {
                0 => Ok(()),
                left => Err(TensorError::Suspended { left }),
            }
        })
    }
}

impl Spawn for Recording {
    fn spawn(&self, task: Task) {
        self.0.spawn(task);
    }

    fn admit(&self) -> Result<Admission, AsyncError> {
        self.0.admit()
    }
}
