//! The functions of cuBLAS that are called, by the names of its headers.
//!
//! Source: `cublas_api.h` and `library_types.h` of CUDA 12.8; the same in 13.0. `cublas_v2.h` names the functions without `_v2`. A test of
//! crate `cublas-sim-library`, which reads this file, compares each with the declarations of `cudarc`; so nothing of Carve is named
//! here. Enumerations are plain integers: a newer library may return numbers that no header knew.

#![allow(
    non_camel_case_types,
    non_snake_case,
    reason = "names are those of the headers"
)]

use std::ffi::{CStr, c_int, c_longlong, c_uint, c_void};

/// What a handle points to.
#[repr(C)]
#[derive(Debug)]
pub(super) struct cublasContext {
    private: [u8; 0],
}
pub(super) type cublasHandle_t = *mut cublasContext;

/// A stream of the driver.
#[repr(C)]
#[derive(Debug)]
pub(super) struct CUstream_st {
    private: [u8; 0],
}
pub(super) type cudaStream_t = *mut CUstream_st;

macro_rules! enums {
    ($($name:ident($integer:ty) $({ $($value:ident = $number:literal,)+ })?;)*) => { $(
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub(super) struct $name(pub(super) $integer);

        $(impl $name {
            $(pub(super) const $value: Self = Self($number);)+
        })?
    )* };
}

enums! {
    cublasStatus_t(c_uint) { SUCCESS = 0, };
    cublasOperation_t(c_uint) { N = 0, T = 1, C = 2, };
    cublasPointerMode_t(c_uint) { HOST = 0, };
    cublasAtomicsMode_t(c_uint) { NOT_ALLOWED = 0, };
    cublasMath_t(c_uint) { DEFAULT = 0, PEDANTIC = 2, TF32_TENSOR_OP = 3, DISALLOW_REDUCED_PRECISION_REDUCTION = 16, };
    cublasComputeType_t(c_uint) { F32 = 68, F32_PEDANTIC = 69, F64 = 70, F64_PEDANTIC = 71, };
    cublasGemmAlgo_t(c_int) { DEFAULT = -1, };
    cudaDataType_t(c_uint) { R_32F = 0, R_64F = 1, R_16F = 2, C_32F = 4, C_64F = 5, R_16BF = 14, };
    libraryPropertyType_t(c_uint) { MAJOR = 0, MINOR = 1, PATCH = 2, };
}

macro_rules! functions {
    ($(#[$meta:meta])* $table:ident { $(fn $name:ident($($arg:ident: $type:ty),* $(,)?);)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $table {
            $(pub(super) $name: unsafe extern "C" fn($($arg: $type),*) -> cublasStatus_t,)*
        }

        impl $table {
            /// Names of the functions, in order.
            #[cfg(test)]
            #[allow(dead_code, reason = "the test that compares declarations is in another crate")]
            pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// The functions at the addresses that `address` finds.
            ///
            /// # Errors
            /// The name of the first one that it does not find.
            ///
            /// # Safety
            /// What is found under a name is the function of cuBLAS of this name, and stays loaded.
            pub(super) unsafe fn find(
                mut address: impl FnMut(&'static CStr) -> *mut c_void,
            ) -> Result<Self, &'static str> {
                $(let $name = {
                    const NAME: &CStr =
                        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("a name holds no zero"),
                        };
                    let found: *mut c_void = address(NAME);
                    if found.is_null() {
                        return Err(stringify!($name));
                    }
                    // SAFETY: the caller's promise; a function of this name has this type.
                    unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($type),*) -> cublasStatus_t,
                        >(found)
                    }
                };)*
                Ok(Self { $($name),* })
            }
        }
    };
}

functions! {
    /// What every version has, and tells which it is.
    Properties {
        fn cublasGetProperty(property: libraryPropertyType_t, value: *mut c_int);
    }
}

functions! {
    /// Handles and what they are set to.
    Handles {
        fn cublasCreate_v2(handle: *mut cublasHandle_t);
        fn cublasDestroy_v2(handle: cublasHandle_t);
        fn cublasSetStream_v2(handle: cublasHandle_t, stream: cudaStream_t);
        fn cublasSetWorkspace_v2(handle: cublasHandle_t, workspace: *mut c_void, bytes: usize);
        fn cublasSetPointerMode_v2(handle: cublasHandle_t, mode: cublasPointerMode_t);
        fn cublasSetMathMode(handle: cublasHandle_t, mode: cublasMath_t);
        fn cublasSetAtomicsMode(handle: cublasHandle_t, mode: cublasAtomicsMode_t);
    }
}

/// The three products, with sizes of one type. C = alpha op(A) op(B) + beta C; matrices are column-major.
macro_rules! products {
    ($(#[$meta:meta])* $table:ident $size:ty, $one:ident $strided:ident $pointers:ident) => {
        functions! {
            $(#[$meta])*
            $table {
                fn $one(
                    handle: cublasHandle_t,
                    op_a: cublasOperation_t,
                    op_b: cublasOperation_t,
                    m: $size,
                    n: $size,
                    k: $size,
                    alpha: *const c_void,
                    a: *const c_void,
                    type_a: cudaDataType_t,
                    leading_a: $size,
                    b: *const c_void,
                    type_b: cudaDataType_t,
                    leading_b: $size,
                    beta: *const c_void,
                    c: *mut c_void,
                    type_c: cudaDataType_t,
                    leading_c: $size,
                    compute: cublasComputeType_t,
                    algorithm: cublasGemmAlgo_t,
                );
                fn $strided(
                    handle: cublasHandle_t,
                    op_a: cublasOperation_t,
                    op_b: cublasOperation_t,
                    m: $size,
                    n: $size,
                    k: $size,
                    alpha: *const c_void,
                    a: *const c_void,
                    type_a: cudaDataType_t,
                    leading_a: $size,
                    step_a: c_longlong,
                    b: *const c_void,
                    type_b: cudaDataType_t,
                    leading_b: $size,
                    step_b: c_longlong,
                    beta: *const c_void,
                    c: *mut c_void,
                    type_c: cudaDataType_t,
                    leading_c: $size,
                    step_c: c_longlong,
                    count: $size,
                    compute: cublasComputeType_t,
                    algorithm: cublasGemmAlgo_t,
                );
                fn $pointers(
                    handle: cublasHandle_t,
                    op_a: cublasOperation_t,
                    op_b: cublasOperation_t,
                    m: $size,
                    n: $size,
                    k: $size,
                    alpha: *const c_void,
                    a: *const *const c_void,
                    type_a: cudaDataType_t,
                    leading_a: $size,
                    b: *const *const c_void,
                    type_b: cudaDataType_t,
                    leading_b: $size,
                    beta: *const c_void,
                    c: *const *mut c_void,
                    type_c: cudaDataType_t,
                    leading_c: $size,
                    count: $size,
                    compute: cublasComputeType_t,
                    algorithm: cublasGemmAlgo_t,
                );
            }
        }
    };
}

products! {
    /// Products with 32-bit sizes.
    Products32 c_int, cublasGemmEx cublasGemmStridedBatchedEx cublasGemmBatchedEx
}

products! {
    /// Products with 64-bit sizes: since CUDA 12.0.
    Products64 i64, cublasGemmEx_64 cublasGemmStridedBatchedEx_64 cublasGemmBatchedEx_64
}
