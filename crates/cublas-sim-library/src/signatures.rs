//! Compares every exported function, and every function that `tensor-cuda` calls, with the declarations of `cudarc`.

#[path = "../../tensor-cuda/src/blas/cublas/calls.rs"]
#[allow(dead_code, reason = "what is called there is only compared here")]
mod calls;

use cuda_contract::signatures::Describe;
use std::ffi::c_void;

#[test]
fn every_function_has_the_declared_signature() {
    let mut compared = 0;
    for export in crate::export::all() {
        assert_eq!((export.ours)(), (export.theirs)(), "{}", export.name);
        compared += 1;
    }
    assert!(compared > 15, "{compared}");
}

#[test]
fn every_function_that_is_called_has_the_declared_signature() {
    extern "C" fn nothing() {}
    let address = |_| nothing as *mut c_void;
    // SAFETY: none of the functions is called.
    let properties = unsafe { calls::Properties::find(address) }.unwrap();
    // SAFETY: as above.
    let handles = unsafe { calls::Handles::find(address) }.unwrap();
    // SAFETY: as above.
    let narrow = unsafe { calls::Products32::find(address) }.unwrap();
    // SAFETY: as above.
    let wide = unsafe { calls::Products64::find(address) }.unwrap();
    let mut compared = Vec::new();
    macro_rules! compare {
        ($($table:ident $name:ident($($hole:tt),*);)*) => { $(
            let theirs = cudarc::cublas::sys::$name as unsafe fn($($hole),*) -> _;
            assert_eq!($table.$name.describe(), theirs.describe(), stringify!($name));
            compared.push(stringify!($name));
        )* };
    }
    compare! {
        properties cublasGetProperty(_, _);
        handles cublasCreate_v2(_);
        handles cublasDestroy_v2(_);
        handles cublasSetStream_v2(_, _);
        handles cublasSetWorkspace_v2(_, _, _);
        handles cublasSetPointerMode_v2(_, _);
        handles cublasSetMathMode(_, _);
        handles cublasSetAtomicsMode(_, _);
        narrow cublasGemmEx(_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _);
        narrow cublasGemmStridedBatchedEx(_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _);
        narrow cublasGemmBatchedEx(_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _);
        wide cublasGemmEx_64(_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _);
        wide cublasGemmStridedBatchedEx_64(_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _);
        wide cublasGemmBatchedEx_64(_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _);
    }
    let all = [
        calls::Properties::NAMES,
        calls::Handles::NAMES,
        calls::Products32::NAMES,
        calls::Products64::NAMES,
    ];
    assert_eq!(compared, all.concat());
}

/// The numbers that are passed are those of the header.
#[test]
fn every_constant_has_the_declared_value() {
    use cudarc::cublas::sys;
    macro_rules! same {
        ($($ours:ident::$value:ident = $theirs:ident::$name:ident;)*) => { $(
            let theirs = sys::$theirs::$name as i64;
            assert_eq!(i64::from(calls::$ours::$value.0), theirs, stringify!($name));
        )* };
    }
    same! {
        cublasStatus_t::SUCCESS = cublasStatus_t::CUBLAS_STATUS_SUCCESS;
        cublasOperation_t::N = cublasOperation_t::CUBLAS_OP_N;
        cublasOperation_t::T = cublasOperation_t::CUBLAS_OP_T;
        cublasOperation_t::C = cublasOperation_t::CUBLAS_OP_C;
        cublasPointerMode_t::HOST = cublasPointerMode_t::CUBLAS_POINTER_MODE_HOST;
        cublasAtomicsMode_t::NOT_ALLOWED = cublasAtomicsMode_t::CUBLAS_ATOMICS_NOT_ALLOWED;
        cublasMath_t::DEFAULT = cublasMath_t::CUBLAS_DEFAULT_MATH;
        cublasMath_t::PEDANTIC = cublasMath_t::CUBLAS_PEDANTIC_MATH;
        cublasMath_t::TF32_TENSOR_OP = cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH;
        cublasMath_t::DISALLOW_REDUCED_PRECISION_REDUCTION =
            cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        cublasComputeType_t::F32 = cublasComputeType_t::CUBLAS_COMPUTE_32F;
        cublasComputeType_t::F32_PEDANTIC = cublasComputeType_t::CUBLAS_COMPUTE_32F_PEDANTIC;
        cublasComputeType_t::F64 = cublasComputeType_t::CUBLAS_COMPUTE_64F;
        cublasComputeType_t::F64_PEDANTIC = cublasComputeType_t::CUBLAS_COMPUTE_64F_PEDANTIC;
        cublasGemmAlgo_t::DEFAULT = cublasGemmAlgo_t::CUBLAS_GEMM_DFALT;
        cudaDataType_t::R_32F = cudaDataType_t::CUDA_R_32F;
        cudaDataType_t::R_64F = cudaDataType_t::CUDA_R_64F;
        cudaDataType_t::R_16F = cudaDataType_t::CUDA_R_16F;
        cudaDataType_t::R_16BF = cudaDataType_t::CUDA_R_16BF;
        cudaDataType_t::C_32F = cudaDataType_t::CUDA_C_32F;
        cudaDataType_t::C_64F = cudaDataType_t::CUDA_C_64F;
        libraryPropertyType_t::MAJOR = libraryPropertyType_t::MAJOR_VERSION;
        libraryPropertyType_t::MINOR = libraryPropertyType_t::MINOR_VERSION;
        libraryPropertyType_t::PATCH = libraryPropertyType_t::PATCH_LEVEL;
    }
}

/// Every status of the header is known by its name; the compiler sees that none is left out here.
#[test]
fn every_status_has_its_name() {
    use cudarc::cublas::sys::cublasStatus_t as Status;
    macro_rules! names {
        ($($name:ident)*) => {{
            let name = |status: Status| match status { $(Status::$name => stringify!($name),)* };
            [$((Status::$name as u32, name(Status::$name))),*]
        }};
    }
    let declared = names! {
        CUBLAS_STATUS_SUCCESS
        CUBLAS_STATUS_NOT_INITIALIZED
        CUBLAS_STATUS_ALLOC_FAILED
        CUBLAS_STATUS_INVALID_VALUE
        CUBLAS_STATUS_ARCH_MISMATCH
        CUBLAS_STATUS_MAPPING_ERROR
        CUBLAS_STATUS_EXECUTION_FAILED
        CUBLAS_STATUS_INTERNAL_ERROR
        CUBLAS_STATUS_NOT_SUPPORTED
        CUBLAS_STATUS_LICENSE_ERROR
    };
    let ours = crate::types::STATUS
        .iter()
        .map(|(number, name, _)| (*number, name.to_str().unwrap()));
    assert_eq!(ours.collect::<Vec<_>>(), declared);
}
