//! Streams really run out of order, and events order them.

use crate::kit::{Gpu, seeds};
use cuda_driver::{Devices, Driver, Events, Kernels, Streams};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

#[test]
fn a_stream_is_first_in_first_out() {
    seeds(50, |gpu| {
        let (stream, x) = (gpu.stream(), gpu.alloc(400));
        gpu.fill(stream, x, 1, 100);
        for a in 0..5 {
            gpu.step(stream, x, a, 100);
        }
        gpu.synchronize(stream);
        let expected = (0..5).fold(1_u32, |x, a| 3 * x + a);
        assert_eq!(gpu.read(x, 100), [expected; 100]);
        gpu.clean();
    });
}

#[test]
fn unordered_streams_take_every_order_and_the_race_is_reported_in_each() {
    let mut results = BTreeSet::new();
    for seed in 0..200 {
        let gpu = Gpu::seeded(seed);
        let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
        gpu.fill(a, x, 0, 1);
        gpu.synchronize(a);
        gpu.step(a, x, 1, 1);
        gpu.step(a, x, 2, 1);
        gpu.step(b, x, 3, 1);
        gpu.synchronize(a);
        gpu.synchronize(b);
        results.insert(gpu.read(x, 1)[0]);
        // The second step stands for the first, which it follows: whatever races with one, races with the other.
        assert_eq!(gpu.kinds(), ["race"]);
    }
    let orders = [[1, 2, 3], [1, 3, 2], [3, 1, 2]];
    let expected: BTreeSet<u32> = orders
        .iter()
        .map(|order| order.iter().fold(0, |x, a| 3 * x + a))
        .collect();
    assert_eq!(results, expected, "every legal order and no other");
}

#[test]
fn an_event_orders_two_streams() {
    seeds(200, |gpu| {
        let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
        gpu.fill(a, x, 5, 1);
        gpu.edge(a, b);
        gpu.step(b, x, 1, 1);
        gpu.edge(b, a);
        gpu.step(a, x, 2, 1);
        gpu.synchronize(a);
        assert_eq!(gpu.read(x, 1), [3 * (3 * 5 + 1) + 2]);
        gpu.clean();
    });
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let gpu = Gpu::seeded(seed);
        let streams = [gpu.stream(), gpu.stream(), gpu.stream()];
        let x = gpu.alloc(4);
        let event = gpu.event();
        let mut seen = Vec::new();
        gpu.fill(streams[0], x, 0, 1);
        for a in 0..30 {
            let stream = streams[a as usize % 3];
            gpu.step(stream, x, a, 1);
            gpu.record(event, stream);
            seen.push(u32::from(gpu.sim.event_query(gpu.device, event).unwrap()));
        }
        for stream in streams {
            gpu.synchronize(stream);
        }
        seen.push(gpu.read(x, 1)[0]);
        let reports: Vec<String> = gpu.sim.reports().iter().map(ToString::to_string).collect();
        (
            seen,
            reports,
            gpu.sim.counters().snapshot(),
            gpu.sim.modelled_time(),
        )
    };
    let mut different = BTreeSet::new();
    for seed in 0..20 {
        let first = run(seed);
        assert_eq!(first, run(seed));
        different.insert(first.0);
    }
    assert!(different.len() > 10, "other seeds give other runs");
}

#[test]
fn a_polling_loop_ends() {
    seeds(100, |gpu| {
        let (stream, x, event) = (gpu.stream(), gpu.alloc(4), gpu.event());
        gpu.fill(stream, x, 1, 1);
        gpu.record(event, stream);
        while !gpu.sim.event_query(gpu.device, event).unwrap() {}
        while !gpu.sim.stream_query(gpu.device, stream).unwrap() {}
        gpu.free(x);
        gpu.clean();
    });
}

#[test]
fn a_held_stream_stands_still_until_it_is_released() {
    let gpu = Gpu::seeded(3);
    let (a, b, x, y) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.alloc(4));
    gpu.sim.hold_stream(a);
    gpu.fill(a, x, 1, 1);
    gpu.fill(b, y, 2, 1);
    gpu.synchronize(b);
    gpu.sim.run_all();
    assert!(!gpu.sim.stream_query(gpu.device, a).unwrap());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| gpu.synchronize(a));
        gpu.sim.release_stream(a);
        waiter.join().unwrap();
    });
    assert_eq!((gpu.read(x, 1), gpu.read(y, 1)), (vec![1], vec![2]));
    gpu.clean();
}

#[test]
fn every_interleaving_is_reached() {
    let mut seen = BTreeSet::new();
    for seed in 0..1500 {
        let sim = cuda_sim::SimDriver::builder().seed(seed).build();
        let streams = [(); 2].map(|()| sim.stream_create(crate::kit::D0, 0).unwrap());
        let order = Arc::new(Mutex::new(String::new()));
        for letters in ["ab", "cd", "ef"] {
            for (stream, letter) in streams.into_iter().zip(letters.chars()) {
                let order = Arc::clone(&order);
                let note = Arc::new(move || order.lock().unwrap().push(letter));
                sim.launch_host_function(crate::kit::D0, stream, note)
                    .unwrap();
            }
        }
        sim.device_synchronize(crate::kit::D0).unwrap();
        seen.insert(order.lock().unwrap().clone());
    }
    assert_eq!(
        seen.len(),
        20,
        "three of six operations are the first stream's, in order: {seen:?}"
    );
}

#[test]
fn host_threads_share_a_device() {
    for seed in 0..20 {
        four_threads(&Gpu::seeded(seed));
    }
}

/// Four host threads, each with work of its own.
pub(crate) fn four_threads(gpu: &Gpu) {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                scope.spawn(move || {
                    let (stream, x, event) = (gpu.stream(), gpu.alloc(4), gpu.event());
                    gpu.fill(stream, x, worker, 1);
                    for a in 0..50 {
                        gpu.step(stream, x, a, 1);
                        gpu.record(event, stream);
                        match a % 3 {
                            0 => gpu.sim.event_synchronize(gpu.device, event).unwrap(),
                            1 => while !gpu.sim.event_query(gpu.device, event).unwrap() {},
                            _ => {}
                        }
                    }
                    gpu.synchronize(stream);
                    let expected =
                        (0..50).fold(worker, |x: u32, a| x.wrapping_mul(3).wrapping_add(a));
                    assert_eq!(gpu.read(x, 1), [expected]);
                    gpu.free(x);
                    gpu.destroy_event(event);
                    gpu.destroy_stream(stream);
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
    });
    gpu.clean();
    assert_eq!(gpu.sim.leak_report().len(), 1, "only the module is left");
}
