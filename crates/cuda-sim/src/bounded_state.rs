//! A long run leaves nothing behind: state follows what is alive, not what has happened.

use crate::SimDriver;
use cuda_driver::{
    Capture, CaptureMode, Copies, DeviceId, EventFlags, Events, Graphs, Kernels, Memory, Pattern,
    Streams,
};
use std::sync::Arc;

const DEVICE: DeviceId = DeviceId(0);

/// Uses each kind of object once, and gives everything back. `wait` says whether the host waits at the end.
fn round(sim: &SimDriver, number: usize, wait: bool) {
    let (a, b) = (
        sim.stream_create(DEVICE, 0).unwrap(),
        sim.stream_create(DEVICE, 0).unwrap(),
    );
    let event = sim.event_create(DEVICE, EventFlags::default()).unwrap();
    let pool = sim.pool_create(DEVICE, 1 << 20).unwrap();
    let bytes = 256 * (1 + number % 7);
    let x = sim.mem_alloc_async(DEVICE, pool, bytes, a).unwrap();
    let source = vec![1_u8; bytes];
    // SAFETY: the simulated device checks ranges and order; `source` lives until the stream is synchronised.
    let copied = unsafe { sim.copy_to_device_async(DEVICE, x, source.as_ptr(), bytes, a) };
    copied.unwrap();
    sim.event_record(DEVICE, event, a).unwrap();
    sim.stream_wait_event(DEVICE, b, event).unwrap();
    // SAFETY: as above.
    unsafe { sim.fill_async(DEVICE, x, Pattern::U8(2), bytes / 2, b) }.unwrap();
    sim.launch_host_function(DEVICE, b, Arc::new(|| {}))
        .unwrap();
    sim.stream_synchronize(DEVICE, a).unwrap();

    sim.capture_begin(DEVICE, b, CaptureMode::ThreadLocal)
        .unwrap();
    // SAFETY: as above.
    unsafe { sim.fill_async(DEVICE, x, Pattern::U8(3), bytes, b) }.unwrap();
    let y = sim.mem_alloc_async(DEVICE, pool, 512, b).unwrap();
    // SAFETY: as above.
    unsafe { sim.mem_free_async(DEVICE, y, b) }.unwrap();
    let graph = sim.capture_end(DEVICE, b).unwrap();
    let exec = sim.graph_instantiate(DEVICE, graph).unwrap();
    // SAFETY: as above.
    unsafe { sim.graph_launch(DEVICE, exec, b) }.unwrap();
    // SAFETY: as above.
    unsafe { sim.mem_free_async(DEVICE, x, b) }.unwrap();
    if wait {
        sim.stream_synchronize(DEVICE, b).unwrap();
    }
    // SAFETY: none of the handles is used again.
    unsafe { sim.graph_destroy(DEVICE, graph) }.unwrap();
    // SAFETY: as above.
    unsafe { sim.graph_exec_destroy(DEVICE, exec) }.unwrap();
    // SAFETY: as above.
    unsafe { sim.pool_destroy(DEVICE, pool) }.unwrap();
    // SAFETY: as above.
    unsafe { sim.event_destroy(DEVICE, event) }.unwrap();
    for stream in [a, b] {
        // SAFETY: as above.
        unsafe { sim.stream_destroy(DEVICE, stream) }.unwrap();
    }
}

#[test]
fn state_follows_what_is_alive() {
    for seed in 0..3 {
        let sim = SimDriver::builder().seed(seed).build();
        for number in 0..2000 {
            // Sometimes the host does not wait for a stream before it destroys it.
            round(&sim, number, number % 10 < 7);
            if number % 50 == 0 {
                cuda_driver::Devices::device_synchronize(&sim, DEVICE).unwrap();
            }
        }
        cuda_driver::Devices::device_synchronize(&sim, DEVICE).unwrap();
        sim.assert_no_reports();
        assert!(sim.leak_report().is_empty());
        let state = sim.state();
        assert!(state.lanes.len() < 64, "{} lanes", state.lanes.len());
        assert!(
            state.allocations.known() < 64,
            "{} allocations",
            state.allocations.known()
        );
        assert!(
            state.host_shadow.fragments() < 4096,
            "{} fragments",
            state.host_shadow.fragments()
        );
        assert_eq!(
            state.devices[0].memory.free_bytes(),
            state.devices[0].memory.total_bytes
        );
        assert_eq!(state.pending_host_functions, 0);
        assert!(state.pending_host.is_empty() && state.freed_pinned.is_empty());
        assert!(state.active.is_empty() && state.captures.is_empty() && state.pools.is_empty());
    }
}
