//! cuBLAS without anything of ours around it: the library that `cudarc` finds in the loader's path.

use crate::Outcome;
use crate::bench::Bench;
use cuda_driver::DevicePtr;
use cudarc::cublas::sys::{
    self, cublasComputeType_t, cublasGemmAlgo_t, cublasHandle_t, cublasMath_t, cublasOperation_t,
    cublasStatus_t, cudaDataType,
};
use half::{bf16, f16};
use std::ffi::{c_int, c_void};
use std::ptr::{from_ref, null_mut, with_exposed_provenance, with_exposed_provenance_mut};

/// What products are set to scratch in: what NVIDIA advises for Hopper.
const WORKSPACE_BYTES: usize = 32 << 20;

/// A type of elements, as the library names it.
pub(crate) trait Element: Copy + 'static {
    const TYPE: cudaDataType;
}

impl Element for f16 {
    const TYPE: cudaDataType = cudaDataType::CUDA_R_16F;
}

impl Element for bf16 {
    const TYPE: cudaDataType = cudaDataType::CUDA_R_16BF;
}

impl Element for f32 {
    const TYPE: cudaDataType = cudaDataType::CUDA_R_32F;
}

/// A handle that works on the first of the bare streams.
pub(crate) struct Bare {
    handle: cublasHandle_t,
    workspace: DevicePtr,
}

fn check(call: &str, status: cublasStatus_t) -> Outcome {
    match status {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        status => Err(format!("{call} returned {status:?}").into()),
    }
}

impl Bare {
    /// The library with a handle, or why there is none.
    pub(crate) fn open(bench: &Bench) -> Result<Self, String> {
        // SAFETY: opening a library runs its initialisers, as linking to it would.
        if !unsafe { sys::is_culib_present() } {
            return Err("cuBLAS is not in the loader's path".to_owned());
        }
        Self::made(bench).map_err(|error| error.to_string())
    }

    fn made(bench: &Bench) -> Outcome<Self> {
        let (driver, id) = (&bench.driver, bench.id());
        // Makes the device's context current, in which the handle is made.
        let workspace = driver.mem_alloc(id, WORKSPACE_BYTES)?;
        let mut handle = null_mut();
        // SAFETY: the pointer is to a handle of ours.
        check("cublasCreate", unsafe { sys::cublasCreate_v2(&mut handle) })?;
        let stream = with_exposed_provenance_mut(bench.bare(0).raw() as usize);
        // SAFETY: the stream is one of this context and lives as long as the benchmark.
        check("cublasSetStream", unsafe {
            sys::cublasSetStream_v2(handle, stream)
        })?;
        let memory = with_exposed_provenance_mut::<c_void>(workspace.0 as usize);
        // SAFETY: the memory has this size, and the handle alone uses it.
        check("cublasSetWorkspace", unsafe {
            sys::cublasSetWorkspace_v2(handle, memory, WORKSPACE_BYTES)
        })?;
        // As Carve's: else sums of 16-bit elements may be rounded to 16 bits, which is other work.
        let mode = cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        // SAFETY: nobody else has the handle.
        check("cublasSetMathMode", unsafe {
            sys::cublasSetMathMode(handle, mode)
        })?;
        Ok(Self { handle, workspace })
    }

    pub(crate) fn version(&self) -> Outcome<c_int> {
        let mut version = 0;
        // SAFETY: the pointer is to an integer of ours.
        check("cublasGetVersion", unsafe {
            sys::cublasGetVersion_v2(self.handle, &mut version)
        })?;
        Ok(version)
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
        let none = cublasOperation_t::CUBLAS_OP_N;
        let input = |address: DevicePtr| with_exposed_provenance::<c_void>(address.0 as usize);
        // SAFETY: the handle is alive, the factors are of the type that f32 sums take, and the caller answers for the rest.
        check("cublasGemmEx", unsafe {
            sys::cublasGemmEx(
                self.handle,
                none,
                none,
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
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        })
    }

    /// Gives back what was made. All work is done.
    pub(crate) fn close(self, bench: &Bench) -> Outcome {
        // SAFETY: nobody uses the handle afterwards.
        check("cublasDestroy", unsafe {
            sys::cublasDestroy_v2(self.handle)
        })?;
        // SAFETY: the handle that used it is gone, and all work is done.
        Ok(unsafe { bench.driver.mem_free(bench.id(), self.workspace) }?)
    }
}
