//! Captured products: tried beside first, so that nothing is loaded inside.

use super::super::CublasError;
use super::{Double, finish, host, runtime};
use crate::{
    CudaTensor, TensorError, TensorResult, assign_product, fill, gemm_strided_batched, matmul,
};
use cuda_buffer::{CaptureStep, Graph};
use cuda_driver::{Call, CaptureMode};
use cuda_runtime::Stream;
use half::f16;
use ndarray::{Array2, Array3, Axis};
use num_complex::Complex;
use std::sync::Barrier;

type C32 = Complex<f32>;

#[test]
fn a_product_that_fails_in_a_capture_dooms_it() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let a = CudaTensor::full(&stream, [4, 4], 1.0_f32).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized(device, [4, 4]).unwrap();
    assign_product(&stream, &mut c, &a, &a).unwrap();
    // After the trial.
    double.fail("cublasGemmEx", 2, 14);
    let error = stream
        .capture(|_| {
            // Who goes on all the same gets no graph with a hole.
            assign_product(&stream, &mut c, &a, &a).unwrap_err();
            assign_product(&stream, &mut c, &a, &a)
        })
        .unwrap_err();
    assert!(
        error.to_string().contains("cublasGemmEx of cuBLAS"),
        "{error}"
    );
    let graph = stream
        .capture(|_| assign_product(&stream, &mut c, &a, &a))
        .unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((4, 4), 4.0));
    drop((graph, a, c, stream));
    finish(runtime, &double);
}

/// What a product that no other test has is made of: out = a^H b.
struct Adjoint {
    a: CudaTensor<C32, 2>,
    b: CudaTensor<C32, 2>,
    out: CudaTensor<C32, 2>,
    expected: Array2<C32>,
}

impl Adjoint {
    fn new(stream: &Stream, [m, n, k]: [usize; 3]) -> Self {
        let device = stream.device();
        let of = |re: f64, im: f64| C32::new(re as f32, im as f32);
        let (a, b) = (host(k, m, 1, of), host(k, n, 2, of));
        let tensor = |host: &Array2<C32>| CudaTensor::from_ndarray(device, &host.view()).unwrap();
        Self {
            out: CudaTensor::full(stream, [m, n], C32::new(5.0, 5.0)).unwrap(),
            expected: a.t().mapv(|x| x.conj()).dot(&b),
            a: tensor(&a),
            b: tensor(&b),
        }
    }

    fn queue(&mut self, stream: &Stream) -> TensorResult<()> {
        let adjoint = self.a.view().conjugated().transposed();
        assign_product(stream, &mut self.out, adjoint, &self.b)
    }

    fn capture(&mut self, stream: &Stream, mode: CaptureMode) -> TensorResult<Graph> {
        stream.capture_in(mode, |_| self.queue(stream))
    }

    /// Whether a replay computes it.
    fn check(&mut self, stream: &Stream, graph: &Graph) {
        fill(stream, &mut self.out, C32::new(0.0, 0.0)).unwrap();
        graph.launch(stream).unwrap();
        assert_eq!(self.out.to_ndarray().unwrap(), self.expected);
    }
}

/// Where a kernel can be loaded while a capture is open, the trial does it: in every mode, with nothing computed before.
#[test]
fn a_first_product_can_be_captured_where_the_driver_loads_kernels_then() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let streams = device.streams().acquire_many(2).unwrap();
    double.load_in_captures(true);
    let modes = [
        CaptureMode::Global,
        CaptureMode::ThreadLocal,
        CaptureMode::Relaxed,
    ];
    for (i, mode) in modes.into_iter().enumerate() {
        // Of another size each time, and so of another kind for cuBLAS.
        let mut product = Adjoint::new(&streams[0], [3, 2, 5 + i]);
        let (before, mut graph) = (device.call_counts(), None);
        let mut capture = || graph = Some(product.capture(&streams[0], mode).unwrap());
        let made = double.products_of(&mut capture);
        assert_eq!(made, [("cublasGemmEx", 2)], "a trial, and the product");
        let calls = device.call_counts() - before;
        let made = [Call::StreamBeginCapture, Call::GraphDestroy].map(|call| calls.of(call));
        assert_eq!(made, [2, 2], "one graph is kept in its executable form");
        assert_eq!(calls.of(Call::StreamSynchronize), 0);
        product.check(&streams[1], &graph.take().unwrap());
        // Of a kind that was tried, on another stream and of other memory.
        let mut again = Adjoint::new(&streams[1], [3, 2, 5 + i]);
        let made = double.products_of(|| graph = Some(again.capture(&streams[1], mode).unwrap()));
        assert_eq!(made, [("cublasGemmEx", 1)]);
        again.check(&streams[0], &graph.take().unwrap());
    }
    double.load_in_captures(false);
    drop(streams);
    finish(runtime, &double);
}

/// A global capture of other code, which the runtime does not know of, forbids unsafe calls to every thread that is not relaxed.
#[test]
fn a_trial_does_not_disturb_a_global_capture_of_other_code() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    if !device.properties().memory_pools {
        // An allocation for the capture would disturb it.
        return finish(runtime, &double);
    }
    let stream = device.streams().acquire().unwrap();
    let of = |re: f64, _| f16::from_f64(re);
    let (a, b) = (host(6, 4, 1, of), host(6, 2, 2, of));
    let [x, y] = [&a, &b].map(|host| CudaTensor::from_ndarray(device, &host.view()).unwrap());
    let mut out = CudaTensor::<f16, 2>::uninitialized(device, [4, 2]).unwrap();
    // All that is there before, but for the kernel of the product below.
    let other = CudaTensor::full(&stream, [4, 4], 1.0_f32).unwrap();
    drop(matmul(&stream, &other, &other).unwrap());
    double.load_in_captures(true);
    let (begun, ended) = (Barrier::new(2), Barrier::new(2));
    let (driver, id) = (device.driver(), device.id());
    let theirs = || {
        driver.make_current(id).unwrap();
        let raw = driver.stream_create(id, 0).unwrap();
        driver.capture_begin(id, raw, CaptureMode::Global).unwrap();
        begun.wait();
        ended.wait();
        let graph = driver.capture_end(id, raw).unwrap();
        // SAFETY: nobody else knows the graph.
        unsafe { driver.graph_destroy(id, graph) }.unwrap();
        // SAFETY: nobody else knows the stream.
        unsafe { driver.stream_destroy(id, raw) }.unwrap();
    };
    let graph = std::thread::scope(|scope| {
        scope.spawn(theirs);
        begun.wait();
        let graph = stream.capture_in(CaptureMode::ThreadLocal, |_| {
            assign_product(&stream, &mut out, x.view().transposed(), &y)
        });
        ended.wait();
        graph.unwrap()
    });
    double.load_in_captures(false);
    graph.launch(&stream).unwrap();
    let wide = |of: &Array2<f16>| of.mapv(f32::from);
    assert_eq!(
        wide(&out.to_ndarray().unwrap()),
        wide(&a).t().dot(&wide(&b))
    );
    drop((graph, x, y, out, other, stream));
    finish(runtime, &double);
}

/// Where no kernel is loaded while a capture is open, the product is refused before anything of it is captured; and can be captured
/// once it was computed.
#[test]
fn a_first_product_is_refused_where_the_driver_loads_no_kernel_in_a_capture() {
    let Some(double) = Double::find() else { return };
    if std::env::var("CUDA_MODULE_LOADING").as_deref() == Ok("EAGER") {
        // Then each is there from the beginning.
        return;
    }
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let of = |re: f64, im: f64| C32::new(re as f32, im as f32);
    let a = Array3::from_shape_fn((2, 4, 3), |(i, j, k)| host(4, 3, i, of)[[j, k]]);
    let x = CudaTensor::from_ndarray(device, &a.view()).unwrap();
    let zero = C32::new(0.0, 0.0);
    let mut out = CudaTensor::full(&stream, [2, 3, 3], zero).unwrap();
    let mut other = CudaTensor::full(&stream, [4], 1.0_f32).unwrap();
    let mut step = |stream: &Stream| {
        let adjoint = x.view().conjugated().permuted([0, 2, 1]).unwrap();
        gemm_strided_batched(stream, &mut out, C32::new(1.0, 0.0), adjoint, &x, zero)
    };
    fill(&stream, &mut other, 1.0).unwrap();
    let mut refused = None;
    let ended = stream.capture(|_| {
        fill(&stream, &mut other, 2.0)?;
        refused = Some(step(&stream).unwrap_err());
        // The capture itself is as it was: more can be captured. It gives no graph, since it lacks something.
        fill(&stream, &mut other, 3.0)
    });
    let ended = ended.unwrap_err().to_string();
    assert!(
        ended.contains("cublasGemmStridedBatchedEx of cuBLAS 12.8.4"),
        "{ended}"
    );
    let refused = refused.unwrap();
    let TensorError::Cublas(CublasError::NotCaptured(call)) = &refused else {
        panic!("{refused}")
    };
    assert_eq!(
        (call.function, call.status.0),
        ("cublasGemmStridedBatchedEx", 13)
    );
    let text = refused.to_string();
    for part in [
        "for 2 product(s) of C32",
        "run the step once before capturing it",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(
        cuda_contract::emulated::take_reports(),
        1,
        "the trial's own capture"
    );
    // As it says.
    step(&stream).unwrap();
    let graph = stream.capture(|_| step(&stream)).unwrap();
    fill(&stream, &mut out, zero).unwrap();
    graph.launch(&stream).unwrap();
    let got = out.to_ndarray().unwrap();
    for (i, a) in a.axis_iter(Axis(0)).enumerate() {
        let expected = a.t().mapv(|x| x.conj()).dot(&a);
        assert_eq!(got.index_axis(Axis(0), i), expected);
    }
    drop((graph, x, out, other, stream));
    finish(runtime, &double);
}

/// Each call of a trial fails once: the capture gives no graph, nothing is left, and all works after it.
#[test]
fn a_trial_that_fails_leaves_nothing() {
    let Some(double) = Double::find() else { return };
    let functions = [
        ("cublasSetStream_v2", 1),
        ("cublasSetWorkspace_v2", 7),
        ("cublasGemmEx", 15),
    ];
    for (i, (function, status)) in functions.into_iter().enumerate() {
        let runtime = runtime();
        let device = runtime.default_device();
        let stream = device.streams().acquire().unwrap();
        let mut product = Adjoint::new(&stream, [2, 3, 9 + i]);
        product.queue(&stream).unwrap();
        double.fail(function, 1, status);
        let before = device.call_counts();
        let error = product.capture(&stream, CaptureMode::Global).unwrap_err();
        assert!(error.to_string().contains("of cuBLAS 12.8.4"), "{error}");
        let calls = device.call_counts() - before;
        for (made, ended) in [
            (Call::StreamCreate, Call::StreamDestroy),
            (Call::StreamBeginCapture, Call::StreamEndCapture),
        ] {
            assert_eq!(calls.of(made), calls.of(ended), "{function}");
        }
        let graph = product.capture(&stream, CaptureMode::Global).unwrap();
        product.check(&stream, &graph);
        drop((graph, product, stream));
        finish(runtime, &double);
    }
}
