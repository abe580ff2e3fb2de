//! A missing wait is caught: whichever one a program lacks, the simulated device reports it. What kinds there are, `waits` lists.

use crate::kit::{Kit, N, Rig, cases};
use crate::programs::{Op, Work, World, op};
use crate::tap::Tap;
use cuda_buffer::{
    BufferResult, CaptureStep, CudaBuffer, DeviceArena, DeviceData, DeviceSlab, PinnedBuffer,
};
use cuda_runtime::{Runtime, Stream};
use cuda_sim::SimDriver;
use proptest::prelude::*;
use space_core::{Space, Undef};
use std::sync::Arc;

/// One program with every kind of device-side wait and no host wait, after which the host would know too much.
fn program(kit: &Kit, [s, t, u]: &[Stream; 3]) -> BufferResult<()> {
    let device = s.device();
    let mut x = CudaBuffer::<u32>::new(device, N)?;
    x.fill(s, 1)?; // after the allocation
    let mut y = CudaBuffer::<u32>::new_on(t, N)?;
    y.copy_from(&x, t)?; // a read after a write
    let mut z = CudaBuffer::<u32>::new_on(u, N)?;
    kit.map(u, &mut z, &x, 2)?; // a second reader
    x.fill(s, 3)?; // a write after two reads
    kit.step(t, &mut x, 4)?; // a write after a write
    kit.join(u, &mut z, &x, &y)?; // several operands
    kit.step(s, &mut y, 5)?;

    let mut pinned = PinnedBuffer::<u32>::new(device, N)?;
    y.copy_to_pinned(&mut pinned, t)?;
    z.copy_from_pinned(&pinned, s)?; // the host's memory has a ledger too
    y.copy_to_pinned(&mut pinned, u)?; // a write after a read of it

    let mut arena = DeviceArena::over(DeviceSlab::new(device, 4096)?).expect("aligned");
    for [from, to] in [[s, t], [u, s], [t, u]] {
        // Each frame uses the bytes of the one before, from other streams.
        arena.frame().scratch(|frame| {
            let mut carve = frame.alloc(Undef::<u32, _>::new([N])).expect("room");
            kit.map(from, &mut carve, &y, 6)?;
            kit.step(to, &mut carve, 7)?;
            x.copy_from(&carve, to)
        })?;
    }

    let graph = s.capture(|capture| {
        capture.join(t)?;
        kit.step(t, &mut z, 7)?; // nothing else orders the second stream's first node after the begin
        kit.step(s, &mut x, 8)?;
        kit.map(t, &mut y, &x, 9)?; // waits inside the capture
        arena.frame().scratch(|frame| {
            let mut carve = frame.alloc(Undef::<u32, _>::new([N])).expect("room");
            kit.map(s, &mut carve, &y, 10)?;
            kit.join(t, &mut z, &carve, &x)
        })?;
        arena.frame().scratch(|frame| {
            let mut carve = frame.alloc(Undef::<u32, _>::new([N])).expect("room");
            kit.map(s, &mut carve, &x, 11)?;
            kit.join(s, &mut y, &carve, &x)
        })?;
        kit.step(t, &mut z, 12) // nor its last one before the end
    })?;
    x.fill(u, 13)?;
    graph.launch(s)?; // after eager work elsewhere
    kit.step(u, &mut y, 14)?; // eager work after a replay
    graph.launch(t)?; // a replay on another stream
    arena.frame().scratch(|frame| {
        let mut carve = frame.alloc(Undef::<u32, _>::new([N])).expect("room");
        carve.fill(u, 15)?; // arena bytes after a replay
        kit.join(u, &mut x, &carve, &z)
    })?;
    graph.launch(s)?; // arena bytes before a replay
    x.copy_from(&z, u)?;
    drop((graph, arena)); // frees of memory that streams still use
    drop((x, y, z, pinned));
    Ok(())
}

/// Runs the program, without its `swallow`th wait. The number of waits, the kinds of report, and where the wait was.
fn run(swallow: Option<u64>) -> (u64, Vec<String>, String) {
    let sim = SimDriver::builder().seed(swallow.unwrap_or(0)).build();
    let tap = Arc::new(Tap::new(sim.clone()));
    let runtime = Runtime::builder()
        .driver(tap.clone())
        .streams_per_device(3)
        .build()
        .unwrap();
    let rig = Rig { runtime, sim };
    let kit = Kit::new(&rig.device());
    let streams = rig.streams();
    let before = tap.waits();
    if let Some(n) = swallow {
        tap.swallow(n);
    }
    let result = program(&kit, &streams);
    let waits = tap.waits() - before;
    drop((kit, streams));
    let kinds = rig
        .sim
        .reports()
        .iter()
        .map(|report| report.kind().to_owned())
        .collect();
    if swallow.is_none() {
        result.unwrap();
        rig.finish();
    }
    (
        waits,
        kinds,
        tap.site().map_or(String::new(), ToString::to_string),
    )
}

#[test]
fn a_program_that_lacks_any_one_wait_is_reported() {
    let (waits, reports, _) = run(None);
    assert_eq!(reports, <[String; 0]>::default());
    assert!(waits >= 25, "only {waits} waits to remove");
    let mut unseen = Vec::new();
    for n in 1..=waits {
        let (_, reports, site) = run(Some(n));
        if reports.is_empty() {
            unseen.push(format!("{n} at {site}"));
        }
    }
    assert!(
        unseen.is_empty(),
        "of {waits} waits, nobody misses {unseen:#?}"
    );
}

/// Runs a random program without its `swallow`th wait. The number of waits, and the first report.
fn run_random(seed: u64, devices: u32, ops: &[Op], swallow: u64) -> (u64, Option<String>, String) {
    let sim = SimDriver::builder().devices(devices).seed(seed).build();
    let tap = Arc::new(Tap::new(sim.clone()));
    let runtime = Runtime::builder()
        .driver(tap.clone())
        .streams_per_device(5)
        .build()
        .unwrap();
    let rig = Rig { runtime, sim };
    let (streams, buffers) = if devices == 1 { (4, 4) } else { (6, 2) };
    let mut world = World::new(&rig, streams, buffers).unwrap();
    let before = tap.waits();
    if swallow > 0 {
        tap.swallow(swallow);
    }
    // A capture that lacks a wait may fail.
    let ended = ops.iter().try_for_each(|op| world.op(op));
    let waits = tap.waits() - before;
    drop(world);
    let site = tap.site().map_or(String::new(), ToString::to_string);
    let report = rig
        .sim
        .reports()
        .first()
        .map(|report| report.kind().to_owned());
    assert!(ended.is_ok() || swallow > 0);
    (waits, report, site)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(150), max_shrink_iters: 400, ..ProptestConfig::default() })]

    /// No wait is missing, and none is needless: every one that a random program makes is missed.
    #[test]
    fn random_programs_miss_every_wait(
        seed in any::<u64>(),
        devices in 1_u32..=3,
        ops in prop::collection::vec(op(), 1..25),
        lacking in any::<[prop::sample::Index; 4]>(),
    ) {
        // A ledger covers all of a value: two operations on different elements are ordered, and need not be.
        let whole = |work: &Work| !matches!(work, Work::PartialStep { .. } | Work::PartialCopy { .. } | Work::Rows { .. });
        // An access that is acquired alone can't know that the next one will wait for a later point of the same stream.
        let exact = |op: &Op| match op {
            Op::Work { work, .. } => whole(work),
            Op::Readers { .. } | Op::Cut { .. } | Op::LastRead { .. } => false,
            op => !op.tells_the_host(),
        };
        let mut ops: Vec<_> = ops.into_iter().filter(exact).collect();
        // The driver orders replays of one graph among themselves, on whatever streams they are.
        let mut launches = 0..2;
        ops.retain(|op| match op {
            Op::Launch { .. } => launches.next() == Some(0),
            Op::Relaunch { .. } => false,
            _ => true,
        });
        for op in &mut ops {
            // Joining a stream takes a wait to and fro, whether it then does anything or not.
            if let Op::Capture { joined, works, .. } = op {
                *joined = None;
                works.retain(|(_, work)| whole(work));
            }
        }
        let (waits, report, _) = run_random(seed, devices, &ops, 0);
        prop_assert_eq!(report, None);
        for n in lacking {
            if waits > 0 {
                let n = n.index(waits as usize) as u64 + 1;
                let (_, report, site) = run_random(seed, devices, &ops, n);
                prop_assert!(report.is_some(), "wait {} of {}, at {}", n, waits, site);
            }
        }
    }
}
