//! In place: x[i, j] = act(x[i, j] + bias[j]), over contiguous rows.

use cuda_driver::{
    Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch, Param,
};

mod at {
    pub(super) const X: usize = 0;
    pub(super) const BIAS: usize = 1;
    pub(super) const ROWS: usize = 2;
    pub(super) const COLUMNS: usize = 3;
    pub(super) const RELU: usize = 4;
}

const fn params<T>() -> [Param; 5] {
    [
        Param::pointer::<T>(Access::ReadWrite),
        Param::pointer::<T>(Access::Read),
        Param::scalar::<u64>(),
        Param::scalar::<u64>(),
        Param::scalar::<u32>(),
    ]
}

macro_rules! declare {
    ($static:ident, $module:ident, $type:ty, $name:literal) => {
        // SAFETY: there is no image that could differ from the model.
        pub(crate) const $static: KernelDeclaration = unsafe {
            KernelDeclaration::new(
                $name,
                &const { params::<$type>() },
                $module::footprint,
                $module::model,
            )
        }
        .with_flops($module::flops);

        mod $module {
            use super::*;

            fn sizes(args: &Arguments<'_>) -> Option<(u64, u64)> {
                Some((args.scalar(at::ROWS)?, args.scalar(at::COLUMNS)?))
            }

            pub(super) fn footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
                let (rows, columns) = sizes(args)?;
                let bytes = size_of::<$type>() as u64;
                let row = columns.checked_mul(bytes)?;
                touched.contiguous(at::X, Access::ReadWrite, rows.checked_mul(row)?);
                if rows > 0 {
                    touched.contiguous(at::BIAS, Access::Read, row);
                }
                Some(())
            }

            pub(super) fn flops(args: &Arguments<'_>) -> f64 {
                sizes(args).map_or(0.0, |(rows, columns)| 2.0 * rows as f64 * columns as f64)
            }

            pub(super) fn model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
                let columns = launch.scalar::<u64>(at::COLUMNS)? as usize;
                let relu = launch.scalar::<u32>(at::RELU)? != 0;
                let (x, bias) = (
                    launch.take_write::<$type>(at::X)?,
                    launch.take_read::<$type>(at::BIAS)?,
                );
                for row in x.chunks_exact_mut(columns.max(1)) {
                    for (x, bias) in row.iter_mut().zip(bias) {
                        *x += bias;
                        // Not `max`, which would lose a NaN.
                        if relu && *x < 0.0 {
                            *x = 0.0;
                        }
                    }
                }
                Ok(())
            }
        }
    };
}

declare!(F32, of_f32, f32, "add_bias_f32");
declare!(F64, of_f64, f64, "add_bias_f64");
