//! Rules of executable graphs that change: updates, automatic frees, child graphs.

use crate::kit::{D0, Gpu, seeds};
use cuda_driver::{
    Argument, Capture, CudaResult, Devices, ErrorCode, GraphFlags, GraphUpdate, Graphs, Kernels,
    LaunchConfig, RawGraph, RawGraphExec, RawGraphNode, RawStream,
};
use cuda_sim::SimDriver;
use std::sync::Arc;

fn code<T: std::fmt::Debug>(result: CudaResult<T>) -> ErrorCode {
    result.unwrap_err().code
}

impl Gpu {
    #[track_caller]
    fn update(&self, exec: RawGraphExec, graph: RawGraph) -> GraphUpdate {
        // SAFETY: one thread; the simulated device checks what the nodes touch.
        unsafe { self.sim.graph_exec_update(D0, exec, graph) }.unwrap()
    }

    /// Lets a launch of `step` in a graph add `a` to `x`.
    #[track_caller]
    fn set_step(
        &self,
        exec: RawGraphExec,
        node: RawGraphNode,
        args: &[Argument],
    ) -> CudaResult<()> {
        let step = self.sim.module_function(D0, self.module, "step").unwrap();
        let config = LaunchConfig::new([1; 3], [1; 3]);
        // SAFETY: one thread; the simulated device checks what the launch touches.
        unsafe {
            self.sim
                .graph_exec_set_kernel(D0, exec, node, step, &config, args)
        }
    }

    /// The node that was captured last on a stream.
    #[track_caller]
    fn last_node(&self, stream: RawStream) -> RawGraphNode {
        let frontier = self.sim.capture_frontier(D0, stream).unwrap();
        assert_eq!(frontier.len(), 1, "{frontier:?}");
        frontier[0]
    }
}

/// A graph that was captured again gives its parameters to an executable graph; launches under way keep theirs.
#[test]
fn a_new_capture_updates_an_executable_graph() {
    seeds(50, |gpu| {
        let (stream, x, y) = (gpu.stream(), gpu.alloc(4), gpu.alloc(4));
        gpu.fill(stream, y, 100, 1);
        let capture = |at, a| {
            gpu.begin(stream);
            gpu.fill(stream, x, 1, 1);
            gpu.step(stream, at, a, 1);
            gpu.end(stream)
        };
        let first = capture(x, 1);
        let exec = gpu.instantiate(first);
        gpu.replay(exec, stream).unwrap();
        let second = capture(y, 2);
        assert_eq!(gpu.update(exec, second), GraphUpdate::Updated);
        gpu.destroy_graph(second);
        gpu.destroy_graph(first);
        gpu.replay(exec, stream).unwrap();
        gpu.synchronize(stream);
        assert_eq!((gpu.read(x, 1), gpu.read(y, 1)), (vec![1], vec![302]));
        gpu.clean();
        gpu.destroy_exec(exec);
        assert!(gpu.sim.leak_report().len() == 4, "module, stream, x and y");
    });
}

/// An update changes parameters, not the graph: other nodes, other dependencies, other kinds of node, allocations, and
/// memory elsewhere are refused, and change nothing.
#[test]
fn an_update_keeps_the_shape_of_the_graph() {
    let sim = SimDriver::builder().devices(2).build();
    let gpu = Gpu::on(sim.clone(), D0);
    let away = Gpu::on(sim, cuda_driver::DeviceId(1));
    let (a, b) = (gpu.stream(), gpu.stream());
    let (x, y, far, host) = (gpu.alloc(64), gpu.alloc(64), away.alloc(64), gpu.pinned(16));
    let pool = gpu.pool();
    let capture = |work: &dyn Fn()| {
        gpu.begin(a);
        work();
        gpu.end(a)
    };
    let two_fills = || {
        gpu.fill(a, x, 1, 1);
        gpu.fill(a, x, 2, 1);
    };
    let fork = || {
        gpu.edge(a, b);
        gpu.fill(a, x, 1, 1);
        gpu.fill(b, y, 2, 1);
        gpu.edge(b, a);
    };
    let one_fill = || gpu.fill(a, x, 1, 1);
    let far_fill = || gpu.fill(a, far, 1, 1);
    let longer_fill = || gpu.fill(a, y, 1, 16);
    let step = || gpu.step(a, x, 1, 1);
    let copy = || gpu.on_device(a, y, x, 1);
    let longer_copy = || gpu.on_device(a, x, y, 16);
    let copy_out = || gpu.to_host(a, &host, x, 1);
    let rows = |width: u32| move |gpu: &Gpu| gpu.column(a, x, 1, width, 2);
    let (thin, wide) = (|| rows(1)(&gpu), || rows(2)(&gpu));
    let call = || {
        gpu.sim
            .launch_host_function(D0, a, Arc::new(|| {}))
            .unwrap();
    };
    let allocate = || {
        let z = gpu.alloc_async(pool, 4, a);
        gpu.free_async(z, a);
    };
    use GraphUpdate::*;
    type Capture<'a> = &'a dyn Fn();
    let cases: [(Capture<'_>, Capture<'_>, GraphUpdate); 13] = [
        (&one_fill, &longer_fill, Updated),
        (&copy, &longer_copy, Updated),
        (&thin, &wide, Updated),
        (&call, &call, Updated),
        (&one_fill, &two_fills, TopologyChanged),
        (&two_fills, &fork, TopologyChanged),
        (&one_fill, &step, NodeTypeChanged),
        (&step, &call, NodeTypeChanged),
        (&copy, &step, NodeTypeChanged),
        (&copy, &copy_out, ParametersChanged),
        (&one_fill, &far_fill, ParametersChanged),
        (&allocate, &allocate, NotSupported),
        (&allocate, &two_fills, NodeTypeChanged),
    ];
    for (number, (before, after, expected)) in cases.into_iter().enumerate() {
        let exec = gpu.instantiate(capture(before));
        let graph = capture(after);
        assert_eq!(gpu.update(exec, graph), expected, "case {number}");
    }
    gpu.clean();
    let exec = gpu.instantiate(capture(&one_fill));
    gpu.destroy_exec(exec);
    let graph = capture(&one_fill);
    // SAFETY: the handle is refused.
    let refused = unsafe { gpu.sim.graph_exec_update(D0, exec, graph) };
    assert_eq!(code(refused), ErrorCode::INVALID_VALUE);
    assert_eq!(gpu.kinds(), ["destroyed handle"]);
}

/// One launch of an executable graph gets other arguments; later launches use them.
#[test]
fn a_launch_in_a_graph_gets_other_arguments() {
    seeds(50, |gpu| {
        let (stream, x, y) = (gpu.stream(), gpu.alloc(4), gpu.alloc(4));
        gpu.fill(stream, x, 1, 1);
        gpu.fill(stream, y, 1, 1);
        gpu.begin(stream);
        assert!(gpu.sim.capture_frontier(D0, stream).unwrap().is_empty());
        gpu.fill(stream, y, 1, 1);
        let fill = gpu.last_node(stream);
        gpu.step(stream, x, 1, 1);
        let node = gpu.last_node(stream);
        let graph = gpu.end(stream);
        assert!(gpu.sim.capture_frontier(D0, stream).unwrap().is_empty());
        let exec = gpu.instantiate(graph);
        gpu.replay(exec, stream).unwrap();
        let args = |at, a: u32| [Argument::scalar(1_u32), Argument::scalar(a), at];
        let (at_x, at_y) = (Argument::Pointer(x), Argument::Pointer(y));
        gpu.set_step(exec, node, &args(at_x, 5)).unwrap();
        gpu.replay(exec, stream).unwrap();
        gpu.set_step(exec, node, &args(at_y, 6)).unwrap();
        gpu.replay(exec, stream).unwrap();
        gpu.synchronize(stream);
        assert_eq!((gpu.read(x, 1), gpu.read(y, 1)), (vec![17], vec![9]));
        gpu.clean();

        let refused = |node, args: &[Argument]| code(gpu.set_step(exec, node, args));
        assert_eq!(refused(fill, &args(at_x, 5)), ErrorCode::INVALID_VALUE);
        gpu.clean();
        assert_eq!(refused(node, &[at_x]), ErrorCode::INVALID_VALUE);
        assert_eq!(gpu.kinds(), ["bad launch"]);
        gpu.destroy_graph(graph);
        assert_eq!(refused(node, &args(at_x, 5)), ErrorCode::INVALID_VALUE);
        gpu.replay(exec, stream).unwrap();
        gpu.synchronize(stream);
        assert_eq!(gpu.read(y, 1), [9], "what was refused has changed nothing");
    });
}

/// Launching an executable graph from two threads at once needs a lock: without one it is reported.
#[test]
fn an_executable_graph_has_one_user_at_a_time() {
    let gpu = Gpu::seeded(0);
    let (stream, x) = (gpu.stream(), gpu.alloc(4));
    gpu.begin(stream);
    gpu.fill(stream, x, 1, 1);
    let exec = gpu.instantiate(gpu.end(stream));
    let lock = std::sync::Mutex::new(());
    let launch = |locked: bool| {
        let _guard = locked.then(|| lock.lock().unwrap());
        gpu.replay(exec, stream).unwrap();
    };
    let together = |locked: bool| {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..100).for_each(|_| launch(locked)));
            }
        });
        gpu.synchronize(stream);
    };
    together(true);
    gpu.clean();
    for _ in 0..1000 {
        together(false);
        if !gpu.sim.reports().is_empty() {
            assert_eq!(gpu.kinds(), ["concurrent use"]);
            let text = gpu.sim.reports()[0].to_string();
            assert!(text.contains("graph_updates.rs"), "{text}");
            return;
        }
    }
    panic!("two threads met in no call");
}

/// Nodes that an update leaves without an order are found at the next launch, when all updates have been made.
#[test]
fn an_update_can_make_a_race() {
    let gpu = Gpu::seeded(0);
    let (a, b, x, y) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.alloc(4));
    gpu.fill(a, x, 1, 1);
    gpu.fill(a, y, 1, 1);
    gpu.begin(a);
    gpu.edge(a, b);
    gpu.step(a, x, 1, 1);
    let left = gpu.last_node(a);
    gpu.step(b, y, 1, 1);
    let right = gpu.last_node(b);
    gpu.edge(b, a);
    let exec = gpu.instantiate(gpu.end(a));
    let set = |node, at| {
        let args = [
            Argument::scalar(1_u32),
            Argument::scalar(2_u32),
            Argument::Pointer(at),
        ];
        gpu.set_step(exec, node, &args).unwrap();
    };
    set(left, y);
    set(right, x);
    gpu.replay(exec, a).unwrap();
    gpu.clean();
    set(left, x);
    gpu.replay(exec, a).unwrap();
    gpu.replay(exec, a).unwrap();
    assert_eq!(gpu.kinds(), ["race"]);
    assert_eq!(gpu.sim.reports()[0].occurrences, 1, "once per change");
}

/// A graph that was made executable with automatic frees gives back at each launch what the one before left
/// allocated, after all that the launch is ordered after.
#[test]
fn automatic_frees_let_a_graph_run_again() {
    seeds(50, |gpu| {
        let (pool, a, b) = (gpu.pool(), gpu.stream(), gpu.stream());
        gpu.begin(a);
        let x = gpu.alloc_async(pool, 4, a);
        gpu.fill(a, x, 5, 1);
        let graph = gpu.end(a);
        let flags = GraphFlags::default().with_auto_free_on_launch();
        let exec = gpu.sim.graph_instantiate_with(D0, graph, flags).unwrap();
        gpu.replay(exec, a).unwrap();
        gpu.step(a, x, 1, 1);
        gpu.edge(a, b);
        let memory = gpu.sim.memory_info(D0).unwrap();
        for _ in 0..3 {
            gpu.replay(exec, b).unwrap();
            gpu.edge(b, a);
            gpu.replay(exec, a).unwrap();
            gpu.edge(a, b);
        }
        gpu.step(b, x, 2, 1);
        gpu.synchronize(b);
        assert_eq!(gpu.read(x, 1), [17]);
        assert_eq!(gpu.sim.memory_info(D0).unwrap(), memory);
        gpu.clean();
        gpu.free(x);
        gpu.destroy_exec(exec);
        gpu.destroy_graph(graph);
        gpu.clean();
        let (free, total) = gpu.sim.memory_info(D0).unwrap();
        assert_eq!(free, total);
    });
}

/// The frees come after the earlier launch, on whatever stream that was.
#[test]
fn automatic_frees_come_after_the_launch_before() {
    seeds(50, |gpu| {
        let (pool, a, b, sum) = (gpu.pool(), gpu.stream(), gpu.stream(), gpu.alloc(4));
        gpu.fill(a, sum, 0, 1);
        gpu.synchronize(a);
        gpu.begin(a);
        let x = gpu.alloc_async(pool, 4, a);
        gpu.fill(a, x, 5, 1);
        gpu.add(a, sum, sum, x, 1);
        let flags = GraphFlags::default().with_auto_free_on_launch();
        let graph = gpu.end(a);
        let exec = gpu.sim.graph_instantiate_with(D0, graph, flags).unwrap();
        for stream in [a, b, a, b] {
            gpu.replay(exec, stream).unwrap();
        }
        gpu.synchronize(b);
        assert_eq!(gpu.read(sum, 1), [20]);
        gpu.clean();
    });
}

/// Memory that is still used when a launch frees it is reported like any free.
#[test]
fn automatic_frees_come_after_the_last_use() {
    let gpu = Gpu::seeded(0);
    let (pool, a, b) = (gpu.pool(), gpu.stream(), gpu.stream());
    gpu.begin(a);
    let x = gpu.alloc_async(pool, 4, a);
    gpu.fill(a, x, 5, 1);
    let flags = GraphFlags::default().with_auto_free_on_launch();
    let exec = gpu
        .sim
        .graph_instantiate_with(D0, gpu.end(a), flags)
        .unwrap();
    gpu.replay(exec, a).unwrap();
    gpu.edge(a, b);
    gpu.step(b, x, 1, 1);
    gpu.replay(exec, a).unwrap();
    assert_eq!(gpu.kinds(), ["free before use ends"]);
}

/// A graph becomes one node of a capture, after what came before and before what comes after; it may be destroyed then.
#[test]
fn a_graph_is_captured_as_a_child() {
    seeds(50, |gpu| {
        let (a, b, x, y) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.alloc(4));
        gpu.begin(a);
        gpu.edge(a, b);
        gpu.step(a, x, 1, 1);
        gpu.step(b, y, 2, 1);
        gpu.edge(b, a);
        let child = gpu.end(a);
        gpu.begin(a);
        gpu.fill(a, x, 1, 1);
        gpu.fill(a, y, 1, 1);
        gpu.sim.capture_child(D0, a, child).unwrap();
        gpu.last_node(a);
        gpu.add(a, x, x, y, 1);
        let graph = gpu.end(a);
        gpu.destroy_graph(child);
        assert_eq!(gpu.sim.graph_node_count(D0, graph), Ok(4));
        let exec = gpu.instantiate(graph);
        gpu.replay(exec, b).unwrap();
        gpu.synchronize(b);
        assert_eq!(gpu.read(x, 1), [4 + 5]);
        // A child of a child, and an empty one.
        gpu.begin(a);
        let empty = gpu.end(a);
        gpu.begin(a);
        gpu.sim.capture_child(D0, a, empty).unwrap();
        gpu.sim.capture_child(D0, a, graph).unwrap();
        let outer = gpu.end(a);
        assert_eq!(gpu.sim.graph_node_count(D0, outer), Ok(2));
        let exec = gpu.instantiate(outer);
        gpu.replay(exec, a).unwrap();
        gpu.synchronize(a);
        assert_eq!(gpu.read(x, 1), [9]);
        gpu.clean();
    });
}

/// A child is captured where a stream captures [401], and never allocates [1].
#[test]
fn some_graphs_are_no_children() {
    let gpu = Gpu::seeded(0);
    let (pool, a) = (gpu.pool(), gpu.stream());
    gpu.begin(a);
    let x = gpu.alloc_async(pool, 4, a);
    gpu.free_async(x, a);
    let allocating = gpu.end(a);
    assert_eq!(
        code(gpu.sim.capture_child(D0, a, allocating)),
        ErrorCode::ILLEGAL_STATE
    );
    gpu.begin(a);
    assert_eq!(
        code(gpu.sim.capture_child(D0, a, allocating)),
        ErrorCode::INVALID_VALUE
    );
    assert_eq!(gpu.kinds(), ["capture misuse"]);
    gpu.end(a);
}

/// Addresses mean the memory that they named when they were captured: a graph is to be given others when it is freed.
#[test]
fn a_graph_needs_no_memory_that_it_was_freed_of() {
    seeds(20, |gpu| {
        let (stream, pool) = (gpu.stream(), gpu.pool());
        let x = gpu.alloc_async(pool, 4, stream);
        gpu.begin(stream);
        gpu.fill(stream, x, 1, 1);
        gpu.step(stream, x, 1, 1);
        let node = gpu.last_node(stream);
        let graph = gpu.end(stream);
        let (set, updated) = (gpu.instantiate(graph), gpu.instantiate(graph));
        gpu.replay(set, stream).unwrap();
        gpu.free_async(x, stream);
        let again = gpu.alloc_async(pool, 4, stream);
        assert_eq!(again, x);
        // As a whole.
        gpu.begin(stream);
        gpu.fill(stream, x, 2, 1);
        gpu.step(stream, x, 2, 1);
        let anew = gpu.end(stream);
        assert_eq!(gpu.update(updated, anew), GraphUpdate::Updated);
        gpu.replay(updated, stream).unwrap();
        gpu.synchronize(stream);
        gpu.clean();
        // One launch of two: the other is still of what is gone.
        let args = [
            Argument::scalar(1_u32),
            Argument::scalar(1_u32),
            Argument::Pointer(x),
        ];
        gpu.set_step(set, node, &args).unwrap();
        gpu.replay(set, stream).unwrap();
        assert_eq!(gpu.kinds(), ["use after free"]);
        assert!(gpu.sim.reports()[0].to_string().contains("used:  fill"));
        // A graph within another keeps what it meant.
        let _ = gpu.sim.take_reports();
        gpu.begin(stream);
        gpu.sim.capture_child(D0, stream, graph).unwrap();
        let parent = gpu.instantiate(gpu.end(stream));
        gpu.replay(parent, stream).unwrap();
        assert_eq!(gpu.kinds(), ["use after free", "use after free"]);
    });
}

/// What a graph allocates is other memory at each launch, at the same address.
#[test]
fn memory_of_graphs_is_new_each_time() {
    seeds(20, |gpu| {
        let (stream, pool) = (gpu.stream(), gpu.pool());
        gpu.begin(stream);
        let x = gpu.alloc_async(pool, 4, stream);
        gpu.fill(stream, x, 1, 1);
        let made = gpu.instantiate(gpu.end(stream));
        gpu.replay(made, stream).unwrap();
        gpu.begin(stream);
        gpu.step(stream, x, 1, 1);
        let used = gpu.instantiate(gpu.end(stream));
        for _ in 0..3 {
            gpu.replay(used, stream).unwrap();
            gpu.free_async(x, stream);
            gpu.replay(made, stream).unwrap();
        }
        gpu.synchronize(stream);
        gpu.clean();
    });
}
