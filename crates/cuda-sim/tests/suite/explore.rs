//! Exploring schedules and sweeping over failing calls.

use crate::kit::D0;
use cuda_driver::{
    Call, Copies, CudaResult, DevicePtr, EventFlags, Events, Memory, Pattern, RawEvent, RawStream,
    Streams,
};
use cuda_sim::{Checks, SimBuilder, SimDriver};

/// A race that the checker is told to overlook, so that only its result gives it away.
fn unlucky(sim: &SimDriver) {
    let [a, b] = [(); 2].map(|()| sim.stream_create(D0, 0).unwrap());
    let x = sim.mem_alloc(D0, 1).unwrap();
    let mut value = 0_u8;
    // SAFETY: the simulated device checks ranges and order.
    let fill = |value, stream| unsafe { sim.fill_async(D0, x, Pattern::U8(value), 1, stream) };
    fill(9, b).unwrap();
    for value in 0..4 {
        fill(value, a).unwrap();
    }
    sim.stream_synchronize(D0, b).unwrap();
    sim.stream_synchronize(D0, a).unwrap();
    // SAFETY: `value` is writable.
    unsafe { sim.copy_to_host(D0, &raw mut value, x, 1) }.unwrap();
    assert_eq!(value, 3, "the last fill of a comes last");
}

fn unchecked() -> SimBuilder {
    SimDriver::builder().checks(Checks::NONE)
}

#[test]
fn exploring_finds_a_rare_order_and_its_seed_replays() {
    let failure = unchecked().explore(0..200, unlucky).unwrap_err();
    assert!(
        failure.panic.as_ref().unwrap().contains("comes last"),
        "{failure}"
    );
    assert_eq!(failure.timeline.spans().count(), 6);
    unchecked().explore(0..failure.seed, unlucky).unwrap();
    let order = failure.timeline.execution_order();
    assert_eq!(order.len(), 6, "{order:?}");
    assert_eq!(
        order,
        [1, 2, 3, 4, 0, 5],
        "what was asked for first came last"
    );
    assert!(failure.seed > 0, "most seeds are lucky");
    for _ in 0..3 {
        let again = unchecked()
            .explore(failure.seed..failure.seed + 1, unlucky)
            .unwrap_err();
        // The same run, whatever one looks at.
        assert_eq!(again.to_string(), failure.to_string());
        let (one, other) = (&failure.timeline, &again.timeline);
        assert!(one.spans().eq(other.spans()) && one.edges() == other.edges());
    }
    let other = unchecked().explore(failure.seed + 1..200, unlucky);
    assert_ne!(other.unwrap_err().seed, failure.seed);
}

/// Reports that come with a seed come back with it, text and all.
#[test]
fn a_failing_seed_repeats_its_reports() {
    let run = |seed| {
        let builder = SimDriver::builder();
        let failure = builder.explore(seed..seed + 1, unlucky).unwrap_err();
        failure.to_string()
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn a_report_fails_the_first_seed() {
    let failure = SimDriver::builder().explore(5..10, unlucky).unwrap_err();
    assert_eq!(failure.seed, 5);
    assert!(failure.to_string().contains("race"), "{failure}");
}

/// Objects that end with their scope, whatever fails.
#[derive(Default)]
struct Owned {
    streams: Vec<RawStream>,
    events: Vec<RawEvent>,
    memory: Vec<DevicePtr>,
}

impl Owned {
    fn work(&mut self, sim: &SimDriver) -> CudaResult<()> {
        for _ in 0..2 {
            self.streams.push(sim.stream_create(D0, 0)?);
        }
        self.memory.push(sim.mem_alloc(D0, 256)?);
        self.events
            .push(sim.event_create(D0, EventFlags::default())?);
        // SAFETY: the simulated device checks ranges and order.
        unsafe { sim.fill_async(D0, self.memory[0], Pattern::U8(1), 256, self.streams[0]) }?;
        sim.event_record(D0, self.events[0], self.streams[0])?;
        sim.stream_wait_event(D0, self.streams[1], self.events[0])?;
        // SAFETY: as above.
        unsafe { sim.fill_async(D0, self.memory[0], Pattern::U8(2), 256, self.streams[1]) }?;
        sim.stream_synchronize(D0, self.streams[1])
    }

    /// With `careful`, waits for all work before it frees.
    fn end(self, sim: &SimDriver, careful: bool) {
        if careful {
            for stream in &self.streams {
                // Once more if the first attempt fails.
                let _ = sim
                    .stream_synchronize(D0, *stream)
                    .or_else(|_| sim.stream_synchronize(D0, *stream));
            }
        }
        for x in self.memory {
            // SAFETY: the simulated device checks that nothing is in use.
            let _ = unsafe { sim.mem_free(D0, x) };
        }
        for event in self.events {
            // SAFETY: the simulated device checks the handle.
            let _ = unsafe { sim.event_destroy(D0, event) };
        }
        for stream in self.streams {
            // SAFETY: the simulated device checks the handle.
            let _ = unsafe { sim.stream_destroy(D0, stream) };
        }
    }
}

#[test]
fn a_careful_program_survives_every_failing_call() {
    let program = |sim: &SimDriver| {
        let mut owned = Owned::default();
        let _ = owned.work(sim);
        owned.end(sim, true);
    };
    let runs = SimDriver::builder()
        .sweep(1, cuda_driver::ErrorCode::UNKNOWN, program)
        .unwrap();
    assert_eq!(runs, 1 + 2 + 1 + 1 + 1 + 1 + 1 + 1 + 3 + 1 + 1 + 2);
}

#[test]
fn a_careless_program_is_caught_when_its_wait_fails() {
    let program = |sim: &SimDriver| {
        let mut owned = Owned::default();
        let _ = owned.work(sim);
        owned.end(sim, false);
    };
    let failure = SimDriver::builder()
        .sweep(1, cuda_driver::ErrorCode::UNKNOWN, program)
        .unwrap_err();
    let (call, n, _) = failure.fault.unwrap();
    assert_eq!((call, n), (Call::StreamWaitEvent, 1), "{failure}");
    assert!(
        failure
            .reports
            .iter()
            .any(|report| report.kind() == "free before use ends"),
        "{failure}"
    );
}
