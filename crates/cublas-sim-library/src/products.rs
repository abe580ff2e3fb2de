//! Matrix products: one, batches with a step, batches of pointers, each with 32-bit and 64-bit sizes.

use crate::export::exports;
use crate::handle::find;
use crate::kernels::checksum;
use crate::loading::Batch;
use crate::product::{Matrix, Product, check_capture, launch_pointers};
use crate::tables;
use crate::types::{
    Status, cublasComputeType_t, cublasGemmAlgo_t, cublasHandle_t, cublasOperation_t,
    cudaDataType_t,
};
use std::ffi::{c_int, c_longlong, c_void};

/// One or more products with a step.
fn queue(handle: cublasHandle_t, product: &Product, batch: Batch) -> Result<(), Status> {
    let state = find(handle)?;
    let settings = state.settings()?;
    let Some(checked) = product.check(&settings)? else {
        return Ok(());
    };
    check_capture(&settings)?;
    let addresses = [product.c.address, product.a.address, product.b.address];
    checked.launch(&state, &settings, batch, addresses)
}

/// Products of matrices that arrays point to.
fn queue_pointers(handle: cublasHandle_t, product: &Product) -> Result<(), Status> {
    let state = find(handle)?;
    let settings = state.settings()?;
    // An array has no step.
    let one = Product {
        batch: product.batch.min(1),
        ..*product
    };
    let Some(checked) = one.check(&settings)? else {
        return Ok(());
    };
    let capturing = check_capture(&settings)?;
    if std::env::var("CARVE_SIM_NULL").as_deref() == Ok("1") {
        // There is no memory to read them from, and nothing is done in any case.
        let arrays = [product.c.address, product.a.address, product.b.address];
        return launch_pointers(&state, &settings, arrays, 0, 0);
    }
    let arrays = [product.c.address, product.a.address, product.b.address];
    let count = product.batch as usize;
    let [c, a, b] = tables::read(&settings, capturing, arrays, count)?;
    checked.check_pointers(&settings, [&c, &a, &b])?;
    launch_pointers(
        &state,
        &settings,
        arrays,
        count as u64,
        checksum([&c, &a, &b]),
    )?;
    let each = checked.alone();
    for ((c, a), b) in c.into_iter().zip(a).zip(b) {
        each.launch(&state, &settings, Batch::Pointers, [c, a, b])?;
    }
    Ok(())
}

fn matrix(
    address: *const c_void,
    data: cudaDataType_t,
    leading: impl Into<i64>,
    step: impl Into<i64>,
) -> Matrix {
    Matrix {
        address: address.addr() as u64,
        data,
        leading: leading.into(),
        step: step.into(),
    }
}

macro_rules! product {
    ($transa:ident $transb:ident $m:ident $n:ident $k:ident $alpha:ident $beta:ident $a:expr, $b:expr, $c:expr, $batch:expr, $compute:ident $algo:ident) => {
        Product {
            operations: [$transa, $transb],
            sizes: [$m.into(), $n.into(), $k.into()],
            alpha: $alpha,
            beta: $beta,
            a: $a,
            b: $b,
            c: $c,
            batch: $batch,
            compute: $compute,
            algorithm: $algo,
        }
    };
}

/// The three functions with sizes of one type.
macro_rules! gemm {
    ($(($one:ident $strided:ident $pointers:ident $size:ty))*) => {
        exports! {
            cudarc products_table;
            $(
                fn $one(
                    handle: cublasHandle_t,
                    transa: cublasOperation_t,
                    transb: cublasOperation_t,
                    m: $size,
                    n: $size,
                    k: $size,
                    alpha: *const c_void,
                    A: *const c_void,
                    Atype: cudaDataType_t,
                    lda: $size,
                    B: *const c_void,
                    Btype: cudaDataType_t,
                    ldb: $size,
                    beta: *const c_void,
                    C: *mut c_void,
                    Ctype: cudaDataType_t,
                    ldc: $size,
                    computeType: cublasComputeType_t,
                    algo: cublasGemmAlgo_t,
                ) {
                    let (a, b, c) = (matrix(A, Atype, lda, 0), matrix(B, Btype, ldb, 0), matrix(C, Ctype, ldc, 0));
                    queue(handle, &product!(transa transb m n k alpha beta a, b, c, 1, computeType algo), Batch::One)
                }

                fn $strided(
                    handle: cublasHandle_t,
                    transa: cublasOperation_t,
                    transb: cublasOperation_t,
                    m: $size,
                    n: $size,
                    k: $size,
                    alpha: *const c_void,
                    A: *const c_void,
                    Atype: cudaDataType_t,
                    lda: $size,
                    strideA: c_longlong,
                    B: *const c_void,
                    Btype: cudaDataType_t,
                    ldb: $size,
                    strideB: c_longlong,
                    beta: *const c_void,
                    C: *mut c_void,
                    Ctype: cudaDataType_t,
                    ldc: $size,
                    strideC: c_longlong,
                    batchCount: $size,
                    computeType: cublasComputeType_t,
                    algo: cublasGemmAlgo_t,
                ) {
                    let (a, b) = (matrix(A, Atype, lda, strideA), matrix(B, Btype, ldb, strideB));
                    let c = matrix(C, Ctype, ldc, strideC);
                    queue(handle, &product!(transa transb m n k alpha beta a, b, c, batchCount.into(), computeType algo), Batch::Strided)
                }

                fn $pointers(
                    handle: cublasHandle_t,
                    transa: cublasOperation_t,
                    transb: cublasOperation_t,
                    m: $size,
                    n: $size,
                    k: $size,
                    alpha: *const c_void,
                    Aarray: *const *const c_void,
                    Atype: cudaDataType_t,
                    lda: $size,
                    Barray: *const *const c_void,
                    Btype: cudaDataType_t,
                    ldb: $size,
                    beta: *const c_void,
                    Carray: *const *mut c_void,
                    Ctype: cudaDataType_t,
                    ldc: $size,
                    batchCount: $size,
                    computeType: cublasComputeType_t,
                    algo: cublasGemmAlgo_t,
                ) {
                    let (a, b) = (matrix(Aarray.cast(), Atype, lda, 0), matrix(Barray.cast(), Btype, ldb, 0));
                    let c = matrix(Carray.cast(), Ctype, ldc, 0);
                    queue_pointers(handle, &product!(transa transb m n k alpha beta a, b, c, batchCount.into(), computeType algo))
                }
            )*
        }
    };
}

gemm! {
    (cublasGemmEx cublasGemmStridedBatchedEx cublasGemmBatchedEx c_int)
    (cublasGemmEx_64 cublasGemmStridedBatchedEx_64 cublasGemmBatchedEx_64 i64)
}
