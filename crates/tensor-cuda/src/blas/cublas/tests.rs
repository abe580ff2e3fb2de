//! On the emulated driver and the library that stands in for cuBLAS there: `cargo xtask test-gpu --emulated`. Elsewhere these tests say
//! that they did nothing.

use super::provider::Width;
use super::{Cublas, CublasError, CublasStatus, MathMode};
use crate::blas::{Blas, HostBlas, MatrixProvider};
use crate::{
    CudaTensor, Number, TensorError, TensorResult, assign_product, gemm, gemm_batched,
    gemm_strided_batched,
};
use cuda_buffer::CaptureStep;
use cuda_driver::Call;
use cuda_runtime::{Device, Runtime, Stream};
use half::{bf16, f16};
use ndarray::{Array2, Array3, array};
use num_complex::Complex;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The library that stands in for cuBLAS, for one test at a time.
struct Double {
    library: libloading::Library,
    _alone: MutexGuard<'static, ()>,
}

impl Double {
    /// `None` where there is none; what `CARVE_TEST_CUBLAS` asks for must be there.
    fn find() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let emulated = cuda_driver::hardware::driver_function(c"carve_sim_calls", 11_070).is_some();
        // SAFETY: the library runs no code when it is opened.
        let library = unsafe { libloading::Library::new("libcublas.so.12") };
        let double = library.ok().filter(|_| emulated).map(|library| Self {
            library,
            _alone: alone,
        });
        let double =
            double.filter(|double| double.symbol::<usize>(c"carve_cublas_calls").is_some());
        let wanted = std::env::var_os("CARVE_TEST_CUBLAS").is_some();
        assert!(
            double.is_some() || !wanted,
            "the emulated cuBLAS was not found"
        );
        if double.is_none() {
            eprintln!("there is no emulated cuBLAS: nothing was tested");
        }
        double
    }

    fn symbol<F: Copy>(&self, name: &CStr) -> Option<F> {
        // SAFETY: callers name a function of the library with its type.
        let symbol = unsafe { self.library.get::<F>(name.to_bytes_with_nul()) };
        symbol.ok().map(|symbol| *symbol)
    }

    /// How often a function was called.
    fn calls(&self, name: &str) -> u64 {
        type Calls = unsafe extern "C" fn(*const c_char, *mut u64) -> c_uint;
        let calls = self.symbol::<Calls>(c"carve_cublas_calls").unwrap();
        let (name, mut count) = (CString::new(name).unwrap(), 0);
        // SAFETY: the text ends with a zero, and the pointer is to a number of ours.
        assert_eq!(unsafe { calls(name.as_ptr(), &mut count) }, 0);
        count
    }

    fn fail(&self, name: &str, nth: u64, status: u32) {
        type Fail = unsafe extern "C" fn(*const c_char, u64, c_uint) -> c_uint;
        let fail = self.symbol::<Fail>(c"carve_cublas_fail").unwrap();
        let name = CString::new(name).unwrap();
        // SAFETY: the text ends with a zero.
        assert_eq!(unsafe { fail(name.as_ptr(), nth, status) }, 0);
    }

    fn tell_version(&self, version: c_int) {
        type Version = unsafe extern "C" fn(c_int) -> c_uint;
        let tell = self.symbol::<Version>(c"carve_cublas_version").unwrap();
        // SAFETY: the function takes no pointer.
        assert_eq!(unsafe { tell(version) }, 0);
    }

    fn handles(&self) -> usize {
        type Handles = unsafe extern "C" fn(*mut usize) -> c_uint;
        let handles = self.symbol::<Handles>(c"carve_cublas_handles").unwrap();
        let mut count = 0;
        // SAFETY: the pointer is to a number of ours.
        assert_eq!(unsafe { handles(&mut count) }, 0);
        count
    }

    /// How often each product was called while `run` ran.
    fn products_of(&self, run: impl FnOnce()) -> Vec<(&'static str, u64)> {
        const NAMES: [&str; 6] = [
            "cublasGemmEx",
            "cublasGemmEx_64",
            "cublasGemmStridedBatchedEx",
            "cublasGemmStridedBatchedEx_64",
            "cublasGemmBatchedEx",
            "cublasGemmBatchedEx_64",
        ];
        let before = NAMES.map(|name| self.calls(name));
        run();
        let after = NAMES.into_iter().zip(before);
        let made = after.map(|(name, before)| (name, self.calls(name) - before));
        made.filter(|(_, count)| *count > 0).collect()
    }
}

fn bare_runtime() -> Runtime {
    Runtime::builder().streams_per_device(4).build().unwrap()
}

/// A small workspace: the simulation fills whatever is allocated.
fn small() -> Cublas {
    Cublas::builder().workspace_bytes(4096).open().unwrap()
}

fn runtime() -> Runtime {
    let runtime = bare_runtime();
    for device in runtime.devices() {
        set(device, small());
    }
    runtime
}

/// Nothing was reported, and no handle is in use.
fn finish(runtime: Runtime, double: &Double) {
    let devices = runtime.devices().to_vec();
    runtime.shutdown().unwrap();
    for device in &devices {
        small().end_idle_handles(device).unwrap();
    }
    assert_eq!(cuda_contract::emulated::take_reports(), 0);
    assert_eq!(double.handles(), 0);
}

fn set(device: &Device, provider: impl MatrixProvider + 'static) -> Blas {
    let blas = Blas::of(device);
    blas.set_provider(Arc::new(provider));
    blas
}

/// Small whole numbers, so that sums are exact in any order and of any type.
fn host<T: Number>(m: usize, n: usize, seed: usize, of: impl Fn(f64, f64) -> T) -> Array2<T> {
    Array2::from_shape_fn((m, n), |(i, j)| {
        let value = |seed: usize| ((i * 31 + j * 17 + seed * 7) % 7) as f64 - 3.0;
        of(value(seed), value(seed + 5))
    })
}

/// A product, a strided batch and a batch of pointers of each type, by the entry points of `width`.
fn all_products<T: Number>(
    stream: &Stream,
    of: impl Fn(f64, f64) -> T + Copy,
    exact: impl Fn(T) -> Complex<f64>,
) -> TensorResult<()> {
    let device = stream.device();
    let (a, b) = (host(3, 4, 1, of), host(4, 2, 2, of));
    let product = |a: &Array2<T>, b: &Array2<T>| a.mapv(&exact).dot(&b.mapv(&exact));
    let expected = product(&a, &b);
    let of_device = CudaTensor::from_ndarray(device, &a.view())?;
    let (x, y) = (&of_device, &CudaTensor::from_ndarray(device, &b.view())?);
    let mut c = CudaTensor::<T, 2>::uninitialized(device, [3, 2])?;
    gemm(stream, &mut c, T::ONE, x, y, T::ZERO)?;
    assert_eq!(c.to_ndarray()?.mapv(&exact), expected);
    gemm(stream, &mut c, of(2.0, 0.0), x, y, of(-1.0, 0.0))?;
    assert_eq!(c.to_ndarray()?.mapv(&exact), expected);
    // Transposes, of operands and of the output.
    let mut turned = CudaTensor::<T, 2>::uninitialized(device, [2, 3])?;
    let (xt, yt) = (x.view().transposed(), y.view().transposed());
    assign_product(stream, &mut turned, yt, xt)?;
    assert_eq!(turned.to_ndarray()?.mapv(&exact), expected.t());
    let batch = Array3::from_shape_fn((3, 3, 4), |(i, j, k)| host(3, 4, i, of)[[j, k]]);
    let batch = CudaTensor::from_ndarray(device, &batch.view())?;
    let repeated = y.view().reshaped([1, 4, 2])?.broadcast([3, 4, 2])?;
    let mut out = CudaTensor::<T, 3>::uninitialized(device, [3, 3, 2])?;
    gemm_strided_batched(stream, &mut out, T::ONE, &batch, repeated, T::ZERO)?;
    for i in 0..3 {
        let got = out
            .to_ndarray()?
            .index_axis(ndarray::Axis(0), i)
            .mapv(&exact);
        assert_eq!(got, product(&host(3, 4, i, of), &b));
    }
    let mut parts: Vec<_> = (0..3)
        .map(|_| CudaTensor::<T, 2>::uninitialized(device, [3, 2]))
        .collect::<TensorResult<_>>()?;
    gemm_batched(stream, &mut parts, T::ONE, [x, x, x], [y, y, y], T::ZERO)?;
    for part in &parts {
        assert_eq!(part.to_ndarray()?.mapv(&exact), expected);
    }
    Ok(())
}

#[test]
fn every_type_and_width_of_sizes_gives_the_product() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    for (width, names) in [
        (Width::Fitting, [0, 2, 4]),
        (Width::Narrow, [0, 2, 4]),
        (Width::Wide, [1, 3, 5]),
    ] {
        for math in [MathMode::Full, MathMode::Tf32, MathMode::Pedantic] {
            let cublas = Cublas::builder().workspace_bytes(4096).math(math);
            let cublas = cublas.open().unwrap();
            set(device, cublas.with_width(width));
            let made = double.products_of(|| {
                let real = |x: f64| Complex::new(x, 0.0);
                all_products(&stream, |re, _| re as f32, |x| real(x.into())).unwrap();
                all_products(&stream, |re, _| re, real).unwrap();
                all_products(&stream, |re, _| f16::from_f64(re), |x| real(x.into())).unwrap();
                all_products(&stream, |re, _| bf16::from_f64(re), |x| real(x.into())).unwrap();
                all_products(
                    &stream,
                    |re, im| Complex::new(re as f32, im as f32),
                    |x| Complex::new(x.re.into(), x.im.into()),
                )
                .unwrap();
                all_products(&stream, Complex::new, |x| x).unwrap();
            });
            // Of six types: three products, and one of each batch.
            let all = [
                "cublasGemmEx",
                "cublasGemmEx_64",
                "cublasGemmStridedBatchedEx",
                "cublasGemmStridedBatchedEx_64",
                "cublasGemmBatchedEx",
                "cublasGemmBatchedEx_64",
            ];
            assert_eq!(
                made,
                [(all[names[0]], 18), (all[names[1]], 6), (all[names[2]], 6)]
            );
        }
    }
    drop(stream);
    finish(runtime, &double);
}

#[test]
fn conjugates_are_read_in_place() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let (a, b) = (host(4, 3, 1, Complex::new), host(4, 2, 2, Complex::new));
    let [x, y] = [&a, &b].map(|host| CudaTensor::from_ndarray(device, &host.view()).unwrap());
    let mut c = CudaTensor::<Complex<f64>, 2>::uninitialized(device, [3, 2]).unwrap();
    let adjoint = x.view().conjugated().transposed();
    assign_product(&stream, &mut c, adjoint, &y).unwrap();
    let expected = a.t().mapv(|x| x.conj()).dot(&b);
    assert_eq!(c.to_ndarray().unwrap(), expected);
    assert_eq!(Blas::of(device).counts().copies, 0);
    drop((x, y, c, stream));
    finish(runtime, &double);
}

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
    let graph = streams[1]
        .capture(|_| {
            assign_product(&streams[1], &mut c, &a, &a)?;
            assign_product(&streams[1], &mut c, &a, &a)
        })
        .unwrap();
    made("a capture has a workspace of its own", [0, 1, 0]);
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

#[test]
fn a_product_that_fails_in_a_capture_dooms_it() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let a = CudaTensor::full(&stream, [4, 4], 1.0_f32).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized(device, [4, 4]).unwrap();
    assign_product(&stream, &mut c, &a, &a).unwrap();
    double.fail("cublasGemmEx", 1, 14);
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

/// Handles are used again, and end when that is asked for: not in a capture, and not those that a graph keeps.
#[test]
fn handles_are_kept_for_the_next_and_end_on_request() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let a = CudaTensor::full(&stream, [4, 4], 1.0_f32).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized(device, [4, 4]).unwrap();
    let (blas, cublas) = (Blas::of(device), small());
    let before = double.calls("cublasCreate_v2");
    let made = || double.calls("cublasCreate_v2") - before;
    for math in [MathMode::Full, MathMode::Tf32, MathMode::Full] {
        let provider = Cublas::builder().workspace_bytes(4096).math(math);
        blas.set_provider(Arc::new(provider.open().unwrap()));
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

#[test]
fn tables_of_pointers_are_uploaded_when_they_change() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let streams = device.streams().acquire_many(2).unwrap();
    let stream = &streams[0];
    let x: Vec<_> = (1..=20)
        .map(|i| CudaTensor::full(stream, [4, 4], i as f32).unwrap())
        .collect();
    let mut outs: Vec<_> = (0..20)
        .map(|_| CudaTensor::<f32, 2>::uninitialized(device, [4, 4]).unwrap())
        .collect();
    let uploads = |run: &mut dyn FnMut()| {
        let before = device.call_counts();
        run();
        let made = device.call_counts() - before;
        (
            made.of(Call::MemcpyHtoDAsync),
            made.of(Call::StreamSynchronize),
            made.of(Call::EventSynchronize),
        )
    };
    let mut step = |stream: &Stream, first: usize, count: usize| {
        let inputs = || x[first..first + count].iter();
        gemm_batched(stream, &mut outs[..count], 1.0, inputs(), inputs(), 0.0).unwrap();
        (first, count)
    };
    let mut last = (0, 0);
    // No host waits in any of them.
    assert_eq!(uploads(&mut || last = step(stream, 0, 3)), (1, 0, 0));
    assert_eq!(uploads(&mut || last = step(stream, 0, 3)), (0, 0, 0));
    assert_eq!(
        uploads(&mut || last = step(&streams[1], 0, 3)),
        (1, 0, 0),
        "another handle"
    );
    assert_eq!(uploads(&mut || last = step(stream, 1, 3)), (1, 0, 0));
    assert_eq!(
        uploads(&mut || {
            step(stream, 0, 3);
            step(stream, 1, 3);
        }),
        (0, 0, 0)
    );
    // More than are kept: the oldest are written over.
    for first in 0..15 {
        step(&streams[first % 2], first, 4);
    }
    for (first, count) in [(2, 5), (3, 2), (0, 20), (0, 20)] {
        last = step(stream, first, count);
    }
    for (i, out) in outs[..last.1].iter().enumerate() {
        let value = (1 + last.0 + i) as f32;
        assert_eq!(
            out.to_ndarray().unwrap(),
            Array2::from_elem((4, 4), 4.0 * value * value)
        );
    }
    // Captured: the graph has a table of its own, and replays upload nothing.
    let graph = stream
        .capture(|_| gemm_batched(stream, &mut outs[..4], 1.0, &x[..4], &x[4..8], 1.0))
        .unwrap();
    for out in &mut outs {
        crate::fill(stream, out, 0.0).unwrap();
    }
    let before = device.call_counts();
    for stream in &streams {
        graph.launch(stream).unwrap();
    }
    assert_eq!((device.call_counts() - before).of(Call::MemcpyHtoDAsync), 0);
    for (i, out) in outs[..4].iter().enumerate() {
        let value = 2.0 * 4.0 * (1 + i) as f32 * (5 + i) as f32;
        assert_eq!(out.to_ndarray().unwrap(), Array2::from_elem((4, 4), value));
    }
    drop((graph, x, outs, streams));
    finish(runtime, &double);
}

/// Batches whose sizes differ are one call for each size; a factor that is no number ends nowhere.
#[test]
fn batches_are_called_by_their_sizes() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let sizes = [2, 3, 2, 4, 3, 2];
    let tensor = |n: usize| CudaTensor::full(&stream, [n, n], 1.0_f64).unwrap();
    let (a, b): (Vec<_>, Vec<_>) = sizes.iter().map(|&n| (tensor(n), tensor(n))).unzip();
    let mut c: Vec<_> = sizes.iter().map(|&n| tensor(n)).collect();
    let made = double.products_of(|| gemm_batched(&stream, &mut c, 1.0, &a, &b, 1.0).unwrap());
    assert_eq!(made, [("cublasGemmEx", 1), ("cublasGemmBatchedEx", 2)]);
    for (n, c) in sizes.into_iter().zip(&c) {
        assert_eq!(
            c.to_ndarray().unwrap(),
            Array2::from_elem((n, n), 1.0 + n as f64)
        );
    }
    gemm_batched(&stream, &mut c, f64::NAN, &a, &b, 0.0).unwrap();
    assert!(c[5].to_ndarray().unwrap()[[0, 0]].is_nan());
    drop((a, b, c, stream));
    finish(runtime, &double);
}

/// On a thread that has no context, and makes no other call: all that the product needs is known to be there.
#[test]
fn products_make_their_context_current() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    Blas::of(device).set_handles(1);
    let streams = device.streams().acquire_many(2).unwrap();
    let a = CudaTensor::full(&streams[0], [4, 4], 1.0_f32).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized_on(&streams[0], [4, 4]).unwrap();
    assign_product(&streams[0], &mut c, &a, &a).unwrap();
    streams[0].synchronize().unwrap();
    let before = device.call_counts();
    let product = || assign_product(&streams[1], &mut c, &a, &a).unwrap();
    std::thread::scope(|scope| scope.spawn(product).join()).unwrap();
    assert_eq!((device.call_counts() - before).total(), 0);
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((4, 4), 4.0));
    drop((a, c, streams));
    finish(runtime, &double);
}

/// On threads that have no context, in threads at once, and with leases.
#[test]
fn products_find_their_context_on_any_thread() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    for device in runtime.devices() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let blas = Blas::of(device);
                    for _ in 0..8 {
                        let lease = blas.lease().unwrap();
                        let a = CudaTensor::full(lease.stream(), [4, 4], 1.0_f32).unwrap();
                        let mut c =
                            CudaTensor::<f32, 2>::uninitialized_on(lease.stream(), [4, 4]).unwrap();
                        assign_product(&lease, &mut c, &a, &a).unwrap();
                        assert_eq!(c.to_ndarray().unwrap()[[3, 3]], 4.0);
                    }
                });
            }
        });
    }
    finish(runtime, &double);
}

#[test]
fn sizes_beyond_32_bits_are_refused_where_there_is_no_other_way() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let cublas = Cublas::find().unwrap();
    assert_eq!(cublas.max_dim(), i64::MAX as u64);
    assert_eq!(cublas.with_width(Width::Narrow).max_dim(), i32::MAX as u64);
    assert_eq!(cublas.name(), "cuBLAS 12.8.4");
    finish(runtime, &double);
}

/// A folder of this test alone.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("carve-cublas-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The emulated library under another name.
    fn link(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap();
        let library = std::env::split_paths(&folders)
            .map(|folder| folder.join("libcublas.so.12"))
            .find(|library| library.exists());
        std::os::unix::fs::symlink(library.unwrap(), &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Result<Cublas, CublasError> {
    Cublas::builder().path(path).open()
}

#[test]
fn a_library_that_does_not_do_says_why() {
    let Some(double) = Double::find() else { return };
    let folder = Folder::new("versions");
    let told = |version: c_int, name: &str| {
        double.tell_version(version);
        let result = open(&folder.link(name));
        double.tell_version(0);
        result
            .map(|cublas| cublas.version().to_string())
            .map_err(|error| {
                assert!(!error.is_absence());
                error.to_string()
            })
    };
    let (old, new) = (told(111_103, "old.so"), told(140_000, "new.so"));
    assert!(
        old.unwrap_err()
            .contains("old.so is cuBLAS 11.11.3, and 12 or 13 is needed")
    );
    assert!(
        new.unwrap_err()
            .contains("new.so is cuBLAS 14.0.0, which is not known")
    );
    let later = told(130_002, "later.so").unwrap_err();
    let expected =
        "is cuBLAS 13.0.2, which needs a driver for CUDA 13.0, and this one is for CUDA 12.8";
    assert!(later.contains(expected), "{later}");
    assert_eq!(told(120_103, "some.so").unwrap(), "12.1.3");
    // Where the name tells, it is not even loaded; the older one beside it is used.
    let mixed = Folder::new("mixed");
    std::fs::write(mixed.0.join("libcublas.so.13"), "no library").unwrap();
    let error = open(&mixed.0).unwrap_err().to_string();
    assert!(
        error.contains("libcublas.so.13 is cuBLAS 13.0.0, which needs a driver"),
        "{error}"
    );
    mixed.link("libcublas.so.12");
    assert_eq!(open(&mixed.0).unwrap().version().minor, 8);
    // What is no library, what is another one, and what is not there.
    let text = folder.0.join("text.so");
    std::fs::write(&text, "no library").unwrap();
    let error = open(&text).unwrap_err();
    assert!(matches!(error, CublasError::Load { .. }), "{error}");
    let error = open(&folder.0.join("nothing.so")).unwrap_err();
    assert!(
        error.to_string().contains("there is no such file"),
        "{error}"
    );
    let other = open(Path::new(&driver_library())).unwrap_err();
    assert!(
        other
            .to_string()
            .contains("has no function cublasGetProperty"),
        "{other}"
    );
    let empty = Folder::new("empty");
    let error = open(&empty.0).unwrap_err();
    assert!(
        error.is_absence() && error.to_string().contains("it is not there"),
        "{error}"
    );
}

/// The emulated driver, which is a library without the functions of cuBLAS.
fn driver_library() -> PathBuf {
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap();
    let library = std::env::split_paths(&folders).map(|folder| folder.join("libcuda.so.1"));
    library
        .into_iter()
        .find(|library| library.exists())
        .unwrap()
}

/// cuBLAS needs another library, which is taken from the folder that it is in.
#[test]
fn the_library_beside_is_loaded_first() {
    let Some(_double) = Double::find() else {
        return;
    };
    let folder = Folder::new("beside");
    folder.link("libcublas.so.12");
    std::fs::write(folder.0.join("libcublasLt.so.12"), "no library").unwrap();
    let error = open(&folder.0).unwrap_err().to_string();
    assert!(
        error.contains("libcublasLt.so.12 can't be loaded"),
        "{error}"
    );
}

#[test]
fn devices_that_are_simulated_are_refused() {
    let Some(_double) = Double::find() else {
        return;
    };
    let simulated = cuda_sim::SimDriver::builder().build();
    let runtime = Runtime::builder()
        .driver(simulated.as_driver())
        .build()
        .unwrap();
    let device = runtime.default_device();
    // They have their own provider by themselves.
    assert_eq!(Blas::of(device).provider().unwrap().name(), "host BLAS");
    let error = Cublas::find().unwrap().open(device).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("is simulated: use `HostBlas` there"),
        "{error}"
    );
}

#[test]
fn hardware_takes_it_by_itself() {
    let Some(double) = Double::find() else { return };
    let runtime = bare_runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let blas = Blas::of(device);
    assert_eq!(blas.provider().unwrap().name(), "cuBLAS 12.8.4");
    let x = CudaTensor::from_ndarray(device, &array![[1.0_f32, 2.0], [3.0, 4.0]].view()).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized(device, [2, 2]).unwrap();
    let made = double.products_of(|| assign_product(&stream, &mut c, &x, &x).unwrap());
    assert_eq!(made, [("cublasGemmEx", 1)]);
    assert_eq!(c.to_ndarray().unwrap(), array![[7.0, 10.0], [15.0, 22.0]]);
    blas.set_provider(Arc::new(HostBlas::default()));
    let made = double.products_of(|| assign_product(&stream, &mut c, &x, &x).unwrap());
    assert_eq!(made, []);
    drop((x, c, stream));
    finish(runtime, &double);
}
