//! What the tests share.

use cuda_driver::{DevicePtr, Driver, Pattern, RawStream};
use cuda_runtime::{Allocation, Completion, Device, Runtime, RuntimeBuilder, Stream};
use cuda_sim::{SimBuilder, SimDriver};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// A runtime on a simulation.
pub(crate) struct Rig {
    pub(crate) runtime: Runtime,
    pub(crate) sim: SimDriver,
}

impl Rig {
    pub(crate) fn new(streams: usize) -> Self {
        Self::with(SimDriver::builder(), |builder| {
            builder.streams_per_device(streams)
        })
    }

    pub(crate) fn with(
        simulation: SimBuilder,
        setup: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let sim = simulation.build();
        let runtime = setup(Runtime::builder().driver(sim.as_driver()))
            .build()
            .unwrap();
        Self { runtime, sim }
    }

    pub(crate) fn device(&self) -> Device {
        self.runtime.default_device().clone()
    }

    /// Ends a test whose objects are gone: nothing is alive, nothing was wrong, nothing leaks.
    #[track_caller]
    pub(crate) fn finish(self) {
        let Self { runtime, sim } = self;
        for (id, alive) in runtime.shutdown().unwrap() {
            assert_eq!(alive, cuda_runtime::Alive::default(), "{id}");
        }
        sim.shutdown();
        sim.assert_no_reports();
    }
}

/// The driver's name of a stream, without telling Carve that somebody knows it.
pub(crate) fn raw(stream: &Stream) -> RawStream {
    let name = Cell::new(None);
    let call = |_: &dyn Driver, raw| {
        name.set(Some(raw));
        Ok(())
    };
    // SAFETY: nothing is queued.
    unsafe { stream.enqueue(call) }.unwrap();
    name.get().expect("the call was made")
}

/// Queues a fill of the first byte.
pub(crate) fn touch(stream: &Stream, memory: &Allocation) {
    fill(stream, memory.address());
}

pub(crate) fn fill(stream: &Stream, address: DevicePtr) {
    let device = stream.device().id();
    // SAFETY: the simulated device checks range and order.
    let call = |driver: &dyn Driver, raw| unsafe {
        driver.fill_async(device, address, Pattern::U8(1), 1, raw)
    };
    // SAFETY: the fill goes to the stream, and the test orders it.
    unsafe { stream.enqueue(call) }.unwrap();
}

/// Work behind a stream that is held, so that it can't end: its completion.
pub(crate) fn stall(sim: &SimDriver, stream: &Stream, memory: &Allocation) -> Completion {
    assert!(sim.hold_stream(raw(stream)));
    touch(stream, memory);
    stream.record().unwrap()
}

/// Waits until something is so, for at most ten seconds.
#[track_caller]
pub(crate) fn until(mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}
