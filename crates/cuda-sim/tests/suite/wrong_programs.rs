//! Small wrong programs, each with the one report that it deserves, under every one of 200 seeds.

use crate::corpus::{self, Wrong};
use crate::kit::{D0, Gpu};
use cuda_driver::{DeviceId, DevicePtr, Devices, Driver, Kernels, Memory, Streams};
use cuda_sim::{Finding, OperationKind};
use std::sync::Arc;

const PROGRAMS: &[Wrong] = &[
    (
        "a missing wait between writer and reader",
        &["race"],
        |gpu| {
            let (a, b, x, y) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.alloc(4));
            gpu.fill(a, x, 1, 1);
            gpu.add(b, y, x, x, 1);
        },
    ),
    (
        "a missing wait between reader and writer",
        &["race"],
        |gpu| {
            let (a, b, x, y) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.alloc(4));
            gpu.fill(a, x, 1, 1);
            gpu.edge(a, b);
            gpu.add(a, y, x, x, 1);
            gpu.fill(b, x, 2, 1);
        },
    ),
    (
        "one event for two readers: the later record hides the earlier",
        &["race"],
        |gpu| {
            let [a, b, c] = [(); 3].map(|()| gpu.stream());
            let (x, y, z, event) = (gpu.alloc(4), gpu.alloc(4), gpu.alloc(4), gpu.event());
            gpu.fill(c, x, 1, 1);
            gpu.edge(c, a);
            gpu.edge(c, b);
            gpu.add(a, y, x, x, 1);
            gpu.record(event, a);
            gpu.add(b, z, x, x, 1);
            gpu.record(event, b);
            gpu.wait(c, event);
            gpu.fill(c, x, 2, 1);
        },
    ),
    ("a wait before the record does nothing", &["race"], |gpu| {
        let (a, b, x, event) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.event());
        gpu.wait(b, event);
        gpu.fill(a, x, 1, 1);
        gpu.record(event, a);
        gpu.step(b, x, 1, 1);
    }),
    ("overlapping halves", &["race"], |gpu| {
        let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(40));
        gpu.fill(a, x, 1, 6);
        gpu.fill(b, DevicePtr(x.0 + 20), 2, 5);
    }),
    ("columns that overlap by one value", &["race"], |gpu| {
        let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(32 * 4));
        gpu.column(a, x, 1, 5, 4);
        gpu.column(b, DevicePtr(x.0 + 16), 2, 4, 4);
    }),
    (
        "the host reads before the stream is done",
        &["race"],
        |gpu| {
            let (a, x) = (gpu.stream(), gpu.alloc(4));
            gpu.fill(a, x, 1, 1);
            gpu.read(x, 1);
        },
    ),
    ("two copies into one page-locked buffer", &["race"], |gpu| {
        let (a, b, x, y, out) = (
            gpu.stream(),
            gpu.stream(),
            gpu.alloc(4),
            gpu.alloc(4),
            gpu.pinned(1),
        );
        gpu.fill(a, x, 1, 1);
        gpu.fill(b, y, 2, 1);
        gpu.to_host(a, &out, x, 1);
        gpu.to_host(b, &out, y, 1);
    }),
    ("staging reused before its copy is done", &["race"], |gpu| {
        let (a, b, x, staging) = (gpu.stream(), gpu.stream(), gpu.alloc(8), gpu.pinned(1));
        staging.fill(1);
        gpu.fill(b, x, 2, 2);
        gpu.edge(b, a);
        gpu.to_device(a, DevicePtr(x.0 + 4), &staging, 1);
        gpu.to_host(b, &staging, x, 1);
    }),
    (
        "memory read that nobody wrote",
        &["uninitialised read"],
        |gpu| {
            let (a, x, y) = (gpu.stream(), gpu.alloc(8), gpu.alloc(8));
            gpu.fill(a, x, 1, 1);
            gpu.add(a, y, x, x, 2);
        },
    ),
    (
        "what nobody wrote is carried by a copy and then read",
        &["uninitialised read"],
        |gpu| {
            let (a, x, y, out) = (gpu.stream(), gpu.alloc(8), gpu.alloc(8), gpu.pinned(2));
            gpu.fill(a, DevicePtr(x.0 + 4), 1, 1);
            gpu.on_device(a, y, x, 2);
            gpu.to_host(a, &out, y, 2);
        },
    ),
    (
        "memory reused without writing it again",
        &["uninitialised read"],
        |gpu| {
            let (pool, a) = (gpu.pool(), gpu.stream());
            let x = gpu.alloc_async(pool, 4, a);
            gpu.fill(a, x, 1, 1);
            gpu.free_async(x, a);
            let x = gpu.alloc_async(pool, 4, a);
            gpu.step(a, x, 1, 1);
        },
    ),
    ("one value past the end", &["out of bounds"], |gpu| {
        let (a, x) = (gpu.stream(), gpu.alloc(400));
        gpu.fill(a, x, 1, 101);
    }),
    ("an address of no allocation", &["out of bounds"], |gpu| {
        let (a, x) = (gpu.stream(), gpu.alloc(400));
        gpu.fill(a, DevicePtr(x.0 + (1 << 30)), 1, 1);
    }),
    ("a null pointer", &["out of bounds"], |gpu| {
        gpu.step(gpu.stream(), DevicePtr::NULL, 1, 1);
    }),
    (
        "a page-locked buffer too short for its copy",
        &["out of bounds"],
        |gpu| {
            let (a, x, out) = (gpu.stream(), gpu.alloc(4 * 2000), gpu.pinned(1));
            gpu.fill(a, x, 0, 2000);
            gpu.sim.hold_stream(a);
            gpu.to_host(a, &out, x, 2000);
        },
    ),
    (
        "freed while a kernel may run",
        &["free before use ends"],
        |gpu| {
            let (a, x) = (gpu.stream(), gpu.alloc(4));
            gpu.fill(a, x, 1, 1);
            gpu.free(x);
        },
    ),
    (
        "freed on an idle stream",
        &["free before use ends"],
        |gpu| {
            let (pool, a, b) = (gpu.pool(), gpu.stream(), gpu.stream());
            let x = gpu.alloc_async(pool, 4, a);
            gpu.edge(a, b);
            gpu.fill(a, x, 1, 1);
            gpu.free_async(x, b);
        },
    ),
    (
        "freed on a stream that does not come after the allocation",
        &["use before allocation"],
        |gpu| {
            let (pool, a, b) = (gpu.pool(), gpu.stream(), gpu.stream());
            let x = gpu.alloc_async(pool, 4, a);
            gpu.free_async(x, b);
        },
    ),
    (
        "used on another stream before its allocation",
        &["use before allocation"],
        |gpu| {
            let (pool, a, b) = (gpu.pool(), gpu.stream(), gpu.stream());
            let x = gpu.alloc_async(pool, 4, a);
            gpu.fill(b, x, 1, 1);
        },
    ),
    ("used after its free", &["use after free"], |gpu| {
        let (pool, a) = (gpu.pool(), gpu.stream());
        let x = gpu.alloc_async(pool, 4, a);
        gpu.free_async(x, a);
        gpu.fill(a, x, 1, 1);
    }),
    ("a second free", &["bad free"], |gpu| {
        let x = gpu.alloc(4);
        gpu.free(x);
        let _ = gpu.try_free(x);
    }),
    ("a free of the middle", &["bad free"], |gpu| {
        let x = gpu.alloc(1024);
        let _ = gpu.try_free(DevicePtr(x.0 + 512));
    }),
    (
        "page-locked memory freed under a copy",
        &["free before use ends"],
        |gpu| {
            let (a, x, source) = (gpu.stream(), gpu.alloc(4), gpu.pinned(1));
            source.fill(1);
            gpu.to_device(a, x, &source, 1);
            gpu.free_pinned(&source);
        },
    ),
    ("two outputs in one place", &["aliased writes"], |gpu| {
        let (a, x) = (gpu.stream(), gpu.alloc(16));
        gpu.both(a, x, DevicePtr(x.0 + 4), 2);
        gpu.synchronize(a);
    }),
    ("a destroyed event", &["destroyed handle"], |gpu| {
        let (a, event) = (gpu.stream(), gpu.event());
        gpu.destroy_event(event);
        let _ = gpu.sim.stream_wait_event(D0, a, event);
    }),
    (
        "a host function that calls the driver",
        &["driver call in host function"],
        |gpu| {
            let (a, sim) = (gpu.stream(), gpu.sim.clone());
            let call = Arc::new(move || {
                let _ = sim.mem_alloc(D0, 4);
            });
            gpu.sim.launch_host_function(D0, a, call).unwrap();
            gpu.synchronize(a);
        },
    ),
    ("a grid of no blocks", &["bad launch"], |gpu| {
        let config = cuda_driver::LaunchConfig::new([0, 1, 1], [1; 3]);
        let fail = gpu.sim.module_function(D0, gpu.module, "fail").unwrap();
        // SAFETY: the launch is refused.
        let refused = unsafe { gpu.sim.launch(D0, fail, &config, gpu.stream(), &[]) };
        assert_eq!(
            refused.unwrap_err().code,
            cuda_driver::ErrorCode::INVALID_VALUE
        );
    }),
    ("arguments that don't fit", &["bad launch"], |gpu| {
        let config = cuda_driver::LaunchConfig::new([1; 3], [1; 3]);
        let add = gpu.sim.module_function(D0, gpu.module, "add").unwrap();
        let wrong = [cuda_driver::Argument::scalar(1_u64)];
        // SAFETY: the launch is refused.
        let refused = unsafe { gpu.sim.launch(D0, add, &config, gpu.stream(), &wrong) };
        assert_eq!(
            refused.unwrap_err().code,
            cuda_driver::ErrorCode::INVALID_VALUE
        );
    }),
    (
        "host memory changed under a copy",
        &["host memory touched"],
        |gpu| {
            let (a, x, source) = (gpu.stream(), gpu.alloc(4), gpu.pinned(1));
            source.fill(1);
            gpu.sim.hold_stream(a);
            gpu.to_device(a, x, &source, 1);
            source.fill(2);
            gpu.sim.release_stream(a);
            gpu.synchronize(a);
        },
    ),
    (
        "a kernel that reaches for another device",
        &["no peer access"],
        |gpu| {
            let away = Gpu::on(gpu.sim.clone(), DeviceId(1));
            let x = away.alloc(4);
            away.write(x, &[1]).unwrap();
            away.sim.device_synchronize(DeviceId(1)).unwrap();
            gpu.step(gpu.stream(), x, 1, 1);
        },
    ),
    (
        "a wait for a callback that never comes",
        &["deadlock"],
        |gpu| {
            let a = gpu.stream();
            gpu.sim.faults().lose_host_function(1);
            let nothing = Arc::new(|| {});
            gpu.sim.launch_host_function(D0, a, nothing).unwrap();
            assert!(gpu.sim.stream_synchronize(D0, a).is_err());
        },
    ),
    ("memory that nobody frees", &["leak", "leak"], |gpu| {
        let _x = gpu.alloc(4);
        // The other one is the module.
        let _ = gpu.sim.shutdown();
    }),
    ("a kernel that fails", &["kernel fault"], |gpu| {
        gpu.fail(gpu.stream()).unwrap();
        gpu.sim.run_all();
    }),
    (
        "replays that overlap the next copy into their input",
        &["race"],
        |gpu| {
            let (a, b, x, y) = (gpu.stream(), gpu.stream(), gpu.alloc(4), gpu.alloc(4));
            let source = gpu.pinned(1);
            source.fill(1);
            gpu.to_device(b, x, &source, 1);
            gpu.edge(b, a);
            gpu.begin(a);
            gpu.add(a, y, x, x, 1);
            let exec = gpu.instantiate(gpu.end(a));
            gpu.replay(exec, a).unwrap();
            gpu.to_device(b, x, &source, 1);
        },
    ),
    (
        "a graph's result read without waiting for the replay",
        &["race"],
        |gpu| {
            let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
            gpu.begin(a);
            gpu.fill(a, x, 1, 1);
            let exec = gpu.instantiate(gpu.end(a));
            gpu.replay(exec, a).unwrap();
            gpu.step(b, x, 1, 1);
        },
    ),
    (
        "a graph replayed after its memory was freed",
        &["use after free"],
        |gpu| {
            let (a, x) = (gpu.stream(), gpu.alloc(4));
            gpu.begin(a);
            gpu.fill(a, x, 1, 1);
            let exec = gpu.instantiate(gpu.end(a));
            gpu.free(x);
            gpu.replay(exec, a).unwrap();
        },
    ),
    (
        "a graph replayed when other memory has the place of its own",
        &["use after free"],
        |gpu| {
            let (a, pool) = (gpu.stream(), gpu.pool());
            let x = gpu.alloc_async(pool, 4, a);
            gpu.begin(a);
            gpu.fill(a, x, 1, 1);
            let exec = gpu.instantiate(gpu.end(a));
            gpu.replay(exec, a).unwrap();
            gpu.free_async(x, a);
            assert_eq!(gpu.alloc_async(pool, 4, a), x);
            gpu.replay(exec, a).unwrap();
        },
    ),
    (
        "a graph replayed after its page-locked memory was freed",
        &["use after free"],
        |gpu| {
            let (a, x, source) = (gpu.stream(), gpu.alloc(4), gpu.pinned(1));
            source.fill(1);
            gpu.begin(a);
            gpu.to_device(a, x, &source, 1);
            let exec = gpu.instantiate(gpu.end(a));
            gpu.replay(exec, a).unwrap();
            gpu.synchronize(a);
            gpu.free_pinned(&source);
            gpu.replay(exec, a).unwrap();
        },
    ),
    (
        "branches of a graph that meet in one place",
        &["race"],
        |gpu| {
            let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
            gpu.begin(a);
            gpu.edge(a, b);
            gpu.fill(a, x, 1, 1);
            gpu.fill(b, x, 1, 1);
            gpu.edge(b, a);
            gpu.instantiate(gpu.end(a));
        },
    ),
];

#[test]
fn each_is_caught_under_every_seed() {
    corpus::under_every_seed(PROGRAMS);
}

#[test]
fn each_is_caught_in_submission_order_and_on_threads() {
    corpus::under_other_schedules(PROGRAMS);
}

#[test]
fn reports_are_short_and_name_this_file() {
    corpus::with_short_reports(PROGRAMS, "wrong_programs.rs:");
}

#[test]
fn each_is_caught_by_its_check_alone() {
    corpus::by_its_check_alone(PROGRAMS);
}

#[test]
fn a_race_names_both_places_the_bytes_and_the_missing_edge() {
    let gpu = Gpu::seeded(5);
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(400));
    let allocated = line!() - 1;
    gpu.fill(a, x, 1, 100);
    let filled = line!() - 1;
    gpu.step(b, DevicePtr(x.0 + 40), 1, 20);
    let stepped = line!() - 1;
    let reports = gpu.sim.reports();
    let Finding::Race {
        first,
        first_writes,
        second,
    } = &reports[0].finding
    else {
        panic!("{reports:?}")
    };
    assert_eq!(
        (first.kind, first.stream, first.site.line()),
        (OperationKind::Fill, Some(a), filled)
    );
    assert!(first_writes & second.writes);
    let operation = &second.operation;
    assert_eq!(
        (operation.kind, operation.stream, operation.site.line()),
        (OperationKind::Kernel("step"), Some(b), stepped)
    );
    assert_eq!(second.range, x.0 + 40..x.0 + 120);
    let allocation = second.allocation.unwrap();
    assert_eq!(
        (
            allocation.base,
            allocation.bytes,
            allocation.allocated.site.line()
        ),
        (x.0, 400, allocated)
    );
    let text = reports[0].to_string();
    let edge = format!(
        "stream {:#x} does not wait for the fill on stream {:#x}",
        b.raw(),
        a.raw()
    );
    assert!(
        text.contains(&edge) && text.contains("offset 40..120 of the 400 bytes"),
        "{text}"
    );
}

#[test]
fn the_same_finding_again_is_counted() {
    let gpu = Gpu::seeded(5);
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4));
    for _ in 0..10 {
        gpu.fill(a, x, 1, 1);
        gpu.fill(b, x, 1, 1);
    }
    let reports = gpu.sim.reports();
    assert_eq!(reports.len(), 2, "one for each order of the two places");
    assert_eq!(reports[0].occurrences + reports[1].occurrences, 19);
    assert!(reports[0].to_string().ends_with("found 10 times"));
}

/// An illegal address loses the device: the call that finds out and every later one return [700].
#[test]
fn illegal_addresses_lose_the_device() {
    let gpu = Gpu::seeded(0);
    let (a, x) = (gpu.stream(), gpu.alloc(4));
    gpu.fill(a, x, 1, 2);
    gpu.sim.run_all();
    let error = gpu.sim.mem_alloc(D0, 4).unwrap_err();
    assert_eq!(error.code, cuda_driver::ErrorCode::ILLEGAL_ADDRESS);
    assert!(
        gpu.sim
            .counters()
            .snapshot()
            .of(cuda_driver::Call::MemAlloc)
            > 0
    );
}
