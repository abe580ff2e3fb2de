//! What products allocate and call in the steady state, over a driver that does nothing.

#[path = "../../cuda-buffer/benches/costs/counting.rs"]
mod counting;
#[path = "../../cuda-buffer/benches/costs/null.rs"]
mod null;

use cuda_driver::Call;
use cuda_runtime::Runtime;
use std::sync::Arc;
use tensor_cuda::{
    Activation, Blas, CudaTensor, Map, Norm, TensorResult, add_bias, argmax, axpy, cast, copy,
    fill, gemm, gemm_strided_batched, gemv, linear, map, max, multiply, norm, scale, sum,
};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const ROUNDS: u64 = 200;

type Operation<'a> = Box<dyn FnMut() -> TensorResult<()> + 'a>;

#[test]
fn operations_allocate_nothing_and_make_one_call_and_one_event() {
    let driver = Arc::new(null::Null::default());
    let runtime = Runtime::builder().driver(driver).build().unwrap();
    let device = runtime.default_device();
    let stream = device.streams().acquire().unwrap();
    let lease = Blas::of(device).lease().unwrap();
    let tensor = || CudaTensor::<f32, 2>::uninitialized_on(&stream, [8, 8]).unwrap();
    let (a, b, mut c) = (tensor(), tensor(), tensor());
    let batch = CudaTensor::<f32, 3>::uninitialized_on(&stream, [4, 8, 8]).unwrap();
    let mut batches = CudaTensor::<f32, 3>::uninitialized_on(&stream, [4, 8, 8]).unwrap();
    let bias = CudaTensor::<f32, 1>::uninitialized_on(&stream, [8]).unwrap();
    let mut rows = CudaTensor::<f32, 1>::uninitialized_on(&stream, [8]).unwrap();
    let mut best = CudaTensor::<u32, 1>::uninitialized_on(&stream, [8]).unwrap();
    let mut c2 = tensor();
    let mut c3 = tensor();
    let mut c4 = tensor();
    let mut wide = CudaTensor::<f64, 2>::uninitialized_on(&stream, [8, 8]).unwrap();
    let mut m: [_; 5] = std::array::from_fn(|_| tensor());
    let vector = |_| CudaTensor::<f32, 1>::uninitialized_on(&stream, [8]).unwrap();
    let mut v: [_; 4] = std::array::from_fn(vector);
    let (m, v) = (m.each_mut(), v.each_mut());
    let ([m0, m1, m2, m3, m4], [v0, v1, v2, v3]) = (m, v);
    let mut operations: Vec<(&str, Operation<'_>)> = vec![
        ("argmax", Box::new(|| argmax(&stream, &mut best, &a, 1))),
        ("sum", Box::new(|| sum(&stream, &mut rows, &a, [0]))),
        (
            "gemm_strided_batched",
            Box::new(|| gemm_strided_batched(&stream, &mut batches, 1.0, &batch, &batch, 0.0)),
        ),
    ];
    operations.push((
        "gemm",
        Box::new(|| gemm(&stream, &mut c, 1.0, &a, b.view().transposed(), 0.5)),
    ));
    operations.push((
        "gemm on a lease",
        Box::new(|| gemm(&lease, &mut c2, 1.0, &a, &b, 0.0)),
    ));
    operations.push((
        "add_bias",
        Box::new(|| add_bias(&stream, &mut c3, &bias, Activation::Relu)),
    ));
    operations.push((
        "copy",
        Box::new(|| copy(&stream, &mut c4, a.view().transposed())),
    ));
    let rest: [(&str, Operation<'_>); 10] = [
        (
            "gemv",
            Box::new(|| gemv(&stream, &mut *v0, 1.0, &a, &bias, 0.5)),
        ),
        (
            "fill",
            Box::new(|| fill(&stream, v1.view_mut().reversed(0)?, 1.0)),
        ),
        ("map", Box::new(|| map(&stream, &mut *m0, Map::Tanh, &a))),
        ("cast", Box::new(|| cast(&stream, &mut wide, &a))),
        (
            "axpy",
            Box::new(|| axpy(&stream, &mut *m1, 2.0, a.view().transposed())),
        ),
        (
            "linear",
            Box::new(|| linear(&stream, &mut *m2, 2.0, &a, 3.0, &b)),
        ),
        (
            "multiply",
            Box::new(|| multiply(&stream, &mut *m3, &a, b.view().transposed())),
        ),
        ("scale", Box::new(|| scale(&stream, &mut *m4, 0.5))),
        ("max", Box::new(|| max(&stream, &mut *v2, &a, [1]))),
        (
            "norm",
            Box::new(|| norm(&stream, &mut *v3, Norm::Two, &a, [1])),
        ),
    ];
    operations.extend(rest);
    for (name, operation) in &mut operations {
        (0..ROUNDS).for_each(|_| operation().unwrap());
        let (calls, allocated) = (device.call_counts(), counting::allocations());
        (0..ROUNDS).for_each(|_| operation().unwrap());
        let allocated = counting::allocations() - allocated;
        let calls = device.call_counts() - calls;
        assert_eq!(allocated, 0, "{name}");
        assert_eq!(calls.of(Call::LaunchKernel), ROUNDS, "{name}: {calls}");
        assert!(calls.of(Call::EventRecord) <= ROUNDS, "{name}: {calls}");
        assert!(calls.total() <= 2 * ROUNDS, "{name}: {calls}");
    }
}
