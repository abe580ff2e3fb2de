//! Whether what a product touches lies within memory that it may so use.
//!
//! Products of this crate were checked before they come here. Who calls a provider by hand passes numbers of its own, and cuBLAS would
//! follow them to any address.

use super::product::bytes_of;
use crate::TensorResult;
use crate::blas::{ElementType, Matrix, MatrixProduct, Transform};
use cuda_buffer::{BufferError, BufferResult, DeviceSliceMut, LaunchArg, Operand};
use cuda_driver::{Access, Argument, DevicePtr, LaunchError, Region, Scalar};
use cuda_runtime::Stream;
use half::{bf16, f16};

/// What stands for a kernel in errors. Its arguments are A, B, C, alpha, beta and the workspace.
const CALL: &str = "a product of cuBLAS";
const ALPHA: usize = 3;
const BETA: usize = 4;
const WORKSPACE: usize = 5;

/// Addresses of A, B and C at `memory`, which hold all that the product touches.
#[inline]
pub(super) fn addresses(
    stream: &Stream,
    product: &MatrixProduct<'_>,
    memory: [Operand<'_>; 3],
) -> BufferResult<[DevicePtr; 3]> {
    let MatrixProduct {
        m, n, k, a, b, c, ..
    } = *product;
    let element_bytes = bytes_of(product.element);
    let accesses = [Access::Read, Access::Read, Access::Write];
    let stored = [(a, [m, k]), (b, [k, n]), (c, [m, n])];
    for (param, (((matrix, extents), memory), access)) in
        stored.into_iter().zip(memory).zip(accesses).enumerate()
    {
        if let Some(region) = region(
            param,
            access,
            &matrix,
            extents,
            product.batch,
            element_bytes,
        ) {
            memory.check_use(CALL, stream, element_bytes, &region)?;
        }
    }
    Ok(memory.map(address))
}

/// What is touched of one operand's matrices, up to the end of the last one; nothing of empty ones.
#[inline]
fn region(
    param: usize,
    access: Access,
    matrix: &Matrix<'_>,
    [rows, columns]: [usize; 2],
    batch: usize,
    element_bytes: usize,
) -> Option<Region> {
    let [rows, columns] = match matrix.transform {
        Transform::None => [rows, columns],
        Transform::Transpose | Transform::ConjugateTranspose => [columns, rows],
    };
    if rows == 0 || columns == 0 || batch == 0 {
        return None;
    }
    let bytes = |elements: usize| (elements as u64).saturating_mul(element_bytes as u64);
    let last = bytes((batch - 1).saturating_mul(matrix.step));
    Some(Region {
        param,
        access,
        offset_bytes: i64::try_from(last).unwrap_or(i64::MAX),
        width_bytes: bytes(rows),
        pitch_bytes: bytes(matrix.leading),
        rows: columns as u64,
    })
}

/// Address and bytes of scratch memory that may be written on `stream`.
pub(super) fn scratch(
    stream: &Stream,
    workspace: DeviceSliceMut<'_, u8>,
) -> BufferResult<(DevicePtr, usize)> {
    let (address, bytes) = (workspace.address(), workspace.bytes());
    let region = Region {
        param: WORKSPACE,
        access: Access::Write,
        offset_bytes: 0,
        width_bytes: bytes as u64,
        pitch_bytes: bytes as u64,
        rows: 1,
    };
    workspace.operand().check_use(CALL, stream, 1, &region)?;
    Ok((address, bytes))
}

/// Alpha and beta in the scale type of the elements' compute type: that of 16-bit elements is `f32`.
pub(super) fn factors(product: &MatrixProduct<'_>) -> TensorResult<[Scalar; 2]> {
    let element = product.element;
    let factor = |operand: Operand<'_>, index| {
        let scalar = match operand.argument() {
            Argument::Scalar(scalar) if scalar.as_bytes().len() == bytes_of(element) => {
                Some(scalar)
            }
            _ => None,
        };
        let scalar = scalar.and_then(|scalar| match element {
            ElementType::F16 => scalar.get::<f16>().map(|x| Scalar::new(x.to_f32())),
            ElementType::Bf16 => scalar.get::<bf16>().map(|x| Scalar::new(x.to_f32())),
            _ => Some(scalar),
        });
        let kernel = CALL;
        scalar.ok_or_else(|| BufferError::from(LaunchError::ArgumentType { kernel, index }))
    };
    Ok([factor(product.alpha, ALPHA)?, factor(product.beta, BETA)?])
}

/// The address of an operand in device memory; none of a value, of which nothing is touched then.
fn address(operand: Operand<'_>) -> DevicePtr {
    match operand.argument() {
        Argument::Pointer(address) => address,
        Argument::Scalar(_) => DevicePtr(0),
    }
}
