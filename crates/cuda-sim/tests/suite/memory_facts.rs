//! Rules of memory, one test each.

use crate::kit::{D0, Gpu, seeds};
use cuda_driver::{Call, DeviceId, DevicePtr, Devices, Driver, ErrorCode, Kernels, Memory};
use cuda_sim::{Finding, LeakedObject, SimDriver};
use std::ptr::NonNull;

/// Bases are aligned to 256 bytes at least, requests of no bytes fail, and the address of freed memory is handed out
/// again at once.
#[test]
fn addresses_are_aligned_and_reused_and_nothing_is_no_size() {
    let gpu = Gpu::seeded(0);
    let (a, b) = (gpu.alloc(1), gpu.alloc(1000));
    assert!(a.0.is_multiple_of(256) && b.0.is_multiple_of(256) && a != b);
    gpu.free(a);
    assert_eq!(gpu.alloc(10), a);
    let (pool, stream) = (gpu.pool(), gpu.stream());
    for error in [
        gpu.sim.mem_alloc(D0, 0).unwrap_err(),
        gpu.sim.mem_alloc_async(D0, pool, 0, stream).unwrap_err(),
        gpu.sim.host_alloc(D0, 0).unwrap_err(),
    ] {
        assert_eq!(error.code, ErrorCode::INVALID_VALUE);
    }
    gpu.clean();
}

/// The second free of an address fails, and so does a free of what was never allocated.
#[test]
fn memory_is_freed_once() {
    let gpu = Gpu::seeded(0);
    let a = gpu.alloc(512);
    gpu.free(a);
    for address in [a, DevicePtr(a.0 + 256), DevicePtr::NULL] {
        assert_eq!(
            gpu.try_free(address).unwrap_err().code,
            ErrorCode::INVALID_VALUE
        );
    }
    let (pool, stream) = (gpu.pool(), gpu.stream());
    let b = gpu.alloc_async(pool, 512, stream);
    gpu.free_async(b, stream);
    assert_eq!(
        gpu.try_free_async(b, stream).unwrap_err().code,
        ErrorCode::INVALID_VALUE
    );
    let reports = gpu.sim.reports();
    assert_eq!(gpu.kinds(), ["bad free"; 3]);
    assert!(matches!(
        reports[0].finding,
        Finding::BadFree {
            earlier: Some(_),
            ..
        }
    ));
}

/// A device has so much memory and no more; sizes that can't be are refused the same way.
#[test]
fn memory_is_limited() {
    let gpu = Gpu::new(SimDriver::builder().memory_bytes(1 << 20));
    assert_eq!(gpu.sim.memory_info(D0), Ok((1 << 20, 1 << 20)));
    let a = gpu.alloc(1 << 19);
    assert_eq!(gpu.sim.memory_info(D0), Ok((1 << 19, 1 << 20)));
    for bytes in [(1 << 19) + 1, usize::MAX] {
        assert_eq!(
            gpu.sim.mem_alloc(D0, bytes).unwrap_err().code,
            ErrorCode::OUT_OF_MEMORY
        );
    }
    gpu.free(a);
    assert_eq!(gpu.sim.memory_info(D0), Ok((1 << 20, 1 << 20)));
    gpu.sim.faults().memory_budget(D0, Some(1000));
    assert_eq!(
        gpu.sim.mem_alloc(D0, 1025).unwrap_err().code,
        ErrorCode::OUT_OF_MEMORY
    );
    gpu.sim.faults().clear();
    gpu.alloc(1 << 20);
    gpu.clean();
}

/// Stream-ordered memory is valid for work ordered after its allocation and before its free, on any stream.
#[test]
fn pool_memory_is_valid_in_stream_order() {
    seeds(100, |gpu| {
        let (pool, a, b) = (gpu.pool(), gpu.stream(), gpu.stream());
        let x = gpu.alloc_async(pool, 4, a);
        gpu.fill(a, x, 1, 1);
        gpu.edge(a, b);
        gpu.step(b, x, 1, 1);
        let out = gpu.pinned(1);
        gpu.to_host(b, &out, x, 1);
        gpu.edge(b, a);
        gpu.free_async(x, a);
        gpu.synchronize(a);
        assert_eq!(out.get(0), 4);
        gpu.clean();
    });
}

/// Use that is ordered neither after the allocation nor before the free is reported, whatever the schedule did.
#[test]
fn pool_memory_is_not_valid_out_of_order() {
    seeds(100, |gpu| {
        let (pool, a, b) = (gpu.pool(), gpu.stream(), gpu.stream());
        let x = gpu.alloc_async(pool, 4, a);
        gpu.fill(b, x, 1, 1);
        assert_eq!(gpu.kinds(), ["use before allocation"]);
        gpu.free_async(x, a);
        assert_eq!(
            gpu.kinds(),
            ["free before use ends", "use before allocation"]
        );
        let _ = gpu.sim.take_reports();
        let _ = gpu.try_fill(a, x, 1, 1);
        assert_eq!(gpu.kinds(), ["use after free"]);
        gpu.synchronize(b);
    });
}

/// A pool hands freed memory out again only where the new owner comes after the free: on the same stream, along an
/// event, or when the free has been done.
#[test]
fn pools_reuse_memory_only_in_order() {
    seeds(50, |gpu| {
        let (pool, a, b) = (gpu.pool(), gpu.stream(), gpu.stream());
        gpu.sim.hold_stream(a);
        let x = gpu.alloc_async(pool, 1000, a);
        gpu.free_async(x, a);
        let y = gpu.alloc_async(pool, 1000, b);
        assert_ne!(
            x, y,
            "the free has not happened and b is not ordered after it"
        );
        let z = gpu.alloc_async(pool, 1000, a);
        assert_eq!(x, z, "the same stream comes after its own free");
        gpu.free_async(z, a);
        gpu.edge(a, b);
        assert_eq!(
            gpu.alloc_async(pool, 1000, b),
            x,
            "an event orders b after the free"
        );
        gpu.sim.release_stream(a);
        gpu.synchronize(b);
        gpu.clean();
    });
}

/// A pool keeps at most its threshold at a synchronisation, returns what is unused when trimmed, and knows its marks.
#[test]
fn pools_release_above_their_threshold() {
    let gpu = Gpu::seeded(0);
    let (frugal, greedy) = (gpu.sim.pool_create(D0, 0).unwrap(), gpu.pool());
    let stream = gpu.stream();
    for pool in [frugal, greedy] {
        let [x, y] = [1024, 2048].map(|bytes| gpu.alloc_async(pool, bytes, stream));
        let usage = gpu.sim.pool_usage(D0, pool).unwrap();
        assert_eq!((usage.used_bytes, usage.reserved_bytes), (3072, 3072));
        gpu.free_async(x, stream);
        gpu.free_async(y, stream);
    }
    gpu.synchronize(stream);
    let usage = gpu.sim.pool_usage(D0, frugal).unwrap();
    assert_eq!(
        (
            usage.reserved_bytes,
            usage.reserved_high_bytes,
            usage.used_high_bytes
        ),
        (0, 3072, 3072)
    );
    assert_eq!(gpu.sim.pool_usage(D0, greedy).unwrap().reserved_bytes, 3072);
    gpu.sim.pool_trim(D0, greedy, 2500).unwrap();
    assert_eq!(gpu.sim.pool_usage(D0, greedy).unwrap().reserved_bytes, 2048);
    gpu.sim.pool_trim(D0, greedy, 0).unwrap();
    assert_eq!(gpu.sim.pool_usage(D0, greedy).unwrap().reserved_bytes, 0);
    gpu.clean();
}

/// A destroyed pool's memory stays valid until it is freed, and returns then; a new pool with the same handle has
/// nothing to do with it.
#[test]
fn a_destroyed_pool_ends_with_its_last_allocation() {
    let gpu = Gpu::seeded(0);
    let (pool, stream) = (gpu.pool(), gpu.stream());
    let x = gpu.alloc_async(pool, 1000, stream);
    // SAFETY: the handle is not used again before it is created anew.
    unsafe { gpu.sim.pool_destroy(D0, pool) }.unwrap();
    assert_eq!(gpu.pool(), pool);
    gpu.fill(stream, x, 1, 10);
    gpu.free_async(x, stream);
    gpu.synchronize(stream);
    assert_eq!(gpu.sim.pool_usage(D0, pool).unwrap().used_bytes, 0);
    let (free, total) = gpu.sim.memory_info(D0).unwrap();
    assert_eq!(free, total);
    gpu.clean();
}

/// Devices without pools say so.
#[test]
fn pools_can_be_absent() {
    let gpu = Gpu::new(SimDriver::builder().pools(false));
    assert!(!gpu.sim.device_properties(D0).unwrap().memory_pools);
    assert_eq!(
        gpu.sim.pool_create(D0, 0).unwrap_err().code,
        ErrorCode::NOT_SUPPORTED
    );
}

/// Memory of the program is registered once, by the address that it starts at; what stays registered is a leak.
#[test]
fn the_programs_memory_is_registered_once() {
    let gpu = Gpu::seeded(0);
    let mut memory = vec![0_u8; 4096];
    let first = NonNull::from(&mut memory[..]).cast::<u8>();
    let place = |at: usize| NonNull::new(first.as_ptr().wrapping_add(at)).unwrap();
    // SAFETY: within the memory, which outlives its registrations.
    let register = |at, bytes| unsafe { gpu.sim.host_register(D0, place(at), bytes) };
    // SAFETY: no copy uses the memory.
    let unregister = |at| unsafe { gpu.sim.host_unregister(D0, place(at)) };
    let code = |result: cuda_driver::CudaResult<()>| result.unwrap_err().code;
    assert_eq!(code(register(0, 0)), ErrorCode::INVALID_VALUE);
    register(100, 100).unwrap();
    for (at, bytes) in [
        (100, 100),
        (100, 1),
        (0, 101),
        (199, 1),
        (150, 10),
        (0, 4096),
    ] {
        let overlaps = ErrorCode::HOST_MEMORY_ALREADY_REGISTERED;
        assert_eq!(code(register(at, bytes)), overlaps, "{at} {bytes}");
    }
    register(0, 100).unwrap();
    register(200, 3896).unwrap();
    for at in [1, 101, 199, 4000] {
        assert_eq!(code(unregister(at)), ErrorCode::HOST_MEMORY_NOT_REGISTERED);
    }
    let locked = gpu.pinned(1);
    // SAFETY: refused.
    let other = unsafe { gpu.sim.host_unregister(D0, locked.pointer.cast()) };
    assert_eq!(code(other), ErrorCode::HOST_MEMORY_NOT_REGISTERED);
    gpu.free_pinned(&locked);
    unregister(0).unwrap();
    unregister(200).unwrap();
    gpu.clean();
    let leaks = gpu.sim.leak_report();
    let bytes = |report: &cuda_sim::Report| match report.finding {
        Finding::Leak {
            object: LeakedObject::HostMemory { .. },
            bytes,
            ..
        } => bytes,
        _ => None,
    };
    assert!(leaks.iter().filter_map(bytes).eq([100]));
    unregister(100).unwrap();
    assert_eq!(code(unregister(100)), ErrorCode::HOST_MEMORY_NOT_REGISTERED);
    register(0, 8).unwrap();
    // SAFETY: refused, and told: registered memory is not the driver's to free.
    let freed = unsafe { gpu.sim.host_free(D0, first) };
    assert_eq!(code(freed), ErrorCode::INVALID_VALUE);
    assert_eq!(gpu.kinds(), ["bad free"]);
    unregister(0).unwrap();
}

/// PTX that is newer than the driver knows does not load [222]; the same major version is no help.
#[test]
fn newer_ptx_does_not_load() {
    static IMAGES: [cuda_driver::ModuleImage; 3] = [
        image("// by hand\n  .version 7.8\n.target sm_50"),
        image(".version 8.0\n.target sm_90"),
        image(".version 8.4 // newer\n.target sm_90"),
    ];
    const fn image(ptx: &'static str) -> cuda_driver::ModuleImage {
        cuda_driver::ModuleImage {
            name: "versions",
            ptx: Some(ptx),
            kernels: &[],
        }
    }
    let load = |builder: cuda_sim::SimBuilder| {
        let sim = builder.build();
        let code = |image| sim.module_load(D0, image).err().map(|error| error.code);
        IMAGES.each_ref().map(code)
    };
    let newer = Some(ErrorCode::UNSUPPORTED_PTX_VERSION);
    assert_eq!(
        load(SimDriver::builder().newest_ptx(8, 0)),
        [None, None, newer]
    );
    assert_eq!(
        load(SimDriver::builder().newest_ptx(7, 8)),
        [None, newer, newer]
    );
    assert_eq!(load(SimDriver::builder()), [None; 3]);
}

/// Which devices reach each other is a matter of the pair.
#[test]
fn some_devices_are_apart() {
    let sim = SimDriver::builder()
        .devices(3)
        .apart(DeviceId(2), D0)
        .build();
    let pool = sim.pool_create(D0, 0).unwrap();
    let reach = |peer| sim.can_access_peer(D0, DeviceId(peer)).unwrap();
    assert_eq!([0, 1, 2].map(reach), [false, true, false]);
    sim.pool_set_access(D0, pool, DeviceId(1)).unwrap();
    let refused = sim.pool_set_access(D0, pool, DeviceId(2)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::PEER_ACCESS_UNSUPPORTED);
    let alone = SimDriver::builder().devices(2).peers(false).build();
    assert_eq!(alone.can_access_peer(D0, DeviceId(1)), Ok(false));
}

/// Every call counts itself once, failed ones too.
#[test]
fn every_call_is_counted_once() {
    let gpu = Gpu::seeded(0);
    let before = gpu.sim.counters().snapshot();
    let x = gpu.alloc(4);
    let stream = gpu.stream();
    gpu.fill(stream, x, 0, 1);
    let _ = gpu.sim.mem_alloc(D0, 0);
    gpu.synchronize(stream);
    let made = gpu.sim.counters().snapshot() - before;
    assert_eq!(made.of(Call::MemAlloc), 2);
    assert_eq!(made.of(Call::MemsetD32Async), 1);
    assert_eq!(made.total(), 5);
}
