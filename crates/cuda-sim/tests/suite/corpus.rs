//! How corpora of wrong programs are run.

use crate::kit::Gpu;
use cuda_sim::{Checks, Schedule, SimBuilder, SimDriver};

/// A name, the kinds of the reports that it deserves, and the program.
pub(crate) type Wrong = (&'static str, &'static [&'static str], fn(&Gpu));

fn gpu(builder: SimBuilder) -> Gpu {
    Gpu::new(builder.devices(2))
}

/// The right report under every one of 200 seeds.
pub(crate) fn under_every_seed(programs: &[Wrong]) {
    for (name, expected, program) in programs {
        for seed in 0..200 {
            let gpu = gpu(SimDriver::builder().seed(seed));
            program(&gpu);
            let reports = gpu.sim.reports();
            assert_eq!(gpu.kinds(), *expected, "{name}, seed {seed}: {reports:#?}");
            gpu.sim.run_all();
        }
    }
}

/// The right report in submission order, and on threads.
pub(crate) fn under_other_schedules(programs: &[Wrong]) {
    for (name, expected, program) in programs {
        for schedule in [Schedule::Eager, Schedule::Threaded, Schedule::Threaded] {
            let gpu = gpu(SimDriver::builder().schedule(schedule));
            program(&gpu);
            let reports = gpu.sim.reports();
            assert_eq!(gpu.kinds(), *expected, "{name}, {schedule:?}: {reports:#?}");
            gpu.sim.run_all();
        }
    }
}

/// A text of at most 15 lines that names the kind and the program's file.
pub(crate) fn with_short_reports(programs: &[Wrong], file: &str) {
    for (name, _, program) in programs {
        let gpu = gpu(SimDriver::builder().seed(1));
        program(&gpu);
        for report in gpu.sim.reports() {
            let text = report.to_string();
            assert!(text.lines().count() <= 15, "{name}:\n{text}");
            assert!(
                text.contains(file) || text.starts_with("leak: module"),
                "{name}:\n{text}"
            );
            assert!(text.starts_with(report.kind()), "{name}:\n{text}");
        }
    }
}

/// The check that finds reports of a kind.
fn check<'a>(checks: &'a mut Checks, kind: &str) -> &'a mut bool {
    match kind {
        "race" | "aliased writes" => &mut checks.races,
        "use before allocation"
        | "use after free"
        | "free before use ends"
        | "bad free"
        | "unload before launch ends" => &mut checks.lifetime,
        "out of bounds" | "no peer access" => &mut checks.bounds,
        "uninitialised read" => &mut checks.uninitialised,
        "host memory touched" => &mut checks.host_memory,
        "destroyed handle" | "unloaded module" => &mut checks.handles,
        "capture misuse" => &mut checks.capture,
        "leak" => &mut checks.leaks,
        "deadlock" => &mut checks.deadlocks,
        "bad launch" | "kernel fault" | "driver call in host function" => &mut checks.launches,
        other => panic!("no check finds {other}"),
    }
}

/// The right report when no other check is on, and none of its kind when it alone is off.
pub(crate) fn by_its_check_alone(programs: &[Wrong]) {
    for (name, expected, program) in programs {
        let (mut alone, mut others) = (Checks::NONE, Checks::ALL);
        *check(&mut alone, expected[0]) = true;
        *check(&mut others, expected[0]) = false;
        for (checks, expected) in [(alone, *expected), (others, &[])] {
            let gpu = gpu(SimDriver::builder().checks(checks));
            program(&gpu);
            let reports = gpu.sim.reports();
            assert_eq!(gpu.kinds(), expected, "{name}, {checks:?}: {reports:#?}");
        }
    }
}
