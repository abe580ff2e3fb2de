//! What a queued product costs. Alone in its file, since all that is allocated is counted.

use async_value::{Async, Limited, ReadGuard, SeededExecutor};
use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::{Schedule, SimDriver};
use ndarray::array;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tensor_cuda::asynchronous::{assign_product, from_ndarray, gemm, product_task};
use tensor_cuda::{Blas, CudaTensor};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: All requests go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: As asked of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: As asked of the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const QUEUED: usize = 100_000;

/// Products that are run: without optimisation the simulated device takes half a millisecond for each.
const RUN: usize = if cfg!(debug_assertions) {
    2_000
} else {
    QUEUED
};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[test]
fn a_hundred_thousand_products_wait_for_one_handle_and_two_streams_on_one_thread() {
    let simulation = SimDriver::builder().schedule(Schedule::Eager);
    let builder = Runtime::builder().streams_per_device(2);
    let runtime = builder.simulation(simulation).build().unwrap();
    let device = runtime.default_device();
    let executor = SeededExecutor::new(1);
    let identity = array![[0.0_f32, 1.0], [1.0, 0.0]];
    let a = from_ndarray(&executor, device, identity.clone()).unwrap();
    let c = from_ndarray(&executor, device, array![[0.0_f32, 0.0], [0.0, 0.0]]).unwrap();
    executor
        .run_until(async { c.read().await.map(drop) })
        .unwrap()
        .unwrap();
    Blas::of(device).set_handles(1);
    let (bytes, calls) = (BYTES.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed));
    let begun = Instant::now();
    for _ in 0..QUEUED {
        gemm(&executor, &c, 1.0, &a, &a, 1.0).unwrap();
    }
    let queueing = begun.elapsed();
    let queued = BYTES.load(Ordering::Relaxed) - bytes;
    let asked = CALLS.load(Ordering::Relaxed) - calls;
    let before = device.call_counts();
    let threads_before = threads();
    let begun = Instant::now();
    // The last of those that are run is one that another value waits for.
    while executor.len() > QUEUED - RUN {
        assert!(executor.step(), "something can go on");
    }
    let running = begun.elapsed();
    let calls = device.call_counts() - before;
    println!(
        "per queued product: {} bytes and {:.2} allocations until it has run; {:?} to queue, {:?} to run; {:.2} driver calls",
        queued / QUEUED,
        asked as f64 / QUEUED as f64,
        queueing / QUEUED as u32,
        running / RUN as u32,
        calls.total() as f64 / RUN as f64,
    );
    println!(
        "a direct product with a lease of its own: {:?}",
        direct(&runtime)
    );
    assert!(queued / QUEUED <= 1000, "{queued}");
    assert!(asked <= 5 * QUEUED, "{asked}");
    assert!(threads() <= threads_before + 1, "one notifier at most");
    assert_eq!(calls.of(Call::MemAlloc), 0);
    println!("{calls}");
    // A launch and an event: those of a direct product. The first one loads the kernels.
    let loading = calls.of(Call::ModuleGetFunction) + calls.of(Call::FuncLoad);
    assert!(calls.total() - loading <= 2 * RUN as u64 + 100, "{calls}");
    // Those that are left are cancelled with their executor, and leave nothing.
    drop(executor);
    match c.try_read() {
        Ok(sum) => assert_eq!(sum.to_ndarray().unwrap()[[0, 0]], RUN as f32),
        Err(error) => assert!(
            RUN < QUEUED && error.to_string().contains("cancelled"),
            "{error}"
        ),
    }
    let mut guard = c.try_write().unwrap();
    let sum = guard.overwrite().unwrap().to_ndarray().unwrap();
    assert_eq!(sum[[0, 0]], RUN as f32);
    guard.release();
    drop((a, c));
    let left = BYTES.load(Ordering::Relaxed).saturating_sub(bytes);
    println!("{left} bytes are left");
    assert!(left < 2 * 1024 * 1024, "{left} bytes of {queued}");

    all_wait_for_the_same_lease(&runtime);
    bounded_by_a_limit(&runtime);
    runtime.shutdown().unwrap();
}

/// The time of the same product without a queue.
fn direct(runtime: &Runtime) -> Duration {
    let device = runtime.default_device();
    let x = array![[0.0_f32, 1.0], [1.0, 0.0]];
    let a = CudaTensor::from_ndarray(device, &x.view()).unwrap();
    let mut c = CudaTensor::from_ndarray(device, &x.view()).unwrap();
    let begun = Instant::now();
    for _ in 0..RUN {
        let lease = Blas::of(device).lease().unwrap();
        tensor_cuda::gemm(&lease, &mut c, 1.0, &a, &a, 1.0).unwrap();
    }
    begun.elapsed() / RUN as u32
}

/// The values are there, and nothing but the handle is missing.
fn all_wait_for_the_same_lease(runtime: &Runtime) {
    let device = runtime.default_device();
    let executor = SeededExecutor::new(1);
    let a = Async::new(CudaTensor::<f32, 2>::new(device, [2, 2]).unwrap());
    let lease = Blas::of(device).lease().unwrap();
    let (bytes, begun) = (BYTES.load(Ordering::Relaxed), Instant::now());
    let count = Arc::new(AtomicUsize::new(0));
    for _ in 0..QUEUED {
        let count = count.clone();
        let leaf = move |_: &_, _: (ReadGuard<CudaTensor<f32, 2>>,)| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        product_task(&executor, "wait", || (a.read(),), leaf).unwrap();
    }
    while executor.step() {}
    assert_eq!((executor.polls(), executor.len()), (QUEUED as u64, QUEUED));
    let waiting = BYTES.load(Ordering::Relaxed) - bytes;
    drop(lease);
    executor
        .run_until(std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            match count.load(Ordering::Relaxed) {
                QUEUED => Poll::Ready(()),
                _ => Poll::Pending,
            }
        }))
        .unwrap();
    println!(
        "per product that waits for the handle: {} bytes, {:?} with all there is",
        waiting / QUEUED,
        begun.elapsed() / QUEUED as u32,
    );
    assert!(waiting / QUEUED <= 1000, "{waiting}");
    // Each is woken once for the handle, and perhaps once more for a stream.
    assert!(
        executor.polls() <= 4 * QUEUED as u64,
        "{}",
        executor.polls()
    );
}

fn bounded_by_a_limit(runtime: &Runtime) {
    let device = runtime.default_device();
    let executor = SeededExecutor::new(1);
    let limited = Limited::new(executor.clone(), 100);
    let a = from_ndarray(&executor, device, array![[1.0_f32]]).unwrap();
    let c: Async<CudaTensor<f32, 2>> = Async::empty();
    executor
        .run_until(async { a.read().await.map(drop) })
        .unwrap()
        .unwrap();
    let bytes = BYTES.load(Ordering::Relaxed);
    let most = executor
        .run_until(async {
            let mut most = 0;
            for _ in 0..1_000 {
                let place = limited.place().await;
                assign_product(&place, &c, &a, &a).unwrap();
                most = most.max(BYTES.load(Ordering::Relaxed).saturating_sub(bytes));
            }
            c.read().await.map(drop).unwrap();
            most
        })
        .unwrap();
    assert!(
        most < 100 * 1000 + 512 * 1024,
        "{most} bytes for 100 operations"
    );
}
