//! What users choose: which cuBLAS, and how it computes.

use super::calls::cublasMath_t;
use super::error::CublasError;
use super::handle::CublasHandle;
use super::library::{Library, Version};
use super::needs::Target;
use super::owned::Owned;
use super::places::Surroundings;
use crate::TensorResult;
use crate::blas::{MatrixHandle, MatrixProvider};
use cuda_driver::DeviceId;
use cuda_runtime::Device;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Bytes of a workspace: from compute capability 9.0 on, Hopper and Blackwell, and before.
///
/// Source: cuBLAS documentation (13.0), the table of recommended sizes at `cublasSetWorkspace`.
const WORKSPACE_BYTES: (usize, usize) = (32 << 20, 4 << 20);

/// What was found for a device, once that is known.
type Found = Arc<OnceLock<Result<Cublas, CublasError>>>;

/// How products of `f32` and of its complex numbers are computed; and whether algorithms may be chosen by their speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MathMode {
    /// In the precision of the elements. Sums of 16-bit elements are `f32`.
    #[default]
    Full,
    /// `f32` may be rounded to TF32, with 10 bits behind the point, before it is multiplied: several times faster on tensor cores.
    Tf32,
    /// As [`Full`](Self::Full), and by plain algorithms only: for comparisons, and slower.
    Pedantic,
}

/// Matrix products by NVIDIA's cuBLAS, versions 12 and 13, which is loaded when the program runs.
///
/// Devices of hardware use it by themselves where it is found ([`Cublas::find`]). Another one, or other settings, are set with
/// [`Blas::set_provider`](crate::Blas::set_provider):
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = cuda_runtime::Runtime::builder().build()?;
/// use tensor_cuda::{Blas, Cublas, MathMode};
///
/// let device = runtime.default_device();
/// let cublas = Cublas::builder()
///     .path("/opt/cuda-12.8/lib64")
///     .math(MathMode::Tf32)
///     .open(device)?;
/// println!("{} from {}", cublas.version(), cublas.path().display());
/// Blas::of(device).set_provider(std::sync::Arc::new(cublas));
/// # Ok(())
/// # }
/// ```
///
/// Each handle has a workspace of its own, set after the stream, and no operation adds in an order that changes: so a call gives the same
/// results in every run with the same library, device, settings and operands. A batch may be computed by other kernels than its products
/// alone: where [`Blas::set_deterministic`](crate::Blas::set_deterministic) asks for the same bits, its products are called one after the
/// other, and slower. The library may choose a kernel by the alignment of addresses, too: views are the same operands there only if they
/// begin at addresses of the same alignment, up to 16 bytes, as all whole tensors do.
///
/// A batch of which a matrix begins at no multiple of 16 bytes is called one after the other, too: the library needs that of batches of
/// matrices that lie anywhere.
///
/// The library loads a kernel at the first product of a kind. So a product of a kind that no capture had yet is captured once on a thread
/// of its own, into a graph that is thrown away, before it is captured; [`CublasError::NotCaptured`] where the driver loads none then.
#[derive(Clone, Copy, Debug)]
pub struct Cublas {
    library: &'static Library,
    math: MathMode,
    reduced_sums: bool,
    workspace_bytes: Option<usize>,
    width: Width,
}

/// Which entry points are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Width {
    /// Those with 32-bit sizes where these do, and with 64-bit sizes elsewhere, if there are any.
    #[default]
    Fitting,
    /// As of a library that has no others.
    #[cfg(test)]
    Narrow,
    /// Those with 64-bit sizes.
    #[cfg(test)]
    Wide,
}

/// Chooses a cuBLAS and its settings.
#[derive(Clone, Debug, Default)]
pub struct CublasBuilder {
    path: Option<PathBuf>,
    math: MathMode,
    reduced_sums: bool,
    workspace_bytes: Option<usize>,
}

impl Cublas {
    /// The cuBLAS for `device`, in full precision. It is looked for once for each device.
    ///
    /// These places are tried, each for version 13 and then 12:
    ///
    /// 1. the path that the environment variable `CARVE_CUBLAS` has, of the library or its folder, and then nothing else; set to
    ///    nothing, cuBLAS is not looked for;
    /// 2. the loader's path: `LD_LIBRARY_PATH`, what `ldconfig` knows, and what other code of the process has loaded;
    /// 3. the folders that `CUDA_HOME`, `CUDA_PATH` and `CONDA_PREFIX` name, `/usr/local/cuda`, and `/usr/local/cuda-*` from the newest on;
    /// 4. Python wheels (`nvidia-cublas`, `nvidia-cublas-cu12`) of the environment that is active, of the `python3` on the path, and of
    ///    the user.
    ///
    /// A version that the device or the driver is too old for is passed over: 13 needs compute capability 7.5 and a driver for CUDA
    /// 13, 12 needs 5.0 and a driver for CUDA 12. So devices of one process can use two versions.
    ///
    /// # Errors
    /// [`CublasError::NotFound`] with every file that was looked at, and what was wrong with it; [`CublasError::Driver`];
    /// [`CublasError::Simulated`].
    pub fn find(device: &Device) -> Result<Self, CublasError> {
        static FOUND: Mutex<Vec<(DeviceId, Found)>> = Mutex::new(Vec::new());
        let target = Target::of(device)?;
        let found = {
            let mut all = FOUND.lock();
            match all.iter().find(|(of, _)| *of == target.device) {
                Some((_, found)) => found.clone(),
                None => {
                    let found = Found::default();
                    all.push((target.device, found.clone()));
                    found
                }
            }
        };
        // Outside of the lock: libraries take long to load, and other devices may have theirs.
        found.get_or_init(|| Self::builder().open(device)).clone()
    }

    /// Chooses which library, and how it computes.
    #[must_use]
    pub fn builder() -> CublasBuilder {
        CublasBuilder::default()
    }

    /// The version of the library.
    #[must_use]
    pub fn version(&self) -> Version {
        self.library.version
    }

    /// Where it was loaded from: a name when the loader found it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.library.path
    }

    /// Ends handles of the library on `device` that nobody has, and so gives their memory back; how many those were.
    ///
    /// Nothing else ends them: the library waits for the whole device then, which would stop other work and invalidate every capture that
    /// is open. A handle that is not needed any more, as after [`Blas::set_handles`](crate::Blas::set_handles), the end of a runtime or
    /// of a graph, is kept for the next one that is needed, of whatever settings and runtime. Call this while no thread captures.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`](cuda_runtime::RuntimeError::CaptureActive) while this thread captures; [`CublasError::Call`], and then the handle is still there.
    #[track_caller]
    pub fn end_idle_handles(&self, device: &Device) -> TensorResult<usize> {
        super::owned::end_idle(self.library, device)
    }

    /// How products are computed.
    #[must_use]
    pub fn math(&self) -> MathMode {
        self.math
    }

    pub(super) fn math_mode(&self) -> cublasMath_t {
        let mode = match self.math {
            MathMode::Full => cublasMath_t::DEFAULT,
            MathMode::Tf32 => cublasMath_t::TF32_TENSOR_OP,
            MathMode::Pedantic => cublasMath_t::PEDANTIC,
        };
        match self.reduced_sums {
            true => mode,
            false => cublasMath_t(mode.0 | cublasMath_t::DISALLOW_REDUCED_PRECISION_REDUCTION.0),
        }
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn width(&self) -> Width {
        self.width
    }

    /// A library with the settings of a builder's beginning.
    #[cfg(test)]
    pub(super) fn of(library: &'static Library) -> Self {
        let CublasBuilder {
            path: _,
            math,
            reduced_sums,
            workspace_bytes,
        } = Self::builder();
        Self {
            library,
            math,
            reduced_sums,
            workspace_bytes,
            width: Width::Fitting,
        }
    }

    #[cfg(test)]
    pub(super) fn with_width(mut self, width: Width) -> Self {
        self.width = width;
        self
    }

    fn has_wide(&self) -> bool {
        #[cfg(test)]
        if self.width == Width::Narrow {
            return false;
        }
        self.library.wide.is_some()
    }
}

impl CublasBuilder {
    /// The library at this path, or in this folder, and no other.
    #[must_use]
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// How products are computed; [`MathMode::Full`] at first.
    #[must_use]
    pub fn math(mut self, math: MathMode) -> Self {
        self.math = math;
        self
    }

    /// Allows sums of 16-bit elements to be rounded to 16 bits where parts of them are added, which can be faster. Not at first.
    #[must_use]
    pub fn reduced_sums(mut self, allowed: bool) -> Self {
        self.reduced_sums = allowed;
        self
    }

    /// Bytes of each handle's workspace: a multiple of 256 is best, and less than 16 KiB can make products fail. At first 32 MiB from
    /// compute capability 9.0 on, which are Hopper and Blackwell, and 4 MiB before, as NVIDIA recommends. Another size can have other
    /// algorithms chosen, and so give other roundings.
    #[must_use]
    pub fn workspace_bytes(mut self, bytes: usize) -> Self {
        self.workspace_bytes = Some(bytes);
        self
    }

    /// Loads the library for `device`: that of the path, or the first one of the places that [`Cublas::find`] names. Other devices can
    /// use it too, where they can use its version.
    ///
    /// # Errors
    /// [`CublasError`]: what is wrong with the library of the path, or [`CublasError::NotFound`] with every file that was looked at.
    pub fn open(self, device: &Device) -> Result<Cublas, CublasError> {
        let target = Target::of(device)?;
        let library = match &self.path {
            Some(path) => Library::at(path, target)?,
            None => Library::search(Surroundings::of_process(), target)?,
        };
        Ok(Cublas {
            library,
            math: self.math,
            reduced_sums: self.reduced_sums,
            workspace_bytes: self.workspace_bytes,
            width: Width::Fitting,
        })
    }
}

impl MatrixProvider for Cublas {
    fn name(&self) -> &'static str {
        self.library.name
    }

    fn max_dim(&self) -> u64 {
        match self.has_wide() {
            true => i64::MAX as u64,
            false => i32::MAX as u64,
        }
    }

    fn is_deterministic(&self) -> bool {
        // Whatever the settings: each handle has a workspace of its own, sums are not atomic, and batches are taken apart.
        true
    }

    fn workspace_bytes(&self, device: &Device) -> usize {
        let (new, old) = WORKSPACE_BYTES;
        self.workspace_bytes
            .unwrap_or(match device.properties().compute_capability.0 {
                9.. => new,
                _ => old,
            })
    }

    #[track_caller]
    fn open(&self, device: &Device) -> TensorResult<Box<dyn MatrixHandle>> {
        let owned = Owned::new(self, device)?;
        Ok(Box::new(CublasHandle::new(*self, owned)))
    }
}
