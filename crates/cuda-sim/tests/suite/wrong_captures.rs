//! Small programs that break a rule of capture or graphs each, with the one report that it deserves.

use crate::corpus::{self, Wrong};
use crate::kit::D0;
use cuda_driver::{Capture, CaptureMode, Devices, Events, Graphs, Kernels, Memory, Streams};
use std::sync::Arc;

const MISUSE: &[&str] = &["capture misuse"];

const PROGRAMS: &[Wrong] = &[
    ("a capture begun twice", MISUSE, |gpu| {
        let a = gpu.stream();
        gpu.begin(a);
        let _ = gpu.sim.capture_begin(D0, a, CaptureMode::Relaxed);
    }),
    ("an end without a begin", MISUSE, |gpu| {
        let _ = gpu.sim.capture_end(D0, gpu.stream());
    }),
    ("an end on another stream", MISUSE, |gpu| {
        let (a, b) = (gpu.stream(), gpu.stream());
        gpu.begin(a);
        gpu.edge(a, b);
        let _ = gpu.sim.capture_end(D0, b);
    }),
    ("an end on another thread", MISUSE, |gpu| {
        let a = gpu.stream();
        gpu.begin(a);
        std::thread::scope(|scope| {
            scope.spawn(|| gpu.sim.capture_end(D0, a).unwrap_err());
        });
    }),
    ("a stream that is never joined back", MISUSE, |gpu| {
        let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
        gpu.begin(a);
        gpu.edge(a, b);
        gpu.fill(b, x, 1, 1);
        let _ = gpu.sim.capture_end(D0, a);
    }),
    ("a wait that merges two captures", MISUSE, |gpu| {
        let (a, b, event) = (gpu.stream(), gpu.stream(), gpu.event());
        gpu.begin(a);
        gpu.begin(b);
        gpu.record(event, a);
        let _ = gpu.sim.stream_wait_event(D0, b, event);
    }),
    ("a wait for work outside", MISUSE, |gpu| {
        let (a, b, event) = (gpu.stream(), gpu.stream(), gpu.event());
        gpu.record(event, b);
        gpu.begin(a);
        let _ = gpu.sim.stream_wait_event(D0, a, event);
    }),
    ("a wait from outside after the end", MISUSE, |gpu| {
        let (a, b, event) = (gpu.stream(), gpu.stream(), gpu.event());
        gpu.begin(a);
        gpu.record(event, a);
        gpu.end(a);
        let _ = gpu.sim.stream_wait_event(D0, b, event);
    }),
    ("a captured event that is queried", MISUSE, |gpu| {
        let (a, event) = (gpu.stream(), gpu.event());
        gpu.begin(a);
        gpu.record(event, a);
        let _ = gpu.sim.event_query(D0, event);
    }),
    ("a captured event that is waited for", MISUSE, |gpu| {
        let (a, event) = (gpu.stream(), gpu.event());
        gpu.begin(a);
        gpu.record(event, a);
        gpu.end(a);
        let _ = gpu.sim.event_synchronize(D0, event);
    }),
    ("a capturing stream that is queried", MISUSE, |gpu| {
        let a = gpu.stream();
        gpu.begin(a);
        let _ = gpu.sim.stream_query(D0, a);
    }),
    ("a capturing stream that is waited for", MISUSE, |gpu| {
        let a = gpu.stream();
        gpu.begin(a);
        let _ = gpu.sim.stream_synchronize(D0, a);
    }),
    ("a capturing stream that is destroyed", MISUSE, |gpu| {
        let a = gpu.stream();
        gpu.begin(a);
        // SAFETY: the stream is not destroyed.
        let _ = unsafe { gpu.sim.stream_destroy(D0, a) };
    }),
    ("a device that is waited for", MISUSE, |gpu| {
        let a = gpu.stream();
        gpu.sim.capture_begin(D0, a, CaptureMode::Relaxed).unwrap();
        let _ = gpu.sim.device_synchronize(D0);
    }),
    ("an allocation outside stream order", MISUSE, |gpu| {
        gpu.begin(gpu.stream());
        let _ = gpu.sim.mem_alloc(D0, 4);
    }),
    (
        "another thread's query in a global capture",
        MISUSE,
        |gpu| {
            let (a, event) = (gpu.stream(), gpu.event());
            gpu.sim.capture_begin(D0, a, CaptureMode::Global).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| gpu.sim.event_query(D0, event).unwrap_err());
            });
        },
    ),
    ("memory freed that is not the capture's", MISUSE, |gpu| {
        let (pool, a) = (gpu.pool(), gpu.stream());
        let x = gpu.alloc_async(pool, 4, a);
        gpu.begin(a);
        let _ = gpu.try_free_async(x, a);
    }),
    ("a kernel's first launch", MISUSE, |gpu| {
        let a = gpu.stream();
        gpu.begin(a);
        let _ = gpu.fail(a);
    }),
    ("memory of a graph that is not freed", MISUSE, |gpu| {
        let (pool, a) = (gpu.pool(), gpu.stream());
        gpu.begin(a);
        gpu.alloc_async(pool, 4, a);
        let exec = gpu.instantiate(gpu.end(a));
        gpu.replay(exec, a).unwrap();
        let _ = gpu.replay(exec, a);
    }),
    ("two forms of a graph that allocates", MISUSE, |gpu| {
        let (pool, a) = (gpu.pool(), gpu.stream());
        gpu.begin(a);
        gpu.alloc_async(pool, 4, a);
        let graph = gpu.end(a);
        gpu.instantiate(graph);
        let _ = gpu.sim.graph_instantiate(D0, graph);
    }),
    ("a child that allocates", MISUSE, |gpu| {
        let (pool, a) = (gpu.pool(), gpu.stream());
        gpu.begin(a);
        gpu.alloc_async(pool, 4, a);
        let graph = gpu.end(a);
        gpu.begin(a);
        let _ = gpu.sim.capture_child(D0, a, graph);
    }),
    ("an executable graph in a capture", MISUSE, |gpu| {
        let a = gpu.stream();
        gpu.begin(a);
        let exec = gpu.instantiate(gpu.end(a));
        gpu.begin(a);
        let _ = gpu.replay(exec, a);
    }),
    ("a destroyed graph", &["destroyed handle"], |gpu| {
        let a = gpu.stream();
        gpu.begin(a);
        let graph = gpu.end(a);
        gpu.destroy_graph(graph);
        let _ = gpu.sim.graph_instantiate(D0, graph);
    }),
    (
        "a callback of a graph that calls the driver",
        &["driver call in host function"],
        |gpu| {
            let (a, sim) = (gpu.stream(), gpu.sim.clone());
            gpu.begin(a);
            let call = Arc::new(move || {
                let _ = sim.device_count();
            });
            gpu.sim.launch_host_function(D0, a, call).unwrap();
            let exec = gpu.instantiate(gpu.end(a));
            gpu.replay(exec, a).unwrap();
            gpu.synchronize(a);
            // The function holds the simulation, and the simulation the function.
            gpu.destroy_exec(exec);
        },
    ),
];

#[test]
fn each_is_caught_under_every_seed() {
    corpus::under_every_seed(PROGRAMS);
}

#[test]
fn each_is_caught_in_submission_order_and_on_threads() {
    corpus::under_other_schedules(PROGRAMS);
}

#[test]
fn reports_are_short_and_name_this_file() {
    corpus::with_short_reports(PROGRAMS, "wrong_captures.rs:");
}

#[test]
fn each_is_caught_by_its_check_alone() {
    corpus::by_its_check_alone(PROGRAMS);
}
