//! Priorities of streams.

use crate::kit::{D0, Gpu};
use cuda_driver::{Devices, Kernels, RawStream, Streams};
use cuda_sim::{Schedule, SimDriver};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Smaller numbers are more urgent; what lies outside the device's range becomes the nearest that does not.
#[test]
fn priorities_stay_within_their_range() {
    let sim = SimDriver::builder().priorities(-3, 2).build();
    assert_eq!(sim.device_properties(D0).unwrap().priorities, (2, -3));
    for (asked, given) in [(0, 0), (2, 2), (-3, -3), (i32::MAX, 2), (i32::MIN, -3)] {
        let stream = sim.stream_create(D0, asked).unwrap();
        assert_eq!(sim.stream_priority(D0, stream), Ok(given));
    }
}

/// The letters of two streams, in the order in which they ran.
fn order(gpu: &Gpu, low: i32, high: i32) -> String {
    let streams = [low, high].map(|priority| gpu.sim.stream_create(D0, priority).unwrap());
    let order = Arc::new(Mutex::new(String::new()));
    let note = |stream: RawStream, letter: char| {
        let order = Arc::clone(&order);
        let note = Arc::new(move || order.lock().unwrap().push(letter));
        gpu.sim.launch_host_function(D0, stream, note).unwrap();
    };
    assert!(streams.iter().all(|&stream| gpu.sim.hold_stream(stream)));
    for _ in 0..3 {
        note(streams[0], 'l');
        note(streams[1], 'h');
    }
    gpu.sim.release_stream(streams[0]);
    gpu.sim.release_stream(streams[1]);
    gpu.sim.device_synchronize(D0).unwrap();
    let order = order.lock().unwrap();
    order.clone()
}

/// What is more urgent goes first where it can; that is a preference and no order.
#[test]
fn urgent_streams_are_preferred_and_every_order_is_reached() {
    let eager = || Gpu::new(SimDriver::builder().schedule(Schedule::Eager));
    assert_eq!(order(&eager(), 0, -1), "hhhlll");
    assert_eq!(order(&eager(), 0, 0), "lllhhh");
    let mut orders = BTreeSet::new();
    let mut ahead = 0;
    for seed in 0..1500 {
        let seen = order(&Gpu::seeded(seed), 0, -5);
        ahead += u32::from(seen.starts_with('h'));
        orders.insert(seen);
    }
    assert!(ahead > 1000, "{ahead} of 1500");
    assert_eq!(orders.len(), 20, "every interleaving: {orders:?}");
}

/// Priorities order nothing: work that relies on one is a race.
#[test]
fn a_priority_is_no_order() {
    let gpu = Gpu::new(SimDriver::builder().schedule(Schedule::Eager));
    let x = gpu.alloc(4);
    let urgent = gpu.sim.stream_create(D0, -5).unwrap();
    let other = gpu.stream();
    gpu.fill(urgent, x, 1, 1);
    gpu.step(other, x, 1, 1);
    assert_eq!(gpu.kinds(), ["race"]);
}
