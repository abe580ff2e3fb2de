//! A product as the library takes it: addresses, types, factors, sizes.

use super::calls::{
    cublasComputeType_t, cublasGemmAlgo_t, cublasHandle_t, cublasMath_t, cublasOperation_t,
    cublasStatus_t, cudaDataType_t,
};
use super::error::ProductSizes;
use super::library::Library;
use super::operands::factors;
use super::provider::{Cublas, MathMode, Width};
use crate::blas::{ElementType, MatrixProduct, MatrixProvider, Transform};
use crate::{TensorError, TensorResult};
use cuda_driver::{DevicePtr, Scalar};
use std::ffi::{c_int, c_longlong, c_void};
use std::ptr::with_exposed_provenance_mut;

/// What all products of a call have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    operations: [cublasOperation_t; 2],
    data: cudaDataType_t,
    compute: cublasComputeType_t,
    alpha: Scalar,
    beta: Scalar,
    /// m, n, k.
    sizes: [i64; 3],
    /// Of A, B, C: leading dimension, and elements to the next matrix.
    leading: [i64; 3],
    steps: [c_longlong; 3],
    count: i64,
    wide: bool,
    told: ProductSizes,
}

/// Where the matrices of a call are: A, B, C.
#[derive(Clone, Copy, Debug)]
pub(super) enum Memory {
    /// One of each, or the first of several with a step.
    Matrices([DevicePtr; 3]),
    /// Arrays of so many pointers, in device memory.
    Pointers([DevicePtr; 3], i64),
}

/// What a kernel may be chosen by, beside the device and the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    operations: [cublasOperation_t; 2],
    data: cudaDataType_t,
    compute: cublasComputeType_t,
    math: cublasMath_t,
    sizes: [i64; 3],
    leading: [i64; 3],
    steps: [c_longlong; 3],
    count: i64,
    wide: bool,
    /// Whether the matrices are behind arrays of pointers.
    pointers: bool,
    /// What the addresses are multiples of, up to 16 bytes.
    aligned: [u32; 3],
    /// Whether C is read.
    accumulates: bool,
}

impl Form {
    pub(super) fn of(provider: &Cublas, product: &MatrixProduct<'_>) -> TensorResult<Self> {
        let MatrixProduct {
            element,
            m,
            n,
            k,
            batch,
            a,
            b,
            c,
            // Taken apart below.
            alpha: _,
            beta: _,
            // Every single product is.
            deterministic: _,
        } = *product;
        let [alpha, beta] = factors(product)?;
        let (data, compute) = types(element, provider.math());
        let size = |dim: usize| match i64::try_from(dim) {
            Ok(size) if dim as u64 <= provider.max_dim() => Ok(size),
            _ => Err(TensorError::DimTooLarge {
                operation: "product",
                operand: "out",
                provider: provider.name(),
                dim,
                max: provider.max_dim(),
            }),
        };
        let sizes = [size(m)?, size(n)?, size(k)?];
        let leading = [size(a.leading)?, size(b.leading)?, size(c.leading)?];
        let count = size(batch)?;
        let mut all = sizes.into_iter().chain(leading).chain([count]);
        let fits = all.all(|size| c_int::try_from(size).is_ok());
        Ok(Self {
            operations: [operation(a.transform), operation(b.transform)],
            data,
            compute,
            alpha,
            beta,
            sizes,
            leading,
            // Of 64 bits in all functions, and no longer than the memory.
            steps: [a.step, b.step, c.step].map(|step| step as c_longlong),
            count,
            wide: match provider.width() {
                Width::Fitting => !fits,
                #[cfg(test)]
                Width::Narrow => false,
                #[cfg(test)]
                Width::Wide => true,
            },
            told: ProductSizes {
                element,
                sizes: [m, n, k],
                leading: [a.leading, b.leading, c.leading],
                batch,
            },
        })
    }

    /// Whether it takes the functions with 64-bit sizes.
    #[cfg(test)]
    pub(super) fn is_wide(&self) -> bool {
        self.wide
    }

    /// One of the products alone.
    pub(super) fn alone(self) -> Self {
        let told = ProductSizes {
            batch: 1,
            ..self.told
        };
        Self {
            count: 1,
            told,
            ..self
        }
    }

    /// Where the matrices of product `i` are, when those of the first one are at `first`.
    pub(super) fn at(&self, first: [DevicePtr; 3], i: usize) -> [DevicePtr; 3] {
        let bytes = bytes_of(self.told.element) as u64;
        std::array::from_fn(|which| {
            // Of what is touched it does not wrap; what is not can have any step.
            let elements = self.steps[which].cast_unsigned().wrapping_mul(i as u64);
            DevicePtr(first[which].0.wrapping_add(elements.wrapping_mul(bytes)))
        })
    }

    /// What its kernel may be chosen by, with the handle's math mode.
    pub(super) fn kind(&self, math: cublasMath_t, memory: &Memory) -> Kind {
        let aligned = |address: DevicePtr| 1 << address.0.trailing_zeros().min(4);
        let (pointers, aligned, count) = match *memory {
            Memory::Matrices(addresses) => (false, addresses.map(aligned), self.count),
            Memory::Pointers(_, count) => (true, [0; 3], count),
        };
        Kind {
            operations: self.operations,
            data: self.data,
            compute: self.compute,
            math,
            sizes: self.sizes,
            leading: self.leading,
            steps: self.steps,
            count,
            wide: self.wide,
            pointers,
            aligned,
            accumulates: self.beta.as_bytes().iter().any(|&byte| byte != 0),
        }
    }

    /// Its sizes, for errors.
    pub(super) fn told(&self, memory: &Memory) -> ProductSizes {
        let batch = match memory {
            Memory::Matrices(_) => self.told.batch,
            Memory::Pointers(_, count) => *count as usize,
        };
        ProductSizes { batch, ..self.told }
    }

    /// Queues it by the function that fits, which is named.
    ///
    /// # Safety
    /// The handle is alive and for this thread alone, its context is current, and what it is set to queues on a stream that the accesses
    /// of all memory are ordered on.
    pub(super) unsafe fn queue(
        &self,
        library: &Library,
        handle: cublasHandle_t,
        memory: &Memory,
    ) -> (&'static str, cublasStatus_t) {
        match (self.wide, &library.wide) {
            (true, Some(wide)) => {
                let functions = Functions {
                    one: wide.cublasGemmEx_64,
                    strided: wide.cublasGemmStridedBatchedEx_64,
                    pointers: wide.cublasGemmBatchedEx_64,
                };
                // SAFETY: the caller's promise.
                unsafe { self.queue_by(&functions, handle, memory, |size| size) }
            }
            _ => {
                let functions = Functions {
                    one: library.products.cublasGemmEx,
                    strided: library.products.cublasGemmStridedBatchedEx,
                    pointers: library.products.cublasGemmBatchedEx,
                };
                // Larger ones were refused when the form was made, by the provider's largest dimension.
                // SAFETY: the caller's promise.
                unsafe { self.queue_by(&functions, handle, memory, |size| size as c_int) }
            }
        }
    }

    /// As [`queue`](Self::queue), by functions with sizes of one type.
    ///
    /// # Safety
    /// As there.
    unsafe fn queue_by<S>(
        &self,
        functions: &Functions<S>,
        handle: cublasHandle_t,
        memory: &Memory,
        size: impl Fn(i64) -> S,
    ) -> (&'static str, cublasStatus_t) {
        let ([op_a, op_b], data) = (self.operations, self.data);
        let [m, n, k] = self.sizes.map(&size);
        let [leading_a, leading_b, leading_c] = self.leading.map(&size);
        let [step_a, step_b, step_c] = self.steps;
        let (alpha, beta) = (bytes(&self.alpha), bytes(&self.beta));
        let algorithm = cublasGemmAlgo_t::DEFAULT;
        match *memory {
            Memory::Matrices([a, b, c]) if self.count == 1 => {
                // SAFETY: the caller's promise; the factors are of the compute type's scale type, and read during the call.
                let status = unsafe {
                    (functions.one)(
                        handle,
                        op_a,
                        op_b,
                        m,
                        n,
                        k,
                        alpha,
                        pointer(a),
                        data,
                        leading_a,
                        pointer(b),
                        data,
                        leading_b,
                        beta,
                        pointer(c),
                        data,
                        leading_c,
                        self.compute,
                        algorithm,
                    )
                };
                ("cublasGemmEx", status)
            }
            Memory::Matrices([a, b, c]) => {
                // SAFETY: as above.
                let status = unsafe {
                    (functions.strided)(
                        handle,
                        op_a,
                        op_b,
                        m,
                        n,
                        k,
                        alpha,
                        pointer(a),
                        data,
                        leading_a,
                        step_a,
                        pointer(b),
                        data,
                        leading_b,
                        step_b,
                        beta,
                        pointer(c),
                        data,
                        leading_c,
                        step_c,
                        size(self.count),
                        self.compute,
                        algorithm,
                    )
                };
                ("cublasGemmStridedBatchedEx", status)
            }
            Memory::Pointers([a, b, c], count) => {
                // SAFETY: as above.
                let status = unsafe {
                    (functions.pointers)(
                        handle,
                        op_a,
                        op_b,
                        m,
                        n,
                        k,
                        alpha,
                        pointer(a).cast(),
                        data,
                        leading_a,
                        pointer(b).cast(),
                        data,
                        leading_b,
                        beta,
                        pointer(c).cast(),
                        data,
                        leading_c,
                        size(count),
                        self.compute,
                        algorithm,
                    )
                };
                ("cublasGemmBatchedEx", status)
            }
        }
    }
}

type One<S> = unsafe extern "C" fn(
    cublasHandle_t,
    cublasOperation_t,
    cublasOperation_t,
    S,
    S,
    S,
    *const c_void,
    *const c_void,
    cudaDataType_t,
    S,
    *const c_void,
    cudaDataType_t,
    S,
    *const c_void,
    *mut c_void,
    cudaDataType_t,
    S,
    cublasComputeType_t,
    cublasGemmAlgo_t,
) -> cublasStatus_t;

type Strided<S> = unsafe extern "C" fn(
    cublasHandle_t,
    cublasOperation_t,
    cublasOperation_t,
    S,
    S,
    S,
    *const c_void,
    *const c_void,
    cudaDataType_t,
    S,
    c_longlong,
    *const c_void,
    cudaDataType_t,
    S,
    c_longlong,
    *const c_void,
    *mut c_void,
    cudaDataType_t,
    S,
    c_longlong,
    S,
    cublasComputeType_t,
    cublasGemmAlgo_t,
) -> cublasStatus_t;

type Pointers<S> = unsafe extern "C" fn(
    cublasHandle_t,
    cublasOperation_t,
    cublasOperation_t,
    S,
    S,
    S,
    *const c_void,
    *const *const c_void,
    cudaDataType_t,
    S,
    *const *const c_void,
    cudaDataType_t,
    S,
    *const c_void,
    *const *mut c_void,
    cudaDataType_t,
    S,
    S,
    cublasComputeType_t,
    cublasGemmAlgo_t,
) -> cublasStatus_t;

/// The three functions with sizes of type `S`.
struct Functions<S> {
    one: One<S>,
    strided: Strided<S>,
    pointers: Pointers<S>,
}

/// Bytes of an element.
pub(super) fn bytes_of(element: ElementType) -> usize {
    match element {
        ElementType::F16 | ElementType::Bf16 => 2,
        ElementType::F32 => 4,
        ElementType::F64 | ElementType::C32 => 8,
        ElementType::C64 => 16,
    }
}

/// The type of the elements, and what sums are computed in.
fn types(element: ElementType, math: MathMode) -> (cudaDataType_t, cublasComputeType_t) {
    use cublasComputeType_t as Compute;
    use cudaDataType_t as Data;
    let (single, double) = match math {
        MathMode::Pedantic => (Compute::F32_PEDANTIC, Compute::F64_PEDANTIC),
        MathMode::Full | MathMode::Tf32 => (Compute::F32, Compute::F64),
    };
    match element {
        ElementType::F32 => (Data::R_32F, single),
        ElementType::F64 => (Data::R_64F, double),
        ElementType::F16 => (Data::R_16F, single),
        ElementType::Bf16 => (Data::R_16BF, single),
        ElementType::C32 => (Data::C_32F, single),
        ElementType::C64 => (Data::C_64F, double),
    }
}

fn operation(transform: Transform) -> cublasOperation_t {
    match transform {
        Transform::None => cublasOperation_t::N,
        Transform::Transpose => cublasOperation_t::T,
        Transform::ConjugateTranspose => cublasOperation_t::C,
    }
}

fn bytes(scalar: &Scalar) -> *const c_void {
    scalar.as_bytes().as_ptr().cast()
}

fn pointer(address: DevicePtr) -> *mut c_void {
    with_exposed_provenance_mut(address.0 as usize)
}
