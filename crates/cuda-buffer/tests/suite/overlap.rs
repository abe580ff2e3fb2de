//! Overlap in modelled time: nothing waits for what it need not come after.

#[path = "../../benches/overlap/tasks.rs"]
mod tasks;

use crate::kit::cases;
use std::time::Duration;
use tasks::{STREAMS, Task, World, exact_ends, list_schedule, random};

/// For random task graphs over eight streams the makespan is that of the exact dependencies under the same assignment
/// and order: no wait orders more than it must.
#[test]
fn random_task_graphs_have_no_false_edges() {
    for seed in 0..u64::from(cases(12)) {
        // Few buffers make long chains, many make wide graphs.
        let buffers = [4, 8, 24, 64, 200][seed as usize % 5];
        let tasks = random(seed, 500, buffers);
        let world = World::new(STREAMS, buffers, Duration::ZERO).unwrap();
        let streams = world.device.streams().try_acquire_many(STREAMS).unwrap();
        for task in &tasks {
            world.queue(&streams[task.stream], task).unwrap();
        }
        let exact = exact_ends(&tasks).into_iter().max().unwrap();
        assert_eq!(world.makespan(), exact, "seed {seed}, {buffers} buffers");
        // The list scheduler is a sane yardstick: not better than the work allows, and not worse than this.
        let (work, best) = (
            tasks.iter().map(|task| task.nanos).sum::<u64>(),
            list_schedule(&tasks),
        );
        assert!(
            best >= work / STREAMS as u64 && best <= exact,
            "{best} of {exact}"
        );
        world.sim.assert_no_reports();
    }
}

/// A chain of short dependent operations, each on a stream acquired after the one before, stays on one stream: it
/// issues no wait and takes no longer.
#[test]
fn a_chain_costs_no_more_than_on_one_stream() {
    let chain = [Task {
        stream: 0,
        out: 0,
        inputs: [1, 1],
        nanos: 500,
    }; 100];
    let call = Duration::from_nanos(100);
    let one = World::new(1, 2, call).unwrap();
    let stream = one.device.streams().acquire().unwrap();
    for task in &chain {
        one.queue(&stream, task).unwrap();
    }
    let world = World::new(STREAMS, 2, call).unwrap();
    let before = (world.device.order_counts(), world.device.call_counts());
    let mut stream = world.device.streams().acquire().unwrap();
    let first = stream.id();
    for task in &chain {
        world.queue(&stream, task).unwrap();
        let done = stream.record().unwrap();
        drop(stream);
        stream = world.device.streams().acquire_after(&done).unwrap();
        assert_eq!(stream.id(), first);
    }
    let made = world.device.order_counts() - before.0;
    assert!(made.waits_issued <= 2, "those of the first task: {made:?}");
    let calls = world.device.call_counts() - before.1;
    assert!(calls.total() <= 2 * 100 + 3, "{calls}");
    assert_eq!(world.makespan(), one.makespan());
    assert_eq!(world.makespan(), 100 * 500);
}
