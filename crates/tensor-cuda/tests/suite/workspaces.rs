//! Handles, workspaces and scratch memory of products: whose they are, and that nobody shares one unordered.

use crate::common::setup;
use cuda_buffer::{CaptureStep, DeviceArena, DeviceSlab};
use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use ndarray::{Array2, array};
use space_core::with_space;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tensor_cuda::{
    Blas, CudaTensor, HostBlas, Lease, MatrixHandle, MatrixProduct, MatrixProvider, TensorError,
    TensorResult, assign_product, gemm, matmul,
};

/// A provider that notes what it is asked for, and fails when told to.
#[derive(Debug, Default)]
pub(crate) struct Noting {
    deterministic: bool,
    calls: Arc<noted::Calls>,
}

mod noted {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    #[derive(Debug, Default)]
    pub(super) struct Calls {
        pub(super) fails: AtomicBool,
        pub(super) deterministic: Mutex<Vec<bool>>,
        pub(super) workspaces: Mutex<Vec<u64>>,
    }
}

impl MatrixProvider for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }
    fn max_dim(&self) -> u64 {
        i32::MAX as u64
    }
    fn is_deterministic(&self) -> bool {
        self.deterministic
    }
    fn workspace_bytes(&self, _: &cuda_runtime::Device) -> usize {
        1 << 12
    }
    fn open(&self, device: &cuda_runtime::Device) -> TensorResult<Box<dyn MatrixHandle>> {
        let inner = HostBlas::default().open(device)?;
        Ok(Box::new(NotingHandle(self.calls.clone(), inner)))
    }
}

#[derive(Debug)]
struct NotingHandle(Arc<noted::Calls>, Box<dyn MatrixHandle>);

impl MatrixHandle for NotingHandle {
    fn product(
        &mut self,
        stream: &cuda_runtime::Stream,
        product: &MatrixProduct<'_>,
        workspace: cuda_buffer::DeviceSliceMut<'_, u8>,
    ) -> TensorResult<()> {
        if self.0.fails.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(TensorError::Provider {
                provider: "noting",
                operation: "product",
                status: 13,
            });
        }
        assert_eq!(workspace.address().0 % 256, 0);
        self.0
            .deterministic
            .lock()
            .unwrap()
            .push(product.deterministic);
        self.0
            .workspaces
            .lock()
            .unwrap()
            .push(workspace.address().0);
        self.1.product(stream, product, workspace)
    }
}

#[test]
fn case_22_a_status_of_the_provider_is_an_error_and_leaves_everything_usable() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    let noting = Noting {
        deterministic: true,
        ..Noting::default()
    };
    let calls = noting.calls.clone();
    let blas = Blas::of(device);
    blas.set_provider(Arc::new(noting));
    let a = CudaTensor::full(stream, [2, 2], 1.0_f64).unwrap();
    let mut c = CudaTensor::full(stream, [2, 2], 5.0_f64).unwrap();
    calls
        .fails
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let error = assign_product(stream, &mut c, &a, &a).unwrap_err();
    assert!(
        matches!(error, TensorError::Provider { status: 13, .. }),
        "{error}"
    );
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 2), 5.0));
    calls
        .fails
        .store(false, std::sync::atomic::Ordering::Relaxed);
    assign_product(stream, &mut c, &a, &a).unwrap();
    blas.set_deterministic(true);
    assign_product(stream, &mut c, &a, &a).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 2), 2.0));
    assert_eq!(*calls.deterministic.lock().unwrap(), [false, true]);
    assert_eq!((blas.counts().products, blas.counts().handles_made), (2, 1));
    drop((a, c, blas));
    setup.finish();
}

/// A lease keeps the handle it has when another provider is set, and the handle goes with it.
#[test]
fn handles_of_an_earlier_provider_are_not_kept() {
    let setup = setup(0);
    let device = setup.device();
    let blas = Blas::of(device);
    let lease = blas.lease().unwrap();
    let stream = lease.stream().clone();
    let a = CudaTensor::full(&stream, [2, 2], 1.0_f64).unwrap();
    let mut c = CudaTensor::<f64, 2>::uninitialized_on(&stream, [2, 2]).unwrap();
    assign_product(&lease, &mut c, &a, &a).unwrap();
    let noting = Noting::default();
    let calls = noting.calls.clone();
    blas.set_provider(Arc::new(noting));
    assign_product(&lease, &mut c, &a, &a).unwrap();
    assert!(calls.workspaces.lock().unwrap().is_empty());
    drop(lease);
    for _ in 0..2 {
        assign_product(&stream, &mut c, &a, &a).unwrap();
    }
    assert_eq!(calls.workspaces.lock().unwrap().len(), 2);
    assert_eq!(blas.counts().handles_made, 2);
    drop((stream, a, c, blas));
    setup.finish();
}

/// A handle that is lost with a call that unwinds leaves room for another: streams have one each, as before.
#[test]
fn handles_of_calls_that_unwind_are_made_anew() {
    let sim = SimDriver::builder().build();
    let runtime = Runtime::builder().driver(sim.as_driver()).build().unwrap();
    let device = runtime.default_device();
    let blas = Blas::of(device);
    blas.set_handles(2);
    let streams = device.streams().acquire_many(2).unwrap();
    let a = CudaTensor::full(&streams[0], [2, 2], 1.0_f32).unwrap();
    let mut c = CudaTensor::<f32, 2>::uninitialized(device, [2, 2]).unwrap();
    // The workspace of a new handle, and the product by it.
    for call in [Call::MemAllocFromPoolAsync, Call::LaunchKernel] {
        for _ in 0..2 {
            sim.faults().unwind_nth(call, 1);
            let product = || assign_product(&streams[0], &mut c, &a, &a);
            catch_unwind(AssertUnwindSafe(product)).unwrap_err();
            assert_eq!(sim.faults().clear(), 0, "{call}");
        }
    }
    let before = blas.counts().handles_made;
    for stream in streams.iter().cycle().take(6) {
        assign_product(stream, &mut c, &a, &a).unwrap();
    }
    assert_eq!(blas.counts().handles_made - before, 2);
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 2), 2.0));
    drop((streams, a, c, blas));
    runtime.shutdown().unwrap();
    assert!(sim.shutdown().is_empty());
}

/// Every stream keeps its own workspace, as long as there are not more than handles; what shares one is ordered.
#[test]
fn streams_dont_share_a_workspace_unordered() {
    for seed in 0..20 {
        let simulation = SimDriver::builder().seed(seed);
        let runtime = Runtime::builder()
            .simulation(simulation)
            .streams_per_device(8)
            .build()
            .unwrap();
        let device = runtime.default_device();
        let noting = Noting::default();
        let calls = noting.calls.clone();
        Blas::of(device).set_provider(Arc::new(noting));
        let streams = device.streams().acquire_many(8).unwrap();
        let a = CudaTensor::full(&streams[0], [8, 8], 1.0_f32).unwrap();
        let mut results: Vec<_> = streams
            .iter()
            .map(|s| CudaTensor::<f32, 2>::uninitialized_on(s, [8, 8]).unwrap())
            .collect();
        for _ in 0..3 {
            for (stream, c) in streams.iter().zip(&mut results) {
                assign_product(stream, c, &a, &a).unwrap();
            }
        }
        for c in &results {
            assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((8, 8), 8.0));
        }
        let mut workspaces = calls.workspaces.lock().unwrap().clone();
        workspaces.sort_unstable();
        workspaces.dedup();
        assert_eq!(workspaces.len(), 4);
        // Few streams keep theirs: no wait between them.
        let (before, half) = (device.order_counts(), &streams[..4]);
        for _ in 0..4 {
            for (stream, c) in half.iter().zip(&mut results) {
                assign_product(stream, c, &a, &a).unwrap();
            }
        }
        let issued = device.order_counts().waits_issued - before.waits_issued;
        assert!(issued <= 8, "{issued}");
        drop((streams, a, results));
        crate::common::assert_nothing_is_left(runtime);
    }
}

#[test]
fn every_graph_keeps_a_workspace_of_its_own() {
    for seed in 0..20 {
        let setup = setup(seed);
        let device = setup.device();
        let noting = Noting::default();
        let calls = noting.calls.clone();
        Blas::of(device).set_provider(Arc::new(noting));
        let stream = &setup.stream;
        let other = device.streams().acquire().unwrap();
        let a = CudaTensor::full(stream, [4, 4], 1.0_f32).unwrap();
        let [mut c, mut d] =
            [(); 2].map(|()| CudaTensor::<f32, 2>::uninitialized_on(stream, [4, 4]).unwrap());
        assign_product(stream, &mut c, &a, &a).unwrap();
        // Captured on another stream than the warm-up; the workspace is the graph's from then on.
        let first = other
            .capture(|_| {
                assign_product(&other, &mut c, &a, &a)?;
                gemm(&other, &mut c, 1.0_f32, &a, &a, 1.0)
            })
            .unwrap();
        let second = other
            .capture(|_| assign_product(&other, &mut d, &a, &a))
            .unwrap();
        let used = calls.workspaces.lock().unwrap().clone();
        assert_eq!(used.len(), 4);
        assert_eq!(used[1], used[2]);
        assert!(used[0] != used[1] && used[1] != used[3] && used[0] != used[3]);
        let made = device.call_counts();
        for _ in 0..3 {
            // On two streams: nothing orders the two but their operands, which differ.
            first.launch(stream).unwrap();
            second.launch(&other).unwrap();
        }
        let calls = device.call_counts() - made;
        assert_eq!(
            calls.of(Call::MemAllocFromPoolAsync) + calls.of(Call::MemAlloc),
            0
        );
        assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((4, 4), 8.0));
        assert_eq!(d.to_ndarray().unwrap(), Array2::from_elem((4, 4), 4.0));
        // In any order of destruction.
        drop(a);
        drop((second, c, first, d, other));
        setup.finish();
    }
}

#[test]
fn copies_come_from_the_arena_in_scope_and_work_under_capture() {
    let setup = setup(3);
    let (device, stream) = (setup.device(), &setup.stream);
    let a = CudaTensor::from_ndarray(device, &array![[1.0, 2.0], [3.0, 4.0]].view()).unwrap();
    let mut c = CudaTensor::<f64, 2>::uninitialized(device, [2, 2]).unwrap();
    let mut arena = DeviceArena::over(DeviceSlab::new(device, 4096).unwrap()).unwrap();
    let backwards = || a.view().reversed(0).unwrap();
    // Warm up, with copies from the pool.
    assign_product(
        stream,
        c.view_mut().reversed(0).unwrap(),
        backwards(),
        backwards(),
    )
    .unwrap();
    let expected = array![[1.0, 2.0], [3.0, 4.0]].dot(&array![[3.0, 4.0], [1.0, 2.0]]);
    assert_eq!(c.to_ndarray().unwrap(), expected);
    let before = device.call_counts();
    with_space(&mut arena.frame(), || {
        assign_product(
            stream,
            c.view_mut().reversed(0).unwrap(),
            backwards(),
            backwards(),
        )
        .unwrap();
    });
    let made = device.call_counts() - before;
    assert_eq!(made.of(Call::MemAllocFromPoolAsync), 0);
    assert!(arena.watermark() >= 3 * 32);
    assert_eq!(arena.offset(), 0);
    let graph = {
        let frame = &mut arena.frame();
        stream
            .capture(|_| {
                with_space(frame, || {
                    assign_product(
                        stream,
                        c.view_mut().reversed(0).unwrap(),
                        backwards(),
                        backwards(),
                    )
                })
            })
            .unwrap()
    };
    tensor_cuda::fill(stream, &mut c, 0.0).unwrap();
    graph.launch(stream).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), expected);
    // Without an arena a capture refuses the copy, and says why.
    let refused = stream
        .capture(|_| assign_product(stream, &mut c, backwards(), &a))
        .unwrap_err();
    assert!(refused.to_string().contains("captur"), "{refused}");
    // An arena that is too small refuses, too, and nothing is lost.
    let mut small = DeviceArena::over(DeviceSlab::new(device, 16).unwrap()).unwrap();
    let error = with_space(&mut small.frame(), || {
        assign_product(stream, &mut c, backwards(), &a)
    })
    .unwrap_err();
    assert!(matches!(error, TensorError::Space(_)), "{error}");
    assign_product(stream, &mut c, &a, &a).unwrap();
    drop((graph, arena, small, a, c));
    setup.finish();
}

#[test]
fn an_arena_of_another_device_is_not_asked_for_room() {
    let simulation = SimDriver::builder().devices(2);
    let runtime = Runtime::builder().simulation(simulation).build().unwrap();
    crate::common::small_workspaces(&runtime);
    let [here, there] = runtime.devices() else {
        panic!()
    };
    let stream = there.streams().acquire().unwrap();
    let host = array![[1.0_f64, 2.0], [3.0, 4.0]];
    let a = CudaTensor::from_ndarray(there, &host.view()).unwrap();
    let mut c = CudaTensor::<f64, 2>::uninitialized(there, [2, 2]).unwrap();
    // Too small for a copy.
    let mut arena = DeviceArena::over(DeviceSlab::new(here, 16).unwrap()).unwrap();
    with_space(&mut arena.frame(), || {
        let backwards = a.view().reversed(0).unwrap();
        assign_product(&stream, &mut c, backwards, &a).unwrap();
    });
    let expected = array![[3.0, 4.0], [1.0, 2.0]].dot(&host);
    assert_eq!(c.to_ndarray().unwrap(), expected);
    assert_eq!(arena.watermark(), 0);
}

#[test]
fn leases_take_a_handle_before_a_stream_and_wait_their_turn() {
    let runtime = Runtime::builder().streams_per_device(8).build().unwrap();
    crate::common::small_workspaces(&runtime);
    let device = runtime.default_device();
    let blas = Blas::of(device);
    let leases: Vec<_> = (0..4).map(|_| blas.lease().unwrap()).collect();
    // The streams would do for more, the handles don't.
    assert!(blas.try_lease().unwrap().is_none());
    let mut waiting = Box::pin(blas.lease_async());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    use std::future::Future;
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    // Who waits for a handle holds no stream.
    assert_eq!(device.streams().try_acquire_many(4).unwrap().len(), 4);
    // A call with a stream of its own never waits for a handle.
    let stream = device.streams().acquire().unwrap();
    let a = CudaTensor::full(&stream, [2, 2], 1.0_f32).unwrap();
    let c = matmul(&stream, &a, &a).unwrap();
    assert_eq!(c.to_ndarray().unwrap(), Array2::from_elem((2, 2), 2.0));
    let mut d = CudaTensor::<f32, 2>::uninitialized(device, [2, 2]).unwrap();
    gemm(&leases[0], &mut d, 1.0, &c, &a, 0.0).unwrap();
    assert_eq!(d.to_ndarray().unwrap(), Array2::from_elem((2, 2), 4.0));
    assert_eq!(leases[1].stream().device().id(), device.id());
    drop(leases);
    let ready = waiting.as_mut().poll(&mut context);
    assert!(matches!(ready, std::task::Poll::Ready(Ok(_))));
    drop((ready, waiting));
    // Threads that lease more than there is all come to their turn.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let lease = blas.lease().unwrap();
                    let mut out =
                        CudaTensor::<f32, 2>::uninitialized_on(Lease::stream(&lease), [2, 2])
                            .unwrap();
                    assign_product(&lease, &mut out, &a, &a).unwrap();
                }
            });
        }
    });
    stream.synchronize().unwrap();
    crate::common::assert_no_reports(&runtime);
}
