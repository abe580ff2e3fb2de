//! cuBLAS without anything of ours around it: the library that Carve has loaded, so that both call the same.

use crate::Outcome;
use crate::bench::Bench;
use cuda_driver::DevicePtr;
use half::{bf16, f16};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{from_ref, null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use tensor_cuda::{Cublas, CublasError};

/// `cublasMath_t`: else sums of 16-bit elements may be rounded to 16 bits, which is other work than Carve's.
const DISALLOW_REDUCED_PRECISION_REDUCTION: c_int = 16;
/// `cublasOperation_t`, `cublasComputeType_t`, `cublasGemmAlgo_t`.
const OP_N: c_int = 0;
const COMPUTE_32F: c_int = 68;
const GEMM_DEFAULT: c_int = -1;

type Handle = *mut c_void;

/// A type of elements, as `cudaDataType` numbers it.
pub(crate) trait Element: Copy + 'static {
    const TYPE: c_int;
}

impl Element for f16 {
    const TYPE: c_int = 2;
}

impl Element for bf16 {
    const TYPE: c_int = 14;
}

impl Element for f32 {
    const TYPE: c_int = 0;
}

/// Functions of the library, which stays loaded as long as they are there.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $name:literal($($argument:ty),*);)*) => {
        struct Functions {
            $($(#[$doc])* $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            _library: Library,
        }

        impl Functions {
            fn load(path: &Path) -> Result<Self, libloading::Error> {
                // SAFETY: Carve has loaded it, so its initialisers ran.
                let library = unsafe { Library::new(path) }?;
                // SAFETY: each function has this type in the header of cuBLAS, and goes with the library.
                Ok(Self { $($field: *unsafe { library.get($name) }?,)* _library: library })
            }
        }
    };
}

functions! {
    create = b"cublasCreate_v2"(*mut Handle);
    destroy = b"cublasDestroy_v2"(Handle);
    version = b"cublasGetVersion_v2"(Handle, *mut c_int);
    set_stream = b"cublasSetStream_v2"(Handle, *mut c_void);
    set_workspace = b"cublasSetWorkspace_v2"(Handle, *mut c_void, usize);
    set_math_mode = b"cublasSetMathMode"(Handle, c_int);
    gemm = b"cublasGemmEx"(
        Handle, c_int, c_int, c_int, c_int, c_int, *const c_void, *const c_void, c_int, c_int, *const c_void, c_int, c_int,
        *const c_void, *mut c_void, c_int, c_int, c_int, c_int
    );
}

/// A handle that works on the first of the bare streams.
pub(crate) struct Bare {
    functions: Functions,
    path: PathBuf,
    handle: Handle,
    workspace: DevicePtr,
    workspace_bytes: usize,
}

fn check(call: &str, status: c_int) -> Outcome {
    match status {
        0 => Ok(()),
        status => Err(format!("{call} returned {status}").into()),
    }
}

impl Bare {
    /// The library with a handle, or why there is none.
    pub(crate) fn open(bench: &Bench) -> Result<Self, String> {
        let found = Cublas::find(bench.device()).map_err(|error| match error {
            // Carve computes by a plain kernel then.
            CublasError::NotFound { .. } => "there is no cuBLAS here".to_owned(),
            error => error.to_string(),
        })?;
        Self::made(bench, found.path()).map_err(|error| error.to_string())
    }

    fn made(bench: &Bench, path: &Path) -> Outcome<Self> {
        let functions = Functions::load(path)?;
        let (driver, id) = (&bench.driver, bench.id());
        // What NVIDIA advises, and Carve's handles have.
        let workspace_bytes = match bench.device().properties().compute_capability {
            (9.., _) => 32 << 20,
            _ => 4 << 20,
        };
        // Makes the device's context current, in which the handle is made.
        let workspace = driver.mem_alloc(id, workspace_bytes)?;
        let mut handle = null_mut();
        // SAFETY: the pointer is to a handle of ours.
        check("cublasCreate", unsafe { (functions.create)(&mut handle) })?;
        let stream = with_exposed_provenance_mut(bench.bare(0).raw() as usize);
        // SAFETY: the stream is one of this context and lives as long as the benchmark.
        check("cublasSetStream", unsafe {
            (functions.set_stream)(handle, stream)
        })?;
        let memory = with_exposed_provenance_mut::<c_void>(workspace.0 as usize);
        // SAFETY: the memory has this size, and the handle alone uses it.
        check("cublasSetWorkspace", unsafe {
            (functions.set_workspace)(handle, memory, workspace_bytes)
        })?;
        // SAFETY: nobody else has the handle.
        check("cublasSetMathMode", unsafe {
            (functions.set_math_mode)(handle, DISALLOW_REDUCED_PRECISION_REDUCTION)
        })?;
        Ok(Self {
            functions,
            path: path.to_owned(),
            handle,
            workspace,
            workspace_bytes,
        })
    }

    pub(crate) fn version(&self) -> Outcome<c_int> {
        let mut version = 0;
        // SAFETY: the pointer is to an integer of ours.
        check("cublasGetVersion", unsafe {
            (self.functions.version)(self.handle, &mut version)
        })?;
        Ok(version)
    }

    /// Where the library is, or its name where the loader found it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Queues `c = a b` on the first of the bare streams, of matrices with `n` rows and columns. In column-major order that is c' = b' a'.
    ///
    /// # Safety
    /// The addresses are those of so many elements, which nothing on another stream uses until the device was waited for.
    pub(crate) unsafe fn product<T: Element>(
        &self,
        n: c_int,
        [c, a, b]: [DevicePtr; 3],
    ) -> Outcome {
        let (alpha, beta) = (1.0_f32, 0.0_f32);
        let input = |address: DevicePtr| with_exposed_provenance::<c_void>(address.0 as usize);
        // SAFETY: the handle is alive, the factors are of the type that f32 sums take, and the caller answers for the rest.
        check("cublasGemmEx", unsafe {
            (self.functions.gemm)(
                self.handle,
                OP_N,
                OP_N,
                n,
                n,
                n,
                from_ref(&alpha).cast(),
                input(b),
                T::TYPE,
                n,
                input(a),
                T::TYPE,
                n,
                from_ref(&beta).cast(),
                with_exposed_provenance_mut(c.0 as usize),
                T::TYPE,
                n,
                COMPUTE_32F,
                GEMM_DEFAULT,
            )
        })
    }

    /// Gives back what was made. All work is done.
    pub(crate) fn close(self, bench: &Bench) -> Outcome {
        // SAFETY: nobody uses the handle afterwards.
        check("cublasDestroy", unsafe {
            (self.functions.destroy)(self.handle)
        })?;
        // SAFETY: the handle that used it is gone, and all work is done.
        Ok(unsafe { bench.driver.mem_free(bench.id(), self.workspace) }?)
    }
}
