//! On the emulated driver and the library that stands in for cuBLAS there: `cargo xtask test-gpu --emulated`. Elsewhere these tests say
//! that they did nothing.

mod batches;
mod beside;
mod captures;
mod direct;
mod double;
mod finding;
mod handles;

use super::provider::Width;
use super::{Cublas, MathMode};
use crate::blas::{Blas, HostBlas, MatrixProvider};
use crate::{
    CudaTensor, Number, TensorResult, assign_product, gemm, gemm_batched, gemm_strided_batched,
};
use cuda_buffer::CaptureStep;
use cuda_driver::Call;
use cuda_runtime::{Device, Runtime, Stream};
use double::Double;
use half::{bf16, f16};
use ndarray::{Array2, Array3, array};
use num_complex::Complex;
use std::sync::Arc;

fn bare_runtime() -> Runtime {
    Runtime::builder().streams_per_device(4).build().unwrap()
}

/// A small workspace: the simulation fills whatever is allocated.
fn small(device: &Device) -> Cublas {
    let small = Cublas::builder().workspace_bytes(4096);
    small.open(device).unwrap()
}

fn runtime() -> Runtime {
    let runtime = bare_runtime();
    for device in runtime.devices() {
        set(device, small(device));
    }
    runtime
}

/// Nothing was reported, and no handle is in use.
fn finish(runtime: Runtime, double: &Double) {
    let devices = runtime.devices().to_vec();
    runtime.shutdown().unwrap();
    for device in &devices {
        small(device).end_idle_handles(device).unwrap();
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
            let cublas = cublas.open(device).unwrap();
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
    let cublas = Cublas::find(runtime.default_device()).unwrap();
    assert_eq!(cublas.max_dim(), i64::MAX as u64);
    assert_eq!(cublas.with_width(Width::Narrow).max_dim(), i32::MAX as u64);
    assert_eq!(cublas.name(), "cuBLAS 12.8.4");
    finish(runtime, &double);
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
    let hardware = bare_runtime();
    let cublas = Cublas::find(hardware.default_device()).unwrap();
    let errors = [
        Cublas::find(device).unwrap_err().into(),
        cublas.open(device).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(
            text.contains("is simulated: use `HostBlas` there"),
            "{text}"
        );
    }
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
