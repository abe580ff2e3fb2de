//! Graphs and their replays.

use crate::captures::{begin, discard, end};
use crate::kernels::count_arguments;
use crate::subject::{Bench, Subject, ok};
use cuda_driver::{GraphFlags, GraphUpdate, LaunchConfig, RawGraph, RawGraphExec, RawStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const N: usize = 64;

fn capture(bench: &Bench<'_>, stream: RawStream, work: impl FnOnce()) -> RawGraph {
    begin(bench, stream);
    work();
    end(bench, stream)
}

fn instantiate(bench: &Bench<'_>, graph: RawGraph) -> RawGraphExec {
    ok(bench.driver.graph_instantiate(bench.device, graph))
}

/// Launches, and waits.
fn replay(bench: &Bench<'_>, exec: RawGraphExec, stream: RawStream) {
    // SAFETY: what the graphs of tests touch is alive, and nothing else uses it.
    ok(unsafe { bench.driver.graph_launch(bench.device, exec, stream) });
    bench.wait(stream);
}

fn drop_exec(bench: &Bench<'_>, exec: RawGraphExec) {
    // SAFETY: nobody uses it afterwards.
    ok(unsafe { bench.driver.graph_exec_destroy(bench.device, exec) });
}

pub(crate) fn replays_see_what_is_there_then(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x, y) = (bench.stream(), bench.zeros(N), bench.zeros(N));
    let graph = capture(&bench, stream, || ok(bench.copy(y, x, N, stream)));
    let exec = instantiate(&bench, graph);
    for number in 1..4 {
        bench.write(x, &[number; N]);
        replay(&bench, exec, stream);
        assert_eq!(bench.read(y, N), [number; N]);
    }
    drop_exec(&bench, exec);
    discard(&bench, graph);
}

pub(crate) fn an_executable_graph_outlives_its_graph(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(N));
    let graph = capture(&bench, stream, || ok(bench.fill(x, 1, N, stream)));
    let exec = instantiate(&bench, graph);
    discard(&bench, graph);
    replay(&bench, exec, stream);
    assert_eq!(bench.read(x, N), [1; N]);
    drop_exec(&bench, exec);
}

pub(crate) fn host_functions_run_at_each_replay_and_are_dropped_in_the_end(subject: &Subject) {
    let bench = subject.bench();
    let stream = bench.stream();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let function = Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let graph = capture(&bench, stream, || {
        ok(bench
            .driver
            .launch_host_function(bench.device, stream, function));
    });
    let exec = instantiate(&bench, graph);
    discard(&bench, graph);
    assert_eq!(
        (calls.load(Ordering::SeqCst), Arc::strong_count(&calls)),
        (0, 2)
    );
    for turn in 1..4 {
        replay(&bench, exec, stream);
        assert_eq!(calls.load(Ordering::SeqCst), turn);
    }
    drop_exec(&bench, exec);
    ok(bench.driver.device_synchronize(bench.device));
    // A driver may destroy what a graph keeps a little later, on a thread of its own.
    for _ in 0..1000 {
        if Arc::strong_count(&calls) == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("the function of a destroyed graph was not dropped");
}

pub(crate) fn an_update_changes_parameters(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(N));
    let first = capture(&bench, stream, || ok(bench.fill(x, 1, N, stream)));
    let second = capture(&bench, stream, || ok(bench.fill(x, 2, N, stream)));
    let exec = instantiate(&bench, first);
    // SAFETY: no other thread uses the executable graph.
    let updated = ok(unsafe { bench.driver.graph_exec_update(bench.device, exec, second) });
    assert_eq!(updated, GraphUpdate::Updated);
    replay(&bench, exec, stream);
    assert_eq!(bench.read(x, N), [2; N]);
    drop_exec(&bench, exec);
    discard(&bench, first);
    discard(&bench, second);
}

pub(crate) fn an_update_of_another_shape_changes_nothing(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x, y) = (bench.stream(), bench.zeros(N), bench.zeros(N));
    let first = capture(&bench, stream, || ok(bench.fill(x, 1, N, stream)));
    let longer = capture(&bench, stream, || {
        ok(bench.fill(x, 2, N, stream));
        ok(bench.copy(y, x, N, stream));
    });
    let exec = instantiate(&bench, first);
    // SAFETY: no other thread uses the executable graph.
    let updated = ok(unsafe { bench.driver.graph_exec_update(bench.device, exec, longer) });
    assert_eq!(updated, GraphUpdate::TopologyChanged);
    replay(&bench, exec, stream);
    assert_eq!(
        (bench.read(x, N), bench.read(y, N)),
        (vec![1; N], vec![0; N])
    );
    drop_exec(&bench, exec);
    discard(&bench, first);
    discard(&bench, longer);
}

pub(crate) fn a_launch_gets_other_arguments(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(N));
    let count = bench.kernel("contract_count");
    // The first launch loads the code.
    ok(bench.count_up(count, x, N, 0, stream));
    bench.wait(stream);
    begin(&bench, stream);
    ok(bench.count_up(count, x, N, 1, stream));
    let nodes = ok(bench.driver.capture_frontier(bench.device, stream));
    let graph = end(&bench, stream);
    assert_eq!(nodes.len(), 1);
    let exec = instantiate(&bench, graph);
    replay(&bench, exec, stream);
    let (args, config) = (
        count_arguments(x, N / 2, 10),
        LaunchConfig::new([1, 1, 1], [32, 1, 1]),
    );
    // SAFETY: no other thread uses the executable graph; the arguments fit.
    ok(unsafe {
        let device = bench.device;
        bench
            .driver
            .graph_exec_set_kernel(device, exec, nodes[0], count, &config, &args)
    });
    replay(&bench, exec, stream);
    let counted = bench.read(x, N);
    assert_eq!(
        (&counted[..N / 2], &counted[N / 2..]),
        (&[11; N / 2][..], &[1; N / 2][..])
    );
    drop_exec(&bench, exec);
    discard(&bench, graph);
}

pub(crate) fn a_graph_in_a_capture_is_a_node(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x, y) = (bench.stream(), bench.zeros(N), bench.zeros(N));
    let inner = capture(&bench, stream, || ok(bench.fill(x, 3, N, stream)));
    let outer = capture(&bench, stream, || {
        ok(bench.driver.capture_child(bench.device, stream, inner));
        ok(bench.copy(y, x, N, stream));
    });
    discard(&bench, inner);
    let exec = instantiate(&bench, outer);
    replay(&bench, exec, stream);
    assert_eq!(bench.read(y, N), [3; N]);
    drop_exec(&bench, exec);
    discard(&bench, outer);
}

pub(crate) fn memory_of_a_graph_is_freed_by_the_next_launch(subject: &Subject) {
    let bench = subject.bench();
    let stream = bench.stream();
    let pool = ok(bench.driver.pool_create(bench.device, 0));
    let mut memory = None;
    let graph = capture(&bench, stream, || {
        let x = ok(bench
            .driver
            .mem_alloc_async(bench.device, pool, 4 * N, stream));
        ok(bench.fill(x, 1, N, stream));
        memory = Some(x);
    });
    let flags = GraphFlags::default().with_auto_free_on_launch();
    let exec = ok(bench
        .driver
        .graph_instantiate_with(bench.device, graph, flags));
    replay(&bench, exec, stream);
    replay(&bench, exec, stream);
    if let Some(memory) = memory {
        // SAFETY: the replays are over, and nothing else uses what they allocated.
        ok(unsafe { bench.driver.mem_free_async(bench.device, memory, stream) });
    }
    bench.wait(stream);
    drop_exec(&bench, exec);
    discard(&bench, graph);
    // SAFETY: nothing of the pool is in use.
    ok(unsafe { bench.driver.pool_destroy(bench.device, pool) });
}
