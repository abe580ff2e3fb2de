//! The handles of a device: made when they are needed, kept, and given to the stream that used them last.

use super::admission::Admission;
use super::host::HostBlas;
use super::lease::{AcquireExecution, AcquirePermit, Execution};
use super::provider::{MatrixHandle, MatrixProvider};
use super::workspace;
use crate::TensorResult;
use cuda_buffer::SharedCudaBuffer;
use cuda_driver::CallSite;
use cuda_runtime::{Device, OnUnwind, RuntimeError, Stream, StreamId};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Handles that a device keeps at first, and execution leases that it gives out at a time.
const HANDLES: usize = 4;

/// The matrix products of one device: its provider, its handles and their workspaces, and what was counted.
///
/// ```
/// # use cuda_runtime::Runtime;
/// # use tensor_cuda::{Blas, CudaTensor, gemm};
/// # fn main() -> tensor_cuda::TensorResult<()> {
/// # let runtime = Runtime::builder().build()?;
/// # let device = runtime.default_device();
/// let blas = Blas::of(device);
/// assert_eq!(blas.provider()?.name(), "host BLAS");
///
/// let execution = blas.lease()?;                       // a handle, then a stream
/// let a = CudaTensor::<f32, 2>::zeros(execution.stream(), [2, 2])?;
/// let mut c = CudaTensor::<f32, 2>::uninitialized(device, [2, 2])?;
/// gemm(&execution, &mut c, 1.0, &a, &a, 0.0)?;
/// assert_eq!(blas.counts().products, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Blas {
    device: Device,
    state: Arc<State>,
}

/// What is kept with the device.
pub struct State {
    pool: Mutex<Pool>,
    pub(super) admission: Arc<Admission>,
    deterministic: AtomicBool,
    counters: Counters,
}

struct Pool {
    provider: Option<Arc<dyn MatrixProvider>>,
    /// The provider's number: handles of earlier ones are not kept.
    generation: u64,
    /// Handles that nobody has, the one that was used last at the end.
    #[expect(clippy::vec_box, reason = "handles are moved in and out at every call")]
    idle: Vec<Box<Handle>>,
    /// Handles that exist.
    made: usize,
    /// Handles that are kept.
    kept: usize,
}

#[derive(Debug, Default)]
struct Counters {
    products: AtomicU64,
    copies: AtomicU64,
    copied_bytes: AtomicU64,
    handles_made: AtomicU64,
}

/// What products on a device cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlasCounts {
    /// Calls of the provider.
    pub products: u64,
    /// Operands that were copied because BLAS can't express their strides.
    pub copies: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Handles made.
    pub handles_made: u64,
}

/// A handle with its workspace, in use by one call or one lease.
pub struct Handle {
    pub(super) engine: Box<dyn MatrixHandle>,
    pub(super) workspace: SharedCudaBuffer<u8>,
    pub(super) provider: Arc<dyn MatrixProvider>,
    /// What the provider said.
    pub(super) max_dim: u64,
    generation: u64,
    /// The stream that used it last.
    last: Option<StreamId>,
}

impl Blas {
    /// Those of `device`.
    #[must_use]
    pub fn of(device: &Device) -> Self {
        Self {
            device: device.clone(),
            state: State::of(device),
        }
    }

    /// The provider: the one that was set; or else, on hardware, cuBLAS where there is one for the device (`Cublas::find`), and [`HostBlas`] where
    /// there is none and on simulated devices.
    ///
    /// # Errors
    /// On hardware, when cuBLAS was found and can't be used, or when the path that was set for it does not lead to one.
    pub fn provider(&self) -> TensorResult<Arc<dyn MatrixProvider>> {
        self.state.provider(&self.device)
    }

    /// Uses another provider from the next product on. Handles of the earlier one are given up when they are free.
    pub fn set_provider(&self, provider: Arc<dyn MatrixProvider>) {
        let idle = {
            let mut pool = self.state.pool.lock();
            pool.provider = Some(provider);
            pool.generation += 1;
            pool.made -= pool.idle.len();
            std::mem::take(&mut pool.idle)
        };
        drop(idle);
    }

    /// Whether products must give the same bits for the same operands, in the same layouts, in every run on one device and version of
    /// the provider: on whatever stream, thread and handle, alone or as one of a batch, eagerly or replayed by a graph. Off at first.
    ///
    /// cuBLAS may choose a kernel by the alignment of addresses: with it, the operands begin at multiples of 16 bytes, as whole tensors
    /// do, or at the same distance from one.
    ///
    /// Providers may then be slower. One that does not [promise](MatrixProvider::is_deterministic) it is refused with
    /// [`NotDeterministic`](crate::TensorError::NotDeterministic), and nothing is queued. All other operations of this crate, the reductions
    /// included, always give the same bits, in this mode or not.
    ///
    /// ```
    /// # use cuda_runtime::Runtime;
    /// # use tensor_cuda::{Blas, CudaTensor, matmul};
    /// # fn main() -> tensor_cuda::TensorResult<()> {
    /// # let runtime = Runtime::builder().build()?;
    /// # let device = runtime.default_device();
    /// # let (one, other) = (device.streams().acquire()?, device.streams().acquire()?);
    /// Blas::of(device).set_deterministic(true);
    /// let a = CudaTensor::full(&one, [3, 3], 0.1_f32)?;
    /// let (first, second) = (matmul(&one, &a, &a)?, matmul(&other, &a, &a)?);
    /// assert_eq!(first.to_ndarray()?.mapv(f32::to_bits), second.to_ndarray()?.mapv(f32::to_bits));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_deterministic(&self, deterministic: bool) {
        self.state
            .deterministic
            .store(deterministic, Ordering::Relaxed);
    }

    /// Keeps so many handles, at least 1, each with a workspace, and gives out so many execution leases at a time. 4 at first.
    ///
    /// Fewer streams than handles each keep a handle of their own; more streams share them, and wait for each other's products
    /// where they do.
    pub fn set_handles(&self, handles: usize) {
        let handles = handles.max(1);
        let surplus = {
            let mut pool = self.state.pool.lock();
            pool.kept = handles;
            let surplus = pool.idle.len().saturating_sub(handles);
            pool.made -= surplus;
            pool.idle.drain(..surplus).collect::<Vec<_>>()
        };
        drop(surplus);
        self.state.admission.set_permits(handles);
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> BlasCounts {
        let Counters {
            products,
            copies,
            copied_bytes,
            handles_made,
        } = &self.state.counters;
        let [products, copies, copied_bytes, handles_made] =
            [products, copies, copied_bytes, handles_made]
                .map(|count| count.load(Ordering::Relaxed));
        BlasCounts {
            products,
            copies,
            copied_bytes,
            handles_made,
        }
    }

    /// Leases a handle, and then a stream: never the other way round, so that leases can't wait for each other. Waits for both,
    /// first come first served.
    ///
    /// # Errors
    /// What leasing a stream and opening a handle return.
    #[track_caller]
    pub fn lease(&self) -> TensorResult<Execution> {
        let _site = CallSite::enter();
        let permit = self.state.admission.acquire_blocking();
        let stream = self.device.streams().acquire()?;
        Execution::new(self.state.clone(), permit, stream)
    }

    /// Leases a handle and a stream, when both are free at once; `None` when they are not.
    ///
    /// # Errors
    /// As for [`lease`](Self::lease).
    #[track_caller]
    pub fn try_lease(&self) -> TensorResult<Option<Execution>> {
        let _site = CallSite::enter();
        let Some(permit) = self.state.admission.try_acquire() else {
            return Ok(None);
        };
        match self.device.streams().try_acquire() {
            Ok(stream) => Execution::new(self.state.clone(), permit, stream).map(Some),
            Err(RuntimeError::PoolEmpty { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A future that leases a handle, and then a stream, once there are. Its place in the queue is taken when it is first polled.
    pub fn lease_async(&self) -> AcquireExecution {
        AcquireExecution::new(&self.device, self.state.clone())
    }

    /// What a lease needs before its stream.
    pub(crate) fn permit(self) -> AcquirePermit {
        AcquirePermit::new(self.state)
    }
}

/// The provider of a device for which none was set.
fn found(device: &Device) -> TensorResult<Arc<dyn MatrixProvider>> {
    #[cfg(feature = "cuda")]
    if !device.driver().is_simulated() {
        match super::cublas::Cublas::find(device) {
            Ok(cublas) => return Ok(Arc::new(cublas)),
            // The plain kernel is right, too. What is there and does not work is an error, not a reason to be slow.
            Err(error) if error.is_absence() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let _ = device;
    Ok(Arc::new(HostBlas::default()))
}

#[track_caller]
fn open(
    device: &Device,
    provider: Arc<dyn MatrixProvider>,
    generation: u64,
) -> TensorResult<Box<Handle>> {
    let engine = provider.open(device)?;
    let bytes = provider.workspace_bytes(device);
    let workspace = workspace::new(device, bytes)?;
    Ok(Box::new(Handle {
        engine,
        workspace,
        max_dim: provider.max_dim(),
        provider,
        generation,
        last: None,
    }))
}

impl State {
    pub(super) fn of(device: &Device) -> Arc<Self> {
        let make = |_: &Device| {
            Ok::<_, Infallible>(Self {
                pool: Mutex::new(Pool {
                    provider: None,
                    generation: 0,
                    idle: Vec::new(),
                    made: 0,
                    kept: HANDLES,
                }),
                admission: Admission::new(HANDLES),
                deterministic: AtomicBool::new(false),
                counters: Counters::default(),
            })
        };
        let Ok(state) = device.provider(make);
        state
    }

    /// The provider. One that has to be looked for is loaded without the lock, which others need meanwhile.
    fn provider(&self, device: &Device) -> TensorResult<Arc<dyn MatrixProvider>> {
        if let Some(provider) = &self.pool.lock().provider {
            return Ok(provider.clone());
        }
        let found = found(device)?;
        Ok(self.pool.lock().provider.get_or_insert(found).clone())
    }

    pub(super) fn is_deterministic(&self) -> bool {
        self.deterministic.load(Ordering::Relaxed)
    }

    pub(super) fn count_products(&self, count: u64) {
        self.counters.products.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn count_copy(&self, bytes: usize) {
        self.counters.copies.fetch_add(1, Ordering::Relaxed);
        self.counters
            .copied_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A handle for work on `stream`: the one that served it last, or else a new one, or that which nobody used for longest.
    /// It never waits for one: a call that has a stream already must not.
    /// In a capture, which has workspaces of its own, any handle will do.
    #[track_caller]
    pub(super) fn take(&self, stream: &Stream, capturing: bool) -> TensorResult<Box<Handle>> {
        let id = stream.id();
        let (provider, generation) = {
            let mut pool = self.pool.lock();
            let same = pool.idle.iter().rposition(|handle| handle.last == Some(id));
            let any = (capturing || pool.made >= pool.kept) && !pool.idle.is_empty();
            match same.or_else(|| any.then_some(0)) {
                Some(at) if at + 1 == pool.idle.len() => {
                    return Ok(pool.idle.pop().expect("it is there"));
                }
                Some(at) => return Ok(pool.idle.remove(at)),
                None => {
                    pool.made += 1;
                    (pool.provider.clone(), pool.generation)
                }
            }
        };
        let device = stream.device();
        let open = || {
            let provider = provider.map_or_else(|| self.provider(device), Ok)?;
            self.counters.handles_made.fetch_add(1, Ordering::Relaxed);
            open(device, provider, generation)
        };
        let unwound = OnUnwind::new(|| self.count_lost());
        let opened = match capturing {
            false => open(),
            true => workspace::beside_capture(open),
        };
        unwound.disarm();
        opened.inspect_err(|_| self.count_lost())
    }

    /// A handle that was taken, or was to be made, is there no more.
    #[cold]
    pub(super) fn count_lost(&self) {
        let mut pool = self.pool.lock();
        pool.made = pool.made.saturating_sub(1);
    }

    /// Keeps a handle for the next call. Those of an earlier provider, and those beyond the number kept, are given up.
    pub(super) fn give_back(&self, mut handle: Box<Handle>, stream: &Stream) {
        handle.last = Some(stream.id());
        let mut pool = self.pool.lock();
        let kept = handle.generation == pool.generation && pool.idle.len() < pool.kept;
        match kept {
            true => pool.idle.push(handle),
            false => {
                pool.made = pool.made.saturating_sub(1);
                drop(pool);
                drop(handle);
            }
        }
    }
}

impl fmt::Debug for Blas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blas")
            .field("device", &self.device)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("engine", &self.engine)
            .field("workspace", &self.workspace)
            .finish_non_exhaustive()
    }
}
