//! Bad input, case by case: an error of its own that names the operand and the numbers, nothing queued, nothing changed.

use cuda_buffer::{CudaBuffer, DeviceData, PinnedBuffer, SharedCudaBuffer};
use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use ndarray::{Array2, array};
use num_complex::Complex;
use std::sync::Arc;
use tensor_cuda::{
    Activation, Blas, CudaTensor, HostBlas, Layout, Map, Norm, TensorError, TensorResult,
    TensorView, TensorViewMut, add, add_bias, argmax, assign_product, axpy, cast, copy,
    copy_from_ndarray, copy_from_pinned, copy_to_pinned, fill, gemm, gemm_batched,
    gemm_strided_batched, gemv, linear, map, map_in_place, matmul, max, min, multiply,
    multiply_in_place, norm, scale, sum,
};

/// What was refused, and how the error has to look.
struct Refused {
    what: &'static str,
    variant: &'static str,
    operand: &'static str,
    /// What the message has to tell.
    told: &'static [&'static str],
    result: TensorResult<()>,
}

impl Refused {
    fn check(self) {
        let Self {
            what,
            variant,
            operand,
            told,
            result,
        } = self;
        let error = result.expect_err(what);
        let (debug, text) = (format!("{error:?}"), error.to_string());
        assert!(debug.starts_with(variant), "{what}: {debug}");
        if !operand.is_empty() {
            assert!(
                debug.contains(&format!("operand: {operand:?}")),
                "{what}: {debug}"
            );
            assert!(text.contains(operand), "{what}: {text}");
        }
        for part in told {
            assert!(text.contains(part), "{what}: {text} does not tell {part}");
        }
    }
}

/// Cases, one a line: the error, the operand that it names, what its message tells, and the call.
macro_rules! refused {
    ($list:ident; $($variant:ident $operand:literal [$($told:literal),*]: $call:expr;)+) => { $(
        $list.push(Refused {
            what: stringify!($call),
            variant: stringify!($variant),
            operand: $operand,
            told: &[$($told),*],
            result: $call,
        });
    )+ };
}

type Matrix = CudaTensor<f32, 2>;

struct World {
    runtime: Runtime,
    stream: cuda_runtime::Stream,
}

impl World {
    fn new() -> Self {
        let simulation = SimDriver::builder().devices(2);
        let runtime = Runtime::builder().simulation(simulation).build().unwrap();
        crate::common::small_workspaces(&runtime);
        let stream = runtime.default_device().streams().acquire().unwrap();
        Self { runtime, stream }
    }

    fn matrix(&self, extents: [usize; 2]) -> Matrix {
        CudaTensor::full(&self.stream, extents, 1.0).unwrap()
    }

    /// Runs calls that must all be refused: nothing is queued by them.
    fn refuse(&self, calls: impl FnOnce(&mut Vec<Refused>)) {
        self.stream.synchronize().unwrap();
        let counts = || {
            self.runtime
                .devices()
                .iter()
                .map(|device| device.call_counts())
                .collect::<Vec<_>>()
        };
        let before = counts();
        let mut list = Vec::new();
        calls(&mut list);
        for (after, before) in counts().into_iter().zip(before) {
            let made = after - before;
            let queued = [
                Call::LaunchKernel,
                Call::MemcpyDtoDAsync,
                Call::MemcpyHtoDAsync,
                Call::MemcpyDtoHAsync,
                Call::Memcpy2DAsync,
                Call::MemcpyPeerAsync,
                Call::MemsetD8Async,
            ];
            assert!(queued.iter().all(|&call| made.of(call) == 0), "{made}");
        }
        assert!(!list.is_empty());
        list.into_iter().for_each(Refused::check);
    }

    fn finish(self) {
        drop(self.stream);
        crate::common::assert_nothing_is_left(self.runtime);
    }
}

#[test]
fn extents_that_dont_fit() {
    let world = World::new();
    let s = &world.stream;
    let (a, b, mut c) = (
        world.matrix([2, 3]),
        world.matrix([3, 4]),
        world.matrix([2, 4]),
    );
    let square = world.matrix([3, 3]);
    let x = CudaTensor::<f32, 1>::full(s, [3], 1.0).unwrap();
    let (mut two, mut three) = (
        CudaTensor::<f32, 1>::full(s, [2], 1.0).unwrap(),
        CudaTensor::<f32, 1>::full(s, [3], 1.0).unwrap(),
    );
    let mut index = CudaTensor::<u32, 1>::full(s, [3], 0).unwrap();
    let batch = |n, extents: [usize; 2]| {
        CudaTensor::<f32, 3>::full(s, [n, extents[0], extents[1]], 1.0).unwrap()
    };
    let (a3, b3, mut c3) = (batch(2, [2, 3]), batch(2, [3, 4]), batch(2, [2, 4]));
    let (one_a, one_b) = (batch(1, [2, 3]), batch(1, [3, 4]));
    let empty = world.matrix([3, 0]);
    let mut wide = CudaTensor::<f64, 2>::zeros(s, [2, 4]).unwrap();
    let mut pinned = PinnedBuffer::<f32>::new(world.runtime.default_device(), 5).unwrap();
    world.refuse(|list| {
        refused! { list;
            ShapeMismatch "a" ["gemm", "[3, 2]", "[2, 2]"]: gemm(s, &mut c, 1.0, a.view().transposed(), &b, 0.0);
            ShapeMismatch "b" ["gemm", "[3, 3]", "[3, 4]"]: gemm(s, &mut c, 1.0, &a, &square, 0.0);
            ShapeMismatch "b" ["assign_product"]: assign_product(s, &mut c, &a, &a);
            ShapeMismatch "b" ["matmul", "[2, 3]", "[3, 3]"]: matmul(s, &a, &a).map(drop);
            ShapeMismatch "a" ["gemm_strided_batched", "[1, 2, 3]"]: gemm_strided_batched(s, &mut c3, 1.0, &one_a, &b3, 0.0);
            ShapeMismatch "b" ["gemm_strided_batched", "[1, 3, 4]"]: gemm_strided_batched(s, &mut c3, 1.0, &a3, &one_b, 0.0);
            ShapeMismatch "a" ["gemm_batched", "[2]", "[1]"]: gemm_batched(s, [&mut c], 1.0, [&a, &a], [&b], 0.0);
            ShapeMismatch "b" ["gemm_batched", "[2]", "[1]"]: gemm_batched(s, [&mut c], 1.0, [&a], [&b, &b], 0.0);
            ShapeMismatch "b" ["gemm_batched", "[3, 3]"]: gemm_batched(s, [&mut c], 1.0, [&a], [&square], 0.0);
            ShapeMismatch "y" ["gemv", "[3]", "[2]"]: gemv(s, &mut three, 1.0, &a, &x, 0.0);
            ShapeMismatch "x" ["gemv", "[4]", "[3]"]: gemv(s, &mut two, 1.0, &a, c.view().at::<1>(0, 0).unwrap(), 0.0);
            ShapeMismatch "a" ["copy", "[2, 3]", "[2, 4]"]: copy(s, &mut c, &a);
            ShapeMismatch "a" ["map"]: map(s, &mut c, Map::Square, &a);
            ShapeMismatch "a" ["cast"]: cast(s, &mut wide, &a);
            ShapeMismatch "x" ["axpy"]: axpy(s, &mut c, 1.0, &a);
            ShapeMismatch "a" ["add"]: add(s, &mut c, &a, &b);
            ShapeMismatch "b" ["linear"]: linear(s, &mut three, 1.0, &x, 1.0, &two);
            ShapeMismatch "a" ["multiply"]: multiply(s, &mut c, &a, &a);
            ShapeMismatch "a" ["multiply_in_place"]: multiply_in_place(s, &mut c, &a);
            ShapeMismatch "bias" ["add_bias", "[3]", "[4]"]: add_bias(s, &mut c, &x, Activation::Relu);
            ShapeMismatch "out" ["sum", "[3]", "[2]"]: sum(s, &mut three, &a, [1]);
            ShapeMismatch "out" ["norm"]: norm(s, &mut two, Norm::Two, &a, [0]);
            ShapeMismatch "x" ["max", "[3, 0]", "[3, 1]"]: max(s, &mut three, &empty, [1]);
            ShapeMismatch "x" ["min", "[3, 0]"]: min(s, &mut three, &empty, [1]);
            ShapeMismatch "x" ["argmax", "[3, 0]"]: argmax(s, &mut index, &empty, 1);
            ShapeMismatch "array" ["copy_from_ndarray", "[1, 2]"]: copy_from_ndarray(&mut c, &array![[1.0, 2.0]].view());
            Buffer "" ["5", "8"]: copy_from_pinned(s, &mut c, &pinned);
            Buffer "" ["5", "6"]: copy_from_pinned(s, c.view_mut().slice(1, 0..3).unwrap(), &pinned);
            Buffer "" ["5", "8"]: copy_from_pinned(s, c.view_mut().transposed(), &pinned);
            Buffer "" ["5", "6"]: copy_to_pinned(s, &mut pinned, c.view().slice(1, 0..3).unwrap());
        }
    });
    assert_eq!(c.to_ndarray().unwrap(), Array2::ones((2, 4)));
    drop((
        a, b, c, square, x, two, three, index, a3, b3, c3, one_a, one_b, empty, wide, pinned,
    ));
    world.finish();
}

#[test]
fn outputs_that_are_operands() {
    let world = World::new();
    let s = &world.stream;
    let shared = SharedCudaBuffer::from(world.matrix([4, 4]).into_buffer());
    let square = Layout::row_major([4, 4]).unwrap();
    // Parts that don't overlap are of one value all the same: its ledger knows no parts.
    let rows = |from: usize| square.slice(0, from..from + 2).unwrap();
    let read = |layout| TensorView::over(shared.read(), layout).unwrap();
    let write = |layout| TensorViewMut::over(shared.write(), layout).unwrap();
    let other = world.matrix([4, 4]);
    let part = world.matrix([2, 4]);
    let first = |layout: Layout<2>| layout.at::<1>(0, 0).unwrap();
    let read_row = || TensorView::over(shared.read(), first(rows(0))).unwrap();
    let write_row = || TensorViewMut::over(shared.write(), first(rows(2))).unwrap();
    world.refuse(|list| {
        refused! { list;
            Aliased "a" ["gemm"]: gemm(s, write(square), 1.0, read(square), &other, 0.0);
            Aliased "b" ["gemm"]: gemm(s, write(square), 1.0, &other, read(square), 0.0);
            Aliased "b" ["assign_product"]: assign_product(s, write(rows(0)), &part, read(square));
            Aliased "x" ["gemv"]: gemv(s, write_row(), 1.0, &other, read_row(), 0.0);
            Aliased "a" ["gemv"]: gemv(s, write_row(), 1.0, read(square), other.view().at::<1>(0, 0).unwrap(), 0.0);
            Aliased "b" ["gemm_batched"]: gemm_batched(s, [write(square)], 1.0, [other.view()], [read(square)], 0.0);
            Aliased "a" ["copy"]: copy(s, write(rows(2)), read(rows(0)));
            Aliased "a" ["map"]: map(s, write(square), Map::Square, read(square));
            Aliased "x" ["axpy"]: axpy(s, write(square), 1.0, read(square));
            Aliased "b" ["add"]: add(s, write(square), &other, read(square));
            Aliased "a" ["multiply"]: multiply(s, write(square), read(square), &other);
            Aliased "a" ["multiply_in_place"]: multiply_in_place(s, write(square), read(square));
            Aliased "bias" ["add_bias"]: add_bias(s, write(square), read_row(), Activation::Tanh);
            Aliased "x" ["sum"]: sum(s, write_row(), read(square), [0]);
        }
    });
    drop((shared, other, part));
    world.finish();
}

#[test]
fn outputs_that_would_be_written_twice() {
    let world = World::new();
    let s = &world.stream;
    let (a, b) = (world.matrix([2, 3]), world.matrix([3, 4]));
    let mut c = world.matrix([2, 4]);
    let mut v = CudaTensor::<f32, 1>::full(s, [4], 1.0).unwrap();
    let mut batch = CudaTensor::<f32, 3>::full(s, [1, 2, 4], 1.0).unwrap();
    let mut index = CudaTensor::<u32, 1>::full(s, [1], 0).unwrap();
    let twice = Layout::strided([2, 4], [0, 1], 0).unwrap();
    // Windows of which each begins within the one before.
    let windows = Layout::strided([2, 4], [3, 1], 0).unwrap();
    let pinned = PinnedBuffer::<f32>::new(world.runtime.default_device(), 8).unwrap();
    let vector = CudaTensor::<f32, 1>::full(s, [3], 1.0).unwrap();
    world.refuse(|list| {
        macro_rules! over {
            ($layout:expr) => {
                TensorViewMut::over(c.write(), $layout).unwrap()
            };
        }
        refused! { list;
            OverlappingWrite "out" ["gemm", "[0, 1]"]: gemm(s, over!(twice), 1.0, &a, &b, 0.0);
            OverlappingWrite "out" ["gemm", "[3, 1]"]: gemm(s, over!(windows), 1.0, &a, &b, 1.0);
            OverlappingWrite "out" ["assign_product"]: assign_product(s, over!(windows), &a, &b);
            OverlappingWrite "out" ["gemm_batched"]: gemm_batched(s, [over!(twice)], 1.0, [&a], [&b], 0.0);
        }
        let same = batch.view_mut().broadcast([2, 2, 4]).unwrap();
        let (of_a, of_b) = (
            a.view().broadcast([2, 2, 3]).unwrap(),
            b.view().broadcast([2, 3, 4]).unwrap(),
        );
        refused! { list;
            OverlappingWrite "out" ["gemm_strided_batched"]: gemm_strided_batched(s, same, 1.0, of_a, of_b, 0.0);
        }
        let one = |v: &mut CudaTensor<f32, 1>| {
            v.view_mut()
                .slice(0, 0..1)
                .unwrap()
                .broadcast([2])
                .unwrap()
                .extents()
        };
        assert_eq!(one(&mut v), [2]);
        refused! { list;
            OverlappingWrite "y" ["gemv"]: gemv(s, v.view_mut().slice(0, 0..1).unwrap().broadcast([2]).unwrap(), 1.0, &a, &vector, 0.0);
            OverlappingWrite "out" ["copy"]: copy(s, over!(twice), TensorView::over(b.read(), twice).unwrap());
            OverlappingWrite "out" ["fill"]: fill(s, over!(windows), 1.0);
            OverlappingWrite "y" ["axpy"]: axpy(s, over!(twice), 1.0, b.view().slice(0, 0..2).unwrap());
            OverlappingWrite "x" ["scale"]: scale(s, over!(twice), 2.0);
            OverlappingWrite "x" ["map_in_place"]: map_in_place(s, over!(windows), Map::Square);
            OverlappingWrite "x" ["multiply_in_place"]: multiply_in_place(s, over!(windows), b.view().slice(0, 0..2).unwrap());
            OverlappingWrite "x" ["add_bias"]: add_bias(s, over!(twice), b.view().at::<1>(0, 0).unwrap(), Activation::Relu);
            OverlappingWrite "out" ["sum"]: sum(s, v.view_mut().slice(0, 0..1).unwrap().broadcast([4]).unwrap(), &b, [0]);
            OverlappingWrite "out" ["argmax"]: argmax(s, index.view_mut().broadcast([4]).unwrap(), &b, 0);
            OverlappingWrite "out" ["copy_from_ndarray"]: copy_from_ndarray(over!(windows), &Array2::zeros((2, 4)).view());
            OverlappingWrite "out" ["copy_from_pinned"]: copy_from_pinned(s, over!(windows), &pinned);
        }
    });
    assert_eq!(c.to_ndarray().unwrap(), Array2::ones((2, 4)));
    drop((a, b, c, v, batch, index, pinned, vector));
    world.finish();
}

#[test]
fn operands_on_another_device() {
    let world = World::new();
    let s = &world.stream;
    let there = &world.runtime.devices()[1];
    let their_stream = there.streams().acquire().unwrap();
    let far = |extents| CudaTensor::<f32, 2>::full(&their_stream, extents, 1.0).unwrap();
    let far_vector = |n| CudaTensor::<f32, 1>::full(&their_stream, [n], 1.0).unwrap();
    let (a, b, mut c) = (
        world.matrix([2, 3]),
        world.matrix([3, 4]),
        world.matrix([2, 4]),
    );
    let (far_a, far_b, mut far_c) = (far([2, 3]), far([3, 4]), far([2, 4]));
    let (mut far_y, far_x) = (far_vector(2), far_vector(3));
    let x = CudaTensor::<f32, 1>::full(s, [3], 1.0).unwrap();
    let mut y = CudaTensor::<f32, 1>::full(s, [2], 1.0).unwrap();
    let mut same = world.matrix([2, 3]);
    let mut pinned = PinnedBuffer::<f32>::new(there, 6).unwrap();
    their_stream.synchronize().unwrap();
    world.refuse(|list| {
        refused! { list;
            WrongDevice "out" ["gemm", "device 1", "device 0"]: gemm(s, &mut far_c, 1.0, &a, &b, 0.0);
            WrongDevice "a" ["gemm"]: gemm(s, &mut c, 1.0, &far_a, &b, 0.0);
            WrongDevice "b" ["gemm"]: gemm(s, &mut c, 1.0, &a, &far_b, 0.0);
            WrongDevice "b" ["matmul"]: matmul(s, &a, &far_b).map(drop);
            WrongDevice "a" ["gemm_batched"]: gemm_batched(s, [&mut c], 1.0, [&far_a], [&b], 0.0);
            WrongDevice "y" ["gemv"]: gemv(s, &mut far_y, 1.0, &a, &x, 0.0);
            WrongDevice "a" ["gemv"]: gemv(s, &mut y, 1.0, &far_a, &x, 0.0);
            WrongDevice "x" ["gemv"]: gemv(s, &mut y, 1.0, &a, &far_x, 0.0);
            WrongDevice "out" ["fill"]: fill(s, &mut far_c, 1.0);
            WrongDevice "a" ["map"]: map(s, &mut same, Map::Square, &far_a);
            WrongDevice "x" ["axpy"]: axpy(s, &mut same, 1.0, &far_a);
            WrongDevice "x" ["scale"]: scale(s, &mut far_c, 1.0);
            WrongDevice "b" ["add"]: add(s, &mut same, &a, &far_a);
            WrongDevice "bias" ["add_bias"]: add_bias(s, &mut same, &far_x, Activation::Relu);
            WrongDevice "x" ["sum"]: sum(s, &mut y, &far_a, [1]);
            WrongDevice "out" ["max"]: max(s, &mut far_y, &a, [1]);
            WrongDevice "a" ["copy_to_pinned"]: copy_to_pinned(s, &mut pinned, &far_a);
            WrongDevice "out" ["copy_from_pinned"]: copy_from_pinned(s, far_c.view_mut().slice(1, 0..3).unwrap(), &pinned);
        }
    });
    drop((
        a,
        b,
        c,
        far_a,
        far_b,
        far_c,
        far_x,
        far_y,
        x,
        y,
        same,
        pinned,
        their_stream,
    ));
    world.finish();
}

#[test]
fn numbers_too_large_to_take() {
    let world = World::new();
    let s = &world.stream;
    let device = world.runtime.default_device();
    let blas = Blas::of(device);
    let (a, b, mut c) = (
        world.matrix([2, 3]),
        world.matrix([3, 4]),
        world.matrix([2, 4]),
    );
    let (mut narrow, mut small) = (world.matrix([2, 2]), world.matrix([2, 3]));
    let three = world.matrix([1, 3]);
    let x = CudaTensor::<f32, 1>::full(s, [3], 1.0).unwrap();
    let mut y = CudaTensor::<f32, 1>::full(s, [4], 1.0).unwrap();
    let mut at = CudaTensor::<u32, 0>::full(s, [], 0).unwrap();
    let mut batch = CudaTensor::<f32, 3>::full(s, [5, 1, 1], 1.0).unwrap();
    let (one, five) = (
        world.matrix([1, 1]),
        CudaTensor::<f32, 3>::full(s, [5, 1, 1], 1.0).unwrap(),
    );
    blas.set_provider(Arc::new(HostBlas::default().with_max_dim(3)));
    let row = three.view();
    world.refuse(|list| {
        refused! { list;
            DimTooLarge "out" ["gemm", "host BLAS", "of 4", "most 3"]: gemm(s, &mut c, 1.0, &a, &b, 0.0);
        }
        // A leading dimension counts like any other.
        refused! { list;
            DimTooLarge "b" ["of 4"]: assign_product(s, &mut narrow, &a, b.view().slice(1, 0..2).unwrap());
            DimTooLarge "y" ["gemv", "of 4"]: gemv(s, &mut y, 1.0, b.view().transposed(), &x, 0.0);
            DimTooLarge "out" ["of 4"]: gemm_batched(s, [&mut c], 1.0, [&a], [&b], 0.0);
            DimTooLarge "out" ["of 4"]: gemm(s, &mut c, 1.0, a.view().reversed(0).unwrap(), &b, 0.0);
            DimTooLarge "b" ["of 4"]: assign_product(s, &mut narrow, a.view().reversed(0).unwrap(), b.view().slice(1, 0..2).unwrap());
            DimTooLarge "out" ["of 4"]: gemm_batched(s, [&mut small, &mut c], 1.0, [a.view().slice(1, 0..1).unwrap().reversed(0).unwrap(), a.view()], [row, b.view()], 0.0);
            DimTooLarge "out" ["of 4"]: gemm_batched(s, [&mut small, &mut c], 1.0, [a.view().slice(1, 0..1).unwrap().reversed(0).unwrap(), a.view().reversed(0).unwrap()], [row, b.view()], 0.0);
            DimTooLarge "out" ["of 5"]: gemm_strided_batched(s, &mut batch, 1.0, one.view().broadcast([5, 1, 1]).unwrap(), &five, 0.0);
        }
        // More than 32 bits count, of one element that is repeated.
        let long = x
            .view()
            .slice(0, 0..1)
            .unwrap()
            .broadcast([1 << 32])
            .unwrap();
        refused! { list;
            DimTooLarge "x" ["argmax", "4294967296", "4294967295"]: argmax(s, &mut at, long, 0);
            TooLarge "" ["[4611686018427387904, 4]"]: CudaTensor::<f64, 2>::uninitialized(device, [1 << 62, 4]).map(drop);
            TooLarge "" ["counted"]: x.view().broadcast([usize::MAX, 3]).map(drop);
        }
    });
    // The next provider is used at once.
    blas.set_provider(Arc::new(HostBlas::default().with_max_dim(i32::MAX as u64)));
    gemm(s, &mut c, 1.0, &a, &b, 0.0).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 4), 3.0));
    assert_eq!(blas.counts().products, 1);
    assert_eq!(small.to_ndarray().unwrap(), Array2::ones((2, 3)));
    drop((
        a, b, c, narrow, small, three, x, y, at, batch, one, five, blas,
    ));
    world.finish();
}

#[test]
fn types_axes_and_layouts_that_dont_exist() {
    let world = World::new();
    let s = &world.stream;
    let device = world.runtime.default_device();
    let z = CudaTensor::full(s, [2], Complex::new(1.0_f64, 2.0)).unwrap();
    let mut to = CudaTensor::<Complex<f64>, 1>::zeros(s, [2]).unwrap();
    let odd = || {
        CudaTensor::from_buffer(
            CudaBuffer::<[u8; 3]>::from_slice(device, &[[1, 2, 3]; 2]).unwrap(),
            Layout::row_major([2]).unwrap(),
        )
        .map_err(|refused| refused.error)
        .unwrap()
    };
    let (mut three_bytes, more) = (odd(), odd());
    let a = world.matrix([2, 3]);
    let mut none = CudaTensor::<f32, 0>::zeros(s, []).unwrap();
    let mut row = CudaTensor::<f32, 1>::zeros(s, [3]).unwrap();
    let mut index = CudaTensor::<u32, 1>::zeros(s, [3]).unwrap();
    // Six dimensions of which no two go on where the other ends.
    let scattered = Layout::strided([2; 6], [1, 3, 9, 27, 81, 243], 0).unwrap();
    let many = CudaTensor::<f32, 1>::full(s, [400], 1.0).unwrap();
    let dynamic = tensor_cuda::DynTensor::from(world.matrix([1, 1]));
    world.refuse(|list| {
        refused! { list;
            Unsupported "a" ["relu", "c64"]: map(s, &mut to, Map::Relu, &z);
            Unsupported "x" ["sigmoid", "c64"]: map_in_place(s, &mut to, Map::Sigmoid);
            Unsupported "out" ["fill", "[u8; 3]"]: fill(s, &mut three_bytes, [1, 2, 3]);
            Unsupported "out" ["copy", "[u8; 3]"]: copy(s, &mut three_bytes, more.view().reversed(0).unwrap());
            BadAxes "x" ["sum", "[2]", "2 dimensions"]: sum(s, &mut row, &a, [2]);
            BadAxes "x" ["max", "[1, 1]"]: max(s, &mut none, &a, [1, 1]);
            BadAxes "x" ["argmax", "[7]"]: argmax(s, &mut index, &a, 7);
        }
        let view = TensorView::over(many.read(), scattered).unwrap();
        refused! { list;
            TooManyDimensions "x" ["sum", "6 dimensions", "5"]: sum(s, &mut none, view, [0, 1, 2, 3, 4, 5]);
        }
        let outside = Layout::strided([2, 3], [3, 1], 1).unwrap();
        refused! { list;
            PastMemory "a view" ["[2, 3]", "[3, 1]", "1..7", "6"]: TensorView::over(a.read(), outside).map(drop);
        }
        let short = CudaBuffer::<f32>::new(device, 5).unwrap();
        refused! { list;
            PastMemory "a tensor" ["0..6", "5"]: CudaTensor::from_buffer(short, *a.layout()).map(drop).map_err(|refused| refused.error);
            LeadingDimension "" ["[3, 2]", "dimension of 2", "least 3"]: Layout::column_major_padded([3, 2], 2).map(drop);
            LeadingDimension "" ["[3, 2]", "dimension of 0", "least 2"]: Layout::row_major_padded([3, 2], 0).map(drop);
            OutOfBounds "" ["2..4", "dimension 1", "extent 3"]: a.view().slice(1, 2..4).map(drop);
            NoSuchAxis "" ["dimension 2"]: a.view().slice(2, 0..1).map(drop);
            BadStep "" ["step of 0"]: a.view().slice_step(1, 0..3, 0).map(drop);
            BadOrder "" ["[0, 0]"]: a.view().permuted([0, 0]).map(drop);
            CannotReshape "" ["[3, 2]", "[6]"]: a.view().transposed().reshaped([6]).map(drop);
            CannotBroadcast "" ["[2, 3]", "[4, 3]"]: a.view().broadcast([4, 3]).map(drop);
            BadStrides "" ["[-1]"]: Layout::strided([2], [-1], 0).map(drop);
            RankMismatch "" ["2", "3"]: dynamic.view::<3>().map(drop);
        }
    });
    drop((dynamic, z, to, three_bytes, more, a, none, row, index, many));
    world.finish();
}

/// What is refused is refused with an error, also by what the compiler can't see: a value that is in use.
#[test]
fn operands_in_use_are_refused() {
    let world = World::new();
    let s = &world.stream;
    let shared = SharedCudaBuffer::from(world.matrix([2, 2]).into_buffer());
    let layout = Layout::row_major([2, 2]).unwrap();
    let mut c = world.matrix([2, 2]);
    let a = world.matrix([2, 2]);
    let guard = shared.write().synchronized_with(s).unwrap();
    let error = gemm(
        s,
        &mut c,
        1.0,
        &a,
        TensorView::over(shared.read(), layout).unwrap(),
        0.0,
    )
    .unwrap_err();
    assert!(matches!(error, TensorError::Buffer(_)), "{error}");
    assert!(error.to_string().contains("bad_input.rs"), "{error}");
    drop(guard);
    gemm(
        s,
        &mut c,
        1.0,
        &a,
        TensorView::over(shared.read(), layout).unwrap(),
        0.0,
    )
    .unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 2), 2.0));
    drop((shared, c, a));
    world.finish();
}
