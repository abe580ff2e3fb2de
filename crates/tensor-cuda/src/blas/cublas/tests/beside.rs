//! What is done beside a capture before its first products are captured, and the driver's calls that fail in it: each in turn, as an
//! error, as one that loses the device, and by unwinding.

use super::super::Cublas;
use super::{Double, finish, set, small};
use crate::blas::{Blas, HostBlas};
use crate::{CudaTensor, Execution, Lease, TensorResult, assign_product, fill, gemm_batched};
use cuda_buffer::{CaptureStep, Graph};
use cuda_contract::{Failing, Seen, Unwound, emulated};
use cuda_driver::{Call, CaptureMode, ErrorCode, hardware};
use cuda_runtime::{Device, Runtime, Stream};
use ndarray::Array2;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

const FAULT: ErrorCode = ErrorCode::NOT_PERMITTED;
const LOST: ErrorCode = ErrorCode::ILLEGAL_ADDRESS;

/// Ends the process when it is not dropped in time: what hangs can't be unwound.
struct InTime(#[expect(dead_code, reason = "its drop is what counts")] Sender<()>);

impl InTime {
    fn new(what: String) -> Self {
        let (done, ended) = channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: hangs");
                std::process::abort();
            }
        });
        Self(done)
    }
}

/// A program whose first products are captured.
struct Program {
    /// Objects of the driver before it.
    alive: u64,
    mode: CaptureMode,
    failing: Arc<Failing>,
    runtime: Runtime,
    /// Whose handle has been used before.
    lease: Option<Execution>,
    stream: Stream,
    a: CudaTensor<f32, 2>,
    c: CudaTensor<f32, 2>,
    batch: Vec<CudaTensor<f32, 2>>,
    before: CudaTensor<f32, 2>,
    after: CudaTensor<f32, 2>,
}

/// How the products of a capture ended, what the driver saw of them, and how the capture ended.
struct Ended {
    products: Result<TensorResult<()>, Box<dyn Any + Send>>,
    seen: Seen,
    graph: TensorResult<Graph>,
}

fn products(
    on: &impl Lease,
    a: &CudaTensor<f32, 2>,
    c: &mut CudaTensor<f32, 2>,
    batch: &mut [CudaTensor<f32, 2>],
) -> TensorResult<()> {
    assign_product(on, c, a, a)?;
    gemm_batched(on, batch, 1.0, [a, a], [a, a], 0.0)
}

impl Program {
    /// Its workspaces have a size that no other program has, so that its products are tried.
    fn new(mode: CaptureMode, leased: bool) -> Self {
        static BYTES: AtomicUsize = AtomicUsize::new(1 << 14);
        let alive = emulated::alive();
        let failing = Failing::new(Arc::new(hardware::open().unwrap())).on_all_threads();
        let failing = Arc::new(failing);
        let builder = Runtime::builder().driver(failing.clone());
        let runtime = builder.streams_per_device(2).build().unwrap();
        let device = runtime.default_device();
        let bytes = BYTES.fetch_add(256, Ordering::Relaxed);
        let cublas = Cublas::builder().workspace_bytes(bytes);
        let blas = set(device, cublas.open(device).unwrap());
        let lease = leased.then(|| blas.lease().unwrap());
        let stream = match &lease {
            Some(lease) => lease.stream().clone(),
            None => device.streams().acquire().unwrap(),
        };
        let full = |value| CudaTensor::full(&stream, [4, 4], value).unwrap();
        let [a, c, before, after] = [1.0, 0.0, 0.0, 0.0].map(full);
        let batch = vec![full(0.0), full(0.0)];
        let mut program = Self {
            alive,
            mode,
            failing,
            runtime,
            lease,
            stream,
            a,
            c,
            batch,
            before,
            after,
        };
        if leased {
            program.products().unwrap();
        }
        program
    }

    fn device(&self) -> &Device {
        self.runtime.default_device()
    }

    /// A handle, unless one is leased, a workspace, a trial; a table of pointers, and another trial.
    fn products(&mut self) -> TensorResult<()> {
        let Self {
            a,
            c,
            batch,
            stream,
            lease,
            ..
        } = self;
        match lease {
            Some(lease) => products(lease, a, c, batch),
            None => products(stream, a, c, batch),
        }
    }

    /// Captures the products among other work; `begun` says what fails in them.
    fn capture(&mut self, begun: impl FnOnce(&Failing)) -> Ended {
        let (stream, mut products) = (self.stream.clone(), None);
        let graph = stream.capture_in(self.mode, |_| {
            fill(&stream, &mut self.before, 2.0)?;
            begun(&self.failing);
            let done = catch_unwind(AssertUnwindSafe(|| self.products()));
            products = Some((done, self.failing.finish()));
            fill(&stream, &mut self.after, 3.0)
        });
        let (products, seen) = products.expect("nothing failed before");
        Ended {
            products,
            seen,
            graph,
        }
    }

    /// What was captured around the products takes place.
    fn check_others(&mut self, graph: &Graph) {
        graph.launch(&self.stream).unwrap();
        for (tensor, value) in [(&self.before, 2.0), (&self.after, 3.0)] {
            assert_eq!(
                tensor.to_ndarray().unwrap(),
                Array2::from_elem((4, 4), value)
            );
        }
        for tensor in [&mut self.before, &mut self.after] {
            fill(&self.stream, tensor, 0.0).unwrap();
        }
    }

    /// The products can be computed now, and captured.
    fn check_again(&mut self) {
        self.products().unwrap();
        self.check_products();
        let ended = self.capture(Failing::watch);
        ended.products.unwrap().unwrap();
        self.check_others(&ended.graph.unwrap());
        self.check_products();
    }

    fn check_products(&mut self) {
        for product in self.batch.iter_mut().chain([&mut self.c]) {
            let computed = product.to_ndarray().unwrap();
            assert_eq!(computed, Array2::from_elem((4, 4), 4.0));
            fill(&self.stream, product, 0.0).unwrap();
        }
    }

    /// Nothing is lost but so many objects.
    fn finish(self, double: &Double, left: u64) {
        let alive = self.alive;
        self.end(double);
        assert_eq!(emulated::alive(), alive + left);
    }

    fn end(self, double: &Double) {
        let Self {
            alive: _,
            mode: _,
            failing: _,
            runtime,
            lease,
            stream,
            a,
            c,
            batch,
            before,
            after,
        } = self;
        drop((lease, stream, a, c, batch, before, after));
        finish(runtime, double);
    }

    /// After a call has failed: the graph does what else was captured, the products can be captured now, and nothing is lost but what the
    /// call leaves.
    fn go_on(mut self, graph: TensorResult<Graph>, call: Call, double: &Double) {
        assert!(!self.device().is_poisoned());
        if let Ok(graph) = graph {
            self.check_others(&graph);
        }
        self.check_again();
        self.finish(double, left_by(call));
    }
}

/// Each call that the products make, with its number.
fn calls(double: &Double, mode: CaptureMode, leased: bool) -> Vec<(Call, u64)> {
    let mut program = Program::new(mode, leased);
    let ended = program.capture(Failing::watch);
    ended.products.unwrap().unwrap();
    drop(ended.graph.unwrap());
    // What the library has loaded stays.
    program.end(double);
    let calls = ended.seen.calls;
    for call in [
        Call::StreamCreate,
        Call::StreamBeginCapture,
        Call::StreamEndCapture,
        Call::GraphDestroy,
        Call::StreamDestroy,
    ] {
        assert!(calls[&call] >= 2, "{call}: there are two trials");
    }
    let each = |(call, count)| (1..=count).map(move |n| (call, n));
    calls.into_iter().flat_map(each).collect()
}

/// Runs `sweep` for each call, by name and number, on a program and a thread of its own, whose handle is leased or made in the capture.
fn for_each(double: &Double, mode: CaptureMode, sweep: impl Fn(Program, Call, u64) + Sync) {
    double.load_in_captures(true);
    let all = [false, true].map(|leased| (leased, calls(double, mode, leased)));
    for (leased, calls) in all {
        assert!(calls.len() > 25, "only {} calls", calls.len());
        for (call, n) in calls {
            let what = format!("{call} {n}, leased: {leased}");
            let _in_time = InTime::new(what.clone());
            let swept = || sweep(Program::new(mode, leased), call, n);
            let swept = std::thread::scope(|scope| scope.spawn(swept).join());
            if let Err(panic) = swept {
                eprintln!("in {what}");
                resume_unwind(panic);
            }
        }
    }
    double.load_in_captures(false);
}

/// Whether a failure is made good, and nobody has to hear of it: a thread that ends can stay more permissive.
fn is_repaired(call: Call) -> bool {
    call == Call::ThreadExchangeStreamCaptureMode
}

/// Objects that such a call leaves when it fails: nobody can say whether they are gone.
fn left_by(call: Call) -> u64 {
    u64::from([Call::StreamDestroy, Call::GraphDestroy].contains(&call))
}

#[test]
fn any_call_beside_a_capture_may_fail_once() {
    let Some(double) = Double::find() else { return };
    for_each(&double, CaptureMode::Global, |mut program, call, n| {
        let ended = program.capture(|failing| failing.fail(call, n, FAULT));
        let told = |error: String| {
            let named = error.contains(call.name()) && error.contains("NOT_PERMITTED");
            assert!(named, "{error}");
        };
        match ended.products.expect("nothing unwinds") {
            Err(error) => told(error.to_string()),
            Ok(()) => assert!(
                !ended.seen.failed || is_repaired(call),
                "nobody heard of it"
            ),
        }
        if let Err(error) = &ended.graph {
            told(error.to_string());
        }
        program.go_on(ended.graph, call, &double);
    });
}

#[test]
fn any_call_beside_a_capture_may_unwind() {
    let Some(double) = Double::find() else { return };
    for_each(&double, CaptureMode::Global, |mut program, call, n| {
        let ended = program.capture(|failing| failing.unwind(call, n));
        match ended.products {
            Err(panic) => assert!(panic.is::<Unwound>(), "another panic"),
            Ok(result) => {
                result.unwrap();
                assert!(
                    !ended.seen.failed || is_repaired(call),
                    "nobody heard of it"
                );
            }
        }
        program.go_on(ended.graph, call, &double);
    });
}

/// A handle that nobody has is kept when the driver unwinds before it ends.
#[test]
fn a_handle_that_does_not_end_is_kept() {
    let Some(double) = Double::find() else { return };
    let mut program = Program::new(CaptureMode::Global, false);
    program.products().unwrap();
    let (device, failing) = (program.device().clone(), program.failing.clone());
    Blas::of(&device).set_provider(Arc::new(HostBlas::default()));
    let cublas = small(&device);
    failing.unwind(Call::CtxSetCurrent, 1);
    catch_unwind(AssertUnwindSafe(|| cublas.end_idle_handles(&device))).unwrap_err();
    assert!(failing.finish().failed);
    assert_eq!(cublas.end_idle_handles(&device).unwrap(), 1);
    drop(device);
    program.end(&double);
}

/// What a test says that runs in a process of its own.
fn child(name: &str, variables: &[(&str, &str)]) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let name = format!("blas::cublas::tests::beside::{name}");
    child.args([&name, "--exact", "--ignored", "--nocapture"]);
    child.envs(variables.iter().copied());
    let output = child.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{out}{err}"
    );
}

/// In a process of its own: handles of a lost device never end.
#[test]
fn any_call_beside_a_capture_may_lose_the_device() {
    if Double::find().is_some() {
        child("loses_the_device", &[]);
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn loses_the_device() {
    let double = Double::find().unwrap();
    // What was captured stays so, on a thread that ends: the driver does not know that it is lost.
    for_each(&double, CaptureMode::ThreadLocal, |mut program, call, n| {
        let ended = program.capture(|failing| failing.fail(call, n, LOST));
        if !program.device().is_poisoned() {
            let heard = !ended.seen.failed || is_repaired(call);
            assert!(heard, "nobody heard of it");
            return program.check_again();
        }
        let again = program.products().unwrap_err();
        let here = again.to_string().contains(file!());
        assert!(here, "it was asked for here: {again}");
        for error in [
            ended.products.unwrap().unwrap_err(),
            ended.graph.unwrap_err(),
            again,
        ] {
            assert!(error.to_string().contains("ILLEGAL_ADDRESS"), "{error}");
        }
        assert_eq!(emulated::take_reports(), 0);
    });
}

/// No thread has room for such a stack: none can be started, and those that are there go on.
const NO_THREADS: (&str, &str) = ("RUST_MIN_STACK", "281474976710656");

#[test]
fn without_a_thread_a_first_product_is_refused_in_a_capture() {
    if Double::find().is_some() {
        child("has_no_threads", &[NO_THREADS]);
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn has_no_threads() {
    let double = Double::find().unwrap();
    std::thread::Builder::new()
        .spawn(|| {})
        .expect_err("as the environment says");
    double.load_in_captures(true);
    // What the library loads stays.
    let mut program = Program::new(CaptureMode::Global, false);
    program.products().unwrap();
    // Memory that is in use would be freed later, by a thread.
    program.stream.synchronize().unwrap();
    program.end(&double);
    let mut program = Program::new(CaptureMode::Global, false);
    for eagerly_first in [false, true] {
        if eagerly_first {
            program.products().unwrap();
        }
        let ended = program.capture(Failing::watch);
        let error = ended.products.unwrap().unwrap_err().to_string();
        let expected = "a thread that prepares a product beside its capture could not be started: ";
        assert!(
            error.starts_with(expected) && error.contains("os error"),
            "{error}"
        );
        program.check_others(&ended.graph.unwrap());
    }
    program.stream.synchronize().unwrap();
    program.finish(&double, 0);
}
