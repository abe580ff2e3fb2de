//! The element types that arithmetic is for.

use bytemuck::Pod;

/// A real element type with kernels: `f32` and `f64`.
pub trait Real: Pod + sealed::Names {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
}

pub(crate) mod sealed {
    /// The entry names of a type's kernels.
    pub trait Names {
        /// Matrix product.
        const PRODUCT: &'static str;
        /// Bias and activation.
        const ADD_BIAS: &'static str;
        /// Column of the largest element.
        const ARGMAX: &'static str;
    }
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
}

impl sealed::Names for f32 {
    const PRODUCT: &'static str = "gemm_f32";
    const ADD_BIAS: &'static str = "add_bias_f32";
    const ARGMAX: &'static str = "argmax_f32";
}

impl sealed::Names for f64 {
    const PRODUCT: &'static str = "gemm_f64";
    const ADD_BIAS: &'static str = "add_bias_f64";
    const ARGMAX: &'static str = "argmax_f64";
}
