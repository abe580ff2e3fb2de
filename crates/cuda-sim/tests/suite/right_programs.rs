//! Right programs: no report and the right result, under every one of 2,000 seeds, in submission order and on threads.

use crate::kit::{D0, Gpu};
use cuda_driver::{DevicePtr, Events, Graphs, Kernels, Streams};
use cuda_sim::{Schedule, SimDriver};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const SEEDS: u64 = 2000;
/// Runs on threads.
const THREADED: usize = 50;

fn under_all_seeds(program: impl Fn(&Gpu)) {
    for seed in 0..SEEDS {
        let gpu = Gpu::seeded(seed);
        program(&gpu);
        gpu.clean();
    }
    let threads = std::iter::repeat_n(Schedule::Threaded, THREADED);
    for schedule in threads.chain([Schedule::Eager]) {
        let gpu = Gpu::new(SimDriver::builder().schedule(schedule));
        program(&gpu);
        gpu.clean();
    }
}

#[test]
fn double_buffering_with_copies_in_and_out() {
    under_all_seeds(|gpu| {
        let [copy_in, compute, copy_out] = [(); 3].map(|()| gpu.stream());
        let x = [gpu.alloc(16), gpu.alloc(16)];
        let y = [gpu.alloc(16), gpu.alloc(16)];
        let input: Vec<_> = (0..6).map(|_| gpu.pinned(4)).collect();
        let output: Vec<_> = (0..6).map(|_| gpu.pinned(4)).collect();
        let [loaded, used, done, saved] = [(); 4].map(|()| [gpu.event(), gpu.event()]);
        for batch in 0..6 {
            let slot = batch % 2;
            input[batch].fill(batch as u32);
            gpu.wait(copy_in, used[slot]);
            gpu.to_device(copy_in, x[slot], &input[batch], 4);
            gpu.record(loaded[slot], copy_in);
            gpu.wait(compute, loaded[slot]);
            gpu.wait(compute, saved[slot]);
            gpu.add(compute, y[slot], x[slot], x[slot], 4);
            gpu.record(used[slot], compute);
            gpu.record(done[slot], compute);
            gpu.wait(copy_out, done[slot]);
            gpu.to_host(copy_out, &output[batch], y[slot], 4);
            gpu.record(saved[slot], copy_out);
        }
        gpu.synchronize(copy_out);
        for (batch, out) in output.iter().enumerate() {
            assert_eq!(out.get(3), 2 * batch as u32);
        }
    });
}

#[test]
fn one_copy_in_at_a_time_while_two_graphs_take_turns() {
    under_all_seeds(|gpu| {
        let (copy, run) = (gpu.stream(), gpu.stream());
        let x = [gpu.alloc(4), gpu.alloc(4)];
        let (sum, input) = (gpu.alloc(4), gpu.pinned(1));
        gpu.fill(run, sum, 0, 1);
        gpu.synchronize(run);
        let execs = x.map(|x| {
            gpu.begin(run);
            gpu.add(run, sum, sum, x, 1);
            gpu.instantiate(gpu.end(run))
        });
        let (free, copied) = ([gpu.event(), gpu.event()], gpu.event());
        for batch in 0..6 {
            let slot = batch % 2;
            // The input is one page-locked value: wait until it was read.
            gpu.sim.event_synchronize(D0, copied).unwrap();
            input.fill(batch as u32 + 1);
            gpu.wait(copy, free[slot]);
            gpu.to_device(copy, x[slot], &input, 1);
            gpu.record(copied, copy);
            gpu.wait(run, copied);
            gpu.replay(execs[slot], run).unwrap();
            gpu.record(free[slot], run);
        }
        gpu.synchronize(run);
        assert_eq!(gpu.read(sum, 1), [21]);
        for exec in execs {
            gpu.destroy_exec(exec);
        }
    });
}

#[test]
fn disjoint_parts_need_no_order() {
    under_all_seeds(|gpu| {
        let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(32 * 4));
        gpu.fill(a, x, 0, 32);
        gpu.edge(a, b);
        gpu.column(a, x, 1, 4, 4);
        gpu.column(b, DevicePtr(x.0 + 16), 2, 4, 4);
        gpu.edge(b, a);
        gpu.synchronize(a);
        let row = [1, 1, 1, 1, 2, 2, 2, 2];
        assert_eq!(gpu.read(x, 32), [row; 4].concat());
    });
}

#[test]
fn readers_need_no_order_among_themselves() {
    under_all_seeds(|gpu| {
        let streams = [(); 4].map(|()| gpu.stream());
        let (x, outs) = (gpu.alloc(4), [(); 4].map(|()| gpu.alloc(4)));
        gpu.fill(streams[0], x, 4, 1);
        for (stream, out) in streams.into_iter().zip(outs) {
            gpu.edge(streams[0], stream);
            gpu.add(stream, out, x, x, 1);
        }
        for stream in &streams[1..] {
            gpu.edge(*stream, streams[0]);
        }
        gpu.step(streams[0], x, 0, 1);
        gpu.synchronize(streams[0]);
        assert_eq!(gpu.read(x, 1), [12]);
        assert!(outs.iter().all(|&out| gpu.read(out, 1) == [8]));
    });
}

#[test]
fn pool_memory_travels_between_streams() {
    under_all_seeds(|gpu| {
        let (pool, streams) = (gpu.pool(), [(); 3].map(|()| gpu.stream()));
        let total = gpu.alloc(4);
        gpu.fill(streams[0], total, 0, 1);
        for i in 0..12 {
            let (here, there) = (streams[i % 3], streams[(i + 1) % 3]);
            let x = gpu.alloc_async(pool, 256, here);
            gpu.fill(here, x, i as u32, 64);
            gpu.edge(here, there);
            gpu.add(there, total, total, x, 1);
            gpu.free_async(x, there);
        }
        gpu.synchronize(streams[0]);
        assert_eq!(gpu.read(total, 1), [66]);
    });
}

#[test]
fn the_host_polls_and_goes_on() {
    under_all_seeds(|gpu| {
        let (a, b, x, event) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.event());
        gpu.fill(a, x, 1, 1);
        gpu.record(event, a);
        while !gpu.sim.event_query(D0, event).unwrap() {}
        gpu.step(b, x, 0, 1);
        while !gpu.sim.stream_query(D0, b).unwrap() {}
        assert_eq!(gpu.read(x, 1), [3]);
        gpu.free(x);
        gpu.destroy_stream(a);
        gpu.destroy_stream(b);
    });
}

#[test]
fn a_host_function_tells_the_host() {
    under_all_seeds(|gpu| {
        let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
        let told = Arc::new(AtomicU32::new(0));
        gpu.fill(a, x, 1, 1);
        let tell = Arc::clone(&told);
        let function = Arc::new(move || tell.store(1, Ordering::Release));
        gpu.sim.launch_host_function(D0, a, function).unwrap();
        while told.load(Ordering::Acquire) == 0 {
            let _ = gpu.sim.stream_query(D0, b).unwrap();
        }
        gpu.step(b, x, 0, 1);
        gpu.synchronize(b);
        assert_eq!(gpu.read(x, 1), [3]);
    });
}

#[test]
fn streams_come_and_go() {
    under_all_seeds(|gpu| {
        let (main, x) = (gpu.stream(), gpu.alloc(4));
        gpu.fill(main, x, 0, 1);
        for i in 0..8 {
            let worker = gpu.stream();
            gpu.edge(main, worker);
            gpu.step(worker, x, i, 1);
            gpu.edge(worker, main);
            gpu.destroy_stream(worker);
            if i % 3 == 0 {
                gpu.synchronize(main);
            }
        }
        gpu.synchronize(main);
        assert_eq!(gpu.read(x, 1), [(0..8).fold(0, |x, i| 3 * x + i)]);
    });
}

#[test]
fn branches_of_a_graph_run_in_any_order() {
    under_all_seeds(|gpu| {
        let [a, b, c] = [(); 3].map(|()| gpu.stream());
        let [x, y, z] = [(); 3].map(|()| gpu.alloc(4));
        gpu.begin(a);
        gpu.fill(a, x, 1, 1);
        gpu.edge(a, b);
        gpu.edge(a, c);
        gpu.add(b, y, x, x, 1);
        gpu.add(c, z, x, x, 1);
        gpu.step(c, z, 1, 1);
        gpu.edge(b, a);
        gpu.edge(c, a);
        gpu.add(a, x, y, z, 1);
        let graph = gpu.end(a);
        assert_eq!(gpu.sim.graph_node_count(D0, graph), Ok(5));
        let exec = gpu.instantiate(graph);
        gpu.replay(exec, b).unwrap();
        gpu.replay(exec, c).unwrap();
        gpu.synchronize(c);
        assert_eq!(gpu.read(x, 1), [2 + 7]);
    });
}
