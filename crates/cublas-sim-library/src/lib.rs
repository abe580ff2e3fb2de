//! The C interface of cuBLAS over the emulated driver: a `libcublas.so.12` for machines without a GPU.
//!
//! Programs that load cuBLAS find here the functions that `tensor-cuda` calls, with their signatures, status codes and rules. A
//! product is a launch on the handle's stream through the `libcuda.so.1` of the process, which has to be that of
//! `cuda-sim-library`: so its order, its captures and what it touches are the simulation's, the workspace included, and two products
//! that share one unordered are reported.
//!
//! It is stricter than cuBLAS. A handle works only in the context that it was made in, serves one thread at a time, and loses its
//! workspace when its stream is set; a captured product needs a workspace of the program's own, and a kernel that an earlier one of its
//! kind has loaded; the end of a handle waits for the device, which no capture allows. What a status code can't say goes to standard error.
//!
//! `cargo xtask test-gpu --emulated` builds it and runs tensor-cuda's products with it. By hand: the library is `libcublas.so` among the
//! build outputs; put it into the folder of the emulated driver by the name `libcublas.so.12`. `CARVE_CUBLAS_VERSION` is the version that
//! it tells, such as `120804`, and else its file's name says; `CARVE_CUBLAS_FAIL=name:nth:status` has the nth call of a function fail with a status.
//!
//! Who validates: this interface, and the simulation. Pointers that programs pass are trusted as cuBLAS trusts them.
//!
//! What it has not: scalars in device memory, all that is no matrix product, and products of other types than f32, f64, their complex
//! numbers, f16 and bf16 with sums in f32.
//!
//! # Modules
//!
//! *Interface*: `handles`, `products`, `carve` (what cuBLAS has not). *Behind it*: `export` (how a function is exported), `types`,
//! `file` (its own), `driver` (the functions of the process's `libcuda.so.1`), `handle` (the state), `product` (the checks and the launches), `kernels` (the
//! models), `loading` (when they are loaded), `tables` (arrays of pointers); `signatures` is the test of the interface.

#![allow(
    non_snake_case,
    non_camel_case_types,
    missing_docs,
    unreachable_pub,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "names and types are cuBLAS's, whose documentation tells what they are"
)]

mod carve;
mod driver;
mod export;
mod file;
mod handle;
mod handles;
mod kernels;
mod loading;
mod product;
mod products;
#[cfg(all(test, feature = "cuda"))]
mod signatures;
mod tables;
mod types;

/// Every table of functions.
static TABLES: &[&[export::Export]] = &[
    handles::handles_table::EXPORTS,
    products::products_table::EXPORTS,
    carve::carve_table::EXPORTS,
];
