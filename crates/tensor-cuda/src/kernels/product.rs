//! Matrix products: C = alpha A B + beta C, for one or more matrices, with any strides that are not negative.
//!
//! This is what the provider of simulated devices launches; its model calls the `gemm` crate. It writes its workspace, as a
//! device library would, so that two products that share one unordered are found.

use super::walk::{bad, touch};
use crate::Number;
use crate::number::sealed::Arithmetic;
use crate::number::wide::Wide;
use cuda_driver::{
    Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch, Param, Region,
};
use std::any::TypeId;

/// Positions of the parameters.
mod at {
    /// C, A, B.
    pub(super) const OPERANDS: [usize; 3] = [0, 1, 2];
    pub(super) const WORKSPACE: usize = 3;
    /// Rows and columns of C; columns of A and the number of products.
    pub(super) const SIZES: [usize; 2] = [4, 5];
    /// Row and column strides of C, A, B, in elements.
    pub(super) const STRIDES: [usize; 3] = [6, 7, 8];
    /// From one product to the next: of C and A; of B, and the bytes of the workspace.
    pub(super) const STEPS: [usize; 2] = [9, 10];
    pub(super) const FLAGS: usize = 11;
    pub(super) const ALPHA: usize = 12;
    pub(super) const BETA: usize = 13;
}

/// Which of A and B are conjugated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conjugated(pub(crate) [bool; 2]);

impl Conjugated {
    pub(crate) fn flags(self) -> [u32; 4] {
        [u32::from(self.0[0]), u32::from(self.0[1]), 0, 0]
    }
}

pub(super) const fn declare<T: Number>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    let declaration = unsafe {
        KernelDeclaration::new(name, const { &params::<T>() }, footprint::<T>, model::<T>)
    };
    declaration.with_flops(flops::<T>)
}

const fn params<T>() -> [Param; at::BETA + 1] {
    let mut params = [Param::scalar::<[u64; 2]>(); at::BETA + 1];
    params[at::OPERANDS[0]] = Param::pointer::<T>(Access::ReadWrite);
    params[at::OPERANDS[1]] = Param::pointer::<T>(Access::Read);
    params[at::OPERANDS[2]] = Param::pointer::<T>(Access::Read);
    params[at::WORKSPACE] = Param::pointer::<u8>(Access::Write);
    params[at::FLAGS] = Param::scalar::<[u32; 4]>();
    params[at::ALPHA] = Param::scalar::<T>();
    params[at::BETA] = Param::scalar::<T>();
    params
}

/// The sizes and strides of one launch.
struct Shape {
    m: u64,
    n: u64,
    k: u64,
    batch: u64,
    /// Rows, columns, row stride, column stride, step of C, A, B.
    operands: [[u64; 5]; 3],
    workspace_bytes: u64,
}

impl Shape {
    fn read(pair: impl Fn(usize) -> Option<[u64; 2]>) -> Option<Self> {
        let [[m, n], [k, batch]] = [pair(at::SIZES[0])?, pair(at::SIZES[1])?];
        let [[c, a], [b, workspace_bytes]] = [pair(at::STEPS[0])?, pair(at::STEPS[1])?];
        let mut operands = [[m, n, 0, 0, c], [m, k, 0, 0, a], [k, n, 0, 0, b]];
        for (operand, strides) in operands.iter_mut().zip(at::STRIDES) {
            [operand[2], operand[3]] = pair(strides)?;
        }
        Some(Self {
            m,
            n,
            k,
            batch,
            operands,
            workspace_bytes,
        })
    }

    /// A single matrix whose rows or columns are runs, which is the usual case.
    #[inline]
    fn rectangle(
        &self,
        operand: usize,
        param: usize,
        access: Access,
        bytes: u64,
    ) -> Option<Region> {
        let [rows, columns, row, column, _] = self.operands[operand];
        let (run, count, pitch) = match (row, column) {
            (1, _) => (rows, columns, column),
            (_, 1) => (columns, rows, row),
            _ => return None,
        };
        if self.batch != 1 || pitch < run {
            return None;
        }
        let (run, count) = match pitch == run {
            true => (run.checked_mul(count)?, 1),
            false => (run, count),
        };
        Some(Region {
            param,
            access,
            offset_bytes: 0,
            width_bytes: run.checked_mul(bytes)?,
            pitch_bytes: pitch.checked_mul(bytes)?,
            rows: count,
        })
    }

    fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch == 0
    }

    /// Elements from the first to the last of an operand; `None` when they can't be counted.
    fn span(&self, operand: usize) -> Option<usize> {
        let [rows, columns, row, column, step] = self.operands[operand];
        if rows == 0 || columns == 0 || self.batch == 0 {
            return Some(0);
        }
        let reach = |count: u64, stride: u64| (count - 1).checked_mul(stride);
        let span = reach(rows, row)?
            .checked_add(reach(columns, column)?)?
            .checked_add(reach(self.batch, step)?)?
            .checked_add(1)?;
        isize::try_from(span).ok().map(isize::cast_unsigned)
    }
}

fn footprint<T: Number>(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let shape = Shape::read(|at| args.scalar(at))?;
    let (alpha, beta) = (args.scalar::<T>(at::ALPHA)?, args.scalar::<T>(at::BETA)?);
    if shape.is_empty() {
        return Some(());
    }
    // With beta = 0, C is not read; with alpha = 0 or k = 0, neither are A and B.
    let output = if beta == T::ZERO {
        Access::Write
    } else {
        Access::ReadWrite
    };
    let product = alpha != T::ZERO && shape.k > 0;
    for (operand, access) in [output, Access::Read, Access::Read].into_iter().enumerate() {
        if operand > 0 && !product {
            continue;
        }
        let (param, bytes) = (at::OPERANDS[operand], size_of::<T>() as u64);
        if let Some(region) = shape.rectangle(operand, param, access, bytes) {
            touched.region(region);
            continue;
        }
        let [rows, columns, row, column, step] = shape.operands[operand];
        let dims = [(shape.batch, step), (rows, row), (columns, column)];
        touch(touched, param, access, bytes, dims.into_iter())?;
    }
    touched.contiguous(at::WORKSPACE, Access::Write, shape.workspace_bytes);
    Some(())
}

fn flops<T: Number>(args: &Arguments<'_>) -> f64 {
    // A complex multiplication and addition is four of each.
    let each = if T::NAME.starts_with('c') { 8.0 } else { 2.0 };
    Shape::read(|at| args.scalar(at)).map_or(0.0, |shape| {
        each * shape.m as f64 * shape.n as f64 * shape.k as f64 * shape.batch as f64
    })
}

fn model<T: Number>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let shape = Shape::read(|at| launch.scalar(at).ok()).ok_or_else(|| bad(at::SIZES[0]))?;
    let (alpha, beta) = (
        launch.scalar::<T>(at::ALPHA)?,
        launch.scalar::<T>(at::BETA)?,
    );
    let flags = launch.scalar::<[u32; 4]>(at::FLAGS)?;
    let conjugate = [flags[0] != 0, flags[1] != 0];
    launch.take_write::<u8>(at::WORKSPACE)?.fill(0);
    let c = launch.take_write::<T>(at::OPERANDS[0])?;
    let a = launch.take_read::<T>(at::OPERANDS[1])?;
    let b = launch.take_read::<T>(at::OPERANDS[2])?;
    if shape.is_empty() {
        return Ok(());
    }
    if TypeId::of::<T>() == TypeId::of::<T::Wide>() {
        return multiply(
            &shape,
            c,
            a,
            b,
            [alpha, beta],
            beta != T::ZERO,
            alpha != T::ZERO,
            conjugate,
        );
    }
    // 16-bit numbers: products and sums in f32, rounded once.
    let widen = |values: &[T]| values.iter().map(|x| x.widen()).collect::<Vec<_>>();
    let mut wide = match beta == T::ZERO {
        true => vec![<T as Arithmetic>::Wide::ZERO; c.len()],
        false => widen(c),
    };
    multiply(
        &shape,
        &mut wide,
        &widen(a),
        &widen(b),
        [alpha.widen(), beta.widen()],
        beta != T::ZERO,
        alpha != T::ZERO,
        conjugate,
    )?;
    let [rows, columns, row, column, step] = shape.operands[0];
    for (i, r, s) in (0..shape.batch)
        .flat_map(|i| (0..rows).flat_map(move |r| (0..columns).map(move |s| (i, r, s))))
    {
        let at = (i * step + r * row + s * column) as usize;
        c[at] = T::narrow(wide[at]);
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "a matrix product has them")]
fn multiply<T: Copy + 'static>(
    shape: &Shape,
    c: &mut [T],
    a: &[T],
    b: &[T],
    [alpha, beta]: [T; 2],
    read: bool,
    product: bool,
    [conjugate_a, conjugate_b]: [bool; 2],
) -> Result<(), ModelError> {
    // Without a product, C is only scaled.
    let k = if product { shape.k } else { 0 };
    let needed = |operand, read: bool| if read { shape.span(operand) } else { Some(0) };
    let needed = [needed(0, true), needed(1, k > 0), needed(2, k > 0)];
    for (given, needed) in [c.len(), a.len(), b.len()].into_iter().zip(needed) {
        if needed.is_none_or(|needed| given < needed) {
            let fault = format!("an operand has {given} elements, not {needed:?}");
            return Err(ModelError::Fault(fault));
        }
    }
    let [of_c, of_a, of_b] = shape.operands;
    let stride = |operand: [u64; 5]| (operand[3] as isize, operand[2] as isize);
    let ((c_cs, c_rs), (a_cs, a_rs), (b_cs, b_rs)) = (stride(of_c), stride(of_a), stride(of_b));
    for i in 0..shape.batch {
        let at = |operand: [u64; 5], read: bool| if read { (i * operand[4]) as usize } else { 0 };
        let (at_c, at_a, at_b) = (at(of_c, true), at(of_a, k > 0), at(of_b, k > 0));
        // SAFETY: the sizes and strides reach no further than the slices, as checked above; `c` is not read when
        // `read` is false, and `a` and `b` are not when k is 0. One thread, so results are reproducible.
        unsafe {
            gemm::gemm::<T>(
                shape.m as usize,
                shape.n as usize,
                k as usize,
                c[at_c..].as_mut_ptr(),
                c_cs,
                c_rs,
                read,
                a[at_a..].as_ptr(),
                a_cs,
                a_rs,
                b[at_b..].as_ptr(),
                b_cs,
                b_rs,
                beta,
                alpha,
                false,
                conjugate_a,
                conjugate_b,
                gemm::Parallelism::None,
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{MODULE, PRODUCT};
    use cuda_driver::{Argument, DevicePtr, LaunchConfig, ModelMemory};

    /// What a launch says that it touches is what its strides reach, of each operand: no element more, none less.
    #[test]
    fn footprints_are_the_elements() {
        let kernel = &MODULE.kernels[f32::kernel_of(PRODUCT).0];
        let strides = [[1, 3], [1, 4], [3, 1], [5, 1], [2, 7], [9, 2], [1, 1]];
        for (case, [row, column]) in (0_u64..).zip(strides.into_iter().cycle().take(7 * 40)) {
            let (m, n, k, batch) = (case % 4, case / 7 % 4, 1 + case / 28 % 3, 1 + case / 84 % 2);
            let step = 40 * (case % 2);
            let mut args = vec![Argument::Pointer(DevicePtr(256)); 4];
            let pair = [row, column];
            let pairs = [[m, n], [k, batch], pair, pair, pair, [40, step], [step, 0]];
            args.extend(pairs.map(Argument::scalar::<[u64; 2]>));
            args.push(Argument::scalar([0_u32; 4]));
            args.extend([1.0, 0.0].map(Argument::scalar::<f32>));
            let footprint = kernel.footprint(&args).unwrap();
            let nothing = m == 0 || n == 0;
            for (param, rows, columns, step) in [(0, m, n, 40), (1, m, k, step), (2, k, n, step)] {
                let mut elements = std::collections::BTreeSet::new();
                let each = (0..batch).flat_map(|i| (0..rows).map(move |r| (i, r)));
                for (i, r) in each.filter(|_| !nothing) {
                    elements.extend((0..columns).map(|c| 4 * (i * step + r * row + c * column)));
                }
                let mut touched = std::collections::BTreeSet::new();
                let regions = footprint.regions().iter();
                for region in regions.filter(|region| region.param == param) {
                    let start = region.offset_bytes.cast_unsigned();
                    let starts = (0..region.rows).map(|r| start + r * region.pitch_bytes);
                    starts.for_each(|at| touched.extend((at..at + region.width_bytes).step_by(4)));
                }
                assert_eq!(
                    touched, elements,
                    "{param} of {m} {n} {k} {batch} {row} {column}"
                );
            }
        }
    }

    /// Row strides near 2^63 wrap to a small number of elements when they are multiplied carelessly.
    #[test]
    fn sizes_that_cant_be_counted_are_refused() {
        let kernel = &MODULE.kernels[f32::kernel_of(PRODUCT).0];
        let mut c = [0_f32; 16];
        let operand = [1_f32; 16];
        for stride in [
            (1 << 63) / 3 + 1,
            (1_u64 << 62) + 1,
            u64::MAX,
            (1_u64 << 63).div_ceil(3) * 2,
        ] {
            let pointer = |at: u64| Argument::Pointer(DevicePtr(at));
            let mut args = vec![pointer(256), pointer(512), pointer(768), pointer(1024)];
            let pairs = [[4, 2], [2, 1], [stride, 1], [2, 1], [2, 1], [0, 0], [0, 0]];
            args.extend(pairs.map(Argument::scalar::<[u64; 2]>));
            args.push(Argument::scalar([0_u32; 4]));
            args.extend([1.0, 0.0].map(Argument::scalar::<f32>));
            let footprint = kernel.footprint(&args);
            assert!(footprint.is_err() || footprint.unwrap().regions()[0].pitch_bytes > 1 << 60);
            let memory = [
                Some(ModelMemory::Write(bytemuck::cast_slice_mut(&mut c))),
                Some(ModelMemory::Read(bytemuck::cast_slice(&operand))),
                Some(ModelMemory::Read(bytemuck::cast_slice(&operand))),
                None,
            ];
            let config = LaunchConfig::for_elements(8).unwrap();
            let mut launch = ModelLaunch::new(config, Arguments(&args), memory);
            let result = kernel.run_model(&mut launch);
            assert!(
                matches!(result, Err(ModelError::Fault(_))),
                "{stride}: {result:?}"
            );
        }
    }
}
