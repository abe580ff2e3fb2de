//! Matrix product: C = alpha A B + beta C, for any strides that are not negative.

use cuda_driver::{
    Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch, Param, Region,
};

/// Positions of the parameters.
mod at {
    pub(super) const C: usize = 0;
    pub(super) const A: usize = 1;
    pub(super) const B: usize = 2;
    /// Rows of C, columns of C, columns of A.
    pub(super) const SIZES: [usize; 3] = [3, 4, 5];
    /// Row and column strides of C, A, B, in elements.
    pub(super) const STRIDES: [[usize; 2]; 3] = [[6, 7], [8, 9], [10, 11]];
    pub(super) const ALPHA: usize = 12;
    pub(super) const BETA: usize = 13;
}

/// What a kernel for elements of type `T` takes.
const fn params<T>() -> [Param; 14] {
    const SIZE: Param = Param::scalar::<u64>();
    [
        Param::pointer::<T>(Access::ReadWrite),
        Param::pointer::<T>(Access::Read),
        Param::pointer::<T>(Access::Read),
        SIZE,
        SIZE,
        SIZE,
        SIZE,
        SIZE,
        SIZE,
        SIZE,
        SIZE,
        SIZE,
        Param::scalar::<T>(),
        Param::scalar::<T>(),
    ]
}

/// The sizes and strides of one launch.
struct Shape {
    m: u64,
    n: u64,
    k: u64,
    /// Rows, columns, row stride, column stride of C, A, B.
    operands: [[u64; 4]; 3],
}

fn shape(scalar: impl Fn(usize) -> Option<u64>) -> Option<Shape> {
    let [m, n, k] = [
        scalar(at::SIZES[0])?,
        scalar(at::SIZES[1])?,
        scalar(at::SIZES[2])?,
    ];
    let mut operands = [[m, n, 0, 0], [m, k, 0, 0], [k, n, 0, 0]];
    for (operand, [row, column]) in operands.iter_mut().zip(at::STRIDES) {
        operand[2] = scalar(row)?;
        operand[3] = scalar(column)?;
    }
    Some(Shape { m, n, k, operands })
}

/// The rectangle of a strided matrix, or the hull where neither stride is 1.
fn region(
    param: usize,
    access: Access,
    [rows, columns, row_stride, column_stride]: [u64; 4],
    element_bytes: u64,
) -> Option<Region> {
    // A single row or column has no stride of its own.
    let (count, pitch, width) = if column_stride == 1 || columns <= 1 {
        (rows, row_stride, columns)
    } else if row_stride == 1 || rows <= 1 {
        (columns, column_stride, rows)
    } else {
        let reach = |count: u64, stride: u64| count.saturating_sub(1).checked_mul(stride);
        let hull = reach(rows, row_stride)?.checked_add(reach(columns, column_stride)?)?;
        (1, 0, hull.checked_add(1)?)
    };
    let (count, pitch) = if count <= 1 {
        (count, width)
    } else {
        (count, pitch)
    };
    Some(Region {
        param,
        access,
        offset_bytes: 0,
        width_bytes: width.checked_mul(element_bytes)?,
        pitch_bytes: pitch.checked_mul(element_bytes)?,
        rows: count,
    })
}

/// Elements from the first to the last of a strided matrix; `None` when they can't be counted.
fn span([rows, columns, row_stride, column_stride]: [u64; 4]) -> Option<u64> {
    if rows.min(columns) == 0 {
        return Some(0);
    }
    let down = (rows - 1).checked_mul(row_stride)?;
    let across = (columns - 1).checked_mul(column_stride)?;
    let span = down.checked_add(across)?.checked_add(1)?;
    isize::try_from(span).is_ok().then_some(span)
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

            pub(super) fn footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
                let shape = shape(|at| args.scalar(at))?;
                let (alpha, beta) = (
                    args.scalar::<$type>(at::ALPHA)?,
                    args.scalar::<$type>(at::BETA)?,
                );
                if shape.m == 0 || shape.n == 0 {
                    return Some(());
                }
                // With beta = 0, C is not read; with alpha = 0 or k = 0, neither are A and B.
                let access = if beta == 0.0 {
                    Access::Write
                } else {
                    Access::ReadWrite
                };
                let [c, a, b] = shape.operands;
                let bytes = size_of::<$type>() as u64;
                touched.region(region(at::C, access, c, bytes)?);
                if alpha != 0.0 && shape.k > 0 {
                    touched.region(region(at::A, Access::Read, a, bytes)?);
                    touched.region(region(at::B, Access::Read, b, bytes)?);
                }
                Some(())
            }

            pub(super) fn flops(args: &Arguments<'_>) -> f64 {
                shape(|at| args.scalar(at)).map_or(0.0, |shape| {
                    2.0 * shape.m as f64 * shape.n as f64 * shape.k as f64
                })
            }

            pub(super) fn model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
                let shape = shape(|at| launch.scalar(at).ok()).ok_or(ModelError::Scalar {
                    param: at::SIZES[0],
                })?;
                let (alpha, beta) = (
                    launch.scalar::<$type>(at::ALPHA)?,
                    launch.scalar::<$type>(at::BETA)?,
                );
                let c = launch.take_write::<$type>(at::C)?;
                let (a, b) = (
                    launch.take_read::<$type>(at::A)?,
                    launch.take_read::<$type>(at::B)?,
                );
                let [of_c, of_a, of_b] = shape.operands;
                if shape.m == 0 || shape.n == 0 {
                    return Ok(());
                }
                // Without a product, C is only scaled.
                let k = if alpha == 0.0 { 0 } else { shape.k };
                let needed = |operand, read: bool| if read { span(operand) } else { Some(0) };
                let needed = [needed(of_c, true), needed(of_a, k > 0), needed(of_b, k > 0)];
                for (given, needed) in [c.len(), a.len(), b.len()].into_iter().zip(needed) {
                    if needed.is_none_or(|needed| (given as u64) < needed) {
                        let fault = format!("an operand has {given} elements, not {needed:?}");
                        return Err(ModelError::Fault(fault));
                    }
                }
                let stride = |operand: [u64; 4]| (operand[3] as isize, operand[2] as isize);
                let ((c_cs, c_rs), (a_cs, a_rs), (b_cs, b_rs)) =
                    (stride(of_c), stride(of_a), stride(of_b));
                // SAFETY: the sizes and strides reach no further than the slices, as checked above; `c` is not
                // read when beta is 0, and `a` and `b` are not when k is 0. One thread, so results are reproducible.
                unsafe {
                    gemm::gemm::<$type>(
                        shape.m as usize,
                        shape.n as usize,
                        k as usize,
                        c.as_mut_ptr(),
                        c_cs,
                        c_rs,
                        beta != 0.0,
                        a.as_ptr(),
                        a_cs,
                        a_rs,
                        b.as_ptr(),
                        b_cs,
                        b_rs,
                        beta,
                        alpha,
                        false,
                        false,
                        false,
                        gemm::Parallelism::None,
                    );
                }
                Ok(())
            }
        }
    };
}

declare!(F32, of_f32, f32, "gemm_f32");
declare!(F64, of_f64, f64, "gemm_f64");

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_driver::{Argument, DevicePtr, LaunchConfig, ModelMemory};

    /// Row strides near 2^63 wrap to a small number of elements when they are multiplied carelessly.
    #[test]
    fn sizes_that_cant_be_counted_are_refused() {
        let mut c = [0_f32; 16];
        let operand = [1_f32; 16];
        for stride in [
            (1 << 63) / 3 + 1,
            (1_u64 << 62) + 1,
            u64::MAX,
            (1_u64 << 63).div_ceil(3) * 2,
        ] {
            let pointer = |at: u64| Argument::Pointer(DevicePtr(at));
            let mut args = vec![pointer(256), pointer(512), pointer(768)];
            args.extend([4, 2, 2, stride, 1, 2, 1, 2, 1].map(Argument::scalar::<u64>));
            args.extend([1.0, 0.0].map(Argument::scalar::<f32>));
            let footprint = F32.footprint(&args);
            assert!(footprint.is_err() || footprint.unwrap().regions()[0].pitch_bytes > 1 << 60);
            let memory = [
                Some(ModelMemory::Write(bytemuck::cast_slice_mut(&mut c))),
                Some(ModelMemory::Read(bytemuck::cast_slice(&operand))),
                Some(ModelMemory::Read(bytemuck::cast_slice(&operand))),
            ];
            let config = LaunchConfig::for_elements(8).unwrap();
            let mut launch = ModelLaunch::new(config, Arguments(&args), memory);
            let result = F32.run_model(&mut launch);
            assert!(
                matches!(result, Err(ModelError::Fault(_))),
                "{stride}: {result:?}"
            );
        }
    }
}
