//! Handles: what they are set to, how they fail, and how they end.

use super::super::{Cublas, CublasError, CublasStatus, MathMode};
use super::{Double, finish, runtime, small};
use crate::blas::{Blas, HostBlas};
use crate::{
    CudaTensor, TensorError, TensorResult, assign_product, gemm_batched, gemm_strided_batched,
};
use cuda_buffer::CaptureStep;
use ndarray::Array2;
use std::sync::Arc;

#[test]
fn what_a_handle_is_set_to_is_set_when_it_changes() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let blas = Blas::of(device);
    blas.set_handles(1);
    let streams = device.streams().acquire_many(2).unwrap();
    let a = CudaTensor::full(&streams[0], [4, 4], 1.0_f32).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized(device, [4, 4]).unwrap();
    let functions = [
        "cublasSetStream_v2",
        "cublasSetWorkspace_v2",
        "cublasSetMathMode",
    ];
    let counted = || functions.map(|name| double.calls(name));
    let mut before = counted();
    let mut made = |what: &str, expected: [u64; 3]| {
        let now = counted();
        let made = [0, 1, 2].map(|i| now[i] - before[i]);
        assert_eq!(made, expected, "{what}");
        before = now;
    };
    for _ in 0..5 {
        assign_product(&streams[0], &mut c, &a, &a).unwrap();
    }
    made("one stream", [1, 1, 1]);
    for stream in streams.iter().cycle().take(4) {
        assign_product(stream, &mut c, &a, &a).unwrap();
    }
    // The first one is where it was.
    made("two streams in turn", [3, 3, 0]);
    let mut capture = |workspace_bytes| {
        let cublas = Cublas::builder().workspace_bytes(workspace_bytes);
        blas.set_provider(Arc::new(cublas.open(device).unwrap()));
        assign_product(&streams[1], &mut c, &a, &a).unwrap();
        let graph = streams[1].capture(|_| {
            assign_product(&streams[1], &mut c, &a, &a)?;
            assign_product(&streams[1], &mut c, &a, &a)
        });
        graph.unwrap()
    };
    // With workspaces of a size that no other test has, so that it is tried.
    drop(capture(5120));
    made("a handle, a trial, and the capture", [3, 3, 1]);
    let graph = capture(5120);
    made("a capture has a workspace of its own", [1, 2, 1]);
    assign_product(&streams[1], &mut c, &a, &a).unwrap();
    made("and then not any more", [0, 1, 0]);
    for _ in 0..3 {
        graph.launch(&streams[0]).unwrap();
    }
    made("replays call nothing", [0, 0, 0]);
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((4, 4), 4.0));
    drop((graph, a, c, streams, blas));
    finish(runtime, &double);
}

/// After a failure between the stream and the workspace nobody knows what the handle is set to.
#[test]
fn a_handle_that_was_set_in_part_is_set_anew() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    Blas::of(device).set_handles(1);
    let streams = device.streams().acquire_many(2).unwrap();
    let a = CudaTensor::full(&streams[0], [4, 4], 1.0_f32).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized(device, [4, 4]).unwrap();
    assign_product(&streams[0], &mut c, &a, &a).unwrap();
    double.fail("cublasSetWorkspace_v2", 1, 7);
    assign_product(&streams[1], &mut c, &a, &a).unwrap_err();
    let before = double.calls("cublasSetStream_v2");
    // Where it was set last without a failure, and is not any more.
    assign_product(&streams[0], &mut c, &a, &a).unwrap();
    assert_eq!(double.calls("cublasSetStream_v2") - before, 1);
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((4, 4), 4.0));
    drop((a, c, streams));
    finish(runtime, &double);
}

/// Every function fails once, in products of each kind: the error says which and for what, nothing is queued, and all works after it.
#[test]
fn every_status_is_an_error_and_nothing_is_lost() {
    let Some(double) = Double::find() else { return };
    let functions = [
        ("cublasCreate_v2", "cublasCreate", 3),
        ("cublasSetPointerMode_v2", "cublasSetPointerMode", 1),
        ("cublasSetMathMode", "cublasSetMathMode", 1),
        ("cublasSetAtomicsMode", "cublasSetAtomicsMode", 1),
        ("cublasSetStream_v2", "cublasSetStream", 1),
        ("cublasSetWorkspace_v2", "cublasSetWorkspace", 7),
        ("cublasGemmEx", "cublasGemmEx", 13),
        (
            "cublasGemmStridedBatchedEx",
            "cublasGemmStridedBatchedEx",
            15,
        ),
        ("cublasGemmBatchedEx", "cublasGemmBatchedEx", 99),
    ];
    for (function, told, status) in functions {
        let runtime = runtime();
        let device = runtime.default_device();
        let stream = device.streams().acquire().unwrap();
        let a = CudaTensor::full(&stream, [2, 4, 4], 1.0_f32).unwrap();
        let mut c = CudaTensor::full(&stream, [2, 4, 4], 5.0_f32).unwrap();
        let x = CudaTensor::full(&stream, [4, 4], 1.0_f32).unwrap();
        let mut outs = [0, 1].map(|_| CudaTensor::full(&stream, [4, 4], 5.0_f32).unwrap());
        let mut run = |kind: usize| match kind {
            0 => assign_product(&stream, &mut outs[0], &x, &x),
            1 => gemm_strided_batched(&stream, &mut c, 1.0, &a, &a, 0.0),
            _ => gemm_batched(&stream, &mut outs, 1.0, [&x, &x], [&x, &x], 0.0),
        };
        double.fail(function, 1, status);
        let kind = match function {
            "cublasGemmStridedBatchedEx" => 1,
            "cublasGemmBatchedEx" => 2,
            _ => 0,
        };
        let error = run(kind).unwrap_err();
        let TensorError::Cublas(CublasError::Call(call)) = &error else {
            panic!("{function}: {error}")
        };
        assert_eq!((call.function, call.status), (told, CublasStatus(status)));
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("{told} of cuBLAS 12.8.4 returned ")),
            "{text}"
        );
        if function.contains("Gemm") {
            let sizes = "of F32 with m = 4, n = 4, k = 4 and leading dimensions 4, 4, 4";
            assert!(text.contains(sizes), "{text}");
        }
        for kind in [0, 1, 2, kind, kind] {
            run(kind).unwrap();
        }
        for out in &outs {
            assert_eq!(out.to_ndarray().unwrap(), Array2::from_elem((4, 4), 4.0));
        }
        assert!(c.to_ndarray().unwrap().iter().all(|&x| x == 4.0));
        drop((a, c, x, outs, stream));
        finish(runtime, &double);
    }
    assert_eq!(CublasStatus(99).to_string(), "status [99]");
}

/// Those of the library, whose names a test of it compares with the header.
#[test]
fn every_status_is_told_by_its_name() {
    let Some(double) = Double::find() else { return };
    let mut known = 0;
    for status in 0..=64 {
        let theirs = double.status_name(status);
        match CublasStatus(status).name() {
            Some(name) => assert_eq!(name, theirs),
            None => assert_eq!(theirs, "CUBLAS_STATUS_UNKNOWN", "[{status}] has no name"),
        }
        known += u32::from(CublasStatus(status).name().is_some());
    }
    assert_eq!(known, 10);
}

/// Handles are used again, and end when that is asked for: not in a capture, and not those that a graph keeps.
#[test]
fn handles_are_kept_for_the_next_and_end_on_request() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let a = CudaTensor::full(&stream, [4, 4], 1.0_f32).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized(device, [4, 4]).unwrap();
    let (blas, cublas) = (Blas::of(device), small(device));
    let before = double.calls("cublasCreate_v2");
    let made = || double.calls("cublasCreate_v2") - before;
    for math in [MathMode::Full, MathMode::Tf32, MathMode::Full] {
        let provider = Cublas::builder().workspace_bytes(4096).math(math);
        blas.set_provider(Arc::new(provider.open(device).unwrap()));
        assign_product(&stream, &mut c, &a, &a).unwrap();
    }
    assert_eq!((made(), double.handles()), (1, 1));
    let graph = stream
        .capture(|_| {
            // The handle of the provider before is free, and the next one takes it.
            blas.set_provider(Arc::new(cublas));
            assign_product(&stream, &mut c, &a, &a)?;
            let refused = cublas.end_idle_handles(device).unwrap_err().to_string();
            assert!(refused.contains("while this thread captures"), "{refused}");
            TensorResult::Ok(())
        })
        .unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((4, 4), 4.0));
    blas.set_provider(Arc::new(HostBlas::default()));
    assert_eq!(
        cublas.end_idle_handles(device).unwrap(),
        0,
        "the graph has it"
    );
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    drop(graph);
    runtime.default_device().check().unwrap();
    // One that does not end is still there.
    double.fail("cublasDestroy_v2", 1, 14);
    let error = cublas.end_idle_handles(device).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cublasDestroy of cuBLAS 12.8.4 returned"),
        "{error}"
    );
    assert_eq!(double.handles(), 1);
    assert_eq!(cublas.end_idle_handles(device).unwrap(), 1);
    assert_eq!((made(), double.handles()), (1, 0));
    drop((a, c, stream, blas));
    finish(runtime, &double);
}
