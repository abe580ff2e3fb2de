//! What several files of tests use.

#![allow(dead_code, reason = "each file uses a part of it")]

use ndarray::{Array2, ArrayD, IxDyn};
use proptest::prelude::*;
use space_array::{AllocBuffer, AutoscalingAllocBuffer, BumperAllocator, with_allocator};

/// A bumper over a fixed buffer.
pub(crate) fn bumper(bytes: usize) -> BumperAllocator {
    BumperAllocator::new(AllocBuffer::new(bytes).unwrap())
}

/// A bumper over a growing buffer.
pub(crate) fn growing(bytes: usize) -> BumperAllocator {
    BumperAllocator::new(AutoscalingAllocBuffer::new(bytes).unwrap())
}

/// Runs a body with each allocator in scope, and with none.
pub(crate) fn everywhere(body: impl Fn()) {
    body();
    for bumper in [bumper(1 << 20), growing(256)] {
        with_allocator(&bumper, &body);
        bumper.reset().unwrap();
        with_allocator(&bumper, &body);
    }
}

pub(crate) fn matrix(rows: usize, cols: usize) -> impl Strategy<Value = Array2<i64>> {
    prop::collection::vec(-100..100_i64, rows * cols)
        .prop_map(move |v| Array2::from_shape_vec((rows, cols), v).unwrap())
}

/// Two shapes that broadcast together, and two that may not.
pub(crate) fn operands() -> impl Strategy<Value = (ArrayD<i64>, ArrayD<i64>)> {
    let axis = prop_oneof![1..2_usize, 2..4_usize, 3..4_usize, 0..2_usize];
    let shape = prop::collection::vec(axis, 0..4);
    let array = shape.prop_flat_map(|shape| {
        prop::collection::vec(-9..9_i64, shape.iter().product::<usize>())
            .prop_map(move |v| ArrayD::from_shape_vec(IxDyn(&shape), v).unwrap())
    });
    (array.clone(), array)
}

/// What `ndarray` says of a binary operation, or `None` if it would panic.
pub(crate) fn model<U>(
    a: &ArrayD<i64>,
    b: &ArrayD<i64>,
    f: impl Fn(i64, i64) -> U,
) -> Option<ArrayD<U>> {
    let ndim = a.ndim().max(b.ndim());
    let extent = |x: &ArrayD<i64>, axis: usize| {
        (axis + x.ndim())
            .checked_sub(ndim)
            .map_or(1, |axis| x.shape()[axis])
    };
    let mut shape = Vec::new();
    for axis in 0..ndim {
        shape.push(match (extent(a, axis), extent(b, axis)) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            _ => return None,
        });
    }
    let (a, b) = (a.broadcast(&shape[..])?, b.broadcast(&shape[..])?);
    Some(ndarray::Zip::from(&a).and(&b).map_collect(|&a, &b| f(a, b)))
}

pub(crate) fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 })
}
