//! Modelled time and the timeline.

use crate::kit::{D0, Gpu};
use cuda_driver::{DevicePtr, Kernels};
use cuda_sim::{Schedule, SimDriver, TimeProfile, Timeline};
use std::sync::Arc;
use std::time::Duration;

const LEN: usize = 1 << 18;

/// Copies in, computes, copies out, for so many batches over so many slots.
fn pipeline(gpu: &Gpu, slots: usize) -> Duration {
    let before = gpu.sim.modelled_time();
    let streams = [(); 3].map(|()| gpu.stream());
    let (input, output) = (gpu.pinned(LEN), gpu.pinned(LEN));
    input.fill(1);
    let x: Vec<DevicePtr> = (0..slots).map(|_| gpu.alloc(4 * LEN)).collect();
    let [loaded, done, saved] =
        [(); 3].map(|()| (0..slots).map(|_| gpu.event()).collect::<Vec<_>>());
    for batch in 0..8 {
        let slot = batch % slots;
        gpu.wait(streams[0], saved[slot]);
        gpu.to_device(streams[0], x[slot], &input, LEN);
        gpu.record(loaded[slot], streams[0]);
        gpu.wait(streams[1], loaded[slot]);
        gpu.step(streams[1], x[slot], 1, LEN as u32);
        gpu.record(done[slot], streams[1]);
        gpu.wait(streams[2], done[slot]);
        gpu.to_host(streams[2], &output, x[slot], LEN);
        gpu.record(saved[slot], streams[2]);
    }
    gpu.synchronize(streams[2]);
    assert_eq!(output.get(0), 4);
    gpu.clean();
    gpu.sim.modelled_time() - before
}

#[test]
fn copies_in_both_directions_and_kernels_overlap() {
    let gpu = Gpu::seeded(0);
    let (one, two, three) = (pipeline(&gpu, 1), pipeline(&gpu, 2), pipeline(&gpu, 3));
    // One mebibyte takes 16.4 us plus 2 us latency each way on a 64 GB/s link.
    assert!(one > Duration::from_micros(8 * 2 * 18), "{one:?}");
    assert!(two < one.mul_f64(0.7), "{one:?} {two:?}");
    assert!(three < two, "{two:?} {three:?}");
    assert!(
        three > Duration::from_micros(8 * 18),
        "one direction is busy all the time: {three:?}"
    );
}

#[test]
fn modelled_time_does_not_depend_on_the_order_of_execution() {
    let times: Vec<Duration> = (0..50)
        .map(|seed| SimDriver::builder().seed(seed))
        .chain([SimDriver::builder().schedule(Schedule::Eager)])
        .map(|builder| pipeline(&Gpu::new(builder), 2))
        .collect();
    assert!(times.iter().all(|&time| time == times[0]), "{times:?}");
}

#[test]
fn a_slower_device_takes_longer() {
    let time = |profile| pipeline(&Gpu::new(SimDriver::builder().profile(profile)), 1);
    assert!(time(TimeProfile::a100_sxm()) > time(TimeProfile::h100_sxm()).mul_f64(1.5));
}

#[test]
fn branches_of_a_graph_overlap() {
    let gpu = Gpu::new(SimDriver::builder().timeline(true));
    let [a, b] = [(); 2].map(|()| gpu.stream());
    let [x, y] = [(); 2].map(|()| gpu.alloc(4 * LEN));
    let input = gpu.pinned(LEN);
    input.fill(1);
    gpu.begin(a);
    gpu.edge(a, b);
    gpu.to_device(a, x, &input, LEN);
    let nothing = Arc::new(|| {});
    gpu.sim.launch_host_function(D0, b, nothing).unwrap();
    gpu.column(b, y, 1, 1, 8);
    gpu.edge(b, a);
    let exec = gpu.instantiate(gpu.end(a));
    gpu.replay(exec, a).unwrap();
    gpu.synchronize(a);
    let spans: Vec<_> = gpu.sim.timeline().spans().collect();
    let [copy, _, kernel] = &spans[spans.len() - 3..] else {
        panic!()
    };
    assert!(
        kernel.start < copy.end && copy.start < kernel.end,
        "{copy:?} {kernel:?}"
    );
    gpu.clean();
}

fn timeline(seed: u64) -> (Timeline, String) {
    let gpu = Gpu::new(SimDriver::builder().seed(seed).timeline(true));
    pipeline(&gpu, 2);
    let timeline = gpu.sim.timeline();
    let mut trace = Vec::new();
    timeline.write_perfetto(&mut trace).unwrap();
    (timeline, String::from_utf8(trace).unwrap())
}

#[test]
fn the_timeline_has_spans_and_edges() {
    let (timeline, trace) = timeline(0);
    let spans: Vec<_> = timeline.spans().collect();
    assert_eq!(
        spans
            .iter()
            .filter(|span| span.bytes == 4 * LEN as u64)
            .count(),
        24
    );
    assert!(!timeline.edges().is_empty());
    for &(from, to) in timeline.edges() {
        assert!(
            spans[from].end <= spans[to].start,
            "{:?} {:?}",
            spans[from],
            spans[to]
        );
    }
    // A trace event for each span, two for each edge, and names.
    assert_eq!(trace.matches("\"ph\":\"X\"").count(), spans.len());
    assert_eq!(
        trace.matches("\"ph\":\"s\"").count(),
        timeline.edges().len()
    );
    assert_eq!(
        trace.matches("\"ph\":\"f\"").count(),
        timeline.edges().len()
    );
    assert!(trace.contains("kernel step") && trace.contains("modelled_time.rs"));
    assert!(json_is_valid(trace.trim_end()));
}

#[test]
fn the_timeline_tells_busy_time_and_the_critical_path() {
    let (timeline, _) = timeline(0);
    let spans: Vec<_> = timeline.spans().collect();
    let busy = timeline.busy();
    assert_eq!(
        busy.iter().map(|stream| stream.operations).sum::<usize>(),
        spans.len()
    );
    assert!(busy.iter().all(|stream| stream.busy <= timeline.makespan()));
    let path = timeline.critical_path();
    let last = &spans[*path.last().unwrap()];
    assert_eq!(last.end, timeline.makespan());
    assert!(
        path.windows(2)
            .all(|pair| spans[pair[0]].end == spans[pair[1]].start)
    );
    // With two slots, each copy in waits for the copy out of the batch before the last.
    assert!(path.len() > 8, "{path:?}");
    assert!(Timeline::default().critical_path().is_empty());
}

#[test]
fn an_empty_timeline_is_a_valid_trace() {
    let sim = SimDriver::builder().build();
    let mut trace = Vec::new();
    sim.timeline().write_perfetto(&mut trace).unwrap();
    assert!(json_is_valid(
        std::str::from_utf8(&trace).unwrap().trim_end()
    ));
}

/// Whether brackets and strings of a JSON text match, and commas stand between values only.
fn json_is_valid(text: &str) -> bool {
    let (mut open, mut in_string, mut escaped, mut last) = (Vec::new(), false, false, ' ');
    for c in text.chars() {
        if in_string {
            match (escaped, c) {
                (true, _) => escaped = false,
                (false, '\\') => escaped = true,
                (false, '"') => in_string = false,
                _ => {}
            }
        } else {
            match c {
                '"' => in_string = true,
                '{' | '[' => open.push(c),
                '}' | ']' => {
                    let pair = [open.pop(), Some(c)];
                    if last == ','
                        || ![[Some('{'), Some('}')], [Some('['), Some(']')]].contains(&pair)
                    {
                        return false;
                    }
                }
                ',' if matches!(last, ',' | '{' | '[') => return false,
                _ => {}
            }
        }
        last = c;
    }
    open.is_empty() && !in_string
}
