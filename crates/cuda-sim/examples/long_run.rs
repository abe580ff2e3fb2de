//! Runs many small operations and prints how fast that was and how much memory it took.
//!
//! `cargo run --release -p cuda-sim --example long_run -- 10000000 [eager|stepped] [checked|unchecked]`
//!
//! The operations are launches of one small kernel on four streams that hand two buffers on through events. The host
//! waits for the device now and then, as a program would. Memory follows the work under way, not the length of the
//! run: the highest resident memory is printed at the end (on Linux).

use cuda_driver::{
    Access, Argument, Arguments, CudaResult, DeviceId, EventFlags, Events, Footprint,
    KernelDeclaration, Kernels, LaunchConfig, Memory, ModelError, ModelLaunch, ModuleImage, Param,
    Streams,
};
use cuda_sim::{Checks, Schedule, SimDriver};
use std::time::Instant;

fn touch_footprint(_: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    touched.contiguous(0, Access::Write, 256);
    touched.contiguous(1, Access::Read, 256);
    Some(())
}

fn touch_model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let x = launch.take_read::<u32>(1)?;
    for (out, x) in launch.take_write::<u32>(0)?.iter_mut().zip(x) {
        *out = x.wrapping_add(1);
    }
    Ok(())
}

// SAFETY: there is no image that could differ from the model.
static TOUCH: [KernelDeclaration; 1] = [unsafe {
    KernelDeclaration::new(
        "touch",
        &[
            Param::pointer::<u32>(Access::Write),
            Param::pointer::<u32>(Access::Read),
        ],
        touch_footprint,
        touch_model,
    )
}];

static MODULE: ModuleImage = ModuleImage {
    name: "long_run",
    ptx: None,
    kernels: &TOUCH,
};

fn main() -> CudaResult<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let operations: u64 = args
        .first()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1_000_000);
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let schedule = if has("stepped") {
        Schedule::Stepped { seed: 1 }
    } else {
        Schedule::Eager
    };
    let checks = if has("unchecked") {
        Checks::NONE
    } else {
        Checks::ALL
    };
    let sim = SimDriver::builder()
        .schedule(schedule)
        .checks(checks)
        .build();
    let device = DeviceId(0);

    let module = sim.module_load(device, &MODULE)?;
    let touch = sim.module_function(device, module, "touch")?;
    let config = LaunchConfig::new([1; 3], [64, 1, 1]);
    let mut buffers = [
        Argument::Pointer(sim.mem_alloc(device, 256)?),
        Argument::Pointer(sim.mem_alloc(device, 256)?),
    ];
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push((
            sim.stream_create(device, 0)?,
            sim.event_create(device, EventFlags::default())?,
        ));
    }
    // SAFETY: the simulated device checks ranges and order.
    let launch = |stream, buffers: &[Argument]| unsafe {
        sim.launch(device, touch, &config, stream, buffers)
    };

    let start = Instant::now();
    let mut made = 0;
    // Both buffers are written once before they are read.
    launch(streams[0].0, &[buffers[0], buffers[0]])?;
    let _ = sim.take_reports();
    for turn in 0.. {
        let (stream, event) = streams[turn % streams.len()];
        for _ in 0..8 {
            buffers.swap(0, 1);
            launch(stream, &buffers)?;
        }
        let (next, _) = streams[(turn + 1) % streams.len()];
        sim.event_record(device, event, stream)?;
        sim.stream_wait_event(device, next, event)?;
        made += 10;
        if turn % 100 == 99 {
            sim.stream_synchronize(device, next)?;
        }
        if made >= operations {
            break;
        }
    }
    for (stream, _) in &streams {
        sim.stream_synchronize(device, *stream)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let reports = sim.reports();
    println!(
        "{made} operations in {seconds:.2} s: {:.0} per second",
        made as f64 / seconds
    );
    println!(
        "schedule {schedule:?}, checks {}",
        if checks == Checks::NONE { "off" } else { "all" }
    );
    println!(
        "modelled time {:?}, reports {}",
        sim.modelled_time(),
        reports.len()
    );
    if let Some(resident) = peak_resident_kib() {
        println!(
            "highest resident memory {:.1} MiB",
            resident as f64 / 1024.0
        );
    }
    Ok(())
}

/// The highest resident memory of this process so far, in KiB; `None` where the system doesn't tell.
fn peak_resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
