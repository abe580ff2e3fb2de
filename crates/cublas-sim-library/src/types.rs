//! The types of cuBLAS's C interface, by the names that its headers give them (`cublas_api.h`, `library_types.h`).

use std::ffi::c_uint;

/// What a handle points to, for programs; here it is only a number.
#[repr(C)]
#[derive(Debug)]
pub struct cublasContext {
    private: [u8; 0],
}
pub type cublasHandle_t = *mut cublasContext;

/// A stream of the driver.
#[repr(C)]
#[derive(Debug)]
pub struct CUstream_st {
    private: [u8; 0],
}
pub type cudaStream_t = *mut CUstream_st;

macro_rules! enums {
    ($($name:ident)*) => { $(
        /// An integer: a program can pass any number.
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name(pub c_uint);
    )* };
}

enums! {
    cublasStatus_t
    cublasOperation_t
    cublasPointerMode_t
    cublasAtomicsMode_t
    cublasMath_t
    cublasComputeType_t
    cudaDataType_t
    libraryPropertyType_t
}

/// A signed one.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct cublasGemmAlgo_t(pub i32);

/// What can go wrong, as the interface says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Status {
    NotInitialized = 1,
    AllocFailed = 3,
    InvalidValue = 7,
    ExecutionFailed = 13,
    InternalError = 14,
    NotSupported = 15,
}

/// The names and what they mean, by number.
pub(crate) static STATUS: &[(u32, &std::ffi::CStr, &std::ffi::CStr)] = &[
    (0, c"CUBLAS_STATUS_SUCCESS", c"success"),
    (
        1,
        c"CUBLAS_STATUS_NOT_INITIALIZED",
        c"the library was not initialized",
    ),
    (
        3,
        c"CUBLAS_STATUS_ALLOC_FAILED",
        c"the resource allocation failed",
    ),
    (
        7,
        c"CUBLAS_STATUS_INVALID_VALUE",
        c"an unsupported value or parameter was passed to the function",
    ),
    (
        8,
        c"CUBLAS_STATUS_ARCH_MISMATCH",
        c"the function requires an architectural feature absent from the device",
    ),
    (
        11,
        c"CUBLAS_STATUS_MAPPING_ERROR",
        c"an access to GPU memory space failed",
    ),
    (
        13,
        c"CUBLAS_STATUS_EXECUTION_FAILED",
        c"the function failed to launch on the GPU",
    ),
    (
        14,
        c"CUBLAS_STATUS_INTERNAL_ERROR",
        c"an internal operation failed",
    ),
    (
        15,
        c"CUBLAS_STATUS_NOT_SUPPORTED",
        c"the functionality requested is not supported",
    ),
    (
        16,
        c"CUBLAS_STATUS_LICENSE_ERROR",
        c"the functionality requested requires a license",
    ),
];

/// Says on standard error what the program has to do, since a status can't.
pub(crate) fn refuse(status: Status, why: std::fmt::Arguments<'_>) -> Status {
    eprintln!("emulated cuBLAS: {why}");
    status
}

/// [`refuse`] with a formatted reason.
macro_rules! refused {
    ($status:ident, $($why:tt)*) => {
        $crate::types::refuse($crate::types::Status::$status, format_args!($($why)*))
    };
}
pub(crate) use refused;
