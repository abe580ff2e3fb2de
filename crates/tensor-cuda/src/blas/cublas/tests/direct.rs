//! Who calls a provider by hand, with numbers of their own: nothing reaches the library that it would follow to any address.

use super::super::Cublas;
use super::super::product::Form;
use super::super::provider::Width;
use super::{Double, finish, runtime, small};
use crate::blas::{
    Blas, ElementType, Matrix, MatrixHandle, MatrixProduct, MatrixProvider, Transform,
};
use crate::{CudaTensor, TensorError, TensorResult, assign_product};
use cuda_buffer::{BufferError, CaptureStep, CudaBuffer, DeviceData, LaunchArg, Operand};
use cuda_driver::LaunchError;
use cuda_runtime::{Device, RuntimeError, Stream};
use half::f16;
use std::sync::Arc;

/// A product of two buffers, on `stream`, into a third one; changed before it is asked for.
struct Direct {
    handle: Box<dyn MatrixHandle>,
    buffers: [CudaBuffer<f32>; 3],
    workspace: CudaBuffer<u8>,
}

impl Direct {
    /// A of 3 x 4, B of 4 x 2, C of 3 x 2 elements, twice each.
    fn new(device: &Device, provider: &Cublas) -> Self {
        let ones = |len: usize| CudaBuffer::from_slice(device, &vec![1.0_f32; len]).unwrap();
        Self {
            handle: provider.open(device).unwrap(),
            buffers: [ones(2 * 12), ones(2 * 8), ones(2 * 6)],
            workspace: CudaBuffer::new(device, 4096).unwrap(),
        }
    }

    /// Asks for it alone and then as one of a batch of pointers: what both say.
    fn ask(
        &mut self,
        stream: &Stream,
        change: impl Fn(&mut MatrixProduct<'_>),
    ) -> TensorResult<()> {
        self.ask_of(stream, stream, change)
    }

    /// With A's access on another stream.
    fn ask_of(
        &mut self,
        of_a: &Stream,
        stream: &Stream,
        change: impl Fn(&mut MatrixProduct<'_>),
    ) -> TensorResult<()> {
        let [a, b, c] = &mut self.buffers;
        let (a, b) = (
            a.read_synchronized_with(of_a).unwrap(),
            b.read_synchronized_with(stream).unwrap(),
        );
        let mut c = c.write_synchronized_with(stream).unwrap();
        let mut workspace = self.workspace.write_synchronized_with(stream).unwrap();
        let matrix = |memory, leading, step| Matrix {
            memory,
            transform: Transform::None,
            leading,
            step,
        };
        let mut product = MatrixProduct {
            element: ElementType::F32,
            m: 3,
            n: 2,
            k: 4,
            batch: 2,
            alpha: 1.0_f32.operand(),
            a: matrix((&a).operand(), 3, 12),
            b: matrix((&b).operand(), 4, 8),
            beta: 0.0_f32.operand(),
            c: matrix((&mut c).operand(), 3, 6),
            deterministic: false,
        };
        change(&mut product);
        let alone = self
            .handle
            .product(stream, &product, workspace.as_slice_mut());
        let memory = [product.a.memory, product.b.memory, product.c.memory];
        let several = self
            .handle
            .products(stream, &product, &[memory], &mut workspace);
        assert_eq!(alone.is_ok(), several.is_ok(), "{alone:?}, {several:?}");
        alone
    }

    fn bounds(&mut self, stream: &Stream, change: impl Fn(&mut MatrixProduct<'_>)) -> [u64; 3] {
        match self.ask(stream, change).unwrap_err() {
            TensorError::Buffer(BufferError::OperandBounds {
                argument,
                end,
                bytes,
                ..
            }) => [argument as u64, end.cast_unsigned(), bytes],
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_product_stays_within_its_operands() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let mut direct = Direct::new(device, &small(device));
    direct.ask(&stream, |_| {}).unwrap();
    assert_eq!(direct.buffers[2].to_vec().unwrap(), [4.0; 12]);
    let before = double.calls("cublasGemmStridedBatchedEx");
    // A is touched to the end of its second matrix, and so on.
    assert_eq!(direct.bounds(&stream, |p| p.a.step = 13), [0, 100, 96]);
    assert_eq!(direct.bounds(&stream, |p| p.b.leading = 5), [1, 68, 64]);
    assert_eq!(direct.bounds(&stream, |p| p.batch = 3), [0, 144, 96]);
    assert_eq!(direct.bounds(&stream, |p| p.n = 3), [1, 80, 64]);
    let huge = direct.bounds(&stream, |p| p.m = usize::MAX >> 1);
    assert_eq!(huge[0], 0);
    let wrapped = direct.bounds(&stream, |p| p.c.step = usize::MAX / 4 + 2);
    assert_eq!(wrapped[0], 2);
    let turned = |p: &mut MatrixProduct<'_>| {
        p.a.transform = Transform::Transpose;
        p.a.leading = 9;
    };
    assert_eq!(direct.bounds(&stream, turned), [0, 136, 96]);
    // What is empty, or has no terms, touches nothing.
    direct
        .ask(&stream, |p| (p.m, p.a.step) = (0, 1000))
        .unwrap();
    direct
        .ask(&stream, |p| (p.k, p.b.step) = (0, 1000))
        .unwrap();
    assert_eq!(
        double.calls("cublasGemmStridedBatchedEx") - before,
        4,
        "the last two, alone and as one of several"
    );
    drop((direct, stream));
    finish(runtime, &double);
}

#[test]
fn accesses_of_other_kinds_are_refused() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let streams = device.streams().acquire_many(2).unwrap();
    let stream = &streams[0];
    let mut direct = Direct::new(device, &small(device));
    let before = double.calls("cublasGemmStridedBatchedEx");
    // An access that only reads, a value, elements of another size, factors of another type.
    let error = direct.ask(stream, |p| p.c.memory = p.a.memory).unwrap_err();
    let read_only = TensorError::Buffer(BufferError::ReadOnlyOperand {
        kernel: "a product of cuBLAS",
        argument: 2,
    });
    assert_eq!(error.to_string(), read_only.to_string());
    let type_of = |error: TensorError| match error {
        TensorError::Buffer(BufferError::Launch(LaunchError::ArgumentType { index, .. })) => index,
        error => panic!("{error}"),
    };
    let value: Operand<'static> = 7_u64.operand();
    let error = direct.ask(stream, |p| p.b.memory = value).unwrap_err();
    assert_eq!(type_of(error), 1);
    let error = direct.ask(stream, |p| p.alpha = 1.0_f64.operand());
    assert_eq!(type_of(error.unwrap_err()), 3);
    let error = direct.ask(stream, |p| p.beta = p.a.memory).unwrap_err();
    assert_eq!(type_of(error), 4);
    let wide = |p: &mut MatrixProduct<'_>| {
        p.element = ElementType::F64;
        (p.alpha, p.beta) = (1.0_f64.operand(), 0.0_f64.operand());
    };
    let error = direct.ask(stream, wide).unwrap_err();
    assert!(
        matches!(
            error,
            TensorError::Buffer(BufferError::OperandType {
                expected: 8,
                given: 4,
                ..
            })
        ),
        "{error}"
    );
    // Accesses and scratch memory of another stream, and a stream of another device.
    let error = direct.ask_of(&streams[1], stream, |_| {}).unwrap_err();
    assert!(
        matches!(error, TensorError::Buffer(BufferError::WrongStream { .. })),
        "{error}"
    );
    let far = &runtime.devices()[1];
    let far = far.streams().acquire().unwrap();
    let mut bytes = CudaBuffer::<u8>::new(far.device(), 4096).unwrap();
    let mut scratch = bytes.write_synchronized_with(&far).unwrap();
    // Nothing of its operands is touched.
    let nothing = Matrix {
        memory: 0_u64.operand(),
        transform: Transform::None,
        leading: 1,
        step: 0,
    };
    let product = MatrixProduct {
        element: ElementType::F32,
        m: 0,
        n: 0,
        k: 0,
        batch: 1,
        alpha: 1.0_f32.operand(),
        a: nothing,
        b: nothing,
        beta: 0.0_f32.operand(),
        c: nothing,
        deterministic: false,
    };
    let mut ask = |stream: &Stream| {
        let asked = direct
            .handle
            .product(stream, &product, scratch.as_slice_mut());
        asked.unwrap_err()
    };
    let error = ask(stream);
    assert!(
        matches!(error, TensorError::Buffer(BufferError::WrongStream { .. })),
        "{error}"
    );
    let error = ask(&far);
    let runtime_error = |error: &TensorError| {
        matches!(
            error,
            TensorError::Buffer(BufferError::Runtime(RuntimeError::WrongDevice { .. }))
        )
    };
    assert!(runtime_error(&error), "{error}");
    assert_eq!(double.calls("cublasGemmStridedBatchedEx"), before);
    drop(scratch);
    drop((direct, bytes, far, streams));
    finish(runtime, &double);
}

/// A table of pointers has one matrix for each, so batches of batches are taken apart: none of none is queued, and all of more.
#[test]
fn products_that_are_batches_themselves_are_whole() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let mut direct = Direct::new(device, &small(device));
    let large = |batch: usize| {
        move |p: &mut MatrixProduct<'_>| {
            (p.batch, p.m, p.a.leading, p.c.leading) = (batch, 1 << 20, 1 << 20, 1 << 20);
        }
    };
    // Nothing is touched of none, and one is more than there is.
    let calls = double.products_of(|| direct.ask(&stream, large(0)).unwrap());
    assert_eq!(calls, [("cublasGemmStridedBatchedEx", 2)]);
    assert_eq!(direct.bounds(&stream, large(1))[0], 0);
    let wide = |p: &mut MatrixProduct<'_>| (p.batch, p.b.leading) = (1, 13);
    assert_eq!(direct.bounds(&stream, wide), [1, 68, 64]);
    let read_only = |p: &mut MatrixProduct<'_>| (p.batch, p.c.memory) = (1, p.b.memory);
    assert!(direct.ask(&stream, read_only).is_err());
    // All of a batch, whether it is alone or one of several.
    let calls = double.products_of(|| direct.ask(&stream, |_| {}).unwrap());
    assert_eq!(calls, [("cublasGemmStridedBatchedEx", 2)]);
    assert_eq!(direct.buffers[2].to_vec().unwrap(), [4.0; 12]);
    let deterministic = |p: &mut MatrixProduct<'_>| p.deterministic = true;
    let calls = double.products_of(|| direct.ask(&stream, deterministic).unwrap());
    assert_eq!(calls, [("cublasGemmEx", 4)]);
    // What is not touched can be any number of elements away.
    let nothing = |p: &mut MatrixProduct<'_>| {
        (p.k, p.a.step, p.deterministic) = (0, usize::MAX, true);
    };
    direct.ask(&stream, nothing).unwrap();
    drop((direct, stream));
    finish(runtime, &double);
}

/// One size that 32 bits don't hold is enough; elements from one matrix to the next are of 64 bits in any case.
#[test]
fn sizes_of_64_bits_take_functions_for_them() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let cublas = small(runtime.default_device());
    let wide = |change: fn(&mut MatrixProduct<'_>)| {
        let matrix = Matrix {
            memory: 0_u64.operand(),
            transform: Transform::None,
            leading: i32::MAX as usize,
            step: 1 << 40,
        };
        let mut product = MatrixProduct {
            element: ElementType::F16,
            m: i32::MAX as usize,
            n: 1,
            k: 1,
            batch: 1,
            alpha: f16::ONE.operand(),
            a: matrix,
            b: matrix,
            beta: f16::ONE.operand(),
            c: matrix,
            deterministic: false,
        };
        change(&mut product);
        Form::of(&cublas, &product).unwrap().is_wide()
    };
    assert!(!wide(|_| {}));
    assert!(wide(|p| p.m += 1));
    assert!(wide(|p| p.n = 1 << 31));
    assert!(wide(|p| p.k = 1 << 31));
    assert!(wide(|p| p.batch = 1 << 31));
    assert!(wide(|p| p.a.leading += 1));
    assert!(wide(|p| p.b.leading += 1));
    assert!(wide(|p| p.c.leading += 1));
    finish(runtime, &double);
}

/// None, a few bytes, what NVIDIA calls enough, no multiple of what they are aligned to.
#[test]
fn workspaces_may_be_of_any_size() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    for workspace_bytes in [0, 100, 16 << 10, 20_001] {
        let cublas = Cublas::builder().workspace_bytes(workspace_bytes);
        Blas::of(device).set_provider(Arc::new(cublas.open(device).unwrap()));
        let a = CudaTensor::full(&stream, [3, 3], 2.0_f32).unwrap();
        let mut c = CudaTensor::<f32, 2>::uninitialized(device, [3, 3]).unwrap();
        assign_product(&stream, &mut c, &a, &a).unwrap();
        let graph = stream.capture(|_| assign_product(&stream, &mut c, &a, &a));
        graph.unwrap().launch(&stream).unwrap();
        assert_eq!(c.to_ndarray().unwrap()[[2, 2]], 12.0);
    }
    drop(stream);
    finish(runtime, &double);
}

/// A library without functions of 64-bit sizes is never given a size that was cut.
#[test]
fn sizes_that_the_functions_lack_are_refused() {
    let Some(double) = Double::find() else { return };
    let runtime = runtime();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let mut direct = Direct::new(device, &small(device).with_width(Width::Narrow));
    let error = direct.ask(&stream, |p| p.k = (1 << 32) + 4).unwrap_err();
    assert!(
        matches!(error, TensorError::DimTooLarge { dim, max, .. } if (dim, max) == ((1 << 32) + 4, i32::MAX as u64)),
        "{error}"
    );
    drop((direct, stream));
    finish(runtime, &double);
}
