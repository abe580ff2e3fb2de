//! The kernels of this crate: declarations, and models for the simulated device.

pub(crate) mod argmax;
pub(crate) mod bias;
pub(crate) mod product;

use cuda_driver::{KernelDeclaration, ModuleImage};

/// All kernels, as one module.
pub(crate) static MODULE: ModuleImage = ModuleImage {
    name: "tensor-cuda",
    ptx: None,
    kernels: KERNELS,
};

const KERNELS: &[KernelDeclaration] = &[
    product::F32,
    product::F64,
    bias::F32,
    bias::F64,
    argmax::F32,
    argmax::F64,
];
