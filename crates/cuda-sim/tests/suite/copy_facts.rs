//! Rules of copies, and of the host memory under them, one test each.

use crate::kit::{D0, Gpu, seeds};
use cuda_driver::{Copies, DeviceId, Devices, ErrorCode, Kernels, Memory, Streams};
use cuda_sim::SimDriver;
use std::ptr::NonNull;
use std::sync::Arc;

/// The source of an asynchronous copy is read when the copy runs: changing it too early changes what arrives, and is
/// reported in every schedule in which the copy had not run yet.
#[test]
fn the_source_of_a_copy_is_read_late() {
    let (mut late, mut caught) = (0, 0);
    seeds(200, |gpu| {
        let (stream, x, source) = (gpu.stream(), gpu.alloc(40), gpu.pinned(10));
        source.fill(1);
        gpu.to_device(stream, x, &source, 10);
        source.set(9, 2);
        gpu.synchronize(stream);
        let arrived = gpu.read(x, 10)[9];
        assert!(arrived == 1 || gpu.kinds() == ["host memory touched"]);
    });
    for seed in 0..200 {
        let gpu = Gpu::seeded(seed);
        let (stream, x, source) = (gpu.stream(), gpu.alloc(40), gpu.pinned(10));
        source.fill(1);
        gpu.to_device(stream, x, &source, 10);
        source.set(9, 2);
        gpu.synchronize(stream);
        late += u32::from(gpu.read(x, 10)[9] == 2);
        caught += u32::from(!gpu.sim.reports().is_empty());
    }
    assert!(late > 100 && late == caught);
}

/// The destination of an asynchronous copy holds no sense before the copy has run; writing to it is reported.
#[test]
fn the_destination_of_a_copy_is_not_touched() {
    let gpu = Gpu::seeded(0);
    let (stream, x, target) = (gpu.stream(), gpu.alloc(4), gpu.pinned(1));
    target.fill(5);
    gpu.fill(stream, x, 1, 1);
    gpu.sim.hold_stream(stream);
    gpu.to_host(stream, &target, x, 1);
    assert_eq!(target.get(0), u32::MAX, "poison: reading early shows");
    gpu.clean();
    target.set(0, 6);
    gpu.sim.release_stream(stream);
    gpu.synchronize(stream);
    assert_eq!(gpu.kinds(), ["host memory touched"]);
    assert_eq!(target.get(0), 1);
}

/// Copies through the same host memory that stream order separates are right; a host function may change it too.
#[test]
fn host_memory_changes_legally_in_stream_order() {
    seeds(100, |gpu| {
        let (stream, x, y, staging) = (gpu.stream(), gpu.alloc(4), gpu.alloc(4), gpu.pinned(1));
        gpu.fill(stream, x, 7, 1);
        gpu.to_host(stream, &staging, x, 1);
        gpu.to_device(stream, y, &staging, 1);
        gpu.to_host(stream, &staging, y, 1);
        let address = staging.pointer.as_ptr().expose_provenance();
        let change = Arc::new(move || {
            let value = std::ptr::with_exposed_provenance_mut::<u32>(address);
            // SAFETY: the page-locked memory is alive, and stream order keeps the copies away from it.
            unsafe { *value += 1 };
        });
        gpu.sim.launch_host_function(D0, stream, change).unwrap();
        gpu.to_device(stream, x, &staging, 1);
        gpu.synchronize(stream);
        assert_eq!(gpu.read(x, 1), [8]);
        gpu.free_pinned(&staging);
        gpu.clean();
    });
}

/// Page-locked memory that is freed while a copy needs it is reported, and the copy does no harm.
#[test]
fn page_locked_memory_outlives_its_copies() {
    seeds(50, |gpu| {
        let (stream, x, source) = (gpu.stream(), gpu.alloc(4), gpu.pinned(1));
        source.fill(1);
        gpu.to_device(stream, x, &source, 1);
        gpu.free_pinned(&source);
        assert_eq!(gpu.kinds(), ["free before use ends"]);
        gpu.synchronize(stream);
    });
}

/// A registration that ends while a copy needs it is reported; behind the copy it may.
#[test]
fn a_registration_outlives_its_copies() {
    seeds(50, |gpu| {
        let (stream, x) = (gpu.stream(), gpu.alloc(16));
        let mut memory = [7_u32; 4];
        let first = NonNull::from(&mut memory[..]).cast::<u8>();
        for early in [false, true] {
            // SAFETY: the memory outlives its registration.
            unsafe { gpu.sim.host_register(D0, first, 16) }.unwrap();
            let from = first.as_ptr();
            // SAFETY: both are of that size, and the memory outlives the copy.
            let copied = unsafe { gpu.sim.copy_to_device_async(D0, x, from, 16, stream) };
            copied.unwrap();
            if !early {
                gpu.synchronize(stream);
            }
            // SAFETY: that a copy may still run is what is tested; the memory stays.
            unsafe { gpu.sim.host_unregister(D0, first) }.unwrap();
            match early {
                false => gpu.clean(),
                true => assert_eq!(gpu.kinds(), ["free before use ends"]),
            }
            gpu.synchronize(stream);
            assert_eq!(gpu.read(x, 4), [7; 4]);
        }
    });
}

/// A synchronous copy from pageable memory may return while the transfer is under way on the legacy stream, which
/// does not order with other streams; from page-locked memory, and to the host, it is over when it returns.
#[test]
fn pageable_copies_to_the_device_end_late() {
    let gpu = Gpu::seeded(0);
    let (stream, x) = (gpu.stream(), gpu.alloc(4));
    gpu.write(x, &[1]).unwrap();
    assert_eq!(
        gpu.read(x, 1),
        [1],
        "synchronous copies are ordered among themselves"
    );
    gpu.write(x, &[2]).unwrap();
    gpu.step(stream, x, 0, 1);
    assert_eq!(gpu.kinds(), ["race"]);

    let gpu = Gpu::seeded(0);
    let (stream, x) = (gpu.stream(), gpu.alloc(4));
    gpu.write(x, &[2]).unwrap();
    gpu.sim.device_synchronize(D0).unwrap();
    gpu.step(stream, x, 0, 1);
    gpu.synchronize(stream);
    assert_eq!(gpu.read(x, 1), [6]);
    gpu.clean();

    let gpu = Gpu::new(SimDriver::builder().staged_copies(false));
    let (stream, x) = (gpu.stream(), gpu.alloc(4));
    gpu.write(x, &[2]).unwrap();
    gpu.step(stream, x, 0, 1);
    gpu.clean();
}

/// Kernels reach another device's memory only through a pool with access; copies always do.
#[test]
fn peer_memory_needs_access() {
    let sim = SimDriver::builder().devices(2).build();
    let (here, there) = (Gpu::on(sim.clone(), D0), Gpu::on(sim.clone(), DeviceId(1)));
    let (stream, pool) = (here.stream(), there.pool());
    let far = there.stream();
    let x = there.alloc_async(pool, 4, far);
    there.fill(far, x, 1, 1);
    there.synchronize(far);
    sim.pool_set_access(DeviceId(1), pool, D0).unwrap();
    here.step(stream, x, 0, 1);
    here.synchronize(stream);
    sim.assert_no_reports();
    let y = there.alloc(4);
    there.fill(far, y, 1, 1);
    there.synchronize(far);
    here.step(stream, y, 0, 1);
    assert_eq!(here.kinds(), ["no peer access"]);
    assert!(sim.stream_synchronize(D0, stream).unwrap_err().code == ErrorCode::ILLEGAL_ADDRESS);
}

/// An asynchronous copy from pageable memory might read its source at once, or late: a program can build on neither, and
/// one that does is reported in both cases.
#[test]
fn pageable_sources_are_read_at_once_or_late() {
    let mut arrived = [0_u32; 2];
    for seed in 0..200 {
        let gpu = Gpu::seeded(seed);
        let (stream, x) = (gpu.stream(), gpu.alloc(4));
        let mut source = [0_u32];
        gpu.sim.hold_stream(stream);
        // SAFETY: `source` lives until the stream is done; that it changes is what is to be seen.
        unsafe {
            let source = source.as_ptr().cast();
            gpu.sim.copy_to_device_async(D0, x, source, 4, stream)
        }
        .unwrap();
        source[0] = std::hint::black_box(1);
        gpu.sim.release_stream(stream);
        gpu.synchronize(stream);
        arrived[gpu.read(x, 1)[0] as usize] += 1;
        assert_eq!(gpu.kinds(), ["host memory touched"]);
        std::hint::black_box(&mut source);
    }
    assert!(arrived.iter().all(|&n| n > 20), "{arrived:?}");
}

/// Copies work between any two devices, whether kernels can reach or not; each address belongs to the device that the
/// call says.
#[test]
fn copies_reach_every_device() {
    for peers in [true, false] {
        let sim = SimDriver::builder().devices(2).peers(peers).build();
        let (here, there) = (Gpu::on(sim.clone(), D0), Gpu::on(sim.clone(), DeviceId(1)));
        let (stream, far) = (here.stream(), there.stream());
        let (x, y) = (here.alloc(8), there.alloc(8));
        here.fill(stream, x, 7, 2);
        let copy = |dst_device, dst, src_device, src| {
            // SAFETY: the simulated device checks ranges, devices and order.
            unsafe { sim.copy_peer_async(D0, dst_device, dst, src_device, src, 8, stream) }
        };
        copy(DeviceId(1), y, D0, x).unwrap();
        let (sent, used) = (here.event(), there.event());
        here.record(sent, stream);
        there.wait(far, sent);
        there.step(far, y, 1, 2);
        there.record(used, far);
        here.wait(stream, used);
        copy(D0, x, DeviceId(1), y).unwrap();
        here.synchronize(stream);
        assert_eq!(here.read(x, 2), [22; 2]);
        sim.assert_no_reports();
        let wrong = copy(D0, y, D0, x).unwrap_err();
        assert_eq!(wrong.code, ErrorCode::INVALID_VALUE);
    }
}
