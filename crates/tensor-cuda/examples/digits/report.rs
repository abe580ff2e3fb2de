//! The table at the end.

use crate::files::Input;
use crate::pipeline::Outcome;
use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::Report;

/// Allocations of device memory during replay.
pub(crate) fn allocations(outcome: &Outcome) -> u64 {
    let calls = [Call::MemAlloc, Call::MemAllocFromPoolAsync];
    calls.map(|call| outcome.replay.calls.of(call)).iter().sum()
}

pub(crate) fn print(runtime: &Runtime, outcome: &Outcome, input: &Input) {
    let device = runtime.default_device();
    let replay = &outcome.replay;
    let per_batch = |count: u64| format!("{:.2}", count as f64 / outcome.batches as f64);
    let accuracy = input
        .labels
        .as_ref()
        .map_or("unknown".to_owned(), |labels| {
            let right = labels.iter().zip(&outcome.classes);
            let right = right.filter(|(label, class)| label == class).count();
            let (count, percent) = (labels.len(), 100.0 * right as f64 / labels.len() as f64);
            format!("{percent:.2} % ({right} of {count})")
        });
    let time = replay.time.map_or("not modelled".to_owned(), |time| {
        let micros = time.as_secs_f64() * 1e6;
        let each = micros / outcome.batches as f64;
        format!("{micros:.1} us ({each:.2} us per batch)")
    });
    let rows = [
        (
            "device",
            format!("{} ({})", device.properties().name, runtime.driver().name()),
        ),
        (
            "batches",
            format!("{} of {}", outcome.batches, outcome.batch),
        ),
        ("accuracy", accuracy),
        (
            "arena watermark",
            format!(
                "{} bytes (slab {})",
                outcome.watermark_bytes, outcome.slab_bytes
            ),
        ),
        (
            "device allocations in replay",
            allocations(outcome).to_string(),
        ),
        ("driver calls per batch", per_batch(replay.calls.total())),
        (
            "waits issued per batch",
            per_batch(replay.order.waits_issued),
        ),
        (
            "waits elided per batch",
            per_batch(replay.order.waits_elided()),
        ),
        ("modelled time", time),
    ];
    for (name, value) in rows {
        println!("{name:<30}{value}");
    }
}

/// Fails when the simulated device has seen anything that it should not.
pub(crate) fn refuse(reports: &[Report]) -> Result<(), String> {
    match reports {
        [] => Ok(()),
        [first, rest @ ..] => Err(format!(
            "the simulated device reports {} fault(s), the first one:\n{first}",
            rest.len() + 1
        )),
    }
}
