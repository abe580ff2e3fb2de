//! Every driver call of a program over tensors fails in turn: the program hears of it, nothing is lost, and it can be run again.

use async_value::{Async, SeededExecutor};
use cuda_buffer::{CaptureStep, DeviceArena, DeviceSlab};
use cuda_driver::{Call, CallCounts, Driver, ErrorCode};
use cuda_runtime::{Device, Runtime, Stream};
use cuda_sim::SimDriver;
use ndarray::{Array1, Array2, ArrayD};
use space_core::{Space, Undef};
use std::error::Error;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tensor_cuda::asynchronous as queued;
use tensor_cuda::{
    CudaTensor, Map, PackedTensors, add, cast, copy, gemm, gemm_batched, map_in_place, sum,
};

type Outcome = Result<Vec<ArrayD<f64>>, Box<dyn Error>>;

const FAULT: ErrorCode = ErrorCode::NOT_PERMITTED;

/// What lives longer than one run of the program.
struct Fixture {
    runtime: Runtime,
    sim: SimDriver,
    streams: [Stream; 2],
    b: CudaTensor<f64, 2>,
    x: CudaTensor<f64, 2>,
    arena: DeviceArena,
}

fn host(seed: usize) -> Array2<f64> {
    Array2::from_shape_fn((4, 4), |(i, j)| ((i * 5 + j * 3 + seed) % 7) as f64 - 3.0)
}

impl Fixture {
    fn new(pools: bool) -> Self {
        let sim = SimDriver::builder().pools(pools).build();
        let builder = Runtime::builder().driver(sim.as_driver());
        let runtime = builder.streams_per_device(4).build().unwrap();
        let device = runtime.default_device().clone();
        let streams = [(); 2].map(|()| device.streams().acquire().unwrap());
        let b = CudaTensor::from_ndarray(&device, &host(1).view()).unwrap();
        let x = CudaTensor::zeros(&streams[0], [4, 4]).unwrap();
        let slab = DeviceSlab::new(&device, 4096).unwrap();
        Self {
            arena: DeviceArena::over(slab).unwrap(),
            runtime,
            sim,
            streams,
            b,
            x,
        }
    }

    fn device(&self) -> Device {
        self.runtime.default_device().clone()
    }

    /// Transfers, elementwise work and products on two streams, packed tensors, a graph, and queued operations.
    fn program(&mut self) -> Outcome {
        let [s, t] = &self.streams;
        let (device, b) = (s.device(), &self.b);
        let a = CudaTensor::from_ndarray(device, &host(2).view())?;
        let mut c = CudaTensor::zeros(s, [4, 4])?;
        gemm(s, &mut c, 1.0, a.view().reversed(0)?, b, 1.0)?; // copies an operand first
        let mut d = CudaTensor::uninitialized(device, [4, 4])?;
        add(t, &mut d, &c, a.view().transposed())?;
        map_in_place(t, &mut d, Map::Absolute)?;
        let mut sums = CudaTensor::<f64, 1>::uninitialized_on(t, [4])?;
        sum(t, &mut sums, &d, [1])?;
        let mut narrow = CudaTensor::<f32, 2>::uninitialized_on(s, [4, 4])?;
        cast(s, &mut narrow, &d)?;
        cast(s, &mut c, narrow.view().transposed())?;
        let mut outs = vec![
            CudaTensor::full(s, [4, 4], 1.0)?,
            CudaTensor::zeros(t, [4, 4])?,
        ];
        gemm_batched(s, &mut outs, 1.0, [&c, b], [b, &d], 1.0)?;
        let mut packed = PackedTensors::<f64, 2>::zeros(t, &[[4, 4], [4, 4]])?;
        copy(t, packed.block_mut(1), outs[1].view().transposed())?;

        let (x, arena) = (&mut self.x, &mut self.arena);
        let mut step = || {
            arena.frame().scratch(|frame| {
                let mut scratch = frame.alloc(Undef::<f64, _>::new([4, 4]))?;
                gemm(s, &mut scratch, 1.0, &a, b, 0.0)?;
                gemm(s, &mut *x, 1.0, &scratch, a.view().transposed(), 0.0)
            })
        };
        step()?;
        let graph = s.capture(|_| step())?;
        tensor_cuda::fill(t, &mut self.x, 0.0)?;
        graph.launch(t)?;
        drop(graph);

        let executor = SeededExecutor::new(0);
        let y = queued::from_ndarray(&executor, device, host(3))?;
        let z = Async::empty();
        queued::assign_product(&executor, &z, &y, &y)?;
        queued::scale(&executor, &z, 2.0)?;
        let queued = queued::to_ndarray(&executor, &z)?;
        let queued = executor.run_until(queued.read())??;
        let sums: Array1<f64> = sums.to_ndarray()?;
        let packed = tensor_cuda::to_ndarray(packed.block(1))?;
        Ok(vec![
            sums.into_dyn(),
            outs[0].to_ndarray()?.into_dyn(),
            packed.into_dyn(),
            self.x.to_ndarray()?.into_dyn(),
            queued.clone().into_dyn(),
        ])
    }
}

/// What the program computes and which calls it makes, without a fault.
fn clean(pools: bool) -> (Vec<ArrayD<f64>>, CallCounts) {
    let mut fixture = Fixture::new(pools);
    let before = fixture.sim.counters().snapshot();
    let results = fixture.program().unwrap();
    let calls = fixture.sim.counters().snapshot() - before;
    assert_eq!(fixture.program().unwrap(), results);
    fixture.sim.assert_no_reports();
    (results, calls)
}

/// Every call with its number. A thread of the runtime asks again and again whether work is done: a few of these will do.
fn each(calls: CallCounts) -> impl Iterator<Item = (Call, u64)> {
    let calls: Vec<_> = calls.iter().collect();
    calls.into_iter().flat_map(|(call, count)| {
        let most = match call {
            Call::StreamQuery | Call::EventQuery => 4,
            _ => u64::MAX,
        };
        (1..=count.min(most)).map(move |n| (call, n))
    })
}

/// Runs `body` on a thread of its own, and panics when it takes too long.
fn in_time(what: &str, body: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        _ => {
            if let Err(panic) = thread.join() {
                eprintln!("in {what}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Whether a destructor or a thread of the runtime tells of an error, now or soon.
fn told_later(device: &Device) -> bool {
    let begun = Instant::now();
    while device.check().is_ok() {
        if begun.elapsed() > Duration::from_secs(5) {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

fn fails_once(pools: bool, call: Call, n: u64, expected: &[ArrayD<f64>]) {
    let mut fixture = Fixture::new(pools);
    let device = fixture.device();
    fixture.sim.faults().fail_nth(call, n, FAULT);
    let result = fixture.program();
    // How often threads of the runtime ask is a matter of luck, and a wait that can't be queued for a free is made on the host.
    let fired = fixture.sim.faults().clear() == 0;
    let repaired = matches!(
        call,
        Call::StreamWaitEvent | Call::ThreadExchangeStreamCaptureMode
    );
    match result {
        Err(error) => {
            let told = error.to_string();
            assert!(fired && told.contains("NOT_PERMITTED"), "{told}");
        }
        Ok(results) => {
            assert_eq!(results, expected);
            assert!(
                !fired || repaired || told_later(&device),
                "nobody heard of it"
            );
        }
    }
    while device.check().is_err() {}
    assert!(!device.is_poisoned());
    let mut again = fixture.program();
    // A thread of the runtime may tell of what it repaired only now.
    if again
        .as_ref()
        .is_err_and(|error| repaired && error.to_string().contains("NOT_PERMITTED"))
    {
        again = fixture.program();
    }
    assert_eq!(again.unwrap(), expected, "it can be run again");
    let counted = device.alive();
    assert_eq!((counted.graphs, counted.captures), (0, 0));
    fixture.sim.assert_no_reports();
    let Fixture {
        runtime,
        sim,
        streams,
        b,
        x,
        arena,
    } = fixture;
    drop((streams, b, x, arena, device));
    for (_, alive) in runtime.shutdown().unwrap() {
        assert_eq!(
            (alive.allocations, alive.graphs, alive.leased_streams),
            (0, 0, 0)
        );
    }
    sim.assert_no_reports();
}

fn loses_the_device(pools: bool, call: Call, n: u64) {
    let mut fixture = Fixture::new(pools);
    fixture
        .sim
        .faults()
        .fail_nth(call, n, ErrorCode::ILLEGAL_ADDRESS);
    let first = fixture.program();
    if fixture.sim.faults().clear() > 0 || call == Call::ThreadExchangeStreamCaptureMode {
        return;
    }
    if let Err(error) = first {
        assert!(error.to_string().contains("ILLEGAL_ADDRESS"), "{error}");
    }
    let error = fixture.program().unwrap_err().to_string();
    assert!(error.contains("ILLEGAL_ADDRESS"), "{error}");
    let sim = fixture.sim.clone();
    drop(fixture);
    sim.assert_no_reports();
}

#[test]
fn any_call_of_a_program_over_tensors_may_fail_once() {
    for pools in [true, false] {
        let (expected, calls) = clean(pools);
        let mut swept = 0;
        for (call, n) in each(calls) {
            let expected = expected.clone();
            in_time(&format!("{call} {n}, pools {pools}"), move || {
                fails_once(pools, call, n, &expected);
            });
            swept += 1;
        }
        assert!(swept > 60, "only {swept} calls");
    }
}

#[test]
fn any_call_of_a_program_over_tensors_may_lose_the_device() {
    let (_, calls) = clean(true);
    for (call, n) in each(calls) {
        in_time(&format!("{call} {n}"), move || {
            loses_the_device(true, call, n);
        });
    }
}
