//! Case 25, and other errors that must cost nobody anything.

use super::arena;
use crate::kit::{Kit, N, Rig, elements};
use cuda_buffer::{BufferError, CaptureStep, CudaBuffer, DeviceData, Launch, PinnedBuffer};
use cuda_driver::{Call, Driver, ErrorCode};
use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use space_core::{Space, Undef};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Case 25 (chelsea0x3b/cudarc#277): drops during unwinding are silent, and locks are not poisoned.
#[test]
fn case_25_a_panic_with_guards_held_releases_them() {
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
fn case_25_a_panic_on_a_lost_device_reaches_its_catch() {
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
