//! out[i] = the column of the largest element of row i, the first one of several; a NaN counts as the largest.

use cuda_driver::{
    Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch, Param,
};

mod at {
    pub(super) const OUT: usize = 0;
    pub(super) const X: usize = 1;
    pub(super) const ROWS: usize = 2;
    pub(super) const COLUMNS: usize = 3;
}

const fn params<T>() -> [Param; 4] {
    [
        Param::pointer::<u32>(Access::Write),
        Param::pointer::<T>(Access::Read),
        Param::scalar::<u64>(),
        Param::scalar::<u64>(),
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
                touched.contiguous(at::OUT, Access::Write, rows.checked_mul(4)?);
                touched.contiguous(
                    at::X,
                    Access::Read,
                    rows.checked_mul(columns)?.checked_mul(bytes)?,
                );
                Some(())
            }

            pub(super) fn flops(args: &Arguments<'_>) -> f64 {
                sizes(args).map_or(0.0, |(rows, columns)| rows as f64 * columns as f64)
            }

            pub(super) fn model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
                let columns = launch.scalar::<u64>(at::COLUMNS)? as usize;
                let (out, x) = (
                    launch.take_write::<u32>(at::OUT)?,
                    launch.take_read::<$type>(at::X)?,
                );
                for (out, row) in out.iter_mut().zip(x.chunks_exact(columns.max(1))) {
                    let mut best = 0;
                    for (column, x) in row.iter().enumerate() {
                        if !row[best].is_nan() && (x.is_nan() || *x > row[best]) {
                            best = column;
                        }
                    }
                    *out = best as u32;
                }
                Ok(())
            }
        }
    };
}

declare!(F32, of_f32, f32, "argmax_f32");
declare!(F64, of_f64, f64, "argmax_f64");
