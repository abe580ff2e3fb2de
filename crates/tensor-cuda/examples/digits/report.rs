//! The table at the end.

use crate::files::Input;
use crate::pipeline::Outcome;
use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::Report;
use std::io::{self, Write};

const REPORTS: &str = "the simulated device reports";

/// Allocations of device memory during replay.
pub(crate) fn allocations(outcome: &Outcome) -> u64 {
    let calls = [Call::MemAlloc, Call::MemAllocFromPoolAsync];
    calls.map(|call| outcome.replay.calls.of(call)).iter().sum()
}

pub(crate) fn print(
    out: &mut dyn Write,
    runtime: &Runtime,
    outcome: &Outcome,
    input: &Input,
) -> io::Result<()> {
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
    let provider = tensor_cuda::Blas::of(device).provider();
    let products = provider.map_or_else(|error| error.to_string(), |by| by.name().to_owned());
    let rows = [
        (
            "device",
            format!("{} ({})", device.properties().name, runtime.driver().name()),
        ),
        ("products by", products),
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
        writeln!(out, "{name:<30}{value}")?;
    }
    out.flush()
}

/// A text as one line without control characters, whatever names it holds; reports of the simulated device, which are
/// ours, keep their lines.
pub(crate) fn readable(text: &str) -> String {
    let ours = text.starts_with(REPORTS);
    let shown = |c: char| match c {
        '\n' if ours => "\n".to_owned(),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Fails when the simulated device has seen anything that it should not.
pub(crate) fn refuse(reports: &[Report]) -> Result<(), String> {
    match reports {
        [] => Ok(()),
        [first, rest @ ..] => Err(format!(
            "{REPORTS} {} fault(s), the first one:\n{first}",
            rest.len() + 1
        )),
    }
}
