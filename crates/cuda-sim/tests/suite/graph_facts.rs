//! Rules of graphs and their replays, one test each.

use crate::capture_facts::code;
use crate::kit::{D0, Gpu, seeds};
use cuda_driver::{Devices, ErrorCode, Graphs, Kernels};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Work on a capturing stream is recorded, not run; each launch of the graph runs it.
#[test]
fn captured_work_runs_at_each_launch() {
    seeds(50, |gpu| {
        let (stream, x) = (gpu.stream(), gpu.alloc(4));
        gpu.fill(stream, x, 1, 1);
        gpu.synchronize(stream);
        gpu.begin(stream);
        gpu.step(stream, x, 1, 1);
        gpu.step(stream, x, 2, 1);
        let graph = gpu.end(stream);
        assert_eq!(gpu.read(x, 1), [1], "nothing has run");
        assert_eq!(gpu.sim.graph_node_count(D0, graph), Ok(2));
        let exec = gpu.instantiate(graph);
        gpu.destroy_graph(graph);
        gpu.replay(exec, stream).unwrap();
        gpu.replay(exec, stream).unwrap();
        gpu.destroy_exec(exec);
        gpu.synchronize(stream);
        let step = |x| 3 * (3 * x + 1) + 2;
        assert_eq!(gpu.read(x, 1), [step(step(1))]);
        gpu.clean();
    });
}

/// Nodes of a graph that nothing orders are a race, found when the graph is made executable.
#[test]
fn unordered_nodes_of_a_graph_race() {
    let gpu = Gpu::seeded(0);
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(8));
    gpu.begin(a);
    gpu.fill(a, x, 1, 2);
    gpu.edge(a, b);
    gpu.fill(a, x, 2, 1);
    gpu.fill(b, x, 3, 2);
    gpu.edge(b, a);
    let graph = gpu.end(a);
    gpu.clean();
    gpu.instantiate(graph);
    assert_eq!(gpu.kinds(), ["race"]);
}

/// Allocation and free nodes are ordered with the nodes that use the memory.
#[test]
fn nodes_use_memory_that_the_graph_allocates_in_order() {
    let gpu = Gpu::seeded(0);
    let (pool, a, b, c) = (gpu.pool(), gpu.stream(), gpu.stream(), gpu.stream());
    gpu.begin(a);
    gpu.edge(a, b);
    let nothing = Arc::new(|| {});
    gpu.sim.launch_host_function(D0, a, nothing).unwrap();
    gpu.edge(a, b);
    gpu.edge(a, c);
    let x = gpu.alloc_async(pool, 4, a);
    gpu.fill(b, x, 1, 1);
    gpu.edge(b, a);
    gpu.edge(a, c);
    gpu.step(c, x, 1, 1);
    gpu.free_async(x, a);
    gpu.edge(c, a);
    let graph = gpu.end(a);
    let dot = gpu.sim.graph_dot(graph).unwrap();
    assert_eq!(dot.matches("->").count(), 7, "{dot}");
    assert!(dot.contains("kernel step") && dot.contains("graph_facts.rs:"));
    gpu.instantiate(graph);
    assert_eq!(
        gpu.kinds(),
        ["free before use ends", "use before allocation"]
    );
    // SAFETY: it names nothing, which is what is asked.
    let unknown = unsafe { cuda_driver::RawGraph::from_raw(0) };
    assert_eq!(gpu.sim.graph_dot(unknown), None);
}

/// Replays are ordered with the work of their stream and with each other, and with nothing else.
#[test]
fn replays_order_like_any_work() {
    seeds(50, |gpu| {
        let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
        gpu.fill(a, x, 1, 1);
        gpu.synchronize(a);
        gpu.begin(a);
        gpu.step(a, x, 1, 1);
        let graph = gpu.end(a);
        let exec = gpu.instantiate(graph);
        gpu.replay(exec, a).unwrap();
        gpu.replay(exec, b).unwrap();
        gpu.synchronize(b);
        assert_eq!(
            gpu.read(x, 1),
            [13],
            "launches of one executable graph follow each other on any stream"
        );
        gpu.clean();
        gpu.replay(exec, a).unwrap();
        gpu.step(b, x, 0, 1);
        assert_eq!(gpu.kinds(), ["race"]);
    });
}

/// A graph whose allocation is not freed inside it runs once; the next launch fails [1] until the memory is freed.
#[test]
fn allocation_nodes_let_a_graph_run_once() {
    seeds(20, |gpu| {
        let (pool, stream) = (gpu.pool(), gpu.stream());
        gpu.begin(stream);
        let x = gpu.alloc_async(pool, 4, stream);
        gpu.fill(stream, x, 5, 1);
        let graph = gpu.end(stream);
        let exec = gpu.instantiate(graph);
        assert_eq!(
            code(gpu.sim.graph_instantiate(D0, graph)),
            ErrorCode::INVALID_VALUE,
            "one at a time"
        );
        gpu.replay(exec, stream).unwrap();
        assert_eq!(code(gpu.replay(exec, stream)), ErrorCode::INVALID_VALUE);
        assert_eq!(gpu.kinds(), ["capture misuse"; 2]);
        let _ = gpu.sim.take_reports();
        gpu.step(stream, x, 0, 1);
        gpu.synchronize(stream);
        assert_eq!(gpu.read(x, 1), [15]);
        gpu.free_async(x, stream);
        gpu.replay(exec, stream).unwrap();
        gpu.synchronize(stream);
        assert_eq!(gpu.read(x, 1), [5]);
        gpu.free(x);
        gpu.destroy_graph(graph);
        gpu.destroy_exec(exec);
        let (free, total) = gpu.sim.memory_info(D0).unwrap();
        assert_eq!(
            free, total,
            "the graph's addresses return with its last owner"
        );
        gpu.clean();
    });
}

/// Allocated and freed inside, a graph can be launched again and again, with the same bytes of memory.
#[test]
fn freed_inside_a_graph_can_be_replayed() {
    let gpu = Gpu::seeded(0);
    let (pool, stream, out) = (gpu.pool(), gpu.stream(), gpu.alloc(4));
    gpu.begin(stream);
    let x = gpu.alloc_async(pool, 4, stream);
    gpu.fill(stream, x, 5, 1);
    gpu.on_device(stream, out, x, 1);
    gpu.free_async(x, stream);
    let graph = gpu.end(stream);
    let exec = gpu.instantiate(graph);
    gpu.replay(exec, stream).unwrap();
    let after_one = gpu.sim.memory_info(D0).unwrap();
    for _ in 0..100 {
        gpu.replay(exec, stream).unwrap();
    }
    gpu.synchronize(stream);
    assert_eq!(gpu.sim.memory_info(D0).unwrap(), after_one);
    gpu.clean();
    let _ = gpu.try_fill(stream, x, 1, 1);
    assert_eq!(gpu.kinds(), ["use after free"]);
}

/// Graphs and their executable forms are destroyed in any order; a replay under way finishes. Destroyed handles are
/// refused [1].
#[test]
fn graphs_are_destroyed_in_any_order() {
    seeds(50, |gpu| {
        let (stream, x) = (gpu.stream(), gpu.alloc(4));
        gpu.begin(stream);
        gpu.fill(stream, x, 1, 1);
        gpu.step(stream, x, 1, 1);
        let graph = gpu.end(stream);
        let exec = gpu.instantiate(graph);
        gpu.replay(exec, stream).unwrap();
        gpu.destroy_exec(exec);
        gpu.destroy_graph(graph);
        gpu.synchronize(stream);
        assert_eq!(gpu.read(x, 1), [4]);
        gpu.clean();
        assert_eq!(code(gpu.replay(exec, stream)), ErrorCode::INVALID_VALUE);
        assert_eq!(
            code(gpu.sim.graph_instantiate(D0, graph)),
            ErrorCode::INVALID_VALUE
        );
    });
}

/// A host function in a graph runs at every replay, after what it follows.
#[test]
fn host_functions_of_a_graph_run_at_each_replay() {
    seeds(20, |gpu| {
        let (stream, x, out) = (gpu.stream(), gpu.alloc(4), gpu.pinned(1));
        gpu.fill(stream, x, 0, 1);
        gpu.synchronize(stream);
        let calls = Arc::new(AtomicU32::new(0));
        gpu.begin(stream);
        gpu.step(stream, x, 1, 1);
        let counted = Arc::clone(&calls);
        let count = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        gpu.sim.launch_host_function(D0, stream, count).unwrap();
        gpu.to_host(stream, &out, x, 1);
        let graph = gpu.end(stream);
        let exec = gpu.instantiate(graph);
        for _ in 0..3 {
            gpu.replay(exec, stream).unwrap();
        }
        gpu.synchronize(stream);
        assert_eq!((calls.load(Ordering::Relaxed), out.get(0)), (3, 13));
        gpu.clean();
    });
}

/// Launching an executable graph into a capture is not simulated, and says so: a graph is captured as a child.
#[test]
fn executable_graphs_are_not_captured() {
    let gpu = Gpu::seeded(0);
    let stream = gpu.stream();
    gpu.begin(stream);
    let graph = gpu.end(stream);
    let exec = gpu.instantiate(graph);
    gpu.replay(exec, stream).unwrap();
    gpu.begin(stream);
    assert_eq!(code(gpu.replay(exec, stream)), ErrorCode::NOT_SUPPORTED);
    gpu.end(stream);
    gpu.synchronize(stream);
}
