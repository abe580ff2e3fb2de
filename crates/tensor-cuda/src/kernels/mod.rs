//! The kernels of this crate: declarations, models for simulated devices, and PTX for hardware.
//!
//! A family is one operation for several element types. Each declaration says what the image for hardware is: its
//! name (`combine_f32`), its arguments in order, and the bytes that it touches. The image is `kernels/tensor.ptx`, which
//! `cargo xtask ptx` compiles from `kernels/tensor.cu`.

mod argmax;
mod cast;
mod combine;
mod copy;
mod fill;
mod map;
mod pairs;
mod product;
mod reduce;
mod walk;

pub use cast::CastTo;
pub(crate) use cast::sealed::Cast as CastSource;
pub(crate) use combine::{Codes as CombineCodes, Form};
pub(crate) use product::Conjugated;
pub(crate) use reduce::{CONJUGATE, Norm, Reduction};

use crate::TensorResult;
use cuda_driver::ModuleImage;
use cuda_runtime::{Device, Kernel};
use half::{bf16, f16};
use num_complex::Complex;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};

type C32 = Complex<f32>;
type C64 = Complex<f64>;

/// Position of a kernel, or of the first one of a family, in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelId(usize);

impl KernelId {
    pub(crate) const fn at(self, position: usize) -> Self {
        Self(self.0 + position)
    }

    /// The kernel on `device`.
    #[track_caller]
    pub(crate) fn on(self, device: &Device) -> TensorResult<Kernel> {
        Ok(Kernels::of(device).get(self, device)?.clone())
    }
}

/// By element size: 1, 2, 4, 8, 16 bytes.
pub(crate) const FILL: KernelId = KernelId(0);
pub(crate) const COPY: KernelId = KernelId(5);
/// By element type: all numbers, in the order of their positions.
pub(crate) const COMBINE: KernelId = KernelId(10);
pub(crate) const MAP: KernelId = KernelId(16);
pub(crate) const REDUCE: KernelId = KernelId(22);
pub(crate) const NORM: KernelId = KernelId(28);
pub(crate) const PRODUCT: KernelId = KernelId(34);
/// By element type: the real numbers, which come first.
pub(crate) const ARGMAX: KernelId = KernelId(40);
/// By pair of element types.
pub(crate) const CAST: KernelId = KernelId(44);

const COUNT: usize = CAST.0 + cast::COUNT;

/// All kernels, as one module.
pub(crate) static MODULE: ModuleImage = ModuleImage {
    name: "tensor-cuda",
    ptx: Some(include_str!("../../kernels/tensor.ptx")),
    kernels: &[
        fill::declare::<1>("fill_b1"),
        fill::declare::<2>("fill_b2"),
        fill::declare::<4>("fill_b4"),
        fill::declare::<8>("fill_b8"),
        fill::declare::<16>("fill_b16"),
        copy::declare::<1>("copy_b1"),
        copy::declare::<2>("copy_b2"),
        copy::declare::<4>("copy_b4"),
        copy::declare::<8>("copy_b8"),
        copy::declare::<16>("copy_b16"),
        combine::declare::<f32>("combine_f32"),
        combine::declare::<f64>("combine_f64"),
        combine::declare::<f16>("combine_f16"),
        combine::declare::<bf16>("combine_bf16"),
        combine::declare::<C32>("combine_c32"),
        combine::declare::<C64>("combine_c64"),
        map::declare::<f32>("map_f32"),
        map::declare::<f64>("map_f64"),
        map::declare::<f16>("map_f16"),
        map::declare::<bf16>("map_bf16"),
        map::declare::<C32>("map_c32"),
        map::declare::<C64>("map_c64"),
        reduce::declare::<f32>("reduce_f32"),
        reduce::declare::<f64>("reduce_f64"),
        reduce::declare::<f16>("reduce_f16"),
        reduce::declare::<bf16>("reduce_bf16"),
        reduce::declare::<C32>("reduce_c32"),
        reduce::declare::<C64>("reduce_c64"),
        reduce::declare_norm::<f32>("norm_f32"),
        reduce::declare_norm::<f64>("norm_f64"),
        reduce::declare_norm::<f16>("norm_f16"),
        reduce::declare_norm::<bf16>("norm_bf16"),
        reduce::declare_norm::<C32>("norm_c32"),
        reduce::declare_norm::<C64>("norm_c64"),
        product::declare::<f32>("gemm_f32"),
        product::declare::<f64>("gemm_f64"),
        product::declare::<f16>("gemm_f16"),
        product::declare::<bf16>("gemm_bf16"),
        product::declare::<C32>("gemm_c32"),
        product::declare::<C64>("gemm_c64"),
        argmax::declare::<f32>("argmax_f32"),
        argmax::declare::<f64>("argmax_f64"),
        argmax::declare::<f16>("argmax_f16"),
        argmax::declare::<bf16>("argmax_bf16"),
        cast::declare::<f32, f64>("cast_f32_f64"),
        cast::declare::<f32, f16>("cast_f32_f16"),
        cast::declare::<f32, bf16>("cast_f32_bf16"),
        cast::declare::<f32, i32>("cast_f32_i32"),
        cast::declare::<f32, u32>("cast_f32_u32"),
        cast::declare::<f32, C32>("cast_f32_c32"),
        cast::declare::<f64, f32>("cast_f64_f32"),
        cast::declare::<f64, f16>("cast_f64_f16"),
        cast::declare::<f64, bf16>("cast_f64_bf16"),
        cast::declare::<f64, i32>("cast_f64_i32"),
        cast::declare::<f64, u32>("cast_f64_u32"),
        cast::declare::<f64, C64>("cast_f64_c64"),
        cast::declare::<f16, f32>("cast_f16_f32"),
        cast::declare::<f16, f64>("cast_f16_f64"),
        cast::declare::<f16, bf16>("cast_f16_bf16"),
        cast::declare::<bf16, f32>("cast_bf16_f32"),
        cast::declare::<bf16, f64>("cast_bf16_f64"),
        cast::declare::<bf16, f16>("cast_bf16_f16"),
        cast::declare::<i32, f32>("cast_i32_f32"),
        cast::declare::<i32, f64>("cast_i32_f64"),
        cast::declare::<u32, f32>("cast_u32_f32"),
        cast::declare::<u32, f64>("cast_u32_f64"),
        cast::declare::<C32, C64>("cast_c32_c64"),
        cast::declare::<C64, C32>("cast_c64_c32"),
    ],
};

const _: () = assert!(MODULE.kernels.len() == COUNT, "a family has another size");

/// The kernels that a device has loaded, by position.
pub(crate) struct Kernels([OnceLock<Kernel>; COUNT]);

impl Kernels {
    /// Those of `device`.
    pub(crate) fn of(device: &Device) -> Arc<Self> {
        let make = |_: &Device| Ok::<_, Infallible>(Self([const { OnceLock::new() }; COUNT]));
        let Ok(kernels) = device.provider(make);
        kernels
    }

    /// The kernel, which is loaded when it is asked for first.
    #[track_caller]
    pub(crate) fn get(&self, id: KernelId, device: &Device) -> TensorResult<&Kernel> {
        let slot = &self.0[id.0];
        if let Some(kernel) = slot.get() {
            return Ok(kernel);
        }
        let kernel = device.kernel(&MODULE, MODULE.kernels[id.0].name())?;
        Ok(slot.get_or_init(|| kernel))
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().filter_map(OnceLock::get))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::sealed::Arithmetic;
    use cuda_driver::KernelDeclaration;

    #[test]
    fn every_family_begins_where_it_says() {
        fn check<T: Arithmetic>(families: &[(KernelId, &str)]) {
            for (family, name) in families {
                let kernel = &MODULE.kernels[T::kernel_of(*family).0];
                assert_eq!(kernel.name(), format!("{name}_{}", T::NAME));
            }
        }
        let all = [
            (COMBINE, "combine"),
            (MAP, "map"),
            (REDUCE, "reduce"),
            (NORM, "norm"),
            (PRODUCT, "gemm"),
        ];
        check::<C32>(&all);
        check::<C64>(&all);
        let real: Vec<_> = all.into_iter().chain([(ARGMAX, "argmax")]).collect();
        check::<f32>(&real);
        check::<f64>(&real);
        check::<f16>(&real);
        check::<bf16>(&real);
        for (i, bytes) in [1, 2, 4, 8, 16].into_iter().enumerate() {
            assert_eq!(
                MODULE.kernels[FILL.at(i).0].name(),
                format!("fill_b{bytes}")
            );
            assert_eq!(
                MODULE.kernels[COPY.at(i).0].name(),
                format!("copy_b{bytes}")
            );
        }
        let mut names: Vec<_> = MODULE.kernels.iter().map(KernelDeclaration::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNT);
    }
}
