//! Batches that have to be called one product at a time.

use super::{double::Double, finish, host, runtime};
use crate::blas::Blas;
use crate::{CudaTensor, gemm_batched, gemm_strided_batched};
use cuda_buffer::CaptureStep;
use half::f16;
use ndarray::{Array2, Array3, Axis};
use num_complex::Complex;

/// Kernels that read 16 bytes at a time take the pointers of a table, which cuBLAS does not see, for aligned.
#[test]
fn batches_of_unaligned_matrices_are_called_one_by_one() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let of = |re: f64, _| f16::from_f64(re);
    let (a, b) = (host(3, 9, 1, of), host(8, 2, 2, of));
    let [x, y] = [&a, &b].map(|host| CudaTensor::from_ndarray(device, &host.view()).unwrap());
    let wide = |of: &Array2<f16>| of.mapv(f32::from);
    for (first, function) in [(0, ("cublasGemmBatchedEx", 1)), (1, ("cublasGemmEx", 3))] {
        let columns = || x.view().slice(1, first..first + 8).unwrap();
        let mut outs: Vec<_> = (0..3)
            .map(|_| CudaTensor::<f16, 2>::uninitialized(device, [3, 2]).unwrap())
            .collect();
        let made = double.products_of(|| {
            let all = || [columns(), columns(), columns()];
            gemm_batched(&stream, &mut outs, f16::ONE, all(), [&y; 3], f16::ZERO).unwrap();
        });
        assert_eq!(made, [function]);
        let of_a = wide(&a).slice_move(ndarray::s![.., first..first + 8]);
        for out in &outs {
            assert_eq!(wide(&out.to_ndarray().unwrap()), of_a.dot(&wide(&b)));
        }
    }
    drop((x, y, stream));
    finish(runtime, &double);
}

/// A batch may be computed by another kernel than a product alone, and so give other bits.
#[test]
fn deterministic_batches_are_called_one_by_one() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    Blas::of(device).set_deterministic(true);
    let stream = device.streams().acquire().unwrap();
    let a = Array3::from_shape_fn((3, 3, 4), |(i, j, k)| host(3, 4, i, Complex::new)[[j, k]]);
    let b = host(4, 2, 5, Complex::new);
    let x = CudaTensor::from_ndarray(device, &a.view()).unwrap();
    let y = CudaTensor::from_ndarray(device, &b.view()).unwrap();
    let repeated = || {
        y.view()
            .reshaped([1, 4, 2])
            .unwrap()
            .broadcast([3, 4, 2])
            .unwrap()
    };
    let one = Complex::new(1.0, 0.0);
    let mut out = CudaTensor::full(&stream, [3, 3, 2], one).unwrap();
    let mut strided = || gemm_strided_batched(&stream, &mut out, one, &x, repeated(), one).unwrap();
    assert_eq!(double.products_of(&mut strided), [("cublasGemmEx", 3)]);
    // A graph has each of them, too.
    let graph = stream.capture(|_| {
        strided();
        crate::TensorResult::Ok(())
    });
    graph.unwrap().launch(&stream).unwrap();
    let got = out.to_ndarray().unwrap();
    for (i, a) in a.axis_iter(Axis(0)).enumerate() {
        let expected = a.dot(&b).mapv(|x| one + x + x);
        assert_eq!(got.index_axis(Axis(0), i), expected);
    }
    let mut outs: Vec<_> = (0..2)
        .map(|_| CudaTensor::uninitialized(device, [3, 2]).unwrap())
        .collect();
    let matrix = |i: usize| {
        x.view()
            .slice(0, i..i + 1)
            .unwrap()
            .reshaped([3, 4])
            .unwrap()
    };
    let zero = Complex::new(0.0, 0.0);
    // One that fails in the middle: those before it are queued, and all works after it.
    double.fail("cublasGemmEx", 2, 15);
    let error = gemm_batched(&stream, &mut outs, one, [matrix(0); 2], [&y; 2], zero).unwrap_err();
    assert!(
        error.to_string().contains("for 1 product(s) of C64"),
        "{error}"
    );
    let made = double.products_of(|| {
        gemm_batched(
            &stream,
            &mut outs,
            one,
            [matrix(1), matrix(2)],
            [&y; 2],
            zero,
        )
        .unwrap();
    });
    assert_eq!(made, [("cublasGemmEx", 2)]);
    for (i, out) in outs.iter().enumerate() {
        let expected = a.index_axis(Axis(0), i + 1).dot(&b);
        assert_eq!(out.to_ndarray().unwrap(), expected);
    }
    drop((x, y, out, outs, stream));
    finish(runtime, &double);
}
