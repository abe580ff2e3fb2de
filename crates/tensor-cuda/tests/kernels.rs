//! Every kernel on the driver that the loader finds, a GPU's or the emulated one, against the models on the simulated device.
//!
//! `cargo xtask test-kernels` runs this with the kernels' own source, compiled for the host; `cargo xtask test-gpu` on a GPU.

use cuda_driver::hardware;
use cuda_runtime::{Device, Runtime, Stream};
use cuda_sim::SimDriver;
use half::{bf16, f16};
use ndarray::Array2;
use num_complex::Complex;
use std::fmt::Debug;
use std::sync::Arc;
use tensor_cuda::{CastTo, ComplexNumber, CudaTensor, Map, Norm, Number, Real, TensorResult};

const ROWS: usize = 7;
const COLUMNS: usize = 37;

/// What every element type of a test can be made from and compared as.
trait Element: bytemuck::Pod + Debug {
    fn value(re: f64, im: f64) -> Self;
    fn parts(self) -> [f64; 2];
    /// Relative difference that is allowed between two ways to round.
    const TOLERANCE: f64;
}

macro_rules! elements {
    ($($type:ty, $tolerance:expr, |$re:ident, $im:ident| $of:expr, |$x:ident| $parts:expr;)+) => { $(
        impl Element for $type {
            const TOLERANCE: f64 = $tolerance;
            fn value($re: f64, $im: f64) -> Self {
                let _ = $im;
                $of
            }
            fn parts(self) -> [f64; 2] {
                let $x = self;
                $parts
            }
        }
    )+ };
}

elements! {
    f32, 1e-5, |re, im| re as f32, |x| [x.into(), 0.0];
    f64, 1e-12, |re, im| re, |x| [x, 0.0];
    f16, 4e-3, |re, im| f16::from_f64(re), |x| [x.into(), 0.0];
    bf16, 3e-2, |re, im| bf16::from_f64(re), |x| [x.into(), 0.0];
    i32, 0.0, |re, im| (re * 1000.0) as i32, |x| [x.into(), 0.0];
    u32, 0.0, |re, im| (re * 1000.0) as u32, |x| [x.into(), 0.0];
    Complex<f32>, 1e-4, |re, im| Complex::new(re as f32, im as f32), |x| [x.re.into(), x.im.into()];
    Complex<f64>, 1e-11, |re, im| Complex::new(re, im), |x| [x.re, x.im];
}

/// Numbers between -2 and 2, the same for every device.
fn numbers<T: Element>(seed: u64) -> Array2<T> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 11) as f64 / (1_u64 << 53) as f64 * 4.0 - 2.0
    };
    Array2::from_shape_fn((ROWS, COLUMNS), |_| T::value(next(), next()))
}

/// The results of one device, by name.
struct Results<'a> {
    device: &'a Device,
    stream: Stream,
    all: Vec<(String, f64, Vec<[f64; 2]>)>,
}

impl<'a> Results<'a> {
    fn of(device: &'a Device, run: impl FnOnce(&mut Self) -> TensorResult<()>) -> Self {
        let stream = device.streams().acquire().unwrap();
        let mut results = Self {
            device,
            stream,
            all: Vec::new(),
        };
        run(&mut results).unwrap();
        results
    }

    fn input<T: Element>(&self, seed: u64) -> TensorResult<CudaTensor<T, 2>> {
        CudaTensor::from_ndarray(self.device, &numbers::<T>(seed).view())
    }

    /// Makes an output of these extents, lets `run` write it, and notes it.
    fn note<T: Element, const N: usize>(
        &mut self,
        name: String,
        tolerance: f64,
        extents: [usize; N],
        run: impl FnOnce(&Stream, &mut CudaTensor<T, N>) -> TensorResult<()>,
    ) -> TensorResult<()>
    where
        ndarray::Dim<[usize; N]>: ndarray::Dimension,
    {
        let mut out = CudaTensor::<T, N>::uninitialized(self.device, extents)?;
        run(&self.stream, &mut out)?;
        let values = bytemuck::cast_slice::<u8, T>(&bytes(&out)?)
            .iter()
            .map(|x| x.parts())
            .collect();
        self.all.push((name, tolerance, values));
        Ok(())
    }
}

fn bytes<T: Element, const N: usize>(out: &CudaTensor<T, N>) -> TensorResult<Vec<u8>> {
    use cuda_buffer::DeviceData;
    Ok(bytemuck::cast_slice(&out.buffer().to_vec()?).to_vec())
}

fn of_numbers<T: Number + Element>(results: &mut Results<'_>, name: &str) -> TensorResult<()>
where
    T::Magnitude: Element,
{
    let (x, y, tolerance) = (results.input::<T>(1)?, results.input::<T>(2)?, T::TOLERANCE);
    let shape = [ROWS, COLUMNS];
    let (two, half) = (T::value(2.0, 0.0), T::value(0.5, 0.25));
    results.note(format!("fill {name}"), 0.0, shape, |s, out| {
        tensor_cuda::fill(s, out, half)
    })?;
    results.note(format!("copy {name}"), 0.0, [COLUMNS, ROWS], |s, out| {
        tensor_cuda::copy(s, out, x.view().transposed())
    })?;
    results.note(format!("copy reversed {name}"), 0.0, shape, |s, out| {
        tensor_cuda::copy(s, out, x.view().reversed(0)?.reversed(1)?)
    })?;
    results.note(format!("axpy {name}"), tolerance, shape, |s, out| {
        tensor_cuda::copy(s, &mut *out, &y)?;
        tensor_cuda::axpy(s, &mut *out, half, &x)?;
        tensor_cuda::scale(s, &mut *out, two)?;
        tensor_cuda::multiply_in_place(s, out, &y)
    })?;
    results.note(
        format!("add {name}"),
        tolerance,
        [COLUMNS, ROWS],
        |s, out| tensor_cuda::add(s, out, x.view().transposed(), y.view().transposed()),
    )?;
    results.note(format!("multiply {name}"), tolerance, shape, |s, out| {
        tensor_cuda::multiply(s, out, &x, &y)
    })?;
    let maps = [
        Map::Negate,
        Map::Absolute,
        Map::Conjugate,
        Map::Square,
        Map::SquareRoot,
        Map::Reciprocal,
        Map::Exponential,
        Map::Logarithm,
        Map::Sine,
        Map::Cosine,
        Map::Tanh,
    ];
    for map in maps {
        results.note(
            format!("{map:?} {name}"),
            4.0 * tolerance,
            shape,
            |s, out| tensor_cuda::map(s, out, map, &x),
        )?;
    }
    let sums = 100.0 * tolerance;
    results.note(format!("sum of rows {name}"), sums, [ROWS], |s, out| {
        tensor_cuda::sum(s, out, &x, [1])
    })?;
    results.note(
        format!("sum of columns {name}"),
        sums,
        [COLUMNS],
        |s, out| tensor_cuda::sum(s, out, &x, [0]),
    )?;
    results.note(format!("sum of all {name}"), sums, [], |s, out| {
        tensor_cuda::sum(s, out, &x, [0, 1])
    })?;
    for norm in [Norm::One, Norm::Two, Norm::Infinity] {
        results.note::<T::Magnitude, 1>(
            format!("{norm:?} norm {name}"),
            sums,
            [ROWS],
            |s, out| tensor_cuda::norm(s, out, norm, &x, [1]),
        )?;
    }
    for beta in [T::ZERO, half] {
        results.note(format!("product {name}"), sums, [ROWS, ROWS], |s, out| {
            tensor_cuda::fill(s, &mut *out, two)?;
            tensor_cuda::gemm(s, out, half, &x, y.view().transposed(), beta)
        })?;
    }
    Ok(())
}

/// What conjugates its operands.
fn of_complex<T: ComplexNumber + Element>(
    results: &mut Results<'_>,
    name: &str,
) -> TensorResult<()> {
    let (x, y, tolerance) = (
        results.input::<T>(5)?,
        results.input::<T>(6)?,
        10.0 * T::TOLERANCE,
    );
    let shape = [ROWS, COLUMNS];
    results.note(
        format!("conjugate in place {name}"),
        tolerance,
        shape,
        |s, out| {
            tensor_cuda::copy(s, &mut *out, &y)?;
            tensor_cuda::multiply_in_place(s, out, x.view().conjugated())
        },
    )?;
    results.note(
        format!("multiply conjugates {name}"),
        tolerance,
        shape,
        |s, out| tensor_cuda::multiply(s, out, x.view().conjugated(), y.view().conjugated()),
    )?;
    results.note(
        format!("sum of conjugates {name}"),
        tolerance,
        [ROWS],
        |s, out| tensor_cuda::sum(s, out, x.view().conjugated(), [1]),
    )?;
    results.note(
        format!("map of conjugates {name}"),
        tolerance,
        shape,
        |s, out| tensor_cuda::map(s, out, Map::Square, x.view().conjugated()),
    )?;
    results.note(
        format!("product with a conjugate {name}"),
        tolerance,
        [ROWS, ROWS],
        |s, out| tensor_cuda::assign_product(s, out, &x, y.view().transposed().conjugated()),
    )
}

fn of_reals<T: Real + Element>(results: &mut Results<'_>, name: &str) -> TensorResult<()> {
    let mut values = numbers::<T>(3);
    // Equal ones, and one that is no number.
    values[[1, 5]] = T::value(3.0, 0.0);
    values[[1, 9]] = T::value(3.0, 0.0);
    values[[2, 8]] = T::value(f64::NAN, 0.0);
    let x = CudaTensor::from_ndarray(results.device, &values.view())?;
    results.note(format!("max {name}"), 0.0, [ROWS], |s, out| {
        tensor_cuda::max(s, out, &x, [1])
    })?;
    results.note(format!("min {name}"), 0.0, [COLUMNS], |s, out| {
        tensor_cuda::min(s, out, &x, [0])
    })?;
    results.note::<u32, 1>(format!("argmax {name}"), 0.0, [ROWS], |s, out| {
        tensor_cuda::argmax(s, out, &x, 1)
    })?;
    for map in [Map::Sigmoid, Map::Relu] {
        results.note(
            format!("{map:?} {name}"),
            4.0 * T::TOLERANCE,
            [ROWS, COLUMNS],
            |s, out| tensor_cuda::map(s, out, map, &x),
        )?;
    }
    Ok(())
}

fn of_cast<S: Element + CastTo<D>, D: Element>(results: &mut Results<'_>) -> TensorResult<()> {
    let mut values = numbers::<S>(4);
    for (i, extreme) in [0.0, 1e-9, 1e9, -1e9, 1e30, -1e30, f64::INFINITY, f64::NAN]
        .into_iter()
        .enumerate()
    {
        values[[3, i]] = S::value(extreme, extreme);
    }
    let x = CudaTensor::from_ndarray(results.device, &values.view())?;
    let name = format!(
        "cast {} to {}",
        std::any::type_name::<S>(),
        std::any::type_name::<D>()
    );
    results.note::<D, 2>(name, 0.0, [ROWS, COLUMNS], |s, out| {
        tensor_cuda::cast(s, out, &x)
    })
}

/// Runs the same on the simulated device and on the driver's, and compares.
fn compare(run: impl Fn(&mut Results<'_>) -> TensorResult<()>) {
    let simulated = Runtime::builder()
        .driver(SimDriver::builder().build().as_driver())
        .build()
        .unwrap();
    let hardware = Runtime::builder()
        .driver(Arc::new(hardware::open().unwrap()))
        .build()
        .unwrap();
    // The kernel for products, and no library.
    let plain = Arc::new(tensor_cuda::HostBlas::default());
    tensor_cuda::Blas::of(hardware.default_device()).set_provider(plain);
    let expected = Results::of(simulated.default_device(), &run);
    let got = Results::of(hardware.default_device(), &run);
    assert_eq!(expected.all.len(), got.all.len());
    for ((name, tolerance, expected), (_, _, got)) in expected.all.iter().zip(&got.all) {
        for (i, (expected, got)) in expected
            .iter()
            .flatten()
            .zip(got.iter().flatten())
            .enumerate()
        {
            let close = (expected - got).abs() <= tolerance * expected.abs().max(1.0);
            let same = expected == got || (expected.is_nan() && got.is_nan());
            assert!(
                same || close,
                "{name}, part {i}: {got} where the model has {expected}"
            );
        }
    }
}

macro_rules! tests {
    ($($name:ident: $($run:expr),+;)+) => { $(
        #[test]
        fn $name() {
            compare(|results| {
                $($run(results)?;)+
                Ok(())
            });
        }
    )+ };
}

tests! {
    kernels_of_f32: |r: &mut _| of_numbers::<f32>(r, "f32"), |r: &mut _| of_reals::<f32>(r, "f32");
    kernels_of_f64: |r: &mut _| of_numbers::<f64>(r, "f64"), |r: &mut _| of_reals::<f64>(r, "f64");
    kernels_of_f16: |r: &mut _| of_numbers::<f16>(r, "f16"), |r: &mut _| of_reals::<f16>(r, "f16");
    kernels_of_bf16: |r: &mut _| of_numbers::<bf16>(r, "bf16"), |r: &mut _| of_reals::<bf16>(r, "bf16");
    kernels_of_complex_f32: |r: &mut _| of_numbers::<Complex<f32>>(r, "c32"), |r: &mut _| of_complex::<Complex<f32>>(r, "c32");
    kernels_of_complex_f64: |r: &mut _| of_numbers::<Complex<f64>>(r, "c64"), |r: &mut _| of_complex::<Complex<f64>>(r, "c64");
    casts_of_f32: of_cast::<f32, f64>, of_cast::<f32, f16>, of_cast::<f32, bf16>, of_cast::<f32, i32>, of_cast::<f32, u32>, of_cast::<f32, Complex<f32>>;
    casts_of_f64: of_cast::<f64, f32>, of_cast::<f64, f16>, of_cast::<f64, bf16>, of_cast::<f64, i32>, of_cast::<f64, u32>, of_cast::<f64, Complex<f64>>;
    casts_of_16_bits: of_cast::<f16, f32>, of_cast::<f16, f64>, of_cast::<f16, bf16>, of_cast::<bf16, f32>, of_cast::<bf16, f64>, of_cast::<bf16, f16>;
    other_casts: of_cast::<i32, f32>, of_cast::<i32, f64>, of_cast::<u32, f32>, of_cast::<u32, f64>, of_cast::<Complex<f32>, Complex<f64>>, of_cast::<Complex<f64>, Complex<f32>>;
}
