//! Cases 12, 18 and 19: captures and what they leave.

use super::arena;
use crate::kit::{Kit, MODULE, N, Rig, elements, map_of};
use cuda_buffer::{
    BufferError, CaptureStep, CudaBuffer, DeviceAmbient, DeviceData, DeviceSlab, DeviceSpace,
    Launch, PinnedBuffer,
};
use cuda_driver::{Call, Driver};
use cuda_runtime::RuntimeError;
use cuda_sim::SimDriver;
use space_core::{AllocError, Space, Undef, with_space};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Case 12 (chelsea0x3b/cudarc#590): what a capture noted of a buffer dies with the capture.
#[test]
fn case_12_a_buffer_outlives_the_graph_that_used_it() {
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
    let (held, error) = DeviceSlab::from_buffer(held, 4).unwrap_err().into_parts();
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

/// Case 12: read in the capture only, and written or dropped on another stream when the graph is gone.
#[test]
fn case_12_a_captured_read_leaves_nothing_in_the_ledger() {
    for seed in 0..12 {
        let rig = Rig::seeded(seed, 2);
        let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
        let [s, t] = rig.streams();
        let mut x = CudaBuffer::<u32>::from_slice(&device, &[5; N]).unwrap();
        let mut out = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        out.fill(&s, 0).unwrap();
        let waits = || rig.device().order_counts().waits_issued;
        let graph = s.capture(|_| kit.map(&s, &mut out, &x, 1)).unwrap();
        // Captured and not launched: there is nothing to wait for.
        let before = waits();
        x.fill(&t, 6).unwrap();
        assert_eq!(waits() - before, 0);
        graph.launch(&s).unwrap();
        let before = waits();
        x.fill(&t, 7).unwrap();
        assert_eq!(waits() - before, 1, "for the replay");
        drop(graph);
        assert_eq!(out.to_vec().unwrap(), [map_of(6, 1); N]);
        if seed % 2 == 0 {
            kit.step(&t, &mut x, 1).unwrap();
        }
        drop(x);
        drop(CudaBuffer::<u32>::new(&device, N).unwrap());
        device.check().unwrap();
        drop((out, device, kit, s, t));
        rig.finish();
    }
}

/// Case 18 (JuliaGPU/CUDA.jl#1230): an allocation inside a capture is refused, the capture goes on, and replays hold
/// no more memory than the first one did.
#[test]
fn case_18_allocating_in_a_capture_is_refused_and_replays_do_not_grow() {
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

/// Case 18: on whatever stream the memory would be allocated, and where there are no pools, too.
#[test]
fn case_18_no_kind_of_allocation_is_made_in_a_capture() {
    for pools in [true, false] {
        let rig = Rig::new(SimDriver::builder().pools(pools), 2);
        let device = rig.device();
        let [s, t] = rig.streams();
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        let before = rig.sim.counters().snapshot();
        let graph = s
            .capture(|_| {
                for refused in [
                    CudaBuffer::<u32>::new(&device, N),
                    CudaBuffer::new_on(&s, N),
                    CudaBuffer::new_on(&t, N),
                ] {
                    assert!(
                        matches!(
                            refused,
                            Err(BufferError::Runtime(RuntimeError::CaptureActive { .. }))
                        ),
                        "{refused:?}"
                    );
                }
                x.fill(&s, 1)
            })
            .unwrap();
        let made = rig.sim.counters().snapshot() - before;
        assert_eq!(
            (
                made.of(Call::MemAlloc),
                made.of(Call::MemAllocFromPoolAsync)
            ),
            (0, 0)
        );
        graph.launch(&s).unwrap();
        assert_eq!(x.to_vec().unwrap(), [1; N]);
        drop((x, graph, device, s, t));
        rig.finish();
    }
}

/// Case 18: handles may go before the graph or after it; the slab is freed once, with the last of both.
#[test]
fn case_18_the_slab_is_freed_once_in_any_order_of_drops() {
    for graph_first in [true, false] {
        let rig = Rig::seeded(0, 1);
        let [s] = rig.streams();
        let mut arena = arena(&rig, 1024);
        let graph = arena
            .frame()
            .scratch(|frame| {
                let mut carve = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                s.capture(|_| carve.fill(&s, 3))
            })
            .unwrap();
        graph.launch(&s).unwrap();
        let before = rig.sim.counters().snapshot();
        let freed = || (rig.sim.counters().snapshot() - before).of(Call::MemFreeAsync);
        if graph_first {
            drop(graph);
            assert_eq!(freed(), 0);
            drop(arena);
        } else {
            drop(arena);
            assert_eq!(freed(), 0);
            graph.launch(&s).unwrap();
            drop(graph);
        }
        assert_eq!(freed(), 1);
        drop(s);
        rig.finish();
    }
}

/// Case 19: a step that panics ends its capture: what was bound and what was carved is as before.
#[test]
fn case_19_a_step_that_panics_leaves_spaces_and_streams_as_they_were() {
    let rig = Rig::seeded(0, 2);
    let (device, kit) = (rig.device(), Kit::new(rig.runtime.default_device()));
    let [s, t] = rig.streams();
    let mut arena = arena(&rig, 2048);
    let mut x = CudaBuffer::<u32>::from_slice(&device, &[1; N]).unwrap();
    for _ in 0..3 {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            s.capture(|_| {
                with_space(&mut arena.frame(), || {
                    let mut carve = DeviceAmbient::new()
                        .alloc(Undef::<u32, _>::new([N]))
                        .unwrap();
                    kit.map(&s, &mut carve, &x, 1)?;
                    x.copy_from(&carve, &s)?;
                    if !x.is_empty() {
                        std::panic::resume_unwind(Box::new("the step's own"));
                    }
                    Ok::<_, BufferError>(())
                })
            })
        }));
        assert!(caught.is_err());
        assert!(!s.is_capturing() && !device.capturing().unwrap());
        let unbound = DeviceAmbient::bound().map(drop);
        assert!(matches!(unbound, Err(AllocError::Unbound)), "{unbound:?}");
        arena.reset().unwrap();
        assert_eq!((arena.offset(), arena.pinned_bytes()), (0, 0));
        drop(CudaBuffer::<u32>::new_on(&s, N).unwrap());
        x.fill(&t, 1).unwrap();
        assert_eq!(x.to_vec().unwrap(), [1; N]);
    }
    drop((x, arena, device, kit, s, t));
    rig.finish();
}

/// Case 19 (NVIDIA/cuda-python#2834): nothing is set up lazily inside a capture.
#[test]
fn case_19_a_capture_may_be_the_first_thing_that_a_device_does() {
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

/// A module loads with all of its kernels, so that a step may launch one that no warm-up came to.
#[test]
fn a_kernel_that_was_never_launched_is_captured() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    drop(device.kernel(&MODULE, "step").unwrap());
    let graph = s.capture(|_| {
        // Asked for in the capture, too.
        let cold = device.kernel(&MODULE, "cold")?;
        let mut access = x.write_synchronized_with(&s)?;
        cold.launch(&s, elements(N), (N as u32, 1_u32, &mut access))?;
        Ok::<_, BufferError>(())
    });
    let graph = graph.unwrap();
    graph.launch(&s).unwrap();
    assert_ne!(x.to_vec().unwrap(), [1; N]);
    drop((x, graph, device, s));
    rig.finish();
}

/// One failed operation dooms a capture: no graph with a hole. Drivers before CUDA 12.4 load kernels by launches alone.
#[test]
fn a_kernel_that_is_not_loaded_dooms_the_capture() {
    let rig = Rig::new(SimDriver::builder().function_load(false), 1);
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
