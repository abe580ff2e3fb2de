//! Cases 10, 13, 14 and 16: conflicting, forgotten and outlived accesses, and operations given up. Case 11 is in `costs`, case 17 in `partition`.

use super::{address, arena, raw};
use crate::kit::{Kit, N, Rig, block_on, elements};
use cuda_buffer::{
    AccessKind, BufferError, CaptureStep, CudaBuffer, DeviceData, Launch, PartitionedCudaBuffer,
    SharedCudaBuffer, acquire_all, fill_slice,
};
use cuda_driver::{Call, Driver, ErrorCode};
use space_core::{Space, Undef};
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

/// Case 10 (JuliaGPU/CUDA.jl#778): dropped on another thread while its kernel still runs, a buffer is freed after that.
#[test]
fn case_10_a_buffer_dropped_elsewhere_is_freed_after_its_kernel() {
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

/// Case 13 (huggingface/candle#3227): conflicting accesses are errors at once; nobody waits for anybody.
#[test]
fn case_13_conflicting_accesses_are_errors_and_say_who_holds_what() {
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
    assert!(error.since.file().ends_with("ledger.rs"));

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

/// Case 13, of handles that are shared: overlapping parts conflict, disjoint values do not, and a writer that was refused
/// keeps no reader out.
#[test]
fn case_13_a_refused_writer_is_in_nobodys_way() {
    let rig = Rig::seeded(0, 2);
    let [s, t] = rig.streams();
    let x = SharedCudaBuffer::from(CudaBuffer::<u32>::new_on(&s, N).unwrap());
    let conflict = |result: Result<(), BufferError>| {
        assert!(matches!(result, Err(BufferError::Access(_))), "{result:?}");
    };
    {
        let first = x
            .write()
            .slice(0..16)
            .unwrap()
            .synchronized_with(&s)
            .unwrap();
        let overlapping = || x.read().slice(8..24).unwrap();
        conflict(overlapping().synchronized_with(&s).map(drop));
        conflict(
            x.write()
                .slice(15..24)
                .unwrap()
                .synchronized_with(&t)
                .map(drop),
        );
        drop(first);
        drop(overlapping().synchronized_with(&s).unwrap());
    }
    {
        // One thread reads, another is refused to write, the first reads a second time.
        let (tried, refused) = mpsc::channel();
        let first = x.read().synchronized_with(&s).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                conflict(x.write().synchronized_with(&t).map(drop));
                tried.send(()).unwrap();
            });
            refused.recv().unwrap();
            let second = x.read().synchronized_with(&s).unwrap();
            drop((first, second));
        });
        drop(x.write().synchronized_with(&t).unwrap());
    }
    let whole = x.into_buffer().map_err(|refused| refused.error).unwrap();
    let mut parts = PartitionedCudaBuffer::new(whole, &[0..16, 16..24])
        .map_err(|refused| refused.error)
        .unwrap();
    let [left, right] = parts.parts_mut() else {
        unreachable!()
    };
    let both = (
        left.write_synchronized_with(&s).unwrap(),
        right.write_synchronized_with(&t).unwrap(),
    );
    drop(both);
    drop((parts, s, t));
    rig.finish();
}

/// Case 14 (NVlabs/cutile-rs#272): what was forgotten is held for ever, and its memory is never reused.
#[test]
fn case_14_a_forgotten_access_leaks_its_memory_and_never_frees_it_early() {
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

/// Case 14: an operation that was polled once and forgotten. Its accesses are over, so what it borrowed goes after its
/// kernel; what it owns is lost with it.
#[test]
fn case_14_a_forgotten_operation_frees_nothing_under_its_kernel() {
    for (seed, owns) in (0..20).map(|seed| (seed, seed % 2 == 1)) {
        let rig = Rig::seeded(seed, 2);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let buffer = |v: u32| {
            let mut buffer = CudaBuffer::<u32>::new_on(&s, N).unwrap();
            buffer.fill(&s, v).unwrap();
            buffer
        };
        let (x, y, mut z) = (buffer(1), buffer(2), buffer(3));
        s.synchronize().unwrap();
        rig.sim.hold_stream(raw(&s));
        let mut context = Context::from_waker(Waker::noop());
        if owns {
            let (kit, s) = (kit.clone(), s.clone());
            let mut operation = Box::pin(async move {
                kit.join(&s, &mut z, &x, &y)?;
                s.record()?.await?;
                Ok::<_, BufferError>((x, y, z))
            });
            assert!(operation.as_mut().poll(&mut context).is_pending());
            std::mem::forget(operation);
        } else {
            let mut operation = Box::pin(async {
                kit.join(&s, &mut z, &x, &y)?;
                s.record()?.await?;
                Ok::<_, BufferError>(())
            });
            assert!(operation.as_mut().poll(&mut context).is_pending());
            std::mem::forget(operation);
            drop((x, y, z));
        }
        let mut fresh = [0; 3].map(|_| CudaBuffer::<u32>::new_on(&t, N).unwrap());
        for fresh in &mut fresh {
            fresh.fill(&t, 7).unwrap();
        }
        t.synchronize().unwrap();
        rig.sim.release_stream(raw(&s));
        for fresh in &fresh {
            assert_eq!(fresh.to_vec().unwrap(), [7; N]);
        }
        drop(fresh);
        s.synchronize().unwrap();
        let left = rig.device().alive().allocations;
        assert_eq!(left, if owns { 3 } else { 0 });
        rig.sim.assert_no_reports();
    }
}

/// Case 14: a copy to ordinary memory that was polled once and forgotten. The memory is the caller's own again.
#[test]
fn case_14_a_forgotten_copy_writes_nothing_of_the_callers() {
    for seed in 0..20 {
        let rig = Rig::seeded(seed, 1);
        let [s] = rig.streams();
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        x.fill(&s, 5).unwrap();
        s.synchronize().unwrap();
        rig.sim.hold_stream(raw(&s));
        x.fill(&s, 6).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut host = [1_u32; N];
        {
            let mut copy = Box::pin(x.copy_to_slice_async(&mut host));
            assert!(copy.as_mut().poll(&mut context).is_pending());
            std::mem::forget(copy);
        }
        host.fill(2);
        rig.sim.release_stream(raw(&s));
        rig.sim.run_all();
        assert_eq!(host, [2; N]);
        {
            let mut copy = Box::pin(x.copy_from_slice_async(&host));
            let _ = copy.as_mut().poll(&mut context);
            std::mem::forget(copy);
        }
        host.fill(3);
        rig.sim.run_all();
        assert_eq!(x.to_vec().unwrap(), [2; N]);
        drop((x, s));
        rig.sim.assert_no_reports();
    }
}

/// Case 14, in an arena: the bytes are lost to it, and counted.
#[test]
fn case_14_a_forgotten_access_of_a_carve_loses_its_bytes() {
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

/// Case 14, under a graph: what the forgotten access does may go on when the frame is over, so no replay uses its bytes.
#[test]
fn case_14_a_graph_over_bytes_of_a_forgotten_access_is_refused() {
    let rig = Rig::seeded(0, 2);
    let [s, t] = rig.streams();
    let mut arena = arena(&rig, 1024);
    let graph = arena.frame().scratch(|frame| {
        let mut carve = frame.alloc(Undef::<u32, _>::new([64])).unwrap();
        let graph = s.capture(|_| carve.fill(&s, 2)).unwrap();
        let mut access = carve.write_synchronized_with(&s).unwrap();
        fill_slice(&s, access.as_slice_mut(), 1).unwrap();
        std::mem::forget(access);
        graph
    });
    let lost = BufferError::ArenaLost {
        graph: 768..1024,
        lost: 768..1024,
    };
    assert_eq!(graph.launch(&t), Err(lost));
    drop((graph, arena));
    assert_eq!(rig.device().alive().leaked_bytes, 1024);
    rig.sim.assert_no_reports();
}

/// Case 16 (NVlabs/cuda-oxide#99): an operation that is given up while its kernel runs frees nothing early.
#[test]
fn case_16_an_operation_that_is_given_up_keeps_its_memory_until_its_kernel_ends() {
    for seed in 0..20 {
        let rig = Rig::seeded(seed, 2);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let buffer = |v: u32| {
            let mut buffer = CudaBuffer::<u32>::new_on(&s, N).unwrap();
            buffer.fill(&s, v).unwrap();
            buffer
        };
        let (a, b, mut c) = (buffer(1), buffer(2), buffer(3));
        let used = [&a, &b, &c].map(|buffer| address(buffer, &s));
        s.synchronize().unwrap();
        rig.sim.hold_stream(raw(&s));
        let mut operation = Box::pin(async {
            kit.join(&s, &mut c, &a, &b)?;
            s.record()?.await?;
            drop((a, b, c));
            Ok::<_, BufferError>(())
        });
        let mut context = Context::from_waker(Waker::noop());
        assert!(operation.as_mut().poll(&mut context).is_pending());
        drop(operation);
        let mut fresh = [0; 3].map(|_| CudaBuffer::<u32>::new_on(&t, N).unwrap());
        for fresh in &mut fresh {
            fresh.fill(&t, 7).unwrap();
        }
        // Freed early, the memory would be these buffers' now, and the kernel would write it.
        assert!(
            fresh
                .iter()
                .all(|fresh| !used.contains(&address(fresh, &t)))
        );
        t.synchronize().unwrap();
        rig.sim.release_stream(raw(&s));
        for fresh in &fresh {
            assert_eq!(fresh.to_vec().unwrap(), [7; N]);
        }
        drop(fresh);
        s.synchronize().unwrap();
        drop((kit, s, t));
        rig.finish();
    }
}

/// Case 16: an operation whose kernel fails ends with the device's error, and one whose end can't be told with the driver's;
/// in neither case is memory freed that the kernel may still use.
#[test]
fn case_16_an_operation_that_fails_says_so_and_frees_nothing_early() {
    for lost in [true, false] {
        let rig = Rig::seeded(0, 2);
        let kit = Kit::new(rig.runtime.default_device());
        let [s, t] = rig.streams();
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        x.fill(&s, 1).unwrap();
        s.synchronize().unwrap();
        let faults = rig.sim.faults();
        let name = raw(&s);
        match lost {
            true => faults.lose_device_at_launch(1, ErrorCode::ILLEGAL_ADDRESS),
            false => {
                faults.fail_nth(Call::EventRecord, 1, ErrorCode::NOT_PERMITTED);
                faults.fail_nth(Call::StreamSynchronize, 1, ErrorCode::NOT_PERMITTED);
            }
        }
        rig.sim.hold_stream(name);
        let error = {
            let mut operation = pin!(async {
                kit.step(&s, &mut x, 1)?;
                if !lost {
                    // Needs an event of the first stream.
                    kit.step(&t, &mut x, 1)?;
                }
                s.record()?.await?;
                Ok::<_, BufferError>(())
            });
            let mut context = Context::from_waker(Waker::noop());
            let first = operation.as_mut().poll(&mut context);
            rig.sim.release_stream(name);
            rig.sim.run_all();
            match first {
                Poll::Ready(result) => result.unwrap_err(),
                Poll::Pending => block_on(operation).unwrap_err(),
            }
        };
        let BufferError::Runtime(error) = error else {
            panic!("{error}")
        };
        let code = match lost {
            true => ErrorCode::ILLEGAL_ADDRESS,
            false => ErrorCode::NOT_PERMITTED,
        };
        assert_eq!(error.code(), Some(code));
        // Nothing was given back, and what may be in use is counted.
        let before = rig.sim.counters().snapshot();
        drop((x, kit, t));
        let made = rig.sim.counters().snapshot() - before;
        assert_eq!(made.of(Call::MemFreeAsync), 0);
        assert!(rig.device().alive().leaked_bytes >= 4 * N);
        rig.sim.assert_no_reports();
    }
}
