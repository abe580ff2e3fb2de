//! Faults that people met in other systems, each with the right behaviour. The ids are of the list of cases.

use crate::kit::{Kit, MODULE, N, Rig, elements};
use cuda_buffer::{
    AccessCompletion, AccessKind, BufferError, CaptureStep, CudaBuffer, DeviceArena, DeviceData,
    DeviceSlab, DeviceSpace, Launch, PinnedBuffer, acquire_all, copy_slice,
};
use cuda_driver::{Call, Driver, ErrorCode, RawStream};
use cuda_runtime::{Runtime, RuntimeError, Stream};
use cuda_sim::SimDriver;
use space_core::{AllocError, Space, Undef};
use std::alloc::Layout;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The driver's name of a stream, without telling Carve that somebody knows it.
fn raw(stream: &Stream) -> RawStream {
    let name = Cell::new(None);
    let call = |_: &dyn Driver, raw| {
        name.set(Some(raw));
        Ok(())
    };
    // SAFETY: nothing is queued.
    unsafe { stream.enqueue(call) }.unwrap();
    name.get().expect("the call was made")
}

fn arena(rig: &Rig, bytes: usize) -> DeviceArena {
    DeviceArena::over(DeviceSlab::new(rig.runtime.default_device(), bytes).unwrap()).unwrap()
}

/// Case 6 (chelsea0x3b/cudarc#194): a buffer of no elements is a value like any other, and the driver never hears of it.
#[test]
fn empty_buffers_make_no_driver_call() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let [s] = rig.streams();
    let before = rig.sim.counters().snapshot();
    let mut x = CudaBuffer::<f32>::new(&device, 0).unwrap();
    let mut y = CudaBuffer::<f32>::new_on(&s, 0).unwrap();
    let mut pinned = PinnedBuffer::<f32>::new(&device, 0).unwrap();
    assert_eq!(
        (x.len(), x.bytes(), x.is_empty(), pinned.is_empty()),
        (0, 0, true, true)
    );
    x.fill(&s, 1.0).unwrap();
    x.fill_bytes(&s, 1).unwrap();
    x.copy_from(&y, &s).unwrap();
    x.copy_from_pinned(&pinned, &s).unwrap();
    x.copy_to_pinned(&mut pinned, &s).unwrap();
    x.copy_from_slice(&[]).unwrap();
    assert_eq!(x.to_vec().unwrap(), [0.0; 0]);
    assert_eq!(pinned.host_read().unwrap().len(), 0);
    assert!(pinned.host_write().unwrap().as_ptr().is_aligned());
    assert!(x.write().slice(0..0).is_ok());
    let error = x.read().slice(0..1).unwrap_err();
    assert_eq!(
        error,
        BufferError::OutOfBounds {
            start: 0,
            end: 1,
            len: 0
        }
    );
    let error = y.copy_from_slice(&[1.0]).unwrap_err();
    assert_eq!(error, BufferError::LengthMismatch { src: 1, dst: 0 });
    let carve = DeviceSpace::of(&device).typed::<f32, _>([0, 5]).unwrap();
    assert!(carve.is_empty());
    drop((x, y, pinned, carve));
    assert_eq!((rig.sim.counters().snapshot() - before).total(), 0);
    drop((device, s));
    rig.finish();
}

/// Case 6, under guards: an access of nothing can be held, split and launched with.
#[test]
fn empty_buffers_can_be_operands() {
    let rig = Rig::seeded(0, 1);
    let kit = Kit::new(rig.runtime.default_device());
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, 0).unwrap();
    kit.step(&s, &mut x, 1).unwrap();
    let mut access = x.write_synchronized_with(&s).unwrap();
    let (left, right) = access.as_slice_mut().split_at(0).unwrap();
    assert!(left.is_empty() && right.is_empty());
    copy_slice(&s, left, right.as_read()).unwrap();
    drop(access);
    drop((x, kit, s));
    rig.finish();
}

/// Case 7 (NVlabs/cuda-oxide#252): a byte count that wraps is refused before the driver hears of it.
#[test]
fn sizes_that_wrap_are_refused() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let mut arena = arena(&rig, 1024);
    let before = rig.sim.counters().snapshot();
    let len = (1 << 61) + 1;
    let overflow = BufferError::SizeOverflow {
        len,
        element_bytes: 8,
    };
    assert_eq!(CudaBuffer::<u64>::new(&device, len).unwrap_err(), overflow);
    assert_eq!(
        PinnedBuffer::<u64>::new(&device, len).unwrap_err(),
        overflow
    );
    assert!(CudaBuffer::<u8>::new(&device, isize::MAX as usize + 1).is_err());
    let frame = arena.frame();
    let error = frame.alloc(Undef::<u64, _>::new([len])).unwrap_err();
    assert!(matches!(error, AllocError::SizeOverflow { .. }), "{error}");
    let error = frame
        .alloc(Undef::<u64, _>::new([1 << 31, 1 << 31]))
        .unwrap_err();
    assert!(matches!(error, AllocError::SizeOverflow { .. }), "{error}");
    assert_eq!(arena.offset(), 0);
    assert_eq!((rig.sim.counters().snapshot() - before).total(), 0);
    // Too much, but a number: the device is asked, and says no.
    let error = CudaBuffer::<u64>::new(&device, 1 << 40).unwrap_err();
    assert!(
        matches!(error, BufferError::Runtime(RuntimeError::OutOfMemory { wanted_bytes, .. }) if wanted_bytes == 1 << 43),
        "{error}"
    );
    drop((device, arena));
    rig.finish();
}

/// Case 8 (bheisler/RustaCUDA#38): lengths are elements, byte counts are bytes, and neither is scaled twice.
#[test]
fn a_buffer_takes_as_many_bytes_as_it_has() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let x = CudaBuffer::<i64>::new(&device, 1000).unwrap();
    assert_eq!(
        (x.len(), x.bytes(), device.alive().allocated_bytes),
        (1000, 8000, 8000)
    );
    let y = DeviceSpace::of(&device).typed::<i64, _>([10, 10]).unwrap();
    assert_eq!((y.len(), device.alive().allocated_bytes), (100, 8800));
    drop((x, y, device));
    rig.finish();
}

/// Case 9 (rapidsai/rmm#2342): an alignment that is not kept is refused.
#[test]
fn alignment_beyond_what_the_driver_gives_is_refused() {
    let rig = Rig::seeded(0, 1);
    let space = DeviceSpace::of(rig.runtime.default_device());
    for align in [512, 4096] {
        let layout = Layout::from_size_align(1000, align).unwrap();
        let error = space.block(layout).map(drop).unwrap_err();
        assert!(
            matches!(error, AllocError::BadAlign { requested, max: 256 } if requested == align),
            "{error}"
        );
    }
    for align in [1, 16, 256] {
        drop(
            space
                .block(Layout::from_size_align(1000, align).unwrap())
                .unwrap(),
        );
    }
    drop(space);
    rig.finish();
}

/// Case 10 (JuliaGPU/CUDA.jl#778): dropped on another thread while its kernel still runs, a buffer is freed after that.
#[test]
fn a_buffer_dropped_elsewhere_is_freed_after_its_kernel() {
    for seed in 0..16 {
        let rig = Rig::seeded(seed, 3);
        let kit = Kit::new(rig.runtime.default_device());
        let [s1, s2, s3] = rig.streams();
        let mut x = CudaBuffer::<u32>::new_on(&s1, N).unwrap();
        x.fill(&s1, 1).unwrap();
        rig.sim.hold_stream(raw(&s1));
        kit.step(&s1, &mut x, 1).unwrap();
        let kernel = s1.record().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                s2.record().unwrap(); // the stream of that thread is idle
                drop(x); // does not wait
            });
        });
        let mut fresh = CudaBuffer::<u32>::new_on(&s3, N).unwrap();
        fresh.fill(&s3, 7).unwrap();
        assert!(!kernel.is_complete().unwrap());
        rig.sim.release_stream(raw(&s1));
        assert_eq!(fresh.to_vec().unwrap(), [7; N]);
        drop((fresh, kernel, kit, s1, s2, s3));
        rig.finish();
    }
}

/// Case 12 (chelsea0x3b/cudarc#590): what a capture noted of a buffer dies with the capture.
#[test]
fn a_buffer_outlives_the_graph_that_used_it() {
    let rig = Rig::seeded(0, 2);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let [s, t] = rig.streams();
    let (mut x, mut y) = (
        CudaBuffer::new(&device, N).unwrap(),
        CudaBuffer::new(&device, N).unwrap(),
    );
    x.fill(&s, 2).unwrap();
    let graph = s.capture(|_| kit.map(&s, &mut y, &x, 1)).unwrap();
    graph.launch(&s).unwrap();
    let mut held = CudaBuffer::<u8>::new(&device, 64).unwrap();
    let other = s.capture(|_| held.fill(&s, 1)).unwrap();
    let (held, error) = DeviceSlab::from_buffer(held, 4).unwrap_err();
    assert!(matches!(error, BufferError::Held { .. }), "{error}");
    drop((graph, other));
    y.fill(&t, 3).unwrap();
    drop(x);
    drop(DeviceSlab::from_buffer(held, 4).unwrap());
    CudaBuffer::<u32>::new(&device, N).unwrap();
    device.check().unwrap();
    drop((y, device, kit, s, t));
    rig.finish();
}

/// Case 13 (huggingface/candle#3227): conflicting accesses are errors at once; nobody waits for anybody.
#[test]
fn conflicting_accesses_are_errors_and_say_who_holds_what() {
    let rig = Rig::seeded(0, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    // Safe code reaches a conflict only by forgetting a guard: an access that has no end.
    std::mem::forget(x.read_synchronized_with(&t).unwrap());
    let line = line!() - 1;
    let again = x.read_synchronized_with(&s).unwrap();
    drop(again);
    let error = kit.step(&s, &mut x, 1).unwrap_err();
    let BufferError::Access(error) = error else {
        panic!("{error}")
    };
    assert_eq!(
        (error.wanted, error.held, error.holders),
        (AccessKind::Write, AccessKind::Read, 1)
    );
    assert_eq!((error.stream, error.since.line()), (Some(t.id()), line));
    assert!(error.since.file().ends_with("cases.rs"));

    let mut y = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    std::mem::forget(y.write_synchronized_with(&s).unwrap());
    let error = y.read_synchronized_with(&s).unwrap_err();
    let BufferError::Access(error) = error else {
        panic!("{error}")
    };
    assert_eq!(
        (error.wanted, error.held),
        (AccessKind::Read, AccessKind::Write)
    );
    let error = y.synchronize().unwrap_err();
    assert!(matches!(error, BufferError::Access(_)));
    // A tuple that holds one of them takes none of the others.
    let mut z = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    let error = acquire_all(&s, (z.write(), y.read()))
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, BufferError::Access(_)));
    z.fill(&s, 1).unwrap();
    rig.sim.assert_no_reports();
}

/// Case 14 (NVlabs/cutile-rs#272): what was forgotten is held for ever, and its memory is never reused.
#[test]
fn a_forgotten_access_leaks_its_memory_and_never_frees_it_early() {
    let rig = Rig::seeded(0, 2);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let [s, t] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    rig.sim.hold_stream(raw(&s));
    let mut access = x.write_synchronized_with(&s).unwrap();
    kit.step
        .launch(&s, elements(N), (N as u32, 1_u32, &mut access))
        .unwrap();
    std::mem::forget(access);
    drop(x);
    let mut fresh: Vec<_> = (0..8)
        .map(|_| CudaBuffer::<u32>::new_on(&t, N).unwrap())
        .collect();
    for fresh in &mut fresh {
        fresh.fill(&t, 7).unwrap();
    }
    rig.sim.release_stream(raw(&s));
    for fresh in fresh {
        assert_eq!(fresh.to_vec().unwrap(), [7; N]);
    }
    // Whoever asks is told: the memory is lost, and the lease goes on.
    drop(s);
    let alive = device.alive();
    assert_eq!((alive.allocations, alive.leaked_bytes), (0, 4 * N));
    assert_eq!(alive.leased_streams, 2);
    rig.sim.assert_no_reports();
}

/// Case 14, in an arena: the bytes are lost to it, and counted.
#[test]
fn a_forgotten_access_of_a_carve_loses_its_bytes() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let mut arena = arena(&rig, 1024);
    arena.frame().scratch(|frame| {
        let mut carve = frame.alloc(Undef::<u32, _>::new([64])).unwrap();
        carve.fill(&s, 1).unwrap();
        std::mem::forget(carve.write_synchronized_with(&s).unwrap());
    });
    assert_eq!(arena.region().quarantined_bytes(), 256);
    let error = arena
        .frame()
        .alloc(Undef::<u32, _>::new([1]))
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("forgotten"), "{error}");
    drop(arena);
    // Nor is the slab given back.
    assert_eq!(rig.device().alive().leaked_bytes, 1024);
    rig.sim.assert_no_reports();
}

/// Case 18 (JuliaGPU/CUDA.jl#1230): an allocation inside a capture is refused, the capture goes on, and replays hold
/// no more memory than the first one did.
#[test]
fn allocating_in_a_capture_is_refused_and_replays_do_not_grow() {
    let rig = Rig::seeded(0, 1);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let [s] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    let space = DeviceSpace::of(&device);
    let graph = s
        .capture(|_| {
            let refused = CudaBuffer::<u32>::new_on(&s, N).map(drop).unwrap_err();
            assert!(matches!(
                refused,
                BufferError::Runtime(RuntimeError::CaptureActive { .. })
            ));
            let refused = PinnedBuffer::<u32>::new(&device, N).map(drop).unwrap_err();
            assert!(matches!(
                refused,
                BufferError::Runtime(RuntimeError::CaptureActive { .. })
            ));
            let refused = space.typed::<u32, _>([N]).map(drop).unwrap_err();
            assert!(
                matches!(refused, AllocError::CaptureViolation(_)),
                "{refused}"
            );
            arena.frame().scratch(|frame| {
                let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                kit.map(&s, &mut carve, &x, 1)?;
                x.copy_from(&carve, &s)
            })
        })
        .unwrap();
    assert_eq!((graph.nodes(), graph.accesses()), (2, 2));
    graph.launch(&s).unwrap();
    let first = device.pool_usage().unwrap();
    for _ in 0..1000 {
        graph.launch(&s).unwrap();
    }
    assert_eq!(device.pool_usage().unwrap(), first);
    let before = rig.sim.counters().snapshot();
    drop((x, arena));
    assert_eq!(
        (rig.sim.counters().snapshot() - before).of(Call::MemFreeAsync),
        0,
        "the graph uses them"
    );
    drop(graph);
    assert_eq!(
        (rig.sim.counters().snapshot() - before).of(Call::MemFreeAsync),
        2,
        "once each"
    );
    drop((device, space, kit, s));
    rig.finish();
}

/// Case 19 (NVIDIA/cuda-python#2834): nothing is set up lazily inside a capture.
#[test]
fn a_capture_may_be_the_first_thing_that_a_device_does() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let empty = s.capture(|_| Ok::<_, BufferError>(())).unwrap();
    assert_eq!((empty.nodes(), empty.accesses()), (0, 0));
    empty.launch(&s).unwrap();
    // What would have to be loaded is refused, without harm.
    let device = rig.device();
    let graph = s
        .capture(|_| {
            let refused = device.kernel(&MODULE, "step").map(drop).unwrap_err();
            assert!(matches!(refused, RuntimeError::CaptureActive { .. }));
            Ok::<_, BufferError>(())
        })
        .unwrap();
    drop((empty, graph, device, s));
    rig.finish();
}

/// One failed operation dooms a capture: no graph with a hole.
#[test]
fn a_kernel_that_was_never_launched_dooms_the_capture() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    let cold = device.kernel(&MODULE, "cold").unwrap();
    let result = s.capture(|_| {
        let mut access = x.write_synchronized_with(&s)?;
        // The step goes on as if nothing had happened.
        let _ = cold.launch(&s, elements(N), (N as u32, 1_u32, &mut access));
        drop(access);
        x.fill(&s, 2)
    });
    let error = result.map(drop).unwrap_err();
    assert!(
        matches!(
            error,
            BufferError::Runtime(RuntimeError::ColdKernel { kernel: "cold", .. })
        ),
        "{error}"
    );
    assert_eq!(x.to_vec().unwrap(), [1; N]);
    drop((x, cold, device, s));
    rig.finish();
}

/// Case 24 (chelsea0x3b/cudarc#340): page-locked memory does not change under a copy that still reads it.
#[test]
fn the_host_can_not_touch_what_a_copy_uses() {
    let rig = Rig::seeded(0, 2);
    let device = rig.device();
    let [s, t] = rig.streams();
    let n = 10_000;
    let mut pinned = PinnedBuffer::<f32>::new(&device, n).unwrap();
    pinned.host_write().unwrap().fill(1.0);
    let mut x = CudaBuffer::<f32>::new_on(&s, n).unwrap();
    let name = raw(&s);
    rig.sim.hold_stream(name);
    x.copy_from_pinned(&pinned, &s).unwrap();
    let busy = pinned.try_host_write().map(drop).unwrap_err();
    assert_eq!(busy, BufferError::Busy { copies: 1 });
    assert!(pinned.try_host_read().is_ok(), "the copy only reads");
    // Another source into the same destination comes after; a copy out makes even reading wait.
    let mut other = PinnedBuffer::<f32>::new(&device, n).unwrap();
    x.copy_to_pinned(&mut other, &t).unwrap();
    assert_eq!(
        other.try_host_read().map(drop).unwrap_err(),
        BufferError::Busy { copies: 1 }
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            rig.sim.release_stream(name);
        });
        *pinned.host_write().unwrap().last_mut().unwrap() += 1.0; // waits
    });
    assert_eq!(other.host_read().unwrap()[n - 1], 1.0);
    assert_eq!(x.to_vec().unwrap()[n - 1], 1.0);

    // Dropped under a copy, it is freed after that.
    rig.sim.hold_stream(name);
    x.copy_from_pinned(&pinned, &s).unwrap();
    drop(pinned);
    let mut third = PinnedBuffer::<f32>::new(&device, n).unwrap();
    third.host_write().unwrap().fill(9.0);
    rig.sim.release_stream(name);
    assert_eq!(x.to_vec().unwrap()[n - 1], 2.0);
    drop((x, other, third, device, s, t));
    rig.finish();
}

/// Case 24: a wait of the host that is missing is seen by the simulated device.
#[test]
fn a_forgotten_host_access_keeps_copies_out() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let mut pinned = PinnedBuffer::<u32>::new(rig.runtime.default_device(), N).unwrap();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    std::mem::forget(pinned.host_write().unwrap());
    let error = x.copy_from_pinned(&pinned, &s).unwrap_err();
    assert!(
        matches!(&error, BufferError::Access(error) if error.stream.is_none()),
        "{error}"
    );
    assert!(error.to_string().contains("on the host"), "{error}");
    x.fill(&s, 1).unwrap();
    rig.sim.assert_no_reports();
    let leaked = rig.device();
    drop(pinned);
    assert_eq!(leaked.alive().leaked_bytes, 4 * N);
}

/// Case 25 (chelsea0x3b/cudarc#277): drops during unwinding are silent, and locks are not poisoned.
#[test]
fn a_panic_with_guards_held_releases_them() {
    let rig = Rig::seeded(0, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut access = x.write_synchronized_with(&s).unwrap();
        kit.step
            .launch(&s, elements(N), (N as u32, 1_u32, &mut access))
            .unwrap();
        std::panic::resume_unwind(Box::new("a bug of the user's"));
    }));
    assert_eq!(
        caught.unwrap_err().downcast_ref(),
        Some(&"a bug of the user's")
    );
    std::thread::scope(|scope| {
        scope.spawn(|| kit.step(&t, &mut x, 1).unwrap());
    });
    assert_eq!(x.to_vec().unwrap(), [13; N]);
    drop((x, kit, s, t));
    rig.finish();
}

/// Case 25, with a device that is lost: the same error for everybody, and other devices go on.
#[test]
fn a_panic_on_a_lost_device_reaches_its_catch() {
    let rig = Rig::new(SimDriver::builder().devices(2), 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    let other = rig.runtime.devices()[1].clone();
    let mut safe = CudaBuffer::<u32>::new(&other, N).unwrap();
    x.fill(&s, 1).unwrap();
    rig.sim
        .faults()
        .lose_device_at_launch(1, ErrorCode::ILLEGAL_ADDRESS);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let y = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        let mut access = x.write_synchronized_with(&s).unwrap();
        kit.step
            .launch(&s, elements(N), (N as u32, 1_u32, &mut access))
            .unwrap();
        rig.sim.run_all();
        let error = s.synchronize().unwrap_err();
        drop(y);
        std::panic::resume_unwind(Box::new(error.code()));
    }));
    let code = caught
        .unwrap_err()
        .downcast_ref::<Option<ErrorCode>>()
        .copied()
        .flatten();
    assert_eq!(code, Some(ErrorCode::ILLEGAL_ADDRESS));
    for _ in 0..2 {
        let error = kit.step(&s, &mut x, 1).unwrap_err();
        let BufferError::Runtime(error) = error else {
            panic!("{error}")
        };
        assert_eq!(error.code(), Some(ErrorCode::ILLEGAL_ADDRESS));
        assert!(CudaBuffer::<u32>::new(s.device(), N).is_err());
    }
    let t = other.streams().acquire().unwrap();
    safe.fill(&t, 4).unwrap();
    assert_eq!(safe.to_vec().unwrap(), [4; N]);
    drop((x, safe, kit, s, t, other));
    assert!(rig.runtime.shutdown().is_err());
    rig.sim.assert_no_reports();
}

/// Case 27 (NVIDIA/cuCascade#189): page-locked memory of one device's making serves another, with that one's events.
#[test]
fn page_locked_memory_serves_every_device_of_its_driver() {
    let rig = Rig::new(SimDriver::builder().devices(2), 2);
    let [a, b] = [0, 1].map(|i| rig.runtime.devices()[i].clone());
    let (s, t) = (
        a.streams().acquire().unwrap(),
        b.streams().acquire().unwrap(),
    );
    let mut pinned = PinnedBuffer::<u32>::new(&a, N).unwrap();
    let (mut x, mut y) = (
        CudaBuffer::new(&a, N).unwrap(),
        CudaBuffer::new(&b, N).unwrap(),
    );
    x.fill(&s, 5).unwrap();
    x.copy_to_pinned(&mut pinned, &s).unwrap();
    y.copy_from_pinned(&pinned, &t).unwrap(); // waits across the devices
    x.fill(&s, 6).unwrap();
    x.copy_to_pinned(&mut pinned, &s).unwrap(); // and back
    assert_eq!(y.to_vec().unwrap(), [5; N]);
    assert_eq!(pinned.host_read().unwrap()[..], [6; N]);
    // Device memory is its own device's.
    let refused = x.read_synchronized_with(&t).map(drop).unwrap_err();
    assert!(
        matches!(
            refused,
            BufferError::Runtime(RuntimeError::WrongDevice { .. })
        ),
        "{refused}"
    );

    // A device that is lost under a copy keeps the memory, whoever made it.
    pinned.host_write().unwrap().fill(7);
    y.copy_from_pinned(&pinned, &t).unwrap();
    let faults = rig.sim.faults();
    faults.fail_nth(Call::EventRecord, 1, ErrorCode::NOT_PERMITTED);
    faults.fail_nth(Call::StreamSynchronize, 1, ErrorCode::NOT_PERMITTED);
    y.copy_from_pinned(&pinned, &t).unwrap_err();
    assert!(b.is_poisoned() && !a.is_poisoned());
    let error = pinned.host_write().map(drop).unwrap_err();
    assert!(
        matches!(error, BufferError::Access(_)),
        "the copy may never end: {error}"
    );
    drop(pinned);
    assert_eq!(a.alive().leaked_bytes, 4 * N);
    rig.sim.assert_no_reports();
}

/// A graph's replay and an eager carve over the same bytes exclude each other.
#[test]
fn a_graph_is_not_launched_over_a_live_carve() {
    let rig = Rig::seeded(0, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    let graph = s
        .capture(|_| {
            arena.frame().scratch(|frame| {
                let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                kit.map(&s, &mut carve, &x, 1)?;
                x.copy_from(&carve, &s)
            })
        })
        .unwrap();
    arena.frame().scratch(|frame| {
        let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
        carve.fill(&t, 9).unwrap();
        let error = graph.launch(&s).unwrap_err();
        assert!(matches!(error, BufferError::ArenaInUse { .. }), "{error}");
        assert_eq!(carve.to_vec().unwrap(), [9; N]);
    });
    graph.launch(&s).unwrap();
    assert_eq!(x.to_vec().unwrap(), [6; N]);
    drop((x, graph, arena, kit, s, t));
    rig.finish();
}

/// A carve that nobody gave back ends with its arena, and a graph over its bytes goes on.
#[test]
fn a_graph_outlives_its_arena_and_the_carves_there() {
    let rig = Rig::seeded(0, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    let graph = s
        .capture(|_| {
            arena.frame().scratch(|frame| {
                let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                kit.map(&s, &mut carve, &x, 1)?;
                x.copy_from(&carve, &s)
            })
        })
        .unwrap();
    let mut left = arena.frame().alloc(Undef::<u32, _>::new([N])).unwrap();
    left.fill(&t, 9).unwrap();
    drop(left);
    assert!(matches!(
        graph.launch(&s),
        Err(BufferError::ArenaInUse { .. })
    ));
    drop(arena);
    graph.launch(&s).unwrap(); // after the fill on the other stream
    assert_eq!(x.to_vec().unwrap(), [6; N]);
    drop((x, graph, kit, s, t));
    rig.finish();
}

/// A step may reuse scratch bytes for what it returns: its own carve does not stand in its way.
#[test]
fn a_graph_may_write_a_carve_over_its_own_scratch() {
    for seed in 0..8 {
        let rig = Rig::seeded(seed, 2);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let mut arena = arena(&rig, 2048);
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        x.fill(&s, 1).unwrap();
        arena.frame().scratch(|frame| {
            let mut kept = None;
            let graph = s
                .capture(|_| {
                    frame.scratch(|frame| {
                        let mut scratch = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                        kit.map(&s, &mut scratch, &x, 1)?;
                        x.copy_from(&scratch, &s)
                    })?;
                    // The same bytes, in a new life.
                    let mut out = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                    kit.map(&s, &mut out, &x, 2)?;
                    kept = Some(out);
                    Ok::<_, BufferError>(())
                })
                .unwrap();
            let mut kept = kept.unwrap();
            for (round, value) in [(0, 32), (1, 157)] {
                graph.launch(if round == 0 { &s } else { &t }).unwrap();
                assert_eq!(kept.to_vec().unwrap(), [value; N]);
                kit.step(&t, &mut kept, 1).unwrap();
            }
        });
        assert_eq!(arena.region().quarantined_bytes(), 0);
        drop((x, arena, kit, s, t));
        rig.finish();
    }
}

/// Guards belong to a stream, and to one side of a capture's border.
#[test]
fn guards_of_another_stream_or_another_side_of_a_capture_are_refused() {
    let rig = Rig::seeded(0, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [s, t] = rig.streams();
    let (mut x, mut y) = (
        CudaBuffer::<u32>::new_on(&s, N).unwrap(),
        CudaBuffer::<u32>::new_on(&t, N).unwrap(),
    );
    x.fill(&s, 1).unwrap();
    y.fill(&t, 1).unwrap();
    let config = elements(N);
    let wrong = |result: Result<(), BufferError>| {
        assert!(
            matches!(result, Err(BufferError::WrongStream { .. })),
            "{result:?}"
        );
    };
    {
        let (mut out, input) = (
            x.write_synchronized_with(&s).unwrap(),
            y.read_synchronized_with(&t).unwrap(),
        );
        wrong(
            kit.map
                .launch(&s, config, (N as u32, 1_u32, &mut out, &input)),
        );
        wrong(copy_slice(&t, out.as_slice_mut(), input.as_slice()));
        // Nothing is lost: each is released on its own stream.
        wrong(AccessCompletion::new(&s).release((out, input)));
    }
    {
        // Begun outside, used and ended inside.
        let mut access = x.write_synchronized_with(&s).unwrap();
        kit.step
            .launch(&s, config, (N as u32, 1_u32, &mut access))
            .unwrap();
        let graph = s
            .capture(|_| {
                wrong(kit.step.launch(&s, config, (N as u32, 2_u32, &mut access)));
                drop(access);
                Ok::<_, BufferError>(())
            })
            .unwrap();
        assert_eq!(graph.nodes(), 0);
        kit.step(&t, &mut x, 3).unwrap(); // comes after the eager launch
        assert_eq!(x.to_vec().unwrap(), [3 * 4 + 3; N]);
    }
    {
        // Begun inside, ended outside.
        let mut escaped = None;
        let result = s.capture(|_| {
            escaped = Some(x.write_synchronized_with(&s)?);
            Ok::<_, BufferError>(())
        });
        assert_eq!(
            result.map(drop).unwrap_err(),
            BufferError::GuardsAlive { guards: 1 }
        );
        let mut access = escaped.unwrap();
        wrong(kit.step.launch(&s, config, (N as u32, 1_u32, &mut access)));
        access.release().unwrap();
    }
    drop((x, y, kit, s, t));
    rig.finish();
}

/// Launches check what guards cover.
#[test]
fn a_launch_beyond_its_guards_is_refused() {
    let rig = Rig::seeded(0, 1);
    let kit = Kit::new(rig.runtime.default_device());
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    let mut bytes = CudaBuffer::<u8>::new_on(&s, 4 * N).unwrap();
    let before = rig.sim.counters().snapshot().of(Call::LaunchKernel);
    {
        let config = elements(N);
        let mut access = x.write_synchronized_with(&s).unwrap();
        let n = N as u32;
        let launch = &kit.step;
        let error = launch
            .launch(&s, config, (n + 1, 1_u32, &mut access))
            .unwrap_err();
        assert!(
            matches!(error, BufferError::OperandBounds { argument: 2, .. }),
            "{error}"
        );
        let part = access.slice_mut(1..N).unwrap();
        assert!(launch.launch(&s, config, (n, 1_u32, part)).is_err());
        let error = launch.launch(&s, config, (n, 1_u32, &access)).unwrap_err();
        assert!(
            matches!(error, BufferError::ReadOnlyOperand { argument: 2, .. }),
            "{error}"
        );
        let mut other = bytes.write_synchronized_with(&s).unwrap();
        let error = launch
            .launch(&s, config, (n, 1_u32, &mut other))
            .unwrap_err();
        assert!(
            matches!(
                error,
                BufferError::OperandType {
                    expected: 4,
                    given: 1,
                    ..
                }
            ),
            "{error}"
        );
        assert!(launch.launch(&s, config, (n, &mut access)).is_err());
        assert!(launch.launch(&s, config, (n, 1_u64, &mut access)).is_err());
        let mut config = config;
        config.block = [2048, 1, 1];
        assert!(launch.launch(&s, config, (n, 1_u32, &mut access)).is_err());
    }
    assert_eq!(rig.sim.counters().snapshot().of(Call::LaunchKernel), before);
    drop((x, bytes, kit, s));
    rig.finish();
}

/// A destructor's error waits for the next call, and costs nobody else anything.
#[test]
fn a_parked_error_surfaces_once_and_loses_nothing() {
    let rig = Rig::seeded(0, 1);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let [s] = rig.streams();
    let (mut x, mut y) = (
        CudaBuffer::<u32>::new_on(&s, N).unwrap(),
        CudaBuffer::<u32>::new_on(&s, N).unwrap(),
    );
    x.fill(&s, 1).unwrap();
    let graph = s.capture(|_| kit.step(&s, &mut x, 1)).unwrap();
    let access = x.read_synchronized_with(&s).unwrap();
    rig.sim
        .faults()
        .fail_nth(Call::GraphExecDestroy, 1, ErrorCode::NOT_PERMITTED);
    drop(graph);
    drop(access);
    drop(x);
    assert_eq!(device.alive().leaked_bytes, 0);
    let error = y.fill(&s, 1).unwrap_err();
    assert!(
        matches!(error, BufferError::Runtime(error) if error.code() == Some(ErrorCode::NOT_PERMITTED))
    );
    y.fill(&s, 2).unwrap();
    assert_eq!(y.to_vec().unwrap(), [2; N]);
    drop((y, kit, s));
    assert_eq!(device.streams().counts().replaced, 0);
    drop(device);
    drop(rig.runtime);
    assert_eq!(
        rig.sim.leak_report().len(),
        1,
        "the graph that could not be destroyed"
    );
    rig.sim.assert_no_reports();
}

/// Everything may be dropped in any order, the runtime first.
#[test]
fn any_order_of_drops_will_do() {
    for order in 0..24_usize {
        let rig = Rig::seeded(order as u64, 1);
        let kit = Kit::new(rig.runtime.default_device());
        let [s] = rig.streams();
        let mut arena = arena(&rig, 2048);
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        let mut pinned = PinnedBuffer::<u32>::new(s.device(), N).unwrap();
        x.fill(&s, 1).unwrap();
        let graph = s
            .capture(|_| {
                arena.frame().scratch(|frame| {
                    let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                    kit.map(&s, &mut carve, &x, 1)?;
                    carve.copy_to_pinned(&mut pinned, &s)
                })
            })
            .unwrap();
        graph.launch(&s).unwrap();
        let Rig { runtime, sim } = rig;
        let mut all: Vec<Box<dyn FnOnce()>> = vec![
            Box::new(move || drop::<Runtime>(runtime)),
            Box::new(move || drop(x)),
            Box::new(move || drop(pinned)),
            Box::new(move || drop(arena)),
            Box::new(move || drop(graph)),
            Box::new(move || drop((kit, s))),
        ];
        let mut rest = order;
        while !all.is_empty() {
            all.remove(rest % all.len())();
            rest = rest / 2 + 7 * all.len();
        }
        sim.shutdown();
        sim.assert_no_reports();
    }
}
